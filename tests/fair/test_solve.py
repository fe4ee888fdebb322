"""The closed form against a general solver, and objectives that noise has made indefinite."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from coterie.errors import InputError
from coterie.fair.solve import minimise, minimise_here, ridge_for


def _problem(seed=0, d=4, k=1):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return root @ root.T + 0.1 * np.eye(d), rng.normal(size=d), rng.normal(size=(k, d))


def _value(w, a, b, v, alpha):
    return w @ a @ w + b @ w + alpha * np.abs(v @ w).sum()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 5.0])
def test_it_is_the_minimiser(k, alpha):
    a, b, v = _problem(1, k=k)
    w = minimise(a, b, v, alpha)
    rng = np.random.default_rng(2)
    for size in (1e-4, 1e-2, 1.0):  # convex: no better point anywhere means none nearby
        around = w + size * rng.normal(size=(300, 4))
        assert all(_value(u, a, b, v, alpha) >= _value(w, a, b, v, alpha) - 1e-12 for u in around)
    if alpha == 0:
        assert np.allclose(w, -np.linalg.solve(a, b) / 2)


def test_the_quadratic_minimiser_by_another_solver():
    a, b, _ = _problem(3)
    other = minimize(lambda w: w @ a @ w + b @ w, np.zeros(4), tol=1e-12).x
    assert np.allclose(minimise(a, b), other, atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_an_infinite_penalty_removes_the_covariance(k):
    a, b, v = _problem(4, d=6, k=k)
    w = minimise(a, b, v, np.inf)
    assert np.allclose(v @ w, 0, atol=1e-10)
    assert np.linalg.norm(w) > 1e-3
    assert np.allclose(minimise(a, b, v, 1e9), w, atol=1e-6)


def test_kkt_of_one_penalty():
    a, b, v = _problem(5)
    w0 = minimise(a, b)
    enough = abs(v[0] @ w0) / (v[0] @ np.linalg.solve(2 * a, v[0]))
    assert abs(v[0] @ minimise(a, b, v, 1.001 * enough)) < 1e-10
    short = minimise(a, b, v, 0.5 * enough)
    assert abs(v[0] @ short) > 1e-3
    t = np.sign(v[0] @ w0) * 0.5 * enough  # stationarity: ∇f = −t v with |t| = α
    assert np.allclose(2 * a @ short + b, -t * v[0])


def test_indefinite_objectives_give_finite_weights_in_the_span_of_what_is_left():
    q = np.linalg.qr(np.random.default_rng(6).normal(size=(4, 4)))[0]
    a = q @ np.diag([2.0, 1.0, -0.5, -3.0]) @ q.T
    b, v = np.ones(4), np.ones((1, 4))
    w = minimise(a, b, v, 1.0)
    assert np.all(np.isfinite(w))
    assert np.allclose(q[:, 2:].T @ w, 0)
    assert np.array_equal(minimise(-np.eye(3), np.ones(3)), np.zeros(3))
    assert np.array_equal(minimise(np.zeros((3, 3)), np.ones(3)), np.zeros(3))


def test_no_covariance_no_change():
    a, b, _ = _problem(7)
    assert np.allclose(minimise(a, b, np.zeros((1, 4)), np.inf), minimise(a, b))


def test_the_ridge_is_about_twice_the_norm_of_the_noise():
    d, sigma, rng = 60, 1.0, np.random.default_rng(8)
    spread = np.full((d, d), sigma / np.sqrt(2)) + np.diag(np.full(d, sigma - sigma / np.sqrt(2)))
    ridge = ridge_for(spread)
    norms = []
    for _ in range(20):
        noise = np.triu(rng.normal(size=(d, d)) / np.sqrt(2), 1)
        norms.append(np.abs(np.linalg.eigvalsh(noise + noise.T + np.diag(rng.normal(size=d)))).max())
    assert max(norms) < ridge[0] < 1.5 * max(norms)
    assert np.array_equal(ridge_for(np.zeros((3, 3))), np.zeros(3))
    uneven = spread.copy()
    uneven[0], uneven[:, 0] = 10 * spread[0], 10 * spread[:, 0]
    assert ridge_for(uneven)[0] > 5 * ridge_for(uneven)[1]


def test_a_negative_penalty_is_refused():
    with pytest.raises(InputError, match="penalty must be >= 0"):
        minimise(np.eye(2), np.ones(2), np.ones((1, 2)), -1.0)


@pytest.mark.parametrize(("count", "alpha"), [(1, 0.3), (1, 1e6), (3, 0.3), (3, 0.0)])
def test_a_compiled_program_finds_the_same(count, alpha):
    rng = np.random.default_rng(7)
    a, b, v = rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=(count, 5))
    indefinite = a + a.T + np.eye(5)
    assert np.linalg.eigvalsh(indefinite)[0] < 0
    for matrix in (a @ a.T + np.eye(5), indefinite):
        with jax.enable_x64(True):
            here = np.asarray(jax.jit(minimise_here, static_argnums=3)(matrix, b, np.vstack([v, 0 * v[:1]]), alpha))
        assert np.allclose(here, minimise(matrix, b, v, alpha), rtol=1e-6, atol=1e-8)
