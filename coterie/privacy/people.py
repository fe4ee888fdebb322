r"""What a claim for one record, or for one person, means for somebody who has several of them.

**Several records at one party** (`of_group`). Let one replacement cost what `events` say. Replacing k records, one
after the other, moves what Gaussian noise hides by k sensitivities at most: μ becomes k μ, exactly. Of any other law:
(ε, δ) for one gives (kε, δ (e^{kε} − 1)/(e^ε − 1)) for k (Vadhan 2017, Lemma 2.2); ε is read off the accountant's curve
at the δ for which that comes out at the δ that is asked for. Of noise on a random batch, also kμ without the gain from
sampling, which is less where k is large. These are upper bounds, by accountants with closed forms.

**One person at several parties** (`at_parties`). Who reads the messages of all of them sees one mechanism for each, and
the events of all compose: μ = √Σμ_i² of Gaussian ones. In an opened sum the person moves one number by what it moves at
each of them: μ = Σμ_i, which is at most k times the largest (`of_group`).

**Any two of several parties** (`at_any_two`). Of Gaussian prices the two that are largest at δ: ε grows with μ. Curves
of other laws may cross, so all pairs are looked at; where there are many, ε of a pair is at most the sum of the two
largest ε at δ/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypedDict

import numpy as np

from coterie.errors import InputError
from coterie.privacy.accountants import curve_of
from coterie.privacy.events import Event, Free, Gaussian, merge

__all__ = ["Protects", "at_any_two", "at_parties", "of_group", "unit_words", "units_of"]

RECORDS = (2, 5, 10, 40)  # of one person at one party, where the unit is a record
PAIRED = 6  # parties of whom all pairs are looked at
STEPS = 100  # of a sequence, before it is given up
CLOSE = 1e-4  # how far from its limit it may end, as a part of ε
LEAST = -230.0  # of ln δ that is looked at: e^−230 = 1e-100


def of_group(events: Iterable[Event], k: int, delta: float, *, lawful: bool = False) -> float:
    """ε at δ for somebody who has k of what `events` are the price of replacing one of; ∞ where nothing is left.

    `lawful`: of the declared law of the noise. How far real samplers are from it, some 1e-32 a number, costs e^ε times
    that in δ: an ε beyond 60 has no room for it, and says what it has to say without.

    >>> from coterie.privacy.gdp import mu_for
    >>> one = [Gaussian(float(mu_for(1.0, 1e-5)), 1.0)]
    >>> [round(of_group(one, k, 1e-5), 2) for k in (1, 2, 5, 10, 40)]
    [1.0, 2.15, 6.17, 14.43, 102.37]
    """
    listed = [replace(e, tv=0 * np.asarray(e.tv)) if lawful else e for e in events]
    if k < 1:
        raise InputError(f"a group has at least one member, got {k}")
    if all(isinstance(event, Gaussian | Free) and not np.any(event.slack) for event in listed):
        moved = [
            replace(e, sensitivity=k * np.asarray(e.sensitivity)) if isinstance(e, Gaussian) else e for e in listed
        ]
        return curve_of(moved)(delta)
    if delta == 0:  # k steps, each of which costs the pure ε
        return k * curve_of(listed)(delta)
    return _by_lemma(curve_of(listed), k, delta, _unsampled(listed, k, delta))


def _by_lemma(curve: Callable[[float], float], k: int, delta: float, known: float) -> float:
    """k times the least ε of one that holds at the δ which grows to the one that is asked for: a rising sequence.

    It ends where it has come to what is `known` already.
    """
    if k == 1:
        return min(curve(delta), known)
    eps = 0.0
    for _ in range(STEPS):
        grown = (
            math.log(k) if eps == 0 else (k - 1) * eps + math.log1p(-math.exp(-k * eps)) - math.log1p(-math.exp(-eps))
        )
        if math.log(delta) - grown < LEAST or k * eps >= known:
            return known
        found = curve(math.exp(math.log(delta) - grown))
        if found <= eps:
            return min(k * eps, known)
        eps = found * (1 + CLOSE)
    return known


def _unsampled(events: Sequence[Event], k: int, delta: float) -> float:
    """By μ of each event where it has one: somebody who sees which records were drawn sees Gaussian noise."""
    parts = [part for part in merge(events) if not isinstance(part, Free)]
    each = [part.mu() for part in parts]
    if not all(mu is not None for mu in each) or any(np.any(part.slack) for part in parts):
        return math.inf
    square = sum(float(part.times @ mu**2) for part, mu in zip(parts, each, strict=True) if mu is not None)
    return curve_of([Gaussian(k * math.sqrt(square), 1.0, tv=sum(float(part.times @ part.tv) for part in parts))])(
        delta
    )


def at_parties(each: Sequence[Iterable[Event]], delta: float) -> float:
    """ε at δ for a person whom several parties know, against who reads the messages of all of them.

    >>> round(at_parties([[Gaussian(0.3, 1.0)], [Gaussian(0.4, 1.0)]], 1e-5), 6) == round(
    ...     at_parties([[Gaussian(0.5, 1.0)]], 1e-5), 6)
    True
    """
    return curve_of(event for events in each for event in events)(delta)


def at_any_two(each: Sequence[Sequence[Event]], delta: float) -> float:
    """ε at δ for a person whom two of these parties know, whichever: the dearest of them come first.

    >>> pair = [[Gaussian(0.4, 1.0)], [Gaussian(0.3, 1.0)], [Gaussian(0.1, 1.0)]]
    >>> at_any_two(pair, 1e-5) == at_parties(pair[:2], 1e-5)
    True
    """
    if len(each) == 1:
        return of_group(each[0], 2, delta)
    if all(isinstance(event, Gaussian | Free) for events in each for event in events):
        return at_parties(each[:2], delta)
    if len(each) > PAIRED:
        return sum(sorted((curve_of(events)(delta / 2) for events in each), reverse=True)[:2])
    return max(at_parties(two, delta) for two in combinations(each, 2))


class Protects(TypedDict):
    """ε by whom it is for; None: no bound."""

    unit: str
    record: float | None
    person: float | None
    person_at_two_parties: float | None
    of_records: dict[str, float | None]


def units_of(
    each: Sequence[Sequence[Event]], epsilon: float, delta: float, *, by_person: bool, summed: bool
) -> Protects:  # fmt: skip
    """ε of a claim for a record, for a person, and for a person at two parties, whichever they are.

    Where the unit is a record, a person may have any number of them, and nothing is said of it but `of_records`: ε of a
    person with so many at one party, by the law of the noise.

    Args:
        each: what the claim charges parties that differ, the one that pays most first; twice, if two pay it.
        epsilon: of the claim.
        by_person: whether the unit is a person.
        summed: whether the claim is for opened sums.
    """
    finite = lambda x: float(x) if np.isfinite(x) else None  # noqa: E731
    one = finite(epsilon)
    if by_person:
        two = of_group(each[0], 2, delta) if summed else at_any_two(each, delta)
        return Protects(unit="person", record=one, person=one, person_at_two_parties=finite(two), of_records={})
    dearest = each if any(not isinstance(e, Gaussian | Free) for events in each for e in events) else each[:1]
    many = {str(k): finite(max(of_group(events, k, delta, lawful=True) for events in dearest)) for k in RECORDS}
    return Protects(unit="record", record=one, person=None, person_at_two_parties=None, of_records=many)


def _plain(epsilon: float | None) -> str:
    """An ε for people: three digits, and all of the whole part."""
    if epsilon is None:
        return "∞"
    return f"{epsilon:.3g}" if epsilon < 999.5 else f"{epsilon:,.0f}"


def unit_words(told: Protects, delta: float) -> str:
    """The same in one line.

    >>> each = [[Gaussian(0.3, 1.0)]] * 2
    >>> unit_words(units_of(each, 1.0, 1e-5, by_person=True, summed=False), 1e-5)
    'a person whom two parties know: ε = 1.66 at δ = 1e-05'
    """
    if told["unit"] == "person":
        two = told["person_at_two_parties"]
        return f"a person whom two parties know: ε = {'∞' if two is None else f'{two:.4g}'} at δ = {delta:g}"
    many = ", ".join(f"{_plain(e)} with {k}" for k, e in told["of_records"].items())
    return f"a person with several records at one party: ε = {many}, at δ = {delta:g}"
