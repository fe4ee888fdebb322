"""What a paper's module declares: figures, what they plot, what is claimed, what it cost."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import InputError
from reproduction.verdicts import Open, Outcome, decide, said

if TYPE_CHECKING:
    from reproduction.study import Study

__all__ = [
    "VERSIONS",
    "Budget",
    "Claim",
    "Entry",
    "Figure",
    "Panel",
    "Paper",
    "Result",
    "Series",
    "Table",
    "Version",
    "all_figures",
    "all_papers",
    "choose_figures",
    "judged",
]

Version = Literal["as printed", "true ε", "corrected", "theory", "reference"]
VERSIONS: tuple[Version, ...] = get_args(Version)


@dataclass(frozen=True)
class Paper:
    """One publication."""

    title: str
    authors: str
    year: int
    algorithms: tuple[str, ...]  # slugs whose errata belong to it
    summary: str  # what the page says first: two or three sentences


@dataclass(frozen=True)
class Panel:
    """One pair of axes, as the paper has it."""

    key: str
    title: str
    x: str  # label with unit
    y: str
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    legend: str = "below"  # or matplotlib's word for a place inside the axes; "" for none


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a panel; `low` and `high` bound its band."""

    panel: str
    label: str
    version: Version
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    seeds: int = 1
    marked: bool = False  # points where something was computed, where they are few
    broad: bool = False  # drawn broad and pale, where another line will lie on it
    colour: str = ""  # labels of one colour belong together; default: the label

    def __post_init__(self) -> None:
        lengths = {len(v) for v in (self.x, self.y, self.low, self.high) if v is not None}
        if len(lengths) != 1 or self.version not in VERSIONS:
            raise TypeError(f"series {self.label!r}: lengths {lengths}, version {self.version!r}")

    @classmethod
    def over(
        cls, panel: str, label: str, version: Version, x: ArrayLike, samples: ArrayLike,
        band: Literal["std", "range", "error"] = "std", **more: Any,
    ) -> Series:  # fmt: skip
        """Mean over the first axis of `samples` (seeds, points); band: ± a `std`, the `range`, ± a standard `error`."""
        s = np.atleast_2d(np.asarray(samples, float))
        with np.errstate(invalid="ignore", over="ignore"):  # a run may diverge
            mean = s.mean(axis=0)
            half = s.std(0) / (len(s) ** 0.5 if band == "error" else 1.0)
            low, high = (s.min(0), s.max(0)) if band == "range" else (mean - half, mean + half)
        at = np.asarray(x, float).tolist()
        return cls(panel, label, version, at, mean.tolist(), low.tolist(), high.tolist(), len(s), **more)


@dataclass(frozen=True)
class Claim:
    """A statement about a figure, and how it fared; `reproduction.verdicts` decides."""

    text: str
    found: bool | np.bool_ | Outcome | Sequence[Outcome]
    measured: str  # in words, with the numbers
    value: Mapping[str, float]
    who: Literal["paper", "ours"] = "paper"
    version: Version | None = None  # the version it was judged on, where that matters
    reason: str = ""  # why it fails, where that is known: shown only then
    section: str = ""  # where that is derived
    always: bool = False  # said of every setting: one counterexample refutes it
    proved: str = ""  # why it is so in every setting

    @property
    def outcomes(self) -> list[Outcome]:
        """Every try."""
        if isinstance(self.found, Outcome):
            return [self.found]
        return [said(self.found)] if isinstance(self.found, bool | np.bool_) else list(self.found)

    def as_json(self, left_open: Sequence[Open] = ()) -> dict[str, Any]:
        """The claim as plain data, with its verdict."""
        return judged(
            {
                "claim": self.text, "who": self.who, "version": self.version, "always": self.always,
                "outcomes": [o.as_json() for o in self.outcomes], "measured": self.measured,
                "value": {k: float(v) for k, v in self.value.items()}, "reason": self.reason or None,
                "section": self.section or None, "proved": self.proved or None,
            },
            left_open,
        )  # fmt: skip


def judged(claim: dict[str, Any], left_open: Sequence[Open]) -> dict[str, Any]:
    """A claim as plain data with what the rule says of it."""
    number = lambda x: float("nan") if x is None else x  # noqa: E731
    tries = [Outcome(number(o["margin"]), number(o["error"]), o["at"]) for o in claim["outcomes"]]
    mine = claim["who"] == "ours"  # about what was run here, where nothing is open
    concerned = () if mine else [o for o in left_open if o.concerns(claim["claim"])]
    found = decide(tries, concerned, claim["always"], bool(claim.get("proved")))
    return {**claim, "verdict": found.word, "because": found.because or None}


@dataclass(frozen=True)
class Budget:
    """What a run claims and what it costs."""

    label: str
    version: Version
    claimed: float | None
    true: float  # inf: no guarantee at all
    delta: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table for the page."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Result:
    """What a figure's `make` returns."""

    series: Sequence[Series]
    claims: Sequence[Claim]
    budgets: Sequence[Budget] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper; see `reproduction`."""

    name: str  # "fig2"
    title: str  # "Fig. 2: accuracy and privacy loss on Adult, N = 10"
    panels: tuple[Panel, ...]
    make: Callable[[Study], Result]
    setup: str  # a paragraph: what the paper states, and what it leaves open and we chose
    differs: str  # a paragraph: what differs from the paper and why
    left_open: tuple[Open, ...] = ()  # what the paper does not state and a verdict may rest on
    needs: tuple[str, ...] = ()
    supply: str = ""  # what a file of the user's must hold, if one is needed
    draw: Callable[[Any, Result], None] | None = None
    size: tuple[float, float] | None = None  # inches; default by the number of panels
    columns: int = 3  # panels in a row at most
    long: bool = False  # some ten minutes of a core: on an engine a task of its own, before all others


@dataclass(frozen=True)
class Entry:
    """A figure with its paper and its full name."""

    slug: str
    paper: str  # slug of the paper
    about: Paper
    figure: Figure = field(repr=False)


@cache
def all_papers() -> dict[str, tuple[Paper, tuple[Entry, ...]]]:
    """Every paper and its figures, by slug: modules of this package that define PAPER."""
    import reproduction as package

    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if not hasattr(module, "PAPER"):
            continue
        slug = info.name.replace("_", "-")
        entries = tuple(Entry(f"{slug}-{f.name}", slug, module.PAPER, f) for f in module.FIGURES)
        found[slug] = (module.PAPER, entries)
    return dict(sorted(found.items()))


def all_figures() -> dict[str, Entry]:
    """Every figure by its slug, papers in order of their slug, figures in the paper's."""
    return {e.slug: e for _, entries in all_papers().values() for e in entries}


def choose_figures(names: Sequence[str]) -> list[Entry]:
    """The figures meant by names of figures, of papers, or `all`."""
    chosen: dict[str, Entry] = {}
    for name in names:
        some = {s: e for s, e in all_figures().items() if name in (s, e.paper, "all")}
        if not some:
            raise InputError(f"no figure or paper is called {name!r}: see `python -m reproduction figure list`")
        chosen |= some
    return list(chosen.values())
