"""What is attacked: one agent of a small network with its price, and the worlds between which it must not tell.

The worlds differ in one record of a shard whose other records are zero vectors, which add neither gradient nor
curvature. Two canaries are tried (spec of the arithmetic: docs/audit.md): the *antipodal* pair ±cos θ·u + sin θ·v,
whose margins are both very negative at points −M·v, where the gradients differ by 2 cos θ and the loss has no
curvature left; and the *flip* of one label. Neighbours answer with −M·v, with zero, or echo. (u, v) are the axes, or,
against noise with independent Laplace coordinates, the diagonals, which move every coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

from coterie.algorithms.base import Algorithm, Config, Place, Public
from coterie.audit.transcripts import NEIGHBOURS, Environment
from coterie.drivers.layout import make_places, rows
from coterie.errors import InputError
from coterie.graphs import make_graph, mixing
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.budget import calibrate_agents, run_events
from coterie.privacy.events import Event, Free, NonPrivate
from coterie.problems import HeldShard, Linear, Settings

__all__ = ["ATTACKS", "Attack", "Setting", "make_setting", "shard_of"]

ANGLE, FAR, RIDGE = 0.05, 400.0, 0.05
TOLERANCE = 1e-11  # of the solver; what is declared must not be smaller
WHOLE: dict[
    str, dict[str, Any]
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


@dataclass(frozen=True)
class Attack:
    """A pair of records and how the neighbours behave."""

    name: str
    pair: Literal["antipodal", "flip", "found"]
    away: float = FAR  # how far from zero the neighbours are
    echo: bool = False  # or they repeat what the agent says
    diagonal: bool = False
    crowd: bool = False  # all other records are copies of the first world's, instead of zero vectors
    found: tuple[tuple[float, ...], ...] = ()  # both records and the neighbours' point (`coterie.audit.search`)

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """(u, v)."""
        half = 0.5**0.5
        return (np.array([half, half]), np.array([-half, half])) if self.diagonal else (np.eye(2)[0], np.eye(2)[1])

    def worlds(self, setting: Setting) -> tuple[HeldShard, HeldShard]:
        """The two shards; in the second the record is replaced, or blanked where the claim is about leaving it out."""
        u, v = self.frame()
        if self.found:
            one, two = np.array(self.found[0]), np.array(self.found[1])
            return self._shard(setting, one, one, u), self._shard(
                setting, two if setting.replaces else 0 * two, one, -u
            )
        tilt = np.sin(ANGLE) * v if self.pair == "antipodal" else 0 * v
        size = np.cos(ANGLE) if self.pair == "antipodal" else 1.0
        other = tilt - size * u if setting.replaces else 0 * u
        return self._shard(setting, tilt + size * u, tilt + size * u, u), self._shard(
            setting, other, tilt + size * u, -u
        )

    def _shard(self, setting: Setting, canary: np.ndarray, rest: np.ndarray, side: np.ndarray) -> HeldShard:
        features = np.tile(rest if self.crowd else 0 * rest, (setting.records, 1))
        features[0] = canary
        return shard_of(setting, features, side)

    def environment(self) -> Environment:
        """The neighbours."""
        if self.found:
            return Environment(jnp.asarray(self.found[2]), jnp.asarray(self.echo))
        return Environment(jnp.asarray(-self.away * self.frame()[1]), jnp.asarray(self.echo))

    def place(self, setting: Setting) -> Place:
        """The agent's spot, with the (public) start where the neighbours want it."""
        start = np.array(self.found[2]) if self.found else -FAR * self.frame()[1]
        return eqx.tree_at(lambda p: p.start, setting.place, jnp.asarray(start))


ATTACKS = (
    Attack("antipodal records, neighbours far away", "antipodal"),
    Attack("flipped label, neighbours far away", "flip"),
    Attack("antipodal records, neighbours echo", "antipodal", 0.0, True),
    Attack("flipped label, neighbours at zero", "flip", 0.0),
)
DIAGONAL = (
    Attack("antipodal records on the diagonal, neighbours far away", "antipodal", diagonal=True),
    Attack("antipodal records on the diagonal, neighbours echo", "antipodal", 0.0, True, diagonal=True),
)


class _Sloppy(HeldShard):
    """A shard whose solver stops as far from the minimiser as it may, on the side that tells the world."""

    push: Any = eqx.field(kw_only=True)  # gradient that is left over

    def argmin(self, linear: Any, curvature: Any, solver: Any, tolerance: Any) -> Any:
        x, solver = HeldShard.argmin(self, linear, curvature, solver, TOLERANCE)
        return x + jnp.linalg.solve(self.hessian(x) + curvature * jnp.eye(x.shape[0]), self.push), solver


def shard_of(setting: Setting, features: Any, side: np.ndarray | None = None) -> HeldShard:
    """The agent's records; with `slip` its solver errs to the given side."""
    how = Settings(max_steps=100)
    n = setting.records
    parts: dict[str, Any] = {
        "problem": Linear(setting.place.dim),
        "features": jnp.asarray(features),
        "targets": jnp.ones(n),
    }
    parts |= {"count": jnp.asarray(n), "unit": setting.place.unit, "ridge": setting.place.ridge, "how": how}
    if setting.slip and side is not None:
        return _Sloppy(**parts, push=jnp.asarray(setting.slip * side))
    return HeldShard(**parts)


def attacks_on(setting: Setting) -> tuple[Attack, ...]:
    """The attacks worth trying."""
    return ATTACKS + DIAGONAL if "laplace" in setting.laws else ATTACKS


def make_setting(
    algorithm: Algorithm,
    cfg: Config | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    rounds: int = 6,
    records: int = 4,
    ridge: float = RIDGE,
    as_printed: bool = False,
    claim: Literal["accountant", "paper"] | None = None,
    noise: float | None = None,
    shape: np.ndarray | None = None,
    self_weight: float | None = None,
    slip: float = 0.0,
    dim: int = 2,
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
        as_printed: run what the paper printed.
        claim: whose ε the noise is fitted to, ours or the paper's; by default the paper's if `as_printed`.
        noise: a noise multiplier instead of a budget.
        shape: the schedule.
        self_weight: w_ii; by default that of the network.
        slip: gradient norm at which a hostile solver stops (the agent must declare at least as much).
        dim: of the problem; the attacks here are made for 2.
    """
    if not algorithm.private:
        raise InputError(f"{algorithm.slug} makes no privacy claim: there is nothing to audit")
    if as_printed and "as_printed" not in algorithm.Config.model_fields:
        raise InputError(f"{algorithm.slug} has no printed version that differs")
    claim = claim or ("paper" if as_printed else "accountant")
    if claim == "paper" and not algorithm.has("claim"):
        raise InputError(f"{algorithm.slug} has no formula of its paper's claim")
    if cfg is None:
        cfg = algorithm.EXAMPLE.replace(**WHOLE.get(algorithm.slug, {}))
        if "tolerance" in type(cfg).model_fields and not slip:
            cfg = cfg.replace(tolerance=10 * TOLERANCE)
    kind = getattr(algorithm.module, "GRAPHS", ("ring",))[0]
    graph = make_graph(kind, NEIGHBOURS + 1)  # agent 0 has two neighbours in every kind
    weights = mixing(graph, "metropolis")
    problem = Linear(dim)
    public = Public(
        agents=NEIGHBOURS + 1, rounds=rounds, dim=dim, count_min=records, count_max=records,
        degree_min=int(graph.degrees.min()), degree_max=int(graph.degrees.max()),
        laplacian_max=float(graph.laplacian_extremes[1]), mixing_gap=weights.spectrum().gap, ridge=ridge,
        lipschitz=problem.half_gap, smoothness=problem.smoothness, epsilon=epsilon, delta=delta,
    )  # fmt: skip
    if algorithm.has("tune"):
        cfg = algorithm.tune(cfg, public)
    with jax.enable_x64(True):
        sizes = np.full(NEIGHBOURS + 1, records)
        places = make_places(problem, sizes, graph, weights, rounds=rounds, ridge=ridge, shape=shape)
        if self_weight is not None:
            places = eqx.tree_at(lambda p: p.self_weight, places, jnp.full(NEIGHBOURS + 1, self_weight))
        fixed = cfg.replace(as_printed=False) if as_printed else cfg
        cfg = cfg.replace(as_printed=True) if as_printed else cfg
        if noise is None and claim == "accountant":
            noise = float(calibrate_agents(algorithm, fixed, places, epsilon, delta)[0])
        elif noise is None:
            noise = _as_claimed(algorithm, cfg, rows(places, 0), epsilon, delta)
        place = eqx.tree_at(lambda p: p.noise, rows(places, 0), jnp.asarray(noise))
        events = run_events(algorithm, cfg, place)
        paid = account(run_events(algorithm, fixed, place), delta).epsilon if claim == "accountant" else None
        said = float(algorithm.claim(cfg, place, delta)) if paid is None else paid
    return Setting(algorithm, cfg, place, said, delta, events, records, claim, slip)


def _as_claimed(algorithm: Algorithm, cfg: Config, place: Place, epsilon: float, delta: float) -> float:
    """The noise multiplier at which the paper prints ε."""

    def over(log_noise: float) -> float:
        at = eqx.tree_at(lambda p: p.noise, place, jnp.asarray(np.exp(log_noise)))
        with np.errstate(over="ignore"):
            return float(np.log(algorithm.claim(cfg, at, delta)) - np.log(epsilon))

    return float(np.exp(brentq(over, np.log(1e-3), np.log(1e6), xtol=1e-12)))
