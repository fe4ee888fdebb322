"""What is attacked: one agent of a small network with its price, and two worlds that nobody may tell apart.

The worlds differ in one record of a shard whose other records are zero vectors, which add neither gradient nor
curvature; where people are the unit, in a person who has `CROWD` such records in one world and one in the other. Two
canaries are tried (docs/audit.md): the *antipodal* pair ±cos θ·u + sin θ·v, whose margins are both very negative at
points −M·v, where the gradients differ by 2 cos θ and the loss has no curvature left; and the *flip* of one label.
Neighbours answer with −M·v, with zero, or echo. (u, v) are the axes, or, against noise with independent Laplace
coordinates, the diagonals, which move every coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from coterie.algorithms.base import Algorithm, Config, Place, Public
from coterie.algorithms.batches import rows
from coterie.audit.losses import Pair, pairs
from coterie.audit.neighbours import DEGREE
from coterie.drivers.budget import calibrate_place, run_events
from coterie.drivers.layout import make_places
from coterie.errors import InputError
from coterie.graphs import Graph, Mixing, make_graph, mixing
from coterie.losses.base import find_loss
from coterie.losses.logistic import Logistic
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.events import Event, Free, NonPrivate
from coterie.problems import HeldShard, Linear, People, Problem, SolverSettings
from coterie.problems.labels import SIGNS
from coterie.problems.people import lay_out
from coterie.problems.solve import Solver

__all__ = ["ATTACKS", "CROWD", "DIAGONAL", "Setting", "attacks_on", "make_setting", "place_of", "shard_of", "worlds"]

ANGLE, FAR, RIDGE = 0.05, 400.0, 0.05
CROWD = 40  # records of the person in whom worlds differ, where people are the unit
DRAWN = 10  # pairs drawn at random beside the crafted ones
TOLERANCE = 1e-11  # of the solver; what is declared must not be smaller
WHOLE: dict[
    str, dict[str, object]
] = {  # settings under which every record is used in every round, and grids too fine to matter
    "sdm": {"batch": None},
    "qdpsgd1": {"scheme": "fixed", "batch": 4, "bits": 28, "range": 1024.0},
    "qdpsgd2": {"scheme": "fixed", "batch": 4, "range": 4096.0},
    "qdpsgd2-grad": {"scheme": "fixed", "batch": 4, "bits": 28, "range": 1024.0},
}


@dataclass(frozen=True)
class Setting:
    """One agent with its price: everything of an audit but the records."""

    algorithm: Algorithm
    cfg: Config
    place: Place
    epsilon: float  # what is claimed for the whole run
    delta: float
    events: list[Event]  # what `cost` declares, each with a round axis
    records: int
    claimed_by: Literal["accountant", "paper"]
    slip: float = 0.0  # how far a hostile solver may stop from the minimiser, as a gradient norm
    problem: Problem = field(default_factory=lambda: Logistic(2))
    graph: Graph | None = None  # None: three agents
    agent: int = 0  # which of its nodes

    @property
    def degree(self) -> int:
        """Neighbours of the agent."""
        return int(self.place.degree)

    @property
    def mu(self) -> float | None:
        """μ of the claim, if it is an accountant's and Gaussian."""
        if self.claimed_by == "paper" or any(isinstance(e, NonPrivate) for e in self.events):
            return None
        return total_mu(self.events)

    @property
    def replaces(self) -> bool:
        """Whether neighbours differ by replacing a record; else by leaving one out."""
        return all(e.adjacency == "replace-one" for e in self.events if not isinstance(e, Free | NonPrivate))

    @property
    def laws(self) -> set[str]:
        """The kinds of randomness that a round uses."""
        return {law.name for law in self.algorithm.draws(self.cfg, self.place).values()}


def _pair(name: str, *, tilted: bool, away: float = FAR, echo: bool = False, diagonal: bool = False) -> Pair:
    """A crafted pair: ±cos θ·u + sin θ·v, or ±u; neighbours at −away·v; everybody starts at −FAR·v."""
    half = 0.5**0.5
    u, v = (np.array([half, half]), np.array([-half, half])) if diagonal else np.eye(2)
    tilt, size = (np.sin(ANGLE) * v, np.cos(ANGLE)) if tilted else (0 * v, 1.0)
    nothing = (0 * u, 1.0)
    flags = ("echo",) if echo else ()
    return Pair(name, (tilt + size * u, 1.0), (tilt - size * u, 1.0), nothing, -away * v, flags, start=-FAR * v)


ATTACKS = (
    _pair("antipodal records, neighbours far away", tilted=True),
    _pair("flipped label, neighbours far away", tilted=False),
    _pair("antipodal records, neighbours echo", tilted=True, away=0.0, echo=True),
    _pair("flipped label, neighbours at zero", tilted=False, away=0.0),
)
DIAGONAL = (
    _pair("antipodal records on the diagonal, neighbours far away", tilted=True, diagonal=True),
    _pair("antipodal records on the diagonal, neighbours echo", tilted=True, away=0.0, echo=True, diagonal=True),
)


class _Sloppy(HeldShard):
    """A shard whose solver stops as far from the minimiser as it may, on the side that tells the world."""

    push: Array = eqx.field(kw_only=True)  # gradient that is left over

    def argmin(
        self, linear: Array, curvature: Array | float, solver: Solver, tolerance: Array | float
    ) -> tuple[Array, Solver]:
        x, solver = HeldShard.argmin(self, linear, curvature, solver, TOLERANCE)
        return x + jnp.linalg.solve(self.hessian(x) + curvature * jnp.eye(x.shape[0]), self.push), solver


def shard_of(
    setting: Setting, features: ArrayLike, targets: ArrayLike | None = None, count: int | None = None,
    side: np.ndarray | None = None, *, at: int = 0, many: int = CROWD,
) -> HeldShard:  # fmt: skip
    """The agent's records, by default all positive; with `slip` its solver errs to the given side.

    Where people are the unit every record is a person's only one, but for that of person `at`, who has `many` like it.
    """
    n = setting.records
    features, targets = jnp.asarray(features), jnp.ones(n) if targets is None else jnp.asarray(targets)
    people = None
    if setting.problem.per_person:
        owner = np.repeat(np.arange(n), np.where(np.arange(n) == at, many, 1))
        (take,), laid = lay_out([owner], n - 1 + CROWD, n, CROWD)
        features, targets = features[owner[take]], targets[owner[take]]
        people = People(**{name: jax.device_put(x[0]) for name, x in laid.items()}, most=CROWD)
    exact = not setting.slip or side is None
    make = HeldShard if exact else partial(_Sloppy, push=jnp.asarray(setting.slip * np.asarray(side)))
    return make(
        setting.problem, features, targets, jnp.asarray(n if count is None else count), setting.place.unit,
        setting.place.ridge, SolverSettings(max_steps=100), people,
    )  # fmt: skip


def worlds(setting: Setting, pair: Pair) -> tuple[HeldShard, HeldShard]:
    """The agent's shard in either world (inside x64); the second lacks the record where the claim is about that.

    Records are admitted as a party's own are, so that what a pair says can be anything.
    """
    out = []
    side = pair.first[0] - pair.second[0]
    side = side / max(float(np.linalg.norm(side)), 1e-30)
    for which in (0, 1):
        rows, targets = pair.records(which if setting.replaces else 0, setting.records, last=not setting.replaces)
        rows, targets = setting.problem.admit(rows, targets)
        targets = targets.astype(np.int32) if targets.dtype.kind == "i" else targets
        count = setting.records - (which if not setting.replaces else 0)
        push = (1 - 2 * which) * side if side.size == setting.problem.dim else None
        whose = pair.place(setting.records, last=not setting.replaces)
        many = 1 if which and setting.replaces else CROWD
        made = jax.device_put(rows), jax.device_put(targets)
        out.append(shard_of(setting, *made, count, push, at=whose, many=many))
    return out[0], out[1]


def place_of(setting: Setting, pair: Pair) -> Place:
    """The agent's spot, with the (public) start where the pair wants it."""
    start = pair.point if pair.start is None else pair.start
    return eqx.tree_at(lambda p: p.start, setting.place, jax.device_put(np.asarray(start, float)))


def attacks_on(setting: Setting, drawn: int = DRAWN, seed: int = 0) -> tuple[Pair, ...]:
    """The pairs worth trying: those crafted for linear losses in two dimensions, and some drawn at random for all."""
    scored = setting.problem.scored or isinstance(setting.problem, Linear)
    linear = scored and setting.problem.labels is SIGNS and setting.place.dim == 2
    crafted = (ATTACKS + DIAGONAL if "laplace" in setting.laws else ATTACKS) if linear else ()
    return (*crafted, *pairs(setting.problem, drawn, seed))


def make_setting(
    algorithm: Algorithm,
    cfg: Config | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    rounds: int = 6,
    records: int = 4,
    ridge: float = RIDGE,
    printed: bool = False,
    claim: Literal["accountant", "paper"] | None = None,
    noise: float | None = None,
    shape: np.ndarray | None = None,
    self_weight: float | None = None,
    slip: float = 0.0,
    dim: int = 2,
    problem: Problem | None = None,
    load: float = 1.0,
    graph: Graph | None = None,
    weights: Mixing | None = None,
    agent: int = 0,
) -> Setting:
    """Price one agent of a small network.

    Args:
        algorithm: whose claim is tested.
        cfg: its settings; by default those under which every record is used in every round.
        epsilon: the budget that the noise is fitted to.
        delta: δ of the claim; 0 for a paper's pure claim.
        rounds: T.
        records: how many the agent holds.
        ridge: of the objective.
        printed: run what the paper printed.
        claim: whose ε the noise is fitted to, ours or the paper's; by default the paper's if `printed`.
        noise: a noise multiplier instead of a budget.
        shape: the schedule.
        self_weight: w_ii; by default that of the network.
        slip: gradient norm at which a hostile solver stops (the agent must declare at least as much).
        dim: of the problem; the attacks here are made for 2.
        problem: what is learned; by default a logistic model, or second moments that are released. One that the
            contract refuses is an error.
        load: unit · count, what all records of the agent together weigh.
        graph: who talks to whom; by default three agents, each of whom has two neighbours or is a leaf.
        weights: of the graph; by default Metropolis.
        agent: the node under attack.
    """
    if not algorithm.private:
        raise InputError(f"{algorithm.slug} makes no privacy claim: there is nothing to audit")
    if printed and not algorithm.config.can_print():
        raise InputError(f"{algorithm.slug} has no printed version that differs")
    claim = claim or ("paper" if printed else "accountant")
    if claim == "paper" and algorithm.claim is None:
        raise InputError(f"{algorithm.slug} has no formula of its paper's claim")
    if cfg is None:
        cfg = algorithm.example.replace(**WHOLE.get(algorithm.slug, {}))
        if "tolerance" in type(cfg).model_fields and not slip:
            cfg = cfg.replace(tolerance=10 * TOLERANCE)
    given = graph
    if graph is None:
        kind = (algorithm.graphs or ("ring",))[0]
        graph = make_graph(kind, DEGREE + 1)  # agent 0 has two neighbours in every kind
    weights = weights or mixing(graph, "metropolis")
    if problem is None:
        asks = algorithm.needs(cfg)
        loss = find_loss("moments" if asks.released else "mean" if asks.averages else "logistic")
        problem = loss.make(loss.settings(), dim, 2)
    algorithm.check(cfg, problem)
    public = Public(
        agents=graph.size, rounds=rounds, dim=problem.dim, count_min=records, count_max=records,
        degree_min=int(graph.degrees.min()), degree_max=int(graph.degrees.max()),
        laplacian_max=float(graph.laplacian_extremes[1]), mixing_gap=weights.spectrum().gap, ridge=ridge,
        lipschitz=problem.half_gap, smoothness=problem.smoothness, epsilon=epsilon, delta=delta, load=load,
    )  # fmt: skip
    if algorithm.tune is not None:
        cfg = algorithm.tune(cfg, public)
    with jax.enable_x64(True):
        sizes = np.full(graph.size, records)
        places = make_places(problem, sizes, graph, weights, rounds=rounds, ridge=ridge, shape=shape)
        places = eqx.tree_at(lambda p: p.unit, places, load * places.unit)
        if self_weight is not None:
            places = eqx.tree_at(lambda p: p.self_weight, places, jnp.full(graph.size, self_weight))
        fixed = cfg.corrected() if printed else cfg
        cfg = cfg.as_in_print() if printed else cfg
        if noise is None and claim == "accountant":
            noise = calibrate_place(algorithm, fixed, rows(places, agent), epsilon, delta)
        elif noise is None:
            noise = _as_claimed(algorithm, cfg, rows(places, agent), epsilon, delta)
        place = eqx.tree_at(lambda p: p.noise, rows(places, agent), jnp.asarray(noise))
        events = run_events(algorithm, cfg, place)
        paid = account(run_events(algorithm, fixed, place), delta).epsilon if claim == "accountant" else None
        said = _claimed(algorithm, cfg, place, delta) if paid is None else paid
    return Setting(algorithm, cfg, place, said, delta, events, records, claim, slip, problem, given, agent)


def _as_claimed(algorithm: Algorithm, cfg: Config, place: Place, epsilon: float, delta: float) -> float:
    """The noise multiplier at which the paper prints ε."""

    def over(log_noise: float) -> float:
        at = eqx.tree_at(lambda p: p.noise, place, jnp.asarray(np.exp(log_noise)))
        with np.errstate(over="ignore"):
            return float(np.log(_claimed(algorithm, cfg, at, delta)) - np.log(epsilon))

    return float(np.exp(brentq(over, np.log(1e-3), np.log(1e6), xtol=1e-12)))


def _claimed(algorithm: Algorithm, cfg: Config, place: Place, delta: float) -> float:
    """The ε that the paper prints."""
    if algorithm.claim is None:
        raise InputError(f"{algorithm.slug} has no formula of a paper's claim")
    return float(algorithm.claim(cfg, place, delta))
