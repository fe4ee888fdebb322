"""Theorems as functions: closed forms, scaling in units, counterexamples, and the product's own runs against them."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.graphs import make_graph, mixing
from reproduction.theorems import qdpsgd, xiao
from reproduction.theorems import zhang_zhu as zz

BASE = zz.Setting(accuracy=0.1, norm=2.0, dim=5)


# ---- Zhang and Zhu ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theorem", [3, 4, 5, 6])
def test_needed_is_where_the_bound_meets_the_accuracy(theorem: int) -> None:
    count = zz.needed(theorem, BASE)
    assert zz.excess(theorem, BASE, count) == pytest.approx(BASE.accuracy)
    assert zz.excess(theorem, BASE, 2 * count) < BASE.accuracy < zz.excess(theorem, BASE, count / 2)


@pytest.mark.parametrize("theorem", [3, 4, 5, 6])
def test_units_do_not_change_how_many_records_are_needed(theorem: int) -> None:
    """What refutes the printed sizes of 3 and 4 whatever their constant: they fall as the unit does."""
    for k in (10.0, 1e4):
        assert zz.needed(theorem, BASE.in_units(k)) == pytest.approx(zz.needed(theorem, BASE))
    huge = zz.printed(theorem, BASE.in_units(1e4)) / zz.printed(theorem, BASE)
    assert huge == pytest.approx(1e-4, rel=0.7) if theorem == 3 else huge < 1.1
    if theorem == 4:
        flat = zz.Setting(accuracy=0.1, norm=2.0, dim=5, bend=0.0)
        assert zz.printed(4, flat.in_units(1e4)) < 2e-4 * zz.printed(4, flat)


SLOW = [pytest.param(k, marks=pytest.mark.slow) for k in (4, 5, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("theorem", [3, *SLOW])
def test_the_proved_excess_holds(theorem: int) -> None:
    from reproduction.theorems.measured import population_excess

    for count in (60, 240):
        mean, error = population_excess(theorem, BASE, count, draws=60)
        assert mean <= zz.excess(theorem, BASE, count) + 4 * error


@pytest.mark.slow
def test_theorem_4_does_not_know_how_much_noise_there_is() -> None:
    """In large units its only term that stays knows no d: ten times as many records as it asks for are far too few."""
    from reproduction.theorems.measured import population_excess

    wide = zz.Setting(accuracy=0.1, norm=2.0, dim=40).in_units(1e4)
    asked = zz.printed(4, wide)
    assert asked == pytest.approx(zz.printed(4, zz.Setting(accuracy=0.1, norm=2.0, dim=4).in_units(1e4)))
    mean, error = population_excess(4, wide, int(10 * asked), draws=60)
    assert mean - 4 * error > 3 * wide.accuracy


# ---- the dissertation's rates ----------------------------------------------------------------------------------------


def ring(agents: int = 6) -> np.ndarray:
    return np.asarray(mixing(make_graph("ring", agents)).dense())


def by_steps(given: qdpsgd.Quadratic, rounds: int) -> tuple[float, float, float]:
    """Mean and covariance of the recursion, one round after the other: error, mean gradient, mean disagreement."""
    n, d = given.centres.shape
    w, h, a = given.weights, given.averaging, given.step
    step = (1 - h) * np.eye(n) + h * w - a * h * np.eye(n)
    mixed = h * (w - np.diag(np.diag(w)))
    jump = given.sent * mixed @ mixed.T + (a * h) ** 2 * given.own * np.eye(n)
    mean, cov = np.zeros((n, d)), np.zeros((n, n))
    target, ones = given.centres.mean(0), np.ones((n, n)) / n
    slopes, apart = [], []
    for _ in range(rounds):
        slopes.append(np.sum((mean.mean(0) - target) ** 2) + d * np.sum(cov) / n**2)
        off = mean - mean.mean(0)
        apart.append((np.sum(off**2) + d * np.trace((np.eye(n) - ones) @ cov)) / n)
        mean, cov = step @ mean + a * h * given.centres, step @ cov @ step.T + jump
    return (np.sum((mean - target) ** 2) + d * np.trace(cov)) / n, float(np.mean(slopes)), float(np.mean(apart))


def test_the_closed_form_is_the_recursion() -> None:
    centres = np.random.default_rng(0).standard_normal((6, 3))
    for sent, own in ((0.0, 0.0), (0.3, 0.0), (0.1, 0.2)):
        given = qdpsgd.Quadratic(ring(), centres, 0.2, 0.3, sent, own)
        error, slope, apart = by_steps(given, 40)
        assert given.error(40) == pytest.approx(error)
        assert given.stationary(40) == pytest.approx((slope, apart))


def slope(values: list[float], at: list[float]) -> float:
    return float(np.polyfit(np.log(at), np.log(values), 1)[0])


@pytest.mark.parametrize("theorem", [12, 16])
def test_the_strongly_convex_rates_hold(theorem: int) -> None:
    """At a noise that does not grow with T: error · T^δ̃ settles."""
    rounds, centres = [1e10, 1e11, 1e12], np.random.default_rng(0).standard_normal((6, 3))
    errors = []
    for t in rounds:
        a, h = qdpsgd.steps(theorem, t, 0.4)
        noise = {"sent": 0.1, "own": 0.2} if theorem == 12 else {"sent": 0.3}
        errors.append(qdpsgd.Quadratic(ring(), centres, h, a, **noise).error(int(t)))
    assert slope(errors, rounds) == pytest.approx(-0.4, abs=0.02)


def test_at_a_fixed_budget_more_rounds_are_worse() -> None:
    """σ² ∝ T (Remark 6): the noise's part of Theorem 12 grows as T^{1 − 2δ̃}."""
    rounds, centres = [1e11, 1e12, 1e13], np.zeros((6, 3))
    errors = []
    for t in rounds:
        a, h = qdpsgd.steps(12, t, 0.3)
        errors.append(qdpsgd.Quadratic(ring(), centres, h, a, own=1e-3 * t).error(int(t)))
    assert slope(errors, rounds) == pytest.approx(1 - 2 * 0.3, abs=0.05)


def test_the_start_is_missing_in_theorem_13() -> None:
    """No noise, no rounding, all agents alike: the printed right sides are 0, the gradients are not."""
    for t in (10**3, 10**6):
        a, h = qdpsgd.steps(13, t)
        got, apart = qdpsgd.Quadratic(ring(), np.ones((6, 3)), h, a).stationary(t)
        assert qdpsgd.printed_stationary(13, t, agents=6, rounding=0.0, noise=0.0) == (0.0, 0.0)
        assert got == pytest.approx(3 / 2 * t ** (-1 / 3), rel=0.1)
        assert apart == pytest.approx(0.0, abs=1e-20)


def test_disagreement_does_not_fall_as_theorem_13_says() -> None:
    """Rounding alone keeps it at T^{−1/2}: over T^{−2/3} it grows without end."""
    rounds = [1e8, 1e10, 1e12]
    over, exact = [], []
    for t in rounds:
        a, h = qdpsgd.steps(13, t)
        apart = qdpsgd.Quadratic(ring(), np.ones((6, 3)), h, a, sent=0.25).stationary(int(t))[1]
        exact.append(apart)
        over.append(apart / qdpsgd.printed_stationary(13, t, agents=6, rounding=0.75, noise=0.0, gap=0.5)[1])
    assert slope(exact, rounds) == pytest.approx(-0.5, abs=0.02)
    assert slope(over, rounds) == pytest.approx(1 / 6, abs=0.02)


def test_a_coarse_grid_breaks_theorem_16() -> None:
    """pK²σ²/η² at η = 20 is 400 times too small: below what happens at every T."""
    for t in (1e5, 1e7):
        a, h = qdpsgd.steps(16, t, 0.4)
        happens = qdpsgd.Quadratic(ring(), np.zeros((6, 3)), h, a, sent=5.0).error(int(t))
        bound = qdpsgd.printed_strongly_convex(16, t, exponent=0.4, pull=0.0, rounding=0.0, noise=15.0, grid=20.0)
        right = qdpsgd.printed_strongly_convex(16, t, exponent=0.4, pull=0.0, rounding=0.0, noise=15.0)
        assert bound < happens < right


@pytest.mark.slow
def test_the_product_does_what_is_predicted() -> None:
    """Q-DPSGD-1 with rounding, and with noise: its errors are the closed form's."""
    from reproduction.theorems.measured import quantized

    half = np.full((6, 40), 0.5)  # between two points of a grid of 1
    for noise, centres in ((0.0, half), (0.4, half + 0.2 * np.sign(np.arange(6) - 2.5)[:, None])):
        grid = 1.0 if noise == 0 else 1e-4
        error, apart, predicted = quantized(centres, 120, 0.4, 0.1, grid=grid, noise=noise, seeds=12)
        assert error == pytest.approx(predicted.error(120), rel=0.08)
        assert apart == pytest.approx(predicted.apart(120), rel=0.08)


# ---- Xiao, Ye and Devadas --------------------------------------------------------------------------------------------


def test_the_floor_of_theorem_3_3() -> None:
    a, weights = 0.8, [2.0, 3.0]
    each = xiao.noise_square(4, 30, 0.01, 0.5, 2.0)
    assert xiao.floor(a, weights, each, 30) == pytest.approx(sum(5.0 * a**k * each for k in range(1, 31)))
    floors = [xiao.noise_square(d, 30, 0.01, 0.5, 2.0) for d in (2, 4, 8)]
    assert floors[1] / floors[0] == floors[2] / floors[1] == pytest.approx(8.0)  # d³
    how = {"dim": 5, "bound": 0.01, "epsilon": 100.0, "inverse_step": 1.0}
    best = xiao.best_rounds(0.9, 1.0, [1.0], **how)
    assert 10 < best < 200
    late = [xiao.rate(0.9, 1.0, [1.0], k, **how) for k in (1000, 2000)]
    assert late[1] / late[0] == pytest.approx(4.0, rel=0.01)  # K²: what Õ hides


@pytest.mark.slow
def test_ldp_admm_has_that_floor() -> None:
    """At a pure ε: d³, K², and not below what noise alone leaves."""
    from reproduction.theorems.measured import admm_error

    by_dim = {d: admm_error(d, 40, 50.0) for d in (2, 8, 32)}
    assert slope([by_dim[d][0] for d in by_dim], list(by_dim)) == pytest.approx(3.0, abs=0.3)
    for d, (error, each) in by_dim.items():
        least = xiao.least_error(0.0, each, 6, 40, 4.0)
        assert 0.7 < error / least < 4.0, d
    long = [admm_error(8, k, 50.0)[0] for k in (40, 160)]
    assert slope(long, [40, 160]) == pytest.approx(2.0, abs=0.4)


def test_no_linear_model_is_strongly_convex_in_many_dimensions() -> None:
    rng = np.random.default_rng(0)
    for d in (3, 30):
        z = rng.standard_normal((200, d))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        hessian = z.T @ (rng.uniform(0, 0.25, 200)[:, None] * z) / 200
        assert np.linalg.eigvalsh(hessian)[0] <= xiao.most_convexity(0.25, 1.0, d)


def test_noise_on_a_strongly_convex_objective_costs_d() -> None:
    rng = np.random.default_rng(0)
    for d in (4, 64):
        parts = rng.standard_normal((d, d))
        hessian = parts @ parts.T / d + 0.1 * np.eye(d)
        x, n = rng.standard_normal(d), rng.standard_normal((4000, d)) * 0.5 / 3**0.5
        cost = np.mean([v @ hessian @ v / 2 + x @ hessian @ v for v in n])
        assert cost >= xiao.least_loss(0.1, d, 0.5, 3)


@pytest.mark.slow
def test_independence_of_d_is_the_losses_and_not_the_objectives() -> None:
    from reproduction.theorems.measured import averaged_descent

    found = {d: averaged_descent(d) for d in (8, 64, 512)}
    whole, bare = ([found[d][k] for d in found] for k in (0, 1))
    assert slope(whole, list(found)) > 0.8  # linear in d, for the ridge's sake
    assert max(bare) / min(bare) < 1.5  # the loss's own part: not
    for w, _, least in found.values():
        assert w >= least
