"""The errata page: what papers printed and what is true, collected from the modules' own declarations.

`python -m coterie.report.errata` prints the page; `python -m coterie.report.pages` writes it to docs/errata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coterie.algorithms import gossip_mean
from coterie.algorithms.base import PRINTED, Erratum, all_algorithms
from coterie.coupled import admm as coupled
from coterie.fair import METHODS
from coterie.report.markdown import code, table

__all__ = ["MEANING", "ErrataEntry", "ErrataSource", "collect", "declared", "errata"]

MEANING = {
    "privacy": "a printed guarantee is false: the method as printed leaks more than it says",
    "utility": "a printed statement about accuracy or convergence is false, or a printed setting does badly",
    "unproved": "a step of a proof does not hold, and nothing here shows the claim either way",
    "loose": "true, but the cost is overstated: the corrected value is smaller",
    "typo": "a formula or reference that cannot be meant as printed",
}
"""What each severity says, worst first."""


class ErrataSource(NamedTuple):
    """Whatever implements a paper and says what the paper got wrong."""

    slug: str
    reference: str
    errata: tuple[Erratum, ...]
    printed: bool = False  # whether it can be run as the paper has it


@dataclass(frozen=True)
class ErrataEntry:
    """One erratum and every algorithm that declares it, in the order of their names."""

    erratum: Erratum
    algorithms: tuple[str, ...]


def collect(algorithms: Sequence[ErrataSource]) -> list[ErrataEntry]:
    """Every erratum once, however many modules declare it."""
    found: dict[Erratum, list[str]] = {}
    for algorithm in algorithms:
        for erratum in algorithm.errata:
            found.setdefault(erratum, []).append(algorithm.slug)
    return [ErrataEntry(erratum, tuple(slugs)) for erratum, slugs in found.items()]


def declared() -> list[ErrataSource]:
    """Everything that declares errata: algorithms, fair methods, means by gossip, the method of coupled problems."""
    found = [ErrataSource(a.slug, a.reference, a.errata, a.config.can_print()) for a in all_algorithms().values()]
    found += [ErrataSource(m.slug, m.reference, m.errata) for m in METHODS.values()]
    found.append(ErrataSource("gossip-mean", gossip_mean.REFERENCE, gossip_mean.ERRATA))
    return [*found, ErrataSource("coupled", coupled.REFERENCE, coupled.ERRATA, printed=True)]


def errata(algorithms: Sequence[ErrataSource] | None = None) -> str:
    """Markdown: how many errors of each kind, then, for each algorithm, where, printed, true, severity."""
    every = list(declared() if algorithms is None else algorithms)
    entries = collect(every)
    counts = {kind: sum(e.erratum.severity == kind for e in entries) for kind in MEANING}
    lines = [
        f"**{counts['privacy']} of {len(entries)} errata break a printed privacy guarantee.**",
        "",
        table(("severity", "errata", "meaning"), [(kind, counts[kind], MEANING[kind]) for kind in MEANING]),
    ]
    for algorithm in every:
        mine = [e for e in entries if e.algorithms[0] == algorithm.slug]
        shared = [e for e in entries if algorithm.slug in e.algorithms[1:]]
        if not mine and not shared:
            continue
        lines += ["", f"## {algorithm.slug}", "", f"{algorithm.reference.rstrip('.')}.", ""]
        if algorithm.printed:
            lines += [f"`{PRINTED} = true` runs the printed method, warns, and reports what it really costs.", ""]
        if shared:
            where = ", ".join(f"{e.erratum.where} (under {code(e.algorithms[0])})" for e in shared)
            lines += [f"Shared: {where}.", ""]
        if mine:
            order = list(MEANING)
            rows = sorted((e.erratum for e in mine), key=lambda e: order.index(e.severity))
            lines += [
                table(
                    ("where", "printed", "true", "severity"),
                    [(e.where, e.printed, e.correct, e.severity) for e in rows],
                )
            ]
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(errata())
