"""What there is to audit: every private algorithm on every loss that its contract accepts, in every way that it runs.

    whole     every record in every round, noise as a simulation draws it
    batches   with random batches, each scheme that the algorithm has
    wire      with a deployed party's whole-numbered noise
    settings  with every other value of a setting that is a choice (`variations`), found in its class

`cases` lists all of it (`make audit`); `covering` is a selection in which every algorithm, every loss, every scheme,
every kind of message and a choice among settings occur, for every day. What runs as printed makes no claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args, get_origin

import numpy as np
from pydantic import ValidationError

from coterie.algorithms.base import PRINTED, Algorithm, Config, all_algorithms, find
from coterie.api.asked import check_settings
from coterie.audit.checks import Finding, examine, gather
from coterie.audit.losses import LOSSES, accepted
from coterie.audit.neighbours import DEGREE
from coterie.audit.setting import WHOLE, Setting, make_setting
from coterie.errors import InputError
from coterie.graphs import make_graph
from coterie.problems import Problem, of_people

__all__ = ["Case", "audited", "cases", "covering", "variations"]

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
    choice: tuple[str, object] | None = None  # a setting, and another value than the example's
    agent: int = 0  # of a graph of three: 0 has two neighbours
    graph: str | None = None  # its kind, if the choice needs another than the algorithm's first
    person: bool = False  # whether the worlds differ in a person with many records, not in a record

    @property
    def name(self) -> str:
        """For people."""
        what = () if self.choice is None else (f"{self.choice[0]} = {self.choice[1]}",)
        where = () if self.graph is None else (f"agent {self.agent} of a {self.graph}",)
        whom = ("a person",) if self.person else ()
        return ", ".join((self.algorithm.slug, self.loss, self.way, *what, *where, *whom))

    @property
    def problem(self) -> Problem:
        """The loss, for records or for people."""
        return of_people(LOSSES[self.loss]) if self.person else LOSSES[self.loss]

    def setting(self, epsilon: float) -> Setting:
        """Priced for a budget, with as few records as it takes."""
        cfg = None if self.way in ("whole", "wire") else _batched(self.algorithm, self.way)
        if self.choice is not None:
            cfg = _chosen(self.algorithm, *self.choice)
        graph = None if self.graph is None else make_graph(self.graph, DEGREE + 1)
        for count in RECORDS:
            try:
                least = count if self.way in ("whole", "wire") else max(count, 4 * BATCH)
                uneven = not self.algorithm.needs(cfg or self.algorithm.example).even
                return make_setting(
                    self.algorithm, cfg, epsilon=epsilon, rounds=ROUNDS, records=least,
                    problem=self.problem, shape=SHAPE if uneven else None, load=LOAD,
                    graph=graph, agent=self.agent,
                )  # fmt: skip
            except InputError as error:
                if "budget too small" not in str(error) or count == RECORDS[-1]:
                    raise
        raise AssertionError("unreachable")

    def examine(self, epsilon: float, seed: int = 0) -> list[Finding]:
        """What the checks find."""
        return examine(gather(self.setting(epsilon), seed=seed, grid=self.way == "wire"))


def audited() -> list[Algorithm]:
    """Every private algorithm that is found, and two that minimise nothing: sums released, means by gossip."""
    return [a for a in (*all_algorithms().values(), find("release"), find("gossip-mean")) if a.private]


def cases(algorithm: Algorithm, *, person: bool = False) -> list[Case]:
    """All ways on the first loss that its contract accepts, and every record in every round on all others.

    `person`: with worlds that differ in a person. What its other settings do is the same for records and for people.
    """
    losses = accepted(algorithm, person=person)
    if not losses:
        raise InputError(f"{algorithm.slug} has no proof for people: its unit is a record")
    ways = ["whole", *_schemes(algorithm), *(["wire"] if algorithm.wire is not None else [])]
    first = [Case(algorithm, losses[0], way, person=person) for way in ways]
    others = [Case(algorithm, loss, "whole", person=person) for loss in losses[1:]]
    if person:
        return first + others
    return first + others + [case for choice in variations(algorithm) for case in _cases_of(algorithm, choice)]


def variations(algorithm: Algorithm) -> list[tuple[str, object]]:
    """Every setting that is a choice, with every value that its example has not; what is as printed makes no claim."""
    out = []
    for name, field in type(algorithm.example).model_fields.items():
        if name != PRINTED and not (name == "scheme" and _schemes(algorithm)):
            values = [v for v in _choices(field.annotation) if v != getattr(algorithm.example, name)]
            out += [(name, value) for value in values]
    return out


def _choices(annotation: object) -> list[object]:
    """The values of a setting that is a flag or one of several words, by itself or left open; else none."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _choices(part)]


def _chosen(algorithm: Algorithm, name: str, value: object) -> Config:
    """The example with one setting changed, less a setting that excludes it."""
    base = algorithm.example.model_dump(exclude_unset=True) | WHOLE.get(algorithm.slug, {})
    if "tolerance" in type(algorithm.example).model_fields:
        base["tolerance"] = 1e-10
    for left_out in (None, *base):
        try:
            kept = {k: v for k, v in base.items() if k != left_out}
            return algorithm.config(**kept | {name: value})
        except (InputError, ValidationError) as error:
            last = error
    raise InputError(f"{algorithm.slug}: no example has {name} = {value!r}: {last}")


@cache  # a contract traces what it is asked about
def _cases_of(algorithm: Algorithm, choice: tuple[str, object]) -> tuple[Case, ...]:
    """The cases of a choice: on the graph of all others, or, where its rule refuses that, at hub and leaf of a star."""
    cfg = _chosen(algorithm, *choice)
    loss = accepted(algorithm, cfg)[0]
    try:
        check_settings(
            [LOSSES[loss]], epsilon=1.0, delta=1e-5, algorithm=algorithm.slug, rounds=ROUNDS,
            settings=cfg.model_dump(exclude_unset=True), graph=(algorithm.graphs or ("ring",))[0],
        )  # fmt: skip
    except InputError:
        return tuple(Case(algorithm, loss, "whole", choice, agent, "star") for agent in (0, 1))
    return (Case(algorithm, loss, "whole", choice),)


def covering() -> list[Case]:
    """Every algorithm once on a loss of its own turn, and what is then still missing of losses, ways and choices.

    Solvers take long to compile, on some losses above all: they take the first that they accept.
    """
    private = audited()
    chosen: list[Case] = []
    seen = {"whole", "usual"}
    for k, algorithm in enumerate(private):
        losses = accepted(algorithm)
        if algorithm.solves:
            losses = losses[:1]
        losses = [loss for loss in losses if loss not in seen] or losses
        chosen.append(Case(algorithm, losses[k % len(losses)], "whole"))
        seen.add(chosen[-1].loss)
    for case in sorted(_everything(private), key=_effort):
        kinds = {case.loss, case.way, "usual" if case.choice is None else "chosen"}
        if new := kinds - seen:
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
    changes: dict[str, object] = {"batch": BATCH, "scheme": scheme}
    if "tolerance" in type(algorithm.example).model_fields:
        changes["tolerance"] = 1e-10
    return algorithm.example.replace(**changes)
