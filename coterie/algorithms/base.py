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
    reveals(cfg, place, state, message) -> numbers   what its proof treats as seen, where that is more than the message
    PREPAYS                                          True: a round may have been charged in an earlier one
    THRESHOLD                                        the setting that the query of a `test` is compared with: the audit
                                                     moves it to see the scale of the test's noise
    INCONCLUSIVE                                     {check of the audit: why it cannot decide here}
    LATE                                             "reuse": a late neighbour's last message will do; default "wait"
    GRAPHS                                           kinds of graph it runs on
    READS                                            what `absorb` needs of the others: "individuals" (the default),
                                                     "sums" (`inbox.total`, `inbox.mixed`), or "total": sums, and the
                                                     state depends on own messages only through the sum of everybody's
    REFERENCE, ERRATA                                the paper, and what it printed beside what is true

`emit` is deterministic given its draws. Drivers own loops, seeds, networks and ledgers; algorithms know none.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from pydantic import BaseModel, ConfigDict

from coterie.errors import InputError
from coterie.privacy.laws import Grid, L2Laplace, Laplace, Law, Normal, Uniform, add
from coterie.problems.base import Problem
from coterie.problems.solve import Solver

__all__ = [
    "Algorithm",
    "Auto",
    "AutoInt",
    "Config",
    "Erratum",
    "Grid",
    "Inbox",
    "L2Laplace",
    "Laplace",
    "Law",
    "Maybe",
    "Needs",
    "Normal",
    "Place",
    "Public",
    "Uniform",
    "add",
    "all_algorithms",
    "find",
]


if TYPE_CHECKING:
    Auto = Any  # a number by the time an algorithm sees it
    AutoInt = Any
else:  # annotations of a setting that `tune` fills in where the user left it out
    Auto = float | None
    AutoInt = int | None


class Config(BaseModel):
    """Base of every algorithm's hyper-parameters: validated like a pydantic model, traced like a pytree.

    Fields annotated `float` (or `Auto`) are leaves, so a sweep over them is a `vmap`; all others are static
    structure. An unknown key, a wrong type or a value out of range is an error when the plan is read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        numbers = tuple(n for n, f in cls.model_fields.items() if float in (f.annotation, *get_args(f.annotation)))
        others = tuple(n for n in cls.model_fields if n not in numbers)

        def flatten(cfg: Config) -> tuple[tuple, tuple]:
            return tuple(getattr(cfg, n) for n in numbers), tuple(getattr(cfg, n) for n in others)

        def flatten_with_keys(cfg: Config) -> tuple[tuple, tuple]:
            leaves, static = flatten(cfg)
            return tuple(zip(map(jax.tree_util.GetAttrKey, numbers), leaves, strict=True)), static

        def unflatten(static: Any, leaves: Any) -> Config:
            return cls.model_construct(
                **dict(zip(numbers, leaves, strict=True)), **dict(zip(others, static, strict=True))
            )

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields changed, without validation (the values may be traced)."""
        return self.model_copy(update=changes)


class Place(eqx.Module):
    """What an agent knows of its spot: all of it public.

    In a simulation every number has a leading agent axis; a deployed agent holds one row.
    """

    count: Float[Array, "*agents"]  # records held, n_i
    degree: Float[Array, "*agents"]  # neighbours
    self_weight: Float[Array, "*agents"]  # w_ii of the mixing matrix
    unit: Float[Array, "*agents"]  # weight of one record in f_i = unit Σ loss + ridge/2 ‖x‖²; 1/n_i by default
    noise: Float[Array, "*agents"]  # noise multiplier that calibration solved for; 0 = no noise
    shape: Float[Array, " rounds"]  # the schedule: relative noise of each round
    start: Float[Array, " dim"]  # the public starting point
    ridge: Float[Array, ""]  # strong convexity of f_i that the regularizer gives
    lipschitz: Float[Array, ""]  # V: half of what replacing a record can change of a gradient (`Problem.half_gap`)
    smoothness: Float[Array, ""]  # bound on a record's curvature
    dim: int = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    agents: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)  # records an agent may hold at most (the shard's padded length)
    factor: bool = eqx.field(static=True, default=False)  # whether `argmin` keeps a dense factor between rounds
    monotone: bool = eqx.field(static=True, default=False)  # whether the loss's slope never changes sign
    steepness: float = eqx.field(static=True, default=float("inf"))  # bound on the norm of a record's gradient

    def noise_at(self, t: Int[Array, ""]) -> Float[Array, ""]:
        """Noise of round t as a multiple of the round's sensitivity."""
        return self.noise * self.shape[t]

    def solver(self) -> Solver:
        """A fresh solver for `shard.argmin`, at the public start."""
        return Solver.fresh(self.start, self.factor)


@dataclass(frozen=True)
class Public:
    """The public facts from which `tune` may choose a default: sizes, graph, curvature bounds, budget."""

    agents: int
    rounds: int
    dim: int
    count_min: int
    count_max: int
    degree_min: int
    degree_max: int
    laplacian_max: float  # largest eigenvalue of the graph Laplacian, or an upper bound
    mixing_gap: float | None  # 1 − second largest |eigenvalue| of the mixing matrix, None if not computed
    ridge: float
    lipschitz: float
    smoothness: float
    epsilon: float | None
    delta: float | None
    load: float = 1.0  # largest unit · count: what all records of an agent together weigh


@dataclass(frozen=True)
class Needs:
    """What the proof of an algorithm's privacy asks of a problem, and what the algorithm does with it.

    Each is True only where the proof rests on it, or the algorithm really does it. A problem states its facts
    (`coterie.problems.Problem`); where they do not meet, the plan is refused before a record is read (`check`).
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
    even: bool = False  # it spreads its budget by a rule of its own: a schedule has nothing to act on

    WORDS: ClassVar[dict[str, str]] = {
        "convex": "a convex loss",
        "smooth": "a bound on the loss's curvature",
        "bounded": "a bound on the loss's gradient (or a clip)",
        "scored": "a loss of one score per record",
        "directed": "gradients that keep their direction",
        "monotone": "a loss whose slope has one sign",
    }

    def missing(self, problem: Problem) -> list[str]:
        """What is asked for and not stated by the problem, in words."""
        return [words for fact, words in self.WORDS.items() if getattr(self, fact) and not getattr(problem, fact)]

    @property
    def reads_often(self) -> bool:
        """Whether it goes over its records many times in a round."""
        return self.solver or self.steps


class Maybe(eqx.Module):
    """A message that is sent only if `sent`; otherwise neighbours keep the last one."""

    message: Any
    sent: Bool[Array, ""]


class Inbox(eqx.Module):
    """The last message of every neighbour of one agent.

    `index`, `weight` and `here` have one slot per neighbour (padded; `here` is False in empty slots) and point into
    `messages`, whose leaves carry all senders on their first axis; over an exchange that opens sums only it is None,
    and `total` and `mixed` are all there is. Reductions walk over the slots, so their cost is
    edges × dimension; `stack` lays all messages side by side and is for small neighbourhoods.
    """

    messages: Any
    index: Int[Array, " width"]
    weight: Float[Array, " width"]
    here: Bool[Array, " width"]
    memory: Any = None
    sums: Any = None  # (total, mixed) when the driver got them from one matrix product
    chunk: int = eqx.field(static=True, default=1)

    @property
    def total(self) -> Any:
        """Σ_j m_j over the neighbours."""
        return self.reduce(lambda m, w, e: m) if self.sums is None else self.sums[0]

    @property
    def mixed(self) -> Any:
        """Σ_j w_ij m_j over the neighbours, without the agent's own term."""
        return self.reduce(lambda m, w, e: jax.tree.map(lambda x: w * x, m)) if self.sums is None else self.sums[1]

    def reduce(self, f: Callable[[Any, Array, Any], Any], op: Literal["sum", "min", "max"] = "sum") -> Any:
        """Σ (or min, max) over neighbours of f(message, weight, memory of that edge)."""
        self._need_messages()
        ways: dict[str, tuple[Callable, Callable, Callable]] = {
            "sum": (jnp.zeros_like, jnp.add, jnp.sum),
            "min": (lambda x: jnp.full_like(x, _limits(x.dtype).max), jnp.minimum, jnp.min),
            "max": (lambda x: jnp.full_like(x, _limits(x.dtype).min), jnp.maximum, jnp.max),
        }
        empty, join, fold = ways[op]

        def step(total: Any, slots: Any) -> tuple[Any, None]:
            index, weight, here, memory = slots
            got = jax.vmap(f)(jax.tree.map(lambda m: m[index], self.messages), weight, memory)
            part = jax.tree.map(lambda g: fold(jnp.where(_like(here, g), g, empty(g)), axis=0).astype(g.dtype), got)
            return jax.tree.map(join, total, part), None

        slots = self._chunks()
        shapes = jax.eval_shape(lambda s: _at(f, self.messages, s), jax.tree.map(lambda x: x[0, 0], slots))
        start = jax.tree.map(empty, shapes)
        length = jax.tree.leaves(slots)[0].shape[0]
        return jax.lax.scan(step, start, slots, unroll=min(8, length))[0]

    def map(self, f: Callable[[Any, Array, Any], Any]) -> Any:
        """f(message, weight, memory) for every neighbour, one slot each: the next memory of the edges."""
        self._need_messages()

        def step(_: None, slots: Any) -> tuple[None, Any]:
            index, weight, _here, memory = slots
            return None, jax.vmap(f)(jax.tree.map(lambda m: m[index], self.messages), weight, memory)

        slots = self._chunks()
        length = jax.tree.leaves(slots)[0].shape[0]
        out = jax.lax.scan(step, None, slots, unroll=min(8, length))[1]
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: self.index.shape[0]], out)

    def stack(self) -> Any:
        """All messages side by side (slot first); mask the empty slots with `here`."""
        self._need_messages()
        return jax.tree.map(lambda m: m[self.index], self.messages)

    def _need_messages(self) -> None:
        if self.messages is None:
            raise InputError("this exchange opens sums only: there are no individual messages to read")

    def _chunks(self) -> Any:
        width, chunk = self.index.shape[0], self.chunk
        short = -width % chunk
        slots = (self.index, self.weight, self.here, self.memory)
        padded = jax.tree.map(lambda x: jnp.pad(x, [(0, short)] + [(0, 0)] * (x.ndim - 1)), slots)
        return jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), padded)


def _at(f: Callable, messages: Any, slot: Any) -> Any:
    index, weight, _here, memory = slot
    return f(jax.tree.map(lambda m: m[index], messages), weight, memory)


def _limits(dtype: Any) -> Any:
    """The values that no minimum and no maximum can be beyond."""
    if jnp.issubdtype(dtype, jnp.floating):
        return SimpleNamespace(min=-jnp.inf, max=jnp.inf)
    return jnp.iinfo(dtype)


def _like(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))


@dataclass(frozen=True)
class Erratum:
    """One place where a paper is wrong: what it printed, what is true, how bad it is."""

    where: str
    printed: str
    correct: str
    severity: Literal["privacy", "utility", "loose", "unproved", "typo"]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm module, looked at through its protocol."""

    slug: str
    module: ModuleType

    def __getattr__(self, name: str) -> Any:
        if name == "module" or name.startswith("__"):  # asked for before there is one, as by `copy`
            raise AttributeError(name)
        return getattr(self.module, name)

    def has(self, name: str) -> bool:
        """Whether the module offers an optional part of the protocol."""
        return hasattr(self.module, name)

    @property
    def summary(self) -> str:
        """First line of the module's docstring."""
        return (self.module.__doc__ or "").strip().splitlines()[0]

    @property
    def private(self) -> bool:
        """Whether its messages carry noise (an algorithm whose `cost` is NonPrivate does not)."""
        return self.has("sensitivity")

    @property
    def solves(self) -> bool:
        """Whether its agents go over their records many times in a round."""
        return bool(self.module.needs(self.module.EXAMPLE).reads_often)

    def check(self, cfg: Config, problem: Problem) -> None:
        """Refuse a problem that lacks what the algorithm's proof asks for, naming both."""
        needs: Needs = self.module.needs(cfg)
        if missing := needs.missing(problem):
            raise InputError(f"{self.slug} needs {' and '.join(missing)}: {problem.name} has none stated")
        if problem.constraint is not None and not needs.projects and not problem.interior:
            able = [a.slug for a in all_algorithms().values() if a.module.needs(a.module.EXAMPLE).projects]
            raise InputError(
                f"{self.slug} does not keep its answer in a set: leave out problem.radius, or use {' or '.join(able)}"
            )

    @property
    def reads(self) -> Literal["individuals", "sums", "total"]:
        """What it needs of the others' messages."""
        return getattr(self.module, "READS", "individuals")

    @property
    def errata(self) -> tuple[Erratum, ...]:
        """What the module says its paper got wrong."""
        return getattr(self.module, "ERRATA", ())

    @property
    def reference(self) -> str:
        """The paper it comes from."""
        return getattr(self.module, "REFERENCE", "")


REQUIRED = ("Config", "EXAMPLE", "init", "draws", "emit", "absorb", "estimate", "cost", "needs")


@cache
def all_algorithms() -> dict[str, Algorithm]:
    """Every algorithm of the package, by slug: found by walking it, never listed by hand."""
    import coterie.algorithms as package

    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_") or info.name == "base":
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        missing = [name for name in REQUIRED if not hasattr(module, name)]
        if missing:
            raise TypeError(f"{module.__name__} is not an algorithm: it lacks {', '.join(missing)}")
        slug = info.name.replace("_", "-")
        found[slug] = Algorithm(slug, module)
    return dict(sorted(found.items()))


def find(slug: str) -> Algorithm:
    """The algorithm called `slug`, or an error that lists what there is."""
    known = all_algorithms()
    if slug not in known:
        raise InputError(f"unknown algorithm {slug!r}; there are {', '.join(known)}")
    return known[slug]
