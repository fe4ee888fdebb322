"""From an algorithm and a budget to noise, and from an algorithm and its noise to what every agent spends.

Both read public numbers only: sizes, degrees, the schedule, the hyper-parameters. Agents in like places are treated
once, so a million agents on a ring cost one calibration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import rows
from coterie.errors import InputError
from coterie.privacy.accountants import Account, account
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event, NonPrivate

__all__ = ["Spending", "accounts", "calibrate_agents", "calibrate_place", "run_events", "spending"]


def run_events(algorithm: Algorithm, cfg: Config, place: Place, rounds: int | None = None) -> list[Event]:
    """All events of one agent's first `rounds` (default: all), as if every message were sent.

    Each event's numbers carry a round axis.
    """
    with jax.enable_x64(True):
        events = _costs(algorithm, cfg, place, place.rounds if rounds is None else rounds)
        return [jax.tree.map(lambda x: np.asarray(x), e) for e in events]


def calibrate_agents(
    algorithm: Algorithm, cfg: Config, places: Place, epsilon: float | np.ndarray, delta: float
) -> np.ndarray:
    """The smallest noise multiplier of every agent that keeps its whole run within (ε, δ); ε may differ by agent."""
    budgets = np.broadcast_to(np.asarray(epsilon, float), (places.agents,))
    noise = np.zeros(places.agents)
    for members, place in _alike(places, budgets):
        noise[members] = calibrate_place(algorithm, cfg, place, float(budgets[members[0]]), delta)
    return noise


def calibrate_place(algorithm: Algorithm, cfg: Config, place: Place, epsilon: float, delta: float) -> float:
    """The smallest noise multiplier of one agent that keeps its whole run within (ε, δ)."""
    events = _events_by_noise(algorithm, cfg, place)
    if any(isinstance(e, NonPrivate) for e in events(1.0)):
        raise InputError(f"{algorithm.slug} is not private: no amount of noise makes it fit a budget")
    return calibrate(events, epsilon, delta)


@dataclass(frozen=True)
class Spending:
    """What a run costs: the worst agent's account, and every agent's ε."""

    worst: Account
    per_agent: np.ndarray


def spending(
    algorithm: Algorithm, cfg: Config, places: Place, delta: float, fast: bool = False, runs: int = 1
) -> Spending:
    """Account for a whole run, or for several on the same records that differ in their noise only.

    A record sits at one agent, so the network's ε is the largest of the agents'.
    """
    epsilons = np.zeros(places.agents)
    worst: Account | None = None
    for members, place in _alike(places, np.asarray(places.noise)):
        total = account(run_events(algorithm, cfg, place) * runs, delta, fast=fast)
        epsilons[members] = total.epsilon
        if worst is None or total.epsilon > worst.epsilon:
            worst = total
    assert worst is not None
    return Spending(worst, epsilons)


def accounts(algorithm: Algorithm, cfg: Config, places: Place, delta: float) -> tuple[Account, ...]:
    """Every agent's total for a whole run, by every valid accountant."""
    found: dict[int, Account] = {}
    for members, place in _alike(places, np.asarray(places.noise)):
        found |= dict.fromkeys(members.tolist(), account(run_events(algorithm, cfg, place), delta))
    return tuple(found[agent] for agent in range(places.agents))


def _events_by_noise(algorithm: Algorithm, cfg: Config, place: Place) -> Callable[[float], list[Event]]:
    """noise multiplier -> events, compiled once for all places of equal shapes."""

    def events(noise: float) -> list[Event]:
        with jax.enable_x64(True):
            here = eqx.tree_at(lambda p: p.noise, place, jax.device_put(np.float64(noise)))
            return [jax.tree.map(lambda x: np.asarray(x), e) for e in _costs(algorithm, cfg, here, here.rounds)]

    return events


@eqx.filter_jit
def _costs(algorithm: Algorithm, cfg: Config, place: Place, rounds: int) -> tuple[Event, ...]:
    """The events of rounds 0 … rounds − 1 at once; algorithm and settings are part of the compiled program."""
    out = jax.vmap(lambda t: algorithm.cost(cfg, place, t, None))(jnp.arange(rounds))
    return out if isinstance(out, tuple) else (out,)


def _alike(places: Place, extra: np.ndarray) -> list[tuple[np.ndarray, Place]]:
    """Groups of agents whose places (and budgets) are equal: (who, one of their places in float64)."""
    facts = [places.count, places.degree, places.self_weight, places.unit, places.noise]
    table = np.stack([np.asarray(x, float) for x in (*facts, extra)], axis=1)
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: np.asarray(x, float), places)  # NumPy: JAX would compile for every shape
        chosen = [jax.device_put(rows(double, int(i))) for i in first]
        return [(np.flatnonzero(which.reshape(-1) == k), place) for k, place in enumerate(chosen)]
