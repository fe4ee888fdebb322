"""Costs of one agent where all agents are alike: what a run's noise costs, and the noise that a budget takes."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import rows
from coterie.privacy.accountants import account
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event

__all__ = ["cost_of", "noise_for"]


@eqx.filter_jit
def _rounds(algorithm: Algorithm, cfg: Config, place: Place) -> tuple[Event, ...]:
    out = jax.vmap(lambda t: algorithm.cost(cfg, place, t, None))(jnp.arange(place.rounds))
    return out if isinstance(out, tuple) else (out,)


def _events(algorithm: Algorithm, cfg: Config, places: Place, noise: float) -> list[Event]:
    """What the first agent pays in all rounds, compiled once for all noise."""
    with jax.enable_x64(True):
        one = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, float)), rows(places, 0))
        here = eqx.tree_at(lambda p: p.noise, one, jnp.asarray(float(noise)))
        return [jax.tree.map(lambda x: np.asarray(x), e) for e in _rounds(algorithm, cfg, here)]


def cost_of(
    algorithm: Algorithm, cfg: Config, places: Place, noise: float, delta: float, rounds: int | None = None
) -> float:
    """ε at δ of the first `rounds` rounds (all of them by default) with this noise multiplier; δ = 0 is pure."""
    first: Any = lambda x: x[:rounds] if np.ndim(x) else x  # noqa: E731
    return float(account([jax.tree.map(first, e) for e in _events(algorithm, cfg, places, noise)], delta).epsilon)


def noise_for(algorithm: Algorithm, cfg: Config, places: Place, epsilon: float, delta: float) -> float:
    """The smallest noise multiplier that keeps the whole run within (ε, δ)."""
    return calibrate(lambda noise: _events(algorithm, cfg, places, noise), epsilon, delta)
