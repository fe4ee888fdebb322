"""What there is to audit: every private algorithm on every loss that its contract accepts, in every way that it runs.

    whole     every record in every round, noise as a simulation draws it
    batches   with random batches, each scheme that the algorithm has
    wire      with a deployed party's whole-numbered noise

`cases` lists all of it (`make audit`); `covering` is a selection in which every algorithm, every loss, every scheme and
every kind of message occurs, for every day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from coterie.algorithms.base import Algorithm, Config, all_algorithms
from coterie.audit.checks import Finding, examine, gather
from coterie.audit.losses import LOSSES, accepted
from coterie.audit.setting import Setting, make_setting
from coterie.errors import InputError

__all__ = ["Case", "cases", "covering"]

RECORDS = (4, 64, 1024)  # of the agent: the fewest at which the budget can be met
BATCH = 2
LOAD = 1.3  # of the agent's records in the average: not one, so that a weight is not taken for 1/n
SHAPE = 1 + 0.25 * (np.arange(12) % 3)  # a schedule that is not uniform
ROUNDS = 12  # so many that something kept in a state has time to show


@dataclass(frozen=True)
class Case:
    """One algorithm on one loss in one way."""

    algorithm: Algorithm
    loss: str
    way: str  # whole, wire, or the name of a scheme of batches

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.algorithm.slug}, {self.loss}, {self.way}"

    def setting(self, epsilon: float, delta: float = 1e-5) -> Setting:
        """Priced for a budget, with as few records as it takes."""
        cfg = None if self.way in ("whole", "wire") else _batched(self.algorithm, self.way)
        for count in RECORDS:
            try:
                least = count if cfg is None else max(count, 4 * BATCH)
                uneven = not self.algorithm.needs(cfg or self.algorithm.example).even
                return make_setting(
                    self.algorithm, cfg, epsilon=epsilon, delta=delta, rounds=ROUNDS, records=least,
                    problem=LOSSES[self.loss], shape=SHAPE if uneven else None, load=LOAD,
                )  # fmt: skip
            except InputError as error:
                if "budget too small" not in str(error) or count == RECORDS[-1]:
                    raise
        raise AssertionError("unreachable")

    def examine(self, epsilon: float, seed: int = 0) -> list[Finding]:
        """What the checks find."""
        return examine(gather(self.setting(epsilon), seed=seed, grid=self.way == "wire"))


def cases(algorithm: Algorithm) -> list[Case]:
    """All ways on the first loss that its contract accepts, and every record in every round on all others."""
    losses = accepted(algorithm)
    ways = ["whole", *_schemes(algorithm), *(["wire"] if algorithm.wire is not None else [])]
    first = [Case(algorithm, losses[0], way) for way in ways]
    return first + [Case(algorithm, loss, "whole") for loss in losses[1:]]


def covering() -> list[Case]:
    """Every algorithm once on a loss of its own turn, and what is then still missing of losses and ways."""
    private = [a for a in all_algorithms().values() if a.private]
    chosen: list[Case] = []
    for k, algorithm in enumerate(private):
        losses = accepted(algorithm)
        chosen.append(Case(algorithm, losses[k % len(losses)], "whole"))
    seen = {c.loss for c in chosen} | {"whole"}
    for case in sorted(_everything(private), key=_effort):
        if new := {case.loss, case.way} - seen:
            chosen.append(case)
            seen |= new
    return chosen


def _everything(private: list[Algorithm]) -> Iterator[Case]:
    for algorithm in private:
        yield from cases(algorithm)


def _effort(case: Case) -> bool:
    """Solvers take long to compile: they come last."""
    return case.algorithm.solves


def _schemes(algorithm: Algorithm) -> list[str]:
    """The names of the ways in which it draws batches."""
    fields = type(algorithm.example).model_fields
    if "batch" not in fields or "scheme" not in fields:
        return []
    return [str(x) for x in get_args(fields["scheme"].annotation)]


def _batched(algorithm: Algorithm, scheme: str) -> Config:
    changes: dict[str, Any] = {"batch": BATCH, "scheme": scheme}
    if "tolerance" in type(algorithm.example).model_fields:
        changes["tolerance"] = 1e-10
    return algorithm.example.replace(**changes)
