"""Clipped gradients of any loss: for every kind of layer the sum of vmap(grad)'s, each clipped, whatever the pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coterie.losses.squared import Squared
from coterie.problems import Custom, HeldShard, Solver, single
from coterie.problems.records import rescale
from tests.support import mostly_slow

KEY = jax.random.key(0)
ROWS = 7


class Net(NamedTuple):
    """Starting parameters, and a loss of one record of twelve features."""

    params: Any
    loss: Callable


def _over(module: Any, use: Callable) -> Net:
    params, rest = eqx.partition(module, eqx.is_inexact_array)
    return Net(params, lambda p, x, y: jnp.tanh(use(eqx.combine(p, rest), x) - y).sum())


def _conv(**options: Any) -> Net:
    return _over(eqx.nn.Conv2d(2, 4, 2, key=KEY, **options), lambda m, x: m(x.reshape(2, 2, 3)) ** 2)


def _shared(w: Any, x: Any, y: Any) -> Any:
    """One matrix in two places, one of them turned round, and a scalar that scales both."""
    return jnp.tanh(w["m"].T @ jnp.tanh(w["s"] * w["m"] @ x) - y).sum()


def _standard(w: Any, x: Any, y: Any) -> Any:
    """A kernel that is brought to mean 0 and length 1 before it is used."""
    kernel = (w - w.mean()) / jnp.linalg.norm(w)
    out = jax.lax.conv_general_dilated(x.reshape(1, 2, 6), kernel, (1,), "SAME")
    return jnp.tanh(out - y).sum()


def _loop(w: Any, x: Any, y: Any) -> Any:
    state, _ = jax.lax.scan(lambda h, z: (jnp.tanh(w["h"] @ h + w["i"] * z), None), jnp.zeros(3), x)
    return jnp.sum((state - y) ** 2)


def _words(w: Any, x: Any, y: Any) -> Any:
    """A table that is asked for the same rows several times, and for one that it has not."""
    asked = jnp.abs(jnp.floor(2 * x)).astype(int)
    found = w["table"].at[asked].get(mode="fill", fill_value=0.5)
    return jnp.sum(jnp.tanh(found @ w["out"] - y) ** 2)


# made when they are asked for: to start one compiles a dozen programs
NETS: dict[str, Callable[[], Net]] = {
    "dense": lambda: _over(eqx.nn.MLP(12, 3, 5, 2, key=KEY), lambda m, x: m(x)),
    "dense at places": lambda: _over(eqx.nn.Linear(3, 2, key=KEY), lambda m, x: jax.vmap(m)(x.reshape(4, 3))),
    "convolution": lambda: _conv(stride=(1, 2), padding=1),
    "convolution in groups": lambda: _conv(groups=2, padding=((1, 0), (0, 2)), dilation=(1, 2), use_bias=False),
    "transposed convolution": lambda: _over(
        eqx.nn.ConvTranspose2d(2, 3, 3, stride=2, key=KEY), lambda m, x: m(x.reshape(2, 2, 3))
    ),
    "pooling": lambda: _over(  # ReLU makes ties
        [eqx.nn.Conv2d(2, 2, 2, key=KEY), eqx.nn.MaxPool2d((1, 2), 1, padding=((0, 0), (1, 0)))],
        lambda m, x: m[1](jax.nn.relu(m[0](x.reshape(2, 2, 3)) - 0.5)),
    ),
    "norms": lambda: _over(
        [eqx.nn.LayerNorm(12), eqx.nn.GroupNorm(2, 4), eqx.nn.RMSNorm(12)],
        lambda m, x: m[2](m[1](m[0](x).reshape(4, 3)).reshape(12)) ** 2,
    ),
    "attention": lambda: _over(
        eqx.nn.MultiheadAttention(2, 4, key=KEY), lambda m, x: m(x.reshape(3, 4), x.reshape(3, 4), x.reshape(3, 4))
    ),
    "embedding": lambda: _over(
        eqx.nn.Embedding(5, 3, key=KEY), lambda m, x: jax.vmap(m)(jnp.floor(2 * jnp.abs(x)).astype(int)) ** 2
    ),
    "one word": lambda: _over(
        eqx.nn.Embedding(5, 3, key=KEY), lambda m, x: m(jnp.floor(2 * jnp.abs(x[0])).astype(int)) ** 2
    ),
    "words": lambda: Net({"table": jnp.ones((3, 2)) / 3, "out": jnp.ones(2)}, _words),
    "shared": lambda: Net({"m": jax.random.normal(KEY, (4, 12)) / 3, "s": jnp.ones(())}, _shared),
    "standardised": lambda: Net(jax.random.normal(KEY, (3, 2, 2)), _standard),
    "recurrent": lambda: Net({"h": jnp.eye(3) / 2, "i": jnp.ones(3)}, _loop),
    "scalar": lambda: Net({"a": jnp.ones(()), "unused": jnp.ones(3)}, lambda w, x, y: jnp.sum(jnp.sin(w["a"] * x)) - y),
    "no record": lambda: Net(jnp.ones(3), lambda w, x, y: jnp.sum(w**2)),
}


def problem_of(net: Net) -> Custom:
    return Custom.make(net.loss, net.params)


def records(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 12)), rng.normal(size=rows)


def reference(net: Net, x: Any, features: Any, targets: Any) -> jax.Array:
    """Every record's gradient, by vmap(grad)."""
    _, back = ravel_pytree(net.params)
    one = lambda v, f, y: net.loss(jax.tree.map(lambda p: p.astype(v.dtype), back(v)), f, y)  # noqa: E731
    return jax.vmap(jax.grad(one), (None, 0, 0))(x, features, targets)


@pytest.mark.parametrize("name", mostly_slow(NETS, "dense", "attention", "convolution", "words", "no record"))
@pytest.mark.parametrize("kind", [jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.slow)])
def test_every_layer_clips_as_vmap_of_grad_does(name: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the records are cut, some are not counted, each has a clip of its own; one at a time, or all at once."""
    net, rounding = NETS[name](), 1e-12 if kind == jnp.float64 else 2e-5
    problem = problem_of(net)

    @jax.jit
    def both(x: Any, features: Any, targets: Any, weights: Any) -> Any:
        each = reference(net, x, features, targets)
        norms = jnp.linalg.norm(each, axis=1)
        limit = jnp.median(norms) / (1 + jnp.arange(ROWS) % 2)
        rows = problem.each_gradient(x, features, targets, jnp.asarray(jnp.inf, kind))
        sums = []
        for room in (1 << 21, 1):
            monkeypatch.setattr(single, "room", lambda: room)  # noqa: B023
            sums.append(problem.weighted_gradient(x, features, targets, weights, limit))
        return (weights @ rescale(each, norms, limit), each), (sums[0], rows), (sums[1], rows)

    with jax.enable_x64(kind == jnp.float64):
        features, targets = (jnp.asarray(v, kind) for v in records())
        weights = jnp.asarray([1, 0, 2, 1, 1, 0, 1], kind)
        wanted, *found = both(jnp.asarray(problem.start(0), kind), features, targets, weights)
        size = float(jnp.abs(wanted[1]).max())
        for sum_and_rows in found:
            for one, other in zip(sum_and_rows, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding * size)


def test_a_norm_that_is_too_small_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: with a quarter of a layer's squared norms, a record adds more than its clip."""
    problem, (features, targets) = problem_of(NETS["dense"]()), records()
    x, weights = jnp.asarray(problem.start(0), jnp.float32), jnp.zeros(ROWS).at[0].set(1.0)

    def length() -> float:
        ask = lambda x: problem.weighted_gradient(x, jnp.asarray(features), jnp.asarray(targets), weights, 1e-3)  # noqa: E731
        return float(jnp.linalg.norm(jax.jit(ask)(x)))

    def quarter(*of: Any) -> single.Met:
        met = single._dense(*of)
        return replace(met, squares=met.squares / 4)

    assert length() == pytest.approx(1e-3, rel=1e-5)
    monkeypatch.setitem(single.LAYERS, "dot_general", quarter)
    assert length() > 1.1e-3


def test_a_length_whose_square_vanishes_is_seen() -> None:
    """In single precision δ² underflows where δ is 1e-23, and what it meets may be 1e19: the gradient is 2.8e-3."""
    loss = lambda w, x, y: jnp.sum(y * 1e-15 * (w @ x))  # noqa: E731
    problem = Custom.make(loss, jnp.zeros((400, 2), jnp.float32))
    x, y = jnp.full((1, 2), 1e19, jnp.float32), jnp.full(1, 1e-8, jnp.float32)
    found = eqx.filter_jit(problem.weighted_gradient)(jnp.zeros(800), x, y, jnp.ones(1), 1e-3)
    assert np.linalg.norm(found) <= 1e-3 * (1 + 1e-5)


@pytest.mark.parametrize("alike", [True, False])
def test_points_that_are_all_the_same_are_computed_once(alike: bool) -> None:
    """A batch of points gives what each of them gives, whether or not they are the same; so do batches of records."""
    seen: list[tuple[int, ...]] = []  # shapes of the points that were computed

    def f(x: jax.Array, rows: jax.Array) -> jax.Array:
        jax.debug.callback(lambda x: seen.append(x.shape), x)
        return (rows.T * jnp.cos(rows @ x)) @ rows

    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        records = jnp.asarray(rng.normal(size=(3, ROWS, 2)))
        points = jnp.asarray(rng.normal(size=(4, 2)))
        points = jnp.broadcast_to(points[0], points.shape) if alike else points
        over = lambda f: jax.jit(jax.vmap(f, (0, None)))(points, records[0])  # noqa: E731
        both = lambda f: jax.jit(jax.vmap(jax.vmap(f, (None, 0)), (0, None)))(points, records)  # noqa: E731
        for batched in (over, both):
            expected = batched(f)
            jax.effects_barrier()
            seen.clear()
            np.testing.assert_allclose(batched(single.once_if_alike(f)), expected, rtol=1e-12, atol=1e-12)
            jax.effects_barrier()
            assert len(seen) == (1 if alike else len(points))


def test_a_minimiser_can_be_differentiated() -> None:
    """Of a quadratic the minimiser moves by −1/(its curvature) along the linear term; and so does a batch of them."""
    with jax.enable_x64(True):
        rows = jnp.asarray([[0.6, 0.0], [0.0, 0.8]])
        facts = jnp.array(2), jnp.array(0.5), jnp.array(0.1)  # records, what one weighs, ridge
        shard = HeldShard(Squared(2), rows, jnp.asarray([1.0, -1.0]), *facts)
        move = lambda linear: shard.argmin(linear, 0.5, Solver.fresh(jnp.zeros(2), True), 1e-12)[0]  # noqa: E731
        expected = -np.linalg.inv(eqx.filter_jit(shard.hessian)(jnp.zeros(2)) + 0.5 * np.eye(2))
        moved = jax.jit(lambda x: (jax.jacfwd(move)(x[0]), jax.vmap(jax.jacfwd(move))(x)))(np.zeros((3, 2)))
        np.testing.assert_allclose(moved[0], expected, atol=1e-9)
        np.testing.assert_allclose(moved[1], np.stack([expected] * 3), atol=1e-9)
        np.testing.assert_array_equal(
            jax.jit(jax.jacrev(lambda x: shard.hessian(x)))(jnp.zeros(2)), np.zeros((2, 2, 2))
        )
