"""The penalty as a problem: derivatives, bounds, and an iterative algorithm that becomes fair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.errors import InputError
from coterie.fair.noise import Seeded
from coterie.fair.penalised import CovariancePenalised, release_direction
from coterie.fair.polynomial import Statistics
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from tests.fair.cases import Recorder, records

LINEAR = {"logistic": Logistic, "hinge": Hinge}


def _made(alpha=2.0, loss="logistic", corner=0.05):
    x, y, z = records(200, 4)
    v = (z - z.mean()) @ x / len(x)
    return CovariancePenalised.make(LINEAR[loss](4), v[None], alpha, corner), x, np.where(y == 1, 1.0, -1.0), v


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("size", [0.01, 3.0])
def test_derivatives(loss, size):
    problem, x, y, _ = _made(loss=loss)
    with jax.enable_x64(True):
        w = jnp.asarray(size * np.random.default_rng(0).normal(size=4))
        weights = jnp.asarray(np.random.default_rng(1).random(200))
        whole = lambda u: jnp.sum(weights * problem.losses(u, x, y))  # noqa: E731
        stated = jax.jit(lambda u: problem.weighted_gradient(u, x, y, weights))
        assert np.allclose(stated(w), jax.jit(jax.grad(whole))(w))
        if loss == "logistic":
            stated = jax.jit(lambda u: problem.weighted_hessian(u, x, y, weights))
            assert np.allclose(stated(w), jax.jit(jax.hessian(whole))(w))


def test_without_a_weight_it_is_the_plain_problem():
    problem, x, y, _ = _made(alpha=0.0)
    with jax.enable_x64(True):
        w, ones = jnp.ones(4), jnp.ones(200)
        plain = Logistic(4)
        assert np.allclose(problem.losses(w, x, y), plain.losses(w, x, y))
        for clip in (None, 0.1):
            got = problem.weighted_gradient(w, x, y, ones, clip)
            assert np.allclose(got, plain.weighted_gradient(w, x, y, ones, clip))
    assert problem.lipschitz == plain.lipschitz


def test_every_records_gradient_stays_in_its_bounds():
    problem, x, y, v = _made(alpha=4.0)
    assert problem.lipschitz == pytest.approx(1 + 4.0 * np.linalg.norm(v))
    assert problem.smoothness == pytest.approx(0.25 + 4.0 / 0.05 * v @ v)
    assert not problem.monotone
    with jax.enable_x64(True):
        for seed in range(5):
            w = jnp.asarray(np.random.default_rng(seed).normal(size=4))
            each = jax.vmap(lambda r, t, w=w: problem.weighted_gradient(w, r[None], t[None], jnp.ones(1)))(x, y)
            assert np.linalg.norm(each, axis=1).max() <= problem.lipschitz
            clipped = jax.vmap(lambda r, t, w=w: problem.weighted_gradient(w, r[None], t[None], jnp.ones(1), 0.3))(x, y)
            assert np.linalg.norm(clipped, axis=1).max() <= 0.3 + 1e-9
            norms = np.linalg.norm(each, axis=1, keepdims=True)
            assert np.allclose(clipped, each * np.minimum(1, 0.3 / norms))
            together = problem.weighted_gradient(w, x, y, jnp.ones(200), 0.3)
            assert np.allclose(together, np.sum(clipped, axis=0))


def test_the_direction_is_released_once_and_paid():
    s = Statistics.of(*records(3000, 4))
    out = release_direction(s, epsilon=1.0, delta=1e-5, noise=Seeded(np.random.default_rng(0)))
    assert out.account.epsilon == pytest.approx(1.0)
    assert len(out.events) == 2
    note = Recorder()
    exact = release_direction(s, epsilon=1.0, delta=1e-5, noise=note)
    assert len(note.seen) == 2  # shares and V: no objective
    assert np.linalg.norm(out.rows - exact.rows) < 0.2 * np.linalg.norm(exact.rows)


def test_gradient_descent_with_the_penalty_is_fairer():
    from coterie.algorithms.base import find
    from coterie.drivers.layout import make_layout
    from coterie.drivers.simulate import Run, simulate
    from coterie.graphs import make_graph, mixing

    x, y, z = records(600, 4, seed=2)
    signs = np.where(y == 1, 1.0, -1.0)
    direction = release_direction(
        Statistics.of(x, y, z), epsilon=5.0, delta=1e-5, noise=Seeded(np.random.default_rng(1))
    )
    graph = make_graph("ring", 3)
    algorithm = find("dgd")
    covariances = []
    for problem in (Logistic(4), CovariancePenalised.make(Logistic(4), direction.rows, alpha=5.0, corner=0.05)):
        with jax.enable_x64(True):
            layout = make_layout(
                problem, x, signs, np.array_split(np.arange(600), 3), graph, mixing(graph), rounds=300, ridge=1e-3
            )
        trace = simulate(algorithm, layout, [Run(0, algorithm.example, np.zeros(3))], rounds=300)
        w = trace.points[0].mean(0)
        covariances.append(abs((z - z.mean()) @ x @ w) / len(x))
    assert covariances[1] < 0.4 * covariances[0]


def test_refusals():
    with pytest.raises(InputError, match=r"\(penalties, 4\)"):
        CovariancePenalised.make(Logistic(4), np.ones((1, 3)))
    with pytest.raises(InputError, match="corner"):
        CovariancePenalised.make(Logistic(4), np.ones((1, 4)), corner=0.0)
    with pytest.raises(InputError, match="finite"):
        CovariancePenalised.make(Logistic(4), np.ones((1, 4)), alpha=np.inf)
