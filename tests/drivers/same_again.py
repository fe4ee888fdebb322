"""The same computations over and over, compiled anew each time: prints a hash of what came out, a line each time.

python -m tests.drivers.same_again TIMES [on]: `on` leaves in the compiler what `coterie.compiler` takes out of it.
"""

from __future__ import annotations

import hashlib
import os
import sys

import coterie

if sys.argv[2:] == ["on"]:
    os.environ["XLA_FLAGS"] = " ".join(f for f in os.environ["XLA_FLAGS"].split() if f != coterie.compiler.FLAG)

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.batches import axes
from coterie.drivers.layout import Layout, make_layout
from coterie.graphs import make_graph, mixing
from coterie.losses.softmax import Softmax
from coterie.problems import HeldShard
from coterie.worth.home import at_home

AGENTS, RECORDS, FEATURES, CLASSES = 5, 288, 64, 10


def network() -> Layout:
    """Parties of a softmax model that starts at zero."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(AGENTS * RECORDS, FEATURES))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.argmax(x @ rng.normal(size=(FEATURES, CLASSES)), axis=1).astype(np.int32)
    graph = make_graph("ring", AGENTS)
    parts = np.split(np.arange(len(x)), AGENTS)
    return make_layout(Softmax(FEATURES, CLASSES), x, y, parts, graph, mixing(graph), rounds=1, ridge=0.1)


def held(layout: Layout) -> HeldShard:
    """Everybody's records."""
    shards = layout.arrays.groups[0].shards
    assert isinstance(shards, HeldShard)
    return shards


def once(layout: Layout, start: float) -> list[np.ndarray]:
    """Everybody's gradients and scores at a constant point."""
    shards, point = held(layout), jnp.full(layout.problem.dim, start)
    slopes = jax.jit(lambda s: jax.vmap(lambda one: one.slope(point), (axes(s),))(s))
    scores = jax.jit(lambda x: jnp.sum(x @ point.reshape(FEATURES, CLASSES), axis=-1))
    return [np.asarray(slopes(shards)), np.asarray(scores(shards.features))]


def alone(layout: Layout) -> np.ndarray:
    """Every party's model of its own, as reports show it."""
    shards = held(layout)
    nobody = np.empty((0, layout.problem.dim))
    parties = zip(np.asarray(shards.features), np.asarray(shards.targets), strict=True)
    return np.array([at_home(layout.problem, x, y, nobody, ridges=(0.1,)).alone for x, y in parties])


if __name__ == "__main__":
    with jax.enable_x64(True):
        layout = network()
        for _ in range(int(sys.argv[1])):
            jax.clear_caches()
            found = [*once(layout, 0.0), *once(layout, 0.3), alone(layout)]
            want = 0.3 * CLASSES * np.sum(np.asarray(held(layout).features), axis=-1)
            right = all(np.isfinite(v).all() for v in found) and np.allclose(found[3], want)
            print(hashlib.sha256(b"".join(v.tobytes() for v in found)).hexdigest(), right, flush=True)
