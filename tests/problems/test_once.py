"""Sums that read every record once: the same as the plain ones, whatever the records, for every loss that is known.

The programs are interpreted here, operation by operation; `python -m benchmarks.gpu` runs them.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.squared import Squared
from coterie.problems.glm import Linear
from coterie.problems.once import SMALL, _known, gradients, once, worth_it

LOSSES = (Logistic, Hinge, Squared)


def made(parties: int, rows: int, columns: int, seed: int) -> list[np.ndarray]:
    """Points, records, labels, and weights of which some are 0."""
    rng = np.random.default_rng(seed)
    records = rng.normal(size=(parties, rows, columns))
    records /= np.linalg.norm(records, axis=2, keepdims=True)
    return [
        3 * rng.normal(size=(parties, columns)), records, np.sign(rng.normal(size=(parties, rows))),
        (rng.random((parties, rows)) < 0.8).astype(float),
    ]  # fmt: skip


def slope_of(problem: Linear) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda score, targets: problem.of_score(score, targets).slope


def plainly(problem: Linear, args: list[np.ndarray], clip: float | None) -> np.ndarray:
    """Record by record, in NumPy but for the slope."""
    sums = []
    for x, records, labels, weights in zip(*args, strict=True):
        slope = np.asarray(eqx.filter_jit(problem.of_score)(jnp.asarray(records @ x), jnp.asarray(labels)).slope)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        if clip is not None:
            length = np.abs(slope) * np.linalg.norm(records, axis=1)
            slope = slope * np.minimum(1, clip / np.maximum(length, 1e-30))
        sums.append((weights * slope) @ records)
    return np.array(sums)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_sum_is_that_of_the_records(loss: type[Linear], clip: float | None) -> None:
    problem = loss(40)
    with jax.enable_x64(True):
        args = made(3, 32, 40, 0)
        caps = [] if clip is None else [jnp.full(3, clip)]
        found = once(slope_of(problem), *map(jnp.asarray, args), *caps, interpret=True)
        np.testing.assert_allclose(found, plainly(problem, args, clip), atol=1e-13)
        assert np.abs(np.asarray(found)).max() > 0.1


def test_weights_that_all_parties_share_are_those_of_each() -> None:
    """Where nobody is padded: in the program itself, and through batches of parties and of runs."""
    problem = Logistic(5)
    with jax.enable_x64(True):
        args = made(4, 6, 5, 3)
        args[3] = np.tile(np.array([1.0, 0.0, 2.0, 1.0, 1.0, 0.5]), (4, 1))
        given = [*map(jnp.asarray, args[:3]), jnp.asarray(args[3][0])]
        expected = plainly(problem, args, 0.3)
        found = once(slope_of(problem), *given, jnp.full(4, 0.3), interpret=True)
        np.testing.assert_allclose(found, expected, atol=1e-13)

        def one(x: jax.Array, f: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
            return gradients(problem.weighted_gradient, slope_of(problem), x, f, y, w, jnp.asarray(0.3))

        parties = jax.vmap(one, (0, 0, 0, None))
        np.testing.assert_allclose(jax.jit(parties)(*given), expected, atol=1e-13)
        runs = jax.jit(jax.vmap(parties, (0, None, None, None)))(np.stack([args[0], -args[0]]), *given[1:])
        np.testing.assert_allclose(runs[0], expected, atol=1e-13)
        np.testing.assert_allclose(runs[1], plainly(problem, [-args[0], *args[1:]], 0.3), atol=1e-13)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(1, 40), seed=st.integers(0, 99))
def test_any_shape_is_padded_with_nothing(rows: int, columns: int, seed: int) -> None:
    with jax.enable_x64(True):
        args = made(2, rows, columns, seed)
        found = once(slope_of(Logistic(columns)), *map(jnp.asarray, args), jnp.full(2, 0.3), interpret=True)
        np.testing.assert_allclose(found, plainly(Logistic(columns), args, 0.3), atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_slope_that_is_no_number_counts_as_none(bad: float) -> None:
    with jax.enable_x64(True):
        x, records, labels, weights = made(1, 8, 4, 1)
        labels[0, 3] = bad
        with np.errstate(all="ignore"):
            expected = plainly(Squared(4), [x, records, labels, weights], 0.3)
        args = [jnp.asarray(a) for a in (x, records, labels, weights)]
        found = once(slope_of(Squared(4)), *args, jnp.full(1, 0.3), interpret=True)
        assert np.all(np.isfinite(found))
        np.testing.assert_allclose(found, expected, atol=1e-13)


def test_in_batches_of_parties_and_of_runs_it_is_the_plain_sum() -> None:
    """On this machine the batched form is the plain sum; what is tested is which arguments go where."""
    problem = Logistic(5)
    with jax.enable_x64(True):
        args = made(4, 6, 5, 2)

        def plain(x: jax.Array, f: jax.Array, y: jax.Array, w: jax.Array, c: jax.Array) -> jax.Array:
            return problem.weighted_gradient(x, f, y, w, c)

        def one(x: jax.Array, f: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
            return gradients(plain, slope_of(problem), x, f, y, w, jnp.asarray(0.3))

        given = [jnp.asarray(a) for a in args]
        np.testing.assert_allclose(jax.jit(jax.vmap(one))(*given), plainly(problem, args, 0.3), atol=1e-13)
        points = np.stack([args[0], 2 * args[0], -args[0]])
        runs = jax.jit(jax.vmap(jax.vmap(one), (0, None, None, None)))(points, *given[1:])
        for run, point in zip(runs, points, strict=True):
            np.testing.assert_allclose(run, plainly(problem, [point, *args[1:]], 0.3), atol=1e-13)
        several = jax.jit(jax.vmap(one, (0, None, None, None)))(points[:, 0], *(a[0] for a in args[1:]))
        for row, point in zip(several, points[:, 0], strict=True):
            alone = [point[None], *(a[:1] for a in args[1:])]
            np.testing.assert_allclose(row[None], plainly(problem, alone, 0.3), atol=1e-13)


def test_only_slopes_of_known_operations_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = jnp.dtype(np.float32)
    assert all(_known(slope_of(loss(4)), 8, kind) for loss in LOSSES)
    assert not _known(lambda s, y: jnp.sort(s) * y, 8, kind)
    assert not _known(lambda s, y: s * jnp.arange(8.0), 8, kind)  # numbers of its own
    rows = jnp.zeros((8, 4), jnp.float32)
    assert not worth_it(slope_of(Logistic(4)), rows, rows[:, 0])  # no GPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert worth_it(slope_of(Logistic(4)), rows, rows[:, 0])
    large = jnp.zeros((SMALL // 16 + 1, 16), jnp.float32)
    assert not worth_it(slope_of(Logistic(16)), large, large[:, 0])
