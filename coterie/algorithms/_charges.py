"""What an algorithm's messages cost over a run, from public numbers only; agents in like places are treated once."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import rows
from coterie.compiler import brief
from coterie.privacy.events import Event

__all__ = ["alike", "costs", "distinct", "run_events"]


def run_events(algorithm: Algorithm, cfg: Config, place: Place, rounds: int | None = None) -> list[Event]:
    """All events of one agent's first `rounds` (default: all), as if every message were sent.

    Each event's numbers carry a round axis.
    """
    with jax.enable_x64(True):
        events = costs(algorithm, cfg, place, place.rounds if rounds is None else rounds)
        return [jax.tree.map(lambda x: np.asarray(x), e) for e in events]


def costs(algorithm: Algorithm, cfg: Config, place: Place, rounds: int) -> tuple[Event, ...]:
    """The events of so many rounds at once; settings that are numbers are arguments of the compiled program."""
    place = jax.tree.map(np.asarray, place)  # a number of Python's and one of JAX's would be two programs
    try:
        return _costs(algorithm, jax.tree.map(np.float64, cfg), place, rounds)
    except TypeError:  # JAX's, of every kind: an algorithm of a user's own asks how large one is, or calls NumPy
        return _costs(algorithm, cfg, place, rounds)


@brief
def _costs(algorithm: Algorithm, cfg: Config, place: Place, rounds: int) -> tuple[Event, ...]:
    out = jax.vmap(lambda t: algorithm.cost(cfg, place, t, None))(jnp.arange(rounds))
    events = out if isinstance(out, tuple) else (out,)
    if place.present is None:
        return events
    here = place.present[:rounds].astype(int)  # who is away sends nothing, by a public list: nothing to pay for
    return tuple(dataclasses.replace(e, times=e.times * here) for e in events)


def alike(places: Place, extra: np.ndarray) -> list[tuple[np.ndarray, Place]]:
    """Groups of agents whose places (and budgets) are equal: (who, one of their places in float64)."""
    facts = [places.count, places.degree, places.self_weight, places.unit, places.noise]
    facts += [] if places.seat is None else [places.seat]
    table = np.stack([np.asarray(x, float) for x in (*facts, extra)], axis=1)
    if np.ndim(places.shape) == 2:  # a schedule for each
        table = np.concatenate([table, np.asarray(places.shape, float)], axis=1)
    if places.present is not None:
        table = np.concatenate([table, np.asarray(places.present, float)], axis=1)
    first, which = distinct(table)
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: np.asarray(x, float), places)  # NumPy: JAX would compile for every shape
        chosen = [jax.device_put(rows(double, int(i))) for i in first]
        return [(np.flatnonzero(which == k), place) for k, place in enumerate(chosen)]


def distinct(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct row of a table stands first, in their order, and which of them every row is.

    As `np.unique(table, axis=0)` says, but column by column: whole rows of a million agents take seconds to sort.

    >>> [x.tolist() for x in distinct(np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]]))]
    [[1, 0], [1, 0, 1]]
    """
    which, first = np.zeros(len(table), int), np.zeros(1, int)
    for column in table.T:
        if np.any(column != column[0]):
            values, rank = np.unique(column, return_inverse=True)
            _, first, which = np.unique(which * len(values) + rank, return_index=True, return_inverse=True)
    return first, which
