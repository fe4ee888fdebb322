"""Small problems and short ways to run an algorithm, for tests."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.algorithms.base import Algorithm, Config, Place, all_algorithms, find
from coterie.algorithms.batches import rows
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.found import forget
from coterie.graphs import make_graph, mixing
from coterie.losses.base import all_losses, find_loss
from coterie.losses.logistic import Logistic
from coterie.problems import Problem, Shard

CLINICS = Path(coterie.__file__).parent / "plans" / "clinics.toml"  # five clinics on a ring, ε = 1


def mostly_slow(every: Iterable[Any], *everyday: Any) -> list[Any]:
    """Values for `parametrize`: `everyday` runs in `make test`, the rest of the matrix in `make test-all`."""
    every = list(every)
    assert all(value in every for value in everyday), everyday
    return [value if value in everyday else _slow(value) for value in every]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)


def mostly_slow_checks(checks: pytest.MarkDecorator, everyday: Container[str]) -> pytest.MarkDecorator:
    """scikit-learn's `parametrize_with_checks`, the checks that are not named behind their marker."""
    names, params = checks.mark.args

    def marked(param: Any) -> Any:
        values, marks = (param.values, param.marks) if hasattr(param, "marks") else (param, ())
        check = getattr(values[1], "func", values[1])
        return pytest.param(*values, marks=marks if check.__name__ in everyday else (*marks, pytest.mark.slow))

    return pytest.mark.parametrize(names, [marked(p) for p in params], **checks.mark.kwargs)


def forget_algorithms() -> None:
    """Look for algorithms anew: a test has put one where they are found, or taken it away."""
    forget()
    for found in (all_algorithms, find):
        found.cache_clear()


def forget_losses() -> None:
    """The same for losses."""
    forget()
    for found in (all_losses, find_loss):
        found.cache_clear()


def logistic_data(n: int, d: int, seed: int = 0, strength: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """n records on the unit sphere with ±1 labels from a logistic truth."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    w = strength * rng.standard_normal(d)
    return x, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-x @ w)), 1.0, -1.0)


def network(
    agents: int = 5,
    records: int | list[int] = 40,
    d: int = 4,
    *,
    graph: str = "ring",
    problem: Problem | None = None,
    data: tuple[np.ndarray, np.ndarray] | None = None,
    rounds: int = 30,
    ridge: float = 0.05,
    seed: int = 0,
    rule: str = "metropolis",
    weighting: str = "agents",
    shape: np.ndarray | None = None,
    **params: Any,
) -> Layout:
    """Agents with logistic data (or `data`) on a small graph, float64."""
    sizes = [records] * agents if isinstance(records, int) else records
    x, y = logistic_data(sum(sizes), d, seed) if data is None else data
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    g = make_graph(graph, agents, seed=seed, **params)
    with jax.enable_x64(True):
        return make_layout(
            problem or Logistic(d), x, y, parts, g, mixing(g, rule), rounds=rounds, ridge=ridge,
            weighting=weighting, shape=shape,
        )  # fmt: skip


def run(
    slug: str | Algorithm,
    cfg: Config,
    layout: Layout,
    rounds: int | None = None,
    noise: Any = 0.0,
    seeds: int = 1,
    **more: Any,
) -> Trace:
    """Simulate with everything recorded. noise=0 is the noiseless limit; else the noise multiplier."""
    algorithm = find(slug) if isinstance(slug, str) else slug
    more = {"record": True, "every": 10, **more}
    runs = [Run(s, cfg, noise) for s in range(seeds)]
    return simulate(algorithm, layout, runs, rounds=rounds or layout.arrays.place.rounds, **more)


def agent(layout: Layout, i: int = 0, noise: float = 0.0) -> tuple[Place, Shard]:
    """Place and shard of the agent that sits at position i, to call `emit` and friends directly (inside x64)."""
    with jax.enable_x64(True):
        place = _row(layout.arrays.place, i)
        place = eqx.tree_at(lambda p: p.noise, place, jnp.asarray(noise, place.start.dtype))
        for group in layout.arrays.groups:
            if group.low <= i < group.high:
                return place, _row(group.shards, i - group.low)
    raise IndexError(i)


def _row(tree: Any, i: int) -> Any:
    """One agent's, cut out on the host: JAX would compile a program for every shape."""
    return jax.device_put(rows(jax.tree.map(np.asarray, tree), i))


def swap_record(shard: Shard, row: int, features: np.ndarray, target: float) -> Shard:
    """The neighbouring shard: one record replaced."""
    rows, targets = np.array(shard.features), np.array(shard.targets)
    rows[row], targets[row] = features, target
    with jax.enable_x64(True):
        return eqx.tree_at(lambda s: (s.features, s.targets), shard, jax.device_put((rows, targets)))


def zero_draws(slug: str, cfg: Config, place: Place) -> dict[str, jax.Array]:
    """All-zero draws of one round."""
    with jax.enable_x64(True):
        return {k: jax.device_put(np.zeros(law.shape)) for k, law in find(slug).draws(cfg, place).items()}


def message_gap(
    slug: str, cfg: Config, place: Place, state: Any, shards: tuple[Shard, Shard], t: int = 0, draw: Any = None
) -> float:
    """L2 distance between the messages that two shards make from the same state and draws."""
    algorithm = find(slug)
    draw = zero_draws(slug, cfg, place) if draw is None else draw
    with jax.enable_x64(True):
        out = [_message(algorithm, cfg, place, jnp.asarray(t), state, s, draw) for s in shards]
        pairs = zip(*(jax.tree.leaves(m) for m in out), strict=True)
        return float(np.sqrt(sum(np.sum((np.asarray(a) - np.asarray(b)) ** 2) for a, b in pairs)))


@eqx.filter_jit
def _message(algorithm: Algorithm, cfg: Config, place: Place, t: jax.Array, state: Any, shard: Shard, draw: Any) -> Any:
    return algorithm.emit(cfg, place, t, state, shard, draw)[1]


def worst_logistic_pair(d: int, n: int, margin: float = 30.0) -> SimpleNamespace:
    """Two shards that differ in one record and saturate a logistic gradient gap of 2/n at points like `point`.

    Record 0 is u in one world and −(nearly u) in the other with labels chosen so that both margins are very negative.
    """
    u = np.zeros(d)
    u[0] = 1.0
    v = -u.copy()
    if d > 1:
        angle = 0.05
        v = np.zeros(d)
        v[0], v[1] = -np.cos(angle), np.sin(angle)
    point = np.zeros(d)
    middle = u + v
    point[: len(middle)] = -margin * middle / max(np.linalg.norm(middle), 1e-12)
    return SimpleNamespace(u=u, v=v, point=point, records=n)
