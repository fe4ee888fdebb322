r"""Gradient descent whose noise neighbours share: it hides single messages, and most of it cancels in the average.

Agent i takes the steps of dp-dsgd, with all records, from the mixed point (momentum β, k − 1 mixing rounds a gradient
round, tail average), but its noise is
    √q σ (z_i + ratio Σ_{j ~ i} ±v_ij),   z_i, v_ij ~ N(0, I) fresh in every gradient round,
where v_ij is a secret of the neighbours i and j, which the one adds and the other subtracts. In the average of all
agents only √q σ z_i is left. All parties add the same noise: that of the one whose records weigh most.

**Adversary**: sees every message of every round, knows every record but one, and the secrets of `curious` parties, but
no secret that two others share. **Guarantee**: given earlier messages, which it has seen, every state is known, so in
both worlds a round's messages are f + noise of covariance q σ² S on those who are left, S = I + ratio² Laplacian of the
graph without the curious (their edges' secrets are known), and only coordinate i of f differs. That is a Gaussian
release with μ² ≤ Δ² (S⁻¹)_ii/(q σ²), Δ = 2 γ C max unit. With q = max (S⁻¹)_ii, over all parties i and all
sets of `curious` + `missing` parties, it is at most Δ²/σ², whoever they are; rounds compose adaptively, since all that
a round depends on has been seen. A party that is away and whose secrets are left out counts as one that knows them; its
silence alone tells no more (a principal block of S has a smaller inverse).

**Deployed**, two neighbours derive v_ij from their keys, on the grid of own noise (`coterie.deploy.pairs`): in the sum
nothing is left of them, to the last integer. No secret is ever left out there, so `missing` need not be more than 0.

q is between 1/(parties left) and 1. It is 1 where the curious may be all of somebody's neighbours: then nothing is
gained. The price is disagreement: a single agent's noise is larger than q σ² by ratio² times its number of neighbours.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import lru_cache, partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import dp_dsgd as plain
from coterie.algorithms.base import Auto, Erratum, Grid, Inbox, Law, Needs, Place, Public, Shared
from coterie.algorithms.dp_dsgd import Message, State
from coterie.errors import InputError
from coterie.graphs import Graph
from coterie.privacy.events import Event, Gaussian
from coterie.privacy.observers import MOST_WORK, hidden_share, worst_hidden_share
from coterie.problems import Problem, Shard

REFERENCE = (
    "Allouah, Koloskova, El Firdoussi, Jaggi, Guerraoui (ICML 2024), DECOR, with curious parties deleted from the "
    "Laplacian and exact Gaussian composition; steps of dp-dsgd"
)
RIDGE = plain.RIDGE
ERRATA = (
    Erratum(
        "released accountant",
        "S of the full graph, for a claim against an eavesdropper and curious users",
        "a curious user knows the secrets that it shares: delete it from the Laplacian. Ring of 16, ratio² = 10: "
        "(S⁻¹)_ii is .158 against an eavesdropper and .270 against one neighbour, so μ is 1.3 times what is printed",
        "privacy",
    ),
)


class Config(plain.StepSettings):
    """Hyper-parameters; None is filled by the rules of dp-dsgd, for the noise that is left on the average."""

    ratio: float = Field(10.0, gt=0, description="scale of a secret that two neighbours share, over that of own noise")
    curious: int = Field(1, ge=0, description="parties that may pool all that they know, their secrets included")
    missing: int = Field(0, ge=0, description="parties that may be away, with whom neighbours then share no secret")
    left: Auto = Field(
        None, gt=0, le=1, description="q, own variance over what hides a message: worked out from the graph, not stated"
    )
    heaviest: Auto = Field(None, gt=0, description="largest weight of a record at any party: worked out, not stated")


EXAMPLE = Config(step=1.0, momentum=0.5, clip=1.0, mixing=2, tail=0.5, ratio=2.0)


def _steps(cfg: Config) -> plain.Config:
    """The settings of the steps."""
    return plain.Config.model_construct(
        step=cfg.step, momentum=cfg.momentum, clip=cfg.clip, mixing=cfg.mixing, tail=cfg.tail, batch=None,
        scheme="without-replacement",
    )  # fmt: skip


@lru_cache(maxsize=8)
def _left(edges: bytes, size: int, ratio: float, gone: int) -> float:
    return worst_hidden_share(np.frombuffer(edges, np.int64).reshape(-1, 2), size, ratio, gone)


def left_of(cfg: Config, graph: Graph | None) -> float:
    """q: the largest (S⁻¹)_ii of any party, whoever is curious or missing; 1 where the graph is not known."""
    if graph is None:
        return 1.0
    edges = np.ascontiguousarray(graph.edges, np.int64).tobytes()
    return _left(edges, graph.size, float(cfg.ratio), cfg.curious + cfg.missing)


def needs(cfg: Config) -> Needs:
    """Nothing of the loss, as every gradient is clipped; but all parties have one budget, and add the same noise."""
    return Needs(alike=True)


def tune(cfg: Config, public: Public) -> Config:
    """q from the graph; the rest as for dp-dsgd with as much noise as is left on the average."""
    left = left_of(cfg, public.graph)
    if cfg.left is not None and public.graph is not None and not math.isclose(cfg.left, left, rel_tol=1e-9):
        raise InputError(f"algorithm.left = {cfg.left:g} is worked out from the graph, {left:.4g}: leave it out")
    heaviest = public.load / public.count_max if public.load != 1.0 else 1 / public.count_min
    if cfg.heaviest is not None and not math.isclose(cfg.heaviest, heaviest, rel_tol=1e-9):
        raise InputError(f"algorithm.heaviest = {cfg.heaviest:g} is worked out from the sizes: leave it out")
    less = dataclasses.replace(public, strength=public.noise_strength() / math.sqrt(left))
    done = plain.tune(_steps(cfg), less)
    return cfg.replace(  # type: ignore[no-any-return]
        step=done.step,
        momentum=done.momentum,
        clip=done.clip,
        mixing=done.mixing,
        tail=done.tail,
        left=left,
        heaviest=heaviest,
    )


suggest_rounds = plain.suggest_rounds


def convergent(cfg: Config, public: Public) -> str | None:
    """A warning where the secrets hide nothing."""
    if cfg.left is None or cfg.left < 0.999:
        return None
    return (
        f"nothing gained: {cfg.curious + cfg.missing} curious or missing parties may know every secret of one with "
        f"{public.degree_min} neighbours, so its own noise must hide its messages, as in dp-dsgd"
    )


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point, at rest."""
    return plain.init(_steps(cfg), place)


def _own(cfg: Config) -> float:
    """√q: the scale of own noise, in units of what hides a message."""
    return (1.0 if cfg.left is None else cfg.left) ** 0.5


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Own noise and the neighbours' secrets, in units of what hides the message."""
    return {"noise": Shared(place.dim, own=_own(cfg), ratio=cfg.ratio)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """How far one record of any party can move its gradient round's message."""
    unit = place.unit if cfg.heaviest is None else jnp.maximum(place.unit, cfg.heaviest)
    return 2 * cfg.step * cfg.clip * unit


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """The noise that hides a message from the adversary."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """The scale of own noise: a deployed message, secrets included, travels on its grid."""
    return _own(cfg) * sigma(cfg, place, t)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A noisy descent step from the mixed point, or, in a mixing round, the mixed point itself."""
    deployed = isinstance(draw["noise"], Grid)  # whole steps of own noise; simulated, in units of what hides
    scale = partial(wire if deployed else sigma, cfg, place)
    return plain.stepped(_steps(cfg), place, t, state, shard, draw, scale)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average with the neighbours; from the tail's start on, average over time too."""
    return plain.absorb(_steps(cfg), place, t, state, inbox)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The tail average."""
    return state.mean


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One Gaussian release per gradient round, against the adversary above; mixing rounds are free."""
    times = (t % cfg.mixing == 0).astype(int)
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=times)


def own_cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """The same if everybody else pools all secrets: own noise alone hides the message."""
    times = (t % cfg.mixing == 0).astype(int)
    return Gaussian(sensitivity(cfg, place, t), wire(cfg, place, t), times=times)


def against(cfg: Config) -> tuple[str, str]:
    """The claim's name and its adversary."""
    gone = cfg.curious
    who = "no party's secrets" if gone == 0 else f"the secrets of at most {gone} part{'y' if gone == 1 else 'ies'}"
    return (
        f"shared noise, at most {gone} curious",
        f"sees every message of every round, and knows every record but one and {who}, but no secret that two others "
        "share",
    )


def observed(
    cfg: Config, places: Place, problem: Problem, graph: Graph, weights: np.ndarray, observers: tuple[int, ...]
) -> tuple[str, np.ndarray]:
    """μ of everybody against a reader of every message with just these parties' secrets, whoever else is missing."""
    edges, rest = np.asarray(graph.edges, np.int64), sorted(set(range(graph.size)) - set(observers))
    away = min(cfg.missing, len(rest) - 1)
    if math.comb(len(rest), away) * float(graph.size) ** 3 > MOST_WORK:
        raise InputError(f"privacy.observers: {away} missing among {len(rest)} parties are too many sets to price")
    share = np.zeros(graph.size)
    for gone in itertools.combinations(rest, away):
        share = np.maximum(share, hidden_share(edges, graph.size, float(cfg.ratio), (*observers, *gone)))
    rounds = np.arange(places.rounds) % cfg.mixing == 0
    each = np.sum(1 / np.asarray(places.shape, float)[rounds] ** 2) / np.asarray(places.noise, float) ** 2
    return (
        "sees every message of every round, and knows its own records and secrets, but no secret that two others share",
        np.sqrt(each * share / cfg.left),
    )
