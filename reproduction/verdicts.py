r"""One rule for every verdict: *holds*, *fails* or *cannot be decided*.

A claim was tried once or several times; each try is an `Outcome`: the margin by which the claim is met (negative:
missed), the standard error of that margin, and what was chosen there where the paper is silent. What the paper leaves
open is an `Open`. The rule (`decide`), the same for all figures:

1. An outcome *bears* the claim if its margin is above 2 standard errors, *speaks against* it if below −2, and is
   *silent* between.
2. A claim for every setting (`always`: a theorem, a guarantee, a formula) fails at the first outcome against it. It
   holds if it is `proved`: no number of tries shows that there is no counterexample.
3. Any other claim is about runs of the paper. Where no choice of ours can stand for what it rests on (records that are
   not here) it *cannot be decided*. Nor can it if the paper leaves something open that the claim may rest on, it was
   tried at one choice only, and there is no reason why the choice cannot matter.
4. It holds if all outcomes bear it, fails if all speak against it, and *cannot be decided* otherwise.

Words of a paper that are no numbers become numbers in one place too. "Almost the same" (`alike`) is judged at 10 % and
at a factor of 2, and decided only where both agree. A printed number (`agrees`) is met within half a unit of its last
digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["ERRORS", "Open", "Outcome", "Verdict", "Word", "agrees", "alike", "compared", "decide", "least", "said"]

Word = Literal["holds", "fails", "cannot be decided"]
ERRORS = 2.0  # standard errors that an outcome must be away from 0
NEAR = {"10 %": 1.1, "a factor of 2": 2.0}  # what "almost the same" may mean


@dataclass(frozen=True)
class Outcome:
    """A claim, tried once."""

    margin: float  # by how much it is met; ±1 where only yes or no can be said
    error: float = 0.0  # standard error of the margin over the seeds
    at: Mapping[str, str] = field(default_factory=dict)  # key of an `Open`: what was chosen

    @property
    def bears(self) -> bool | None:
        """True, False (against the claim) or None (silent)."""
        if math.isnan(self.margin) or abs(self.margin) <= ERRORS * self.error:
            return None
        return self.margin > 0

    def as_json(self) -> dict[str, object]:
        """The outcome as plain data."""
        return {"at": dict(self.at), "margin": _finite(self.margin), "error": _finite(self.error)}


@dataclass(frozen=True)
class Open:
    """What a paper leaves open."""

    key: str  # as in `Outcome.at`
    what: str  # in words, with our choice or range
    harmless: str = ""  # why no choice can change a verdict
    bears_on: tuple[str, ...] = ()  # claims that it may decide, by how they begin; none: all of the paper's
    lacking: str = ""  # why no choice of ours can stand for it, such as records that are not here

    def concerns(self, text: str) -> bool:
        """Whether a claim may rest on it."""
        return not self.bears_on or text.startswith(self.bears_on)


@dataclass(frozen=True)
class Verdict:
    """What the rule says of a claim, and why where that is not plain."""

    word: Word
    because: str = ""


def decide(
    outcomes: Sequence[Outcome], left_open: Iterable[Open] = (), always: bool = False, proved: bool = False
) -> Verdict:
    """The rule, on the outcomes of one claim and what the paper leaves open about it."""
    if not outcomes:
        return Verdict("cannot be decided", "it was not tried")
    found = [o.bears for o in outcomes]
    if always:
        if False in found:
            return Verdict("fails")
        if None in found:
            return Verdict("cannot be decided", _split(outcomes))
        return Verdict("holds") if proved else Verdict("cannot be decided", "no counterexample was found, and no proof")
    left_open = list(left_open)
    if absent := [o.lacking for o in left_open if o.lacking]:
        return Verdict("cannot be decided", "; ".join(absent))
    fixed = [o for o in left_open if not o.harmless and len({t.at.get(o.key) for t in outcomes}) < 2]
    if fixed:
        return Verdict("cannot be decided", f"tried at one choice of {', '.join(o.key for o in fixed)} (not stated)")
    if all(b is True for b in found):
        return Verdict("holds")
    if all(b is False for b in found):
        return Verdict("fails")
    return Verdict("cannot be decided", _split(outcomes))


def _split(outcomes: Sequence[Outcome]) -> str:
    """Which outcomes say what."""
    groups: dict[bool | None, list[Outcome]] = {}
    for o in outcomes:
        groups.setdefault(o.bears, []).append(o)
    words = ((True, "borne out"), (False, "contradicted"), (None, "within the noise"))
    if len(groups) == 1:
        return next(f"{word} in every try" for b, word in words if b in groups)
    keys = [k for k in dict.fromkeys(k for o in outcomes for k in o.at) if len({o.at.get(k) for o in outcomes}) > 1]
    tell = lambda o: ", ".join(f"{k} {o.at[k]}" for k in keys if k in o.at) or "as run"  # noqa: E731
    return "; ".join(f"{word} at {' / '.join(map(tell, groups[b]))}" for b, word in words if b in groups)


def _finite(x: float) -> float | None:
    """A number that JSON has: what diverged is very large, what is no number is none."""
    return None if math.isnan(x) else max(-1e300, min(1e300, float(x)))


# ---- from numbers to outcomes ----------------------------------------------------------------------------------------


def said(holds: bool | np.bool_, **at: str) -> Outcome:
    """Where only yes or no can be said."""
    return Outcome(1.0 if holds else -1.0, at=at)


def least(outcomes: Sequence[Outcome], **at: str) -> Outcome:
    """Several things that must all be so: the one that is worst, in standard errors or where these are 0 in margin."""
    order = sorted(outcomes, key=lambda o: (o.bears is not False, o.bears is not None, o.margin))
    return Outcome(order[0].margin, order[0].error, at)


def compared(lower: ArrayLike, higher: ArrayLike, room: float = 0.0, at: Mapping[str, str] | None = None) -> Outcome:
    """“The mean of `lower` is below that of `higher`” (+ `room`), each over its own seeds."""
    a, b = (np.asarray(v, float).ravel() for v in (lower, higher))
    error = math.hypot(*(v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in (a, b)))
    return Outcome(float(b.mean() - a.mean()) + room, error, at or {})


def alike(one: float, other: float, **at: str) -> list[Outcome]:
    """“Almost the same”, said of two positive sizes."""
    apart = abs(math.log(one) - math.log(other))
    return [Outcome(math.log(limit) - apart, at={**at, "almost": name}) for name, limit in NEAR.items()]


def agrees(value: float, printed: str, **at: str) -> Outcome:
    """Whether a value rounds to a printed number: within half a unit of its last digit."""
    digits = printed.rstrip(" %")
    number, scale = float(digits), 0.01 if printed.endswith("%") else 1.0
    exponent = int(f"{number:e}".split("e")[1]) if "." not in digits else 0
    significant = digits.strip("-").rstrip("0") or "0"
    unit = 10.0 ** (exponent - len(significant) + 1) if "." not in digits else 10.0 ** -len(digits.split(".")[1])
    return Outcome(scale * unit / 2 - abs(value - scale * number), at=at)
