"""`admm` against its two-agent worked example and the other published form of its dual."""

from __future__ import annotations

import numpy as np

from coterie.algorithms import admm
from coterie.losses.mean import Mean
from tests.support import network, run


def quadratics(centres: list[float], graph: str, rounds: int) -> object:
    """f_i = ½(x − c_i)², one record per agent."""
    data = np.array(centres)[:, None], np.zeros(len(centres))
    problem = Mean(1, 5.0, boxed=False)
    return network(len(centres), 1, 1, graph=graph, problem=problem, data=data, rounds=rounds, ridge=0.0)


def test_two_agents_worked_by_hand() -> None:
    trace = run("admm", admm.Config(penalty=0.5), quadratics([0.0, 2.0], "complete", 3))
    x = trace.messages.x[0, :, :, 0]
    np.testing.assert_allclose(x, [[0.0, 1.0], [0.5, 1.0], [0.75, 1.0]], atol=1e-9)
    duals = np.cumsum(0.5 * (x - x[:, ::-1]), axis=0)
    np.testing.assert_allclose(duals, [[-0.5, 0.5], [-0.75, 0.75], [-0.875, 0.875]], atol=1e-9)
    np.testing.assert_allclose(trace.states.dual[0, :, 0], [-0.875, 0.875], atol=1e-9)


def test_lambda_form_gives_the_same_iterates_and_duals_sum_to_zero() -> None:
    """Zhang-Zhu and the dissertation write the dual as λ = α/2: same run, computed here in closed form."""
    c, eta, rounds = np.array([0.0, 2.0, -1.0, 4.0, 1.0]), 0.3, 12
    trace = run("admm", admm.Config(penalty=eta), quadratics(list(c), "ring", rounds))
    neighbours = lambda v: np.roll(v, 1) + np.roll(v, -1)  # noqa: E731
    f, lam, path = np.zeros(5), np.zeros(5), []
    for _ in range(rounds):
        f = (c - 2 * lam + eta * (2 * f + neighbours(f))) / (1 + 4 * eta)
        lam = lam + eta / 2 * (2 * f - neighbours(f))
        path.append(f)
    np.testing.assert_allclose(trace.messages.x[0, :, :, 0], path, atol=1e-8)
    assert abs(trace.states.dual.sum()) < 1e-12
    np.testing.assert_allclose(trace.states.dual[0, :, 0], 2 * lam, atol=1e-8)
