"""What an algorithm is: a module with a few pure functions, and the records that they pass around.

A module in `coterie.algorithms` is an algorithm when it defines (all functions act on ONE agent)

    Config                                       hyper-parameters: public, validated, a JAX pytree
    EXAMPLE: Config                              a configuration that works on a small problem
    init(cfg, place)                    -> State     data-free
    draws(cfg, place)                   -> {name: Law}  a round's randomness (public laws)
    emit(cfg, place, t, state, shard, draw) -> State, Message   everything that leaves; or Maybe(message, sent)
    absorb(cfg, place, t, state, inbox) -> State     what arrives
    estimate(cfg, place, state)         -> point     the answer: a release too, so a function of released values
    cost(cfg, place, t, message)        -> Event     what the round cost its owner (public, typed)
    needs(cfg)                          -> Needs     what its proof asks of the problem

and, where they apply,

    sensitivity(cfg, place, t)          -> number    how far one record can move what `emit` noises; marks it private
    tune(cfg, public)                   -> Config    fills `Auto` settings by a documented rule on public quantities
    suggest_rounds(public)              -> int       how many rounds, where the plan does not say
    convergent(cfg, public)             -> str|None  a warning where the settings lie outside the convergent region
    claim(cfg, place, delta)            -> float     the ε that the paper would print for this run
    greeting(cfg, place)                -> Message   the public message that stands before an agent first speaks
    edge(cfg, place)                    -> memory    what to remember per neighbour; `absorb` then returns it as well
    bits(cfg, place, message)           -> number    size on the wire, if it is not simply the message's numbers
    duration(cfg, place, t, draw)       -> seconds   virtual time of the round, for plots against time
    wire(cfg, place, t)                 -> number    scale of the message's noise: the grid on which it is deployed
    lattice(cfg, place, t)        -> (step, most)    the grid of a message that is rounded after its noise, and at most
                                                     how many of its steps; `wire` is then the scale of that noise
    TRAVELS                                          the fields of a message that neighbours need; deployed, the others
                                                     stay with their owner. Default: all
    reveals(cfg, place, state, message) -> numbers   what its proof treats as seen, where that is more than the message;
                                                     None: here it is not
    PREPAYS                                          True: a round may have been charged in an earlier one
    THRESHOLD                                        the setting that the query of a `test` is compared with: the audit
                                                     moves it to see the scale of the test's noise
    INCONCLUSIVE                                     {check of the audit: why it cannot decide here}
    against(cfg)                 -> (name, adversary)  whom `cost` is against, if not a reader of all who shares nothing
    own_cost(cfg, place, t)             -> Event     then: what the round cost against everybody else together
    observed(cfg, places, problem, graph, weights, observers) -> (adversary, μ)  what is proved of these parties as
                                                     observers, for everybody; an InputError says why nothing is
    LATE                                             "reuse": a late neighbour's last message will do; default "wait"
    GRAPHS                                           kinds of graph it runs on
    NAMED                                            True: `absorb` asks who sent what, and what is kept of an own
                                                     message is what is sent; `inbox.senders` has the plan's numbers
    READS                                            what `absorb` needs of the others: "individuals" (the default),
                                                     "sums" (`inbox.total`, `inbox.mixed`), or "total": sums, and the
                                                     state depends on own messages only through the sum of everybody's
    ANY_LENGTH                                       True: what a run traces (not `cost` or `claim`) asks for the number
                                                     of rounds as `place.length` only, not `place.rounds`, and of
                                                     `place.shape` nothing but single rounds (it goes on behind the
                                                     last): one compiled program then serves runs of every length
    RIDGE                                            ridge of the objective where the plan states none; default 1e-3
    REFERENCE, ERRATA                                the paper, and what it printed beside what is true

`emit` is deterministic given its draws. Drivers own loops, seeds, networks and ledgers; algorithms know none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms import ALGORITHMS
from coterie.algorithms._config import PRINTED, Config
from coterie.algorithms._place import Place, Public, Round
from coterie.algorithms.inbox import Inbox, Maybe
from coterie.algorithms.laws import (
    Draw,
    Grid,
    Inside,
    L2LaplaceLaw,
    LaplaceLaw,
    Law,
    Normal,
    Shared,
    Uniform,
    add,
    settle,
    standard,
)
from coterie.errors import InputError
from coterie.graphs import Graph
from coterie.privacy.base import watch_kinds
from coterie.privacy.events import Event
from coterie.problems.base import Problem
from coterie.problems.people import LOST
from coterie.problems.shards import Shard

__all__ = [
    "PRINTED",
    "Algorithm",
    "Auto",
    "AutoInt",
    "Erratum",
    "Grid",
    "Inbox",
    "Inside",
    "L2LaplaceLaw",
    "LaplaceLaw",
    "Law",
    "Maybe",
    "Needs",
    "Normal",
    "Shared",
    "Uniform",
    "add",
    "all_algorithms",
    "find",
    "settle",
    "standard",
]


if TYPE_CHECKING:
    Auto = Any  # None in a plan, a number by the time an algorithm sees it
    AutoInt = Any
else:  # annotations of a setting that `tune` fills in where the user left it out
    Auto = float | None
    AutoInt = int | None


@dataclass(frozen=True)
class Needs:
    """What the proof of an algorithm's privacy asks of a problem, and what the algorithm does with it.

    Each is True only where the proof rests on it, or the algorithm really does it. A problem states its facts
    (`coterie.problems.Problem`); where one is missing, the plan is refused before a record is read (`check`).
    """

    convex: bool = False  # every record's loss is convex
    smooth: bool = False  # its curvature has a public bound
    bounded: bool = False  # so has what replacing a record changes of the gradient; not needed where it is clipped
    scored: bool = False  # the loss is a function of one score per record
    directed: bool = False  # a record's gradient keeps its direction whatever the point
    monotone: bool = False  # scored, and the slope never changes sign
    solver: bool = False  # it solves subproblems to its setting `tolerance`, whose effect it charges
    steps: bool = False  # it takes a public number of gradient steps on a subproblem
    projects: bool = False  # it keeps its answer in the problem's constraint set
    separable: bool = False  # but takes coordinates one by one: in a set whose projection does so too
    released: bool = False  # there is nothing to minimise: sums over records are released
    coupled: bool = False  # every party has variables of its own, and they have to add up
    averages: bool = False  # its answer is the mean of records: the loss's Hessian is the identity
    even: bool = False  # it spreads its budget by a rule of its own: a schedule has nothing to act on
    alike: bool = False  # it states the noise on the total of all parties: all add as much, and all are in it

    WORDS: ClassVar[dict[str, str]] = {
        "convex": "a convex loss",
        "smooth": "a bound on the loss's curvature",
        "bounded": "a bound on the loss's gradient (or a clip)",
        "scored": "a loss of one score per record",
        "directed": "gradients that keep their direction",
        "monotone": "a loss whose slope has one sign",
        "averages": "a loss whose answer is a mean (problem.loss = 'mean')",
        "released": "sums to release (problem.loss = 'moments', 'statistics', 'scores' or 'fair')",
        "coupled": "problem.loss = 'coupled', whose parties have variables of their own",
    }

    def missing(self, problem: Problem) -> list[str]:
        """What is asked for and not stated by the problem, in words."""
        called = {"averages": "isotropic"}
        return [
            words
            for fact, words in self.WORDS.items()
            if getattr(self, fact) and not getattr(problem, called.get(fact, fact))
        ]

    @property
    def reads_often(self) -> bool:
        """Whether it goes over its records many times in a round."""
        return self.solver or self.steps


@dataclass(frozen=True)
class Erratum:
    """One place where a paper is wrong: what it printed, what is true, how bad it is."""

    where: str
    printed: str
    correct: str
    severity: Literal["privacy", "utility", "loose", "unproved", "typo"]


@dataclass(frozen=True)
class Algorithm:
    """One algorithm: the parts that every one has, and those that only some have (None, or a default, elsewhere).

    States, messages and memories of edges are an algorithm's own: trees of arrays.
    """

    slug: str
    config: type[Config]
    example: Config
    init: Callable[[Config, Place], PyTree]
    draws: Callable[[Config, Place], dict[str, Law]]
    emit: Callable[[Config, Place, Round, PyTree, Shard, Draw], tuple[PyTree, PyTree]]
    absorb: Callable[[Config, Place, Round, PyTree, Inbox], PyTree]
    estimate: Callable[[Config, Place, PyTree], Array]
    cost: Callable[[Config, Place, Round, PyTree], Event | tuple[Event, ...]]
    needs: Callable[[Config], Needs]
    # parts that only some have
    sensitivity: Callable[[Config, Place, Round], Array] | None = None
    tune: Callable[[Config, Public], Config] | None = None
    suggest_rounds: Callable[[Public], int] | None = None
    convergent: Callable[[Config, Public], str | None] | None = None
    claim: Callable[[Config, Place, float], float] | None = None
    greeting: Callable[[Config, Place], PyTree] | None = None
    edge: Callable[[Config, Place], PyTree] | None = None
    bits: Callable[[Config, Place, PyTree], Array] | None = None
    duration: Callable[[Config, Place, Round, Draw], Array] | None = None
    wire: Callable[[Config, Place, Round], Array] | None = None
    lattice: Callable[[Config, Place, Round], tuple[Array, Array]] | None = None
    travels: tuple[str, ...] = ()  # empty: every field
    reveals: Callable[[Config, Place, PyTree, PyTree], PyTree] | None = None
    against: Callable[[Config], tuple[str, str]] | None = None
    own_cost: Callable[[Config, Place, Round, PyTree], Event | tuple[Event, ...]] | None = None
    observed: Callable[[Config, Place, Problem, Graph, np.ndarray, tuple[int, ...]], tuple[str, np.ndarray]] | None = (
        None
    )
    threshold: str | None = None
    prepays: bool = False
    fresh: bool = False  # a paid message: of earlier ones and own records, with Gaussian noise of its own
    inconclusive: tuple[tuple[str, str], ...] = ()
    late: Literal["wait", "reuse"] = "wait"
    graphs: tuple[str, ...] = ()  # empty: any connected graph
    named: bool = False
    reads: Literal["individuals", "sums", "total"] = "individuals"
    any_length: bool = False
    ridge: float = 1e-3  # of the objective, where the plan states none
    reference: str = ""
    errata: tuple[Erratum, ...] = ()
    text: str = ""  # the module's docstring

    @classmethod
    def of(cls, slug: str, module: ModuleType) -> Algorithm:
        """The algorithm that a module defines; TypeError where it lacks a part that every one has."""
        parts = vars(module)
        if missing := [name for name in REQUIRED if name not in parts]:
            raise TypeError(f"{module.__name__} is not an algorithm: it lacks {', '.join(missing)}")
        given = {f.name: parts[NAMES.get(f.name, f.name)] for f in fields(cls) if NAMES.get(f.name, f.name) in parts}
        given["inconclusive"] = tuple(given.get("inconclusive", {}).items())
        return cls(slug, text=module.__doc__ or "", **given)

    @property
    def summary(self) -> str:
        """First line of the module's docstring."""
        return self.text.strip().splitlines()[0]

    @property
    def private(self) -> bool:
        """Whether its messages carry noise (an algorithm whose `cost` is NonPrivate does not)."""
        return self.sensitivity is not None

    @property
    def solves(self) -> bool:
        """Whether its agents go over their records many times in a round."""
        return self.needs(self.example).reads_often

    def clips(self, cfg: Config) -> float | None:
        """The norm to which it clips every record's gradient, if it does."""
        clip = getattr(cfg, "clip", None)
        return None if clip is None or self.needs(cfg).bounded else float(clip)  # of a test, where a bound is needed

    def check(self, cfg: Config, problem: Problem) -> None:
        """Refuse a problem that lacks what the algorithm's proof asks for, naming both."""
        needs = self.needs(cfg)
        if missing := needs.missing(problem):
            if problem.per_person and set(missing) <= {needs.WORDS[fact] for fact in LOST}:
                raise InputError(
                    f"{self.slug} needs {' and '.join(missing)}, which a person with several records does not have: "
                    "its proof is for data.unit = 'record'"
                )
            raise InputError(f"{self.slug} needs {' and '.join(missing)}: {problem.name} has none stated")
        if problem.released and not needs.released:
            raise InputError(f"{self.slug} minimises, and {problem.name} is released in sums: use {problem.released}")
        if problem.released and problem.released != self.slug:
            raise InputError(f"{self.slug} does not release {problem.name}: use {problem.released}")
        if problem.coupled and not needs.coupled:
            raise InputError(f"{self.slug} looks for one common point, and a {problem.name} has none: use coupled-admm")
        if problem.constraint is not None and not needs.projects and not problem.interior:
            able = [a.slug for a in all_algorithms().values() if a.needs(a.example).projects]
            raise InputError(
                f"{self.slug} does not keep its answer in a set: leave out problem.within and problem.radius, or "
                f"use {' or '.join(able)}"
            )
        mixed = problem.constraint is not None and not problem.constraint.separable and not problem.interior
        if mixed and needs.separable:
            raise InputError(
                f"{self.slug} moves one coordinate at a time, which need not lead to the optimum of a set such as "
                f"{type(problem.constraint).__name__}: use problem.within = 'box'"
            )


# what a module calls those parts that are not functions
NAMES = {
    "config": "Config", "example": "EXAMPLE", "threshold": "THRESHOLD", "prepays": "PREPAYS", "fresh": "FRESH",
    "inconclusive": "INCONCLUSIVE", "late": "LATE",
    "any_length": "ANY_LENGTH", "travels": "TRAVELS", "named": "NAMED",
    "graphs": "GRAPHS", "reads": "READS", "ridge": "RIDGE", "reference": "REFERENCE", "errata": "ERRATA",
}  # fmt: skip
REQUIRED = ("Config", "EXAMPLE", "init", "draws", "emit", "absorb", "estimate", "cost", "needs")


def _as_pytree(kind: type[Event]) -> None:
    """Let JAX map over the numbers of an event: `cost` is traced. Built anew without its checks, which read values."""
    every = fields(kind)
    static = tuple(f.name for f in every if f.metadata.get("static", False))
    numbers = tuple(f.name for f in every if f.name not in static)

    def flatten(event: Event) -> tuple[tuple, tuple]:
        return tuple(getattr(event, n) for n in numbers), tuple(getattr(event, n) for n in static)

    def unflatten(structure: tuple, leaves: Iterable) -> Event:
        event = object.__new__(kind)
        for name, value in (*zip(numbers, leaves, strict=True), *zip(static, structure, strict=True)):
            object.__setattr__(event, name, value)
        return event

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)


watch_kinds(_as_pytree)


@cache
def all_algorithms() -> dict[str, Algorithm]:
    """Every algorithm by its name: found (`coterie.algorithms.names`), never listed by hand."""
    return {name: find(name) for name in ALGORITHMS.names}


@cache
def find(name: str) -> Algorithm:
    """The algorithm called `name`, or in the module `name` if it has a dot; an error lists what there is."""
    module = ALGORITHMS.load(name)
    try:
        return Algorithm.of(name, module)
    except (TypeError, ValueError) as error:
        if ALGORITHMS.ours(name):
            raise
        raise InputError(f"algorithm {name!r}: {error}") from None
