"""Choosing a privacy level: the paper's examples, the fit, and the bounds that keep the optimum away from 0."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from reproduction.__main__ import main
from reproduction.tradeoff import WEIGHTS, Fit, choose_level, fit_losses, optimum


@pytest.mark.parametrize(("drop", "rate", "golden"), [(0.2, 25.0, 0.1422), (20.0, 20.0, 0.4533)])
def test_the_papers_examples(drop, rate, golden):
    fit = Fit(drop, rate, 0.3)
    alpha, binding = optimum(fit, WEIGHTS, low=0.01, high=1.0)
    assert alpha == pytest.approx(golden, abs=5e-5)
    assert binding == "none"
    # independent: brute force on a fine grid
    grid = np.linspace(0.01, 1, 400_001)
    w1, w2, w3, w4 = WEIGHTS
    values = drop * np.exp(-rate * grid) - w1 * np.log(w2 / (w3 * grid + w4 * grid**2))
    assert alpha == pytest.approx(grid[np.argmin(values)], abs=5e-6)


@pytest.mark.parametrize(("drop", "rate", "printed"), [(0.2, 25.0, 0.1458), (20.0, 20.0, 0.4648)])
def test_the_printed_sign_gives_other_levels(drop, rate, printed):
    """Broken twin: with ω₃ − 2ω₄α the stationary point moves to the printed-sign values, which we do not return."""
    from scipy.optimize import brentq

    w1, _, w3, w4 = WEIGHTS
    wrong = brentq(lambda a: w1 * (w3 - 2 * w4 * a) / (w3 * a + w4 * a**2) - drop * rate * np.exp(-rate * a), 0.1, 0.9)
    assert wrong == pytest.approx(printed, abs=5e-5)
    assert abs(optimum(Fit(drop, rate, 0.0), WEIGHTS, 0.01, 1.0)[0] - wrong) > 0.003


def test_without_a_lower_bound_the_optimum_runs_to_zero():
    fit = Fit(0.2, 25.0, 0.3)
    assert optimum(fit, WEIGHTS, low=1e-9, high=1.0) == (1e-9, "low")
    level, binding = optimum(fit, WEIGHTS, low=1e-9, high=1.0, max_loss=0.45)
    assert binding == "none"
    assert level == pytest.approx(0.1422, abs=5e-5)


def test_a_binding_loss_and_a_binding_range():
    fit = Fit(0.2, 25.0, 0.3)
    level, binding = optimum(fit, WEIGHTS, 0.01, 1.0, max_loss=0.302)
    assert binding == "max_loss"
    assert float(fit(level)) == pytest.approx(0.302, abs=1e-12)
    assert optimum(fit, WEIGHTS, 0.01, 0.1) == (0.1, "high")
    with pytest.raises(InputError, match=r"no level up to 1 reaches loss 0\.2"):
        optimum(fit, WEIGHTS, 0.01, 1.0, max_loss=0.2)


@given(st.floats(0.05, 50), st.floats(1, 40), st.floats(-1, 1), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_fit_recovers_its_own_curve(drop, rate, floor, seed):
    alphas = np.array([0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0])
    fit = fit_losses(alphas, Fit(drop, rate, floor)(alphas))
    assert (fit.drop, fit.rate) == pytest.approx((drop, rate), rel=1e-3)
    assert fit.floor == pytest.approx(floor, abs=1e-4 * max(1, drop))
    noise = np.random.default_rng(seed).normal(0, 0.01 * drop, 7)
    noisy = fit_losses(alphas, Fit(drop, rate, floor)(alphas) + noise)
    assert noisy.error <= np.sqrt(np.mean(noise**2)) * (1 + 1e-9)  # least squares beats the truth on its own data


def test_choose_level_end_to_end():
    alphas = np.array([0.01, 0.05, 0.1, 0.2, 0.5, 1.0])
    chosen = choose_level(alphas, 0.2 * np.exp(-25 * alphas) + 0.32, floor=0.32)
    assert chosen.alpha == pytest.approx(0.1422, abs=5e-4)
    around = np.array([0.9, 1.0, 1.1]) * chosen.alpha
    assert chosen.objective(around).argmin() == 1
    assert np.all(np.diff(chosen.utility(around)) < 0)
    assert (chosen.low, chosen.high) == (0.01, 1.0)


def test_losses_that_rise_with_alpha_fit_a_constant():
    fit = fit_losses([0.1, 0.2, 0.4, 0.8], [0.3, 0.31, 0.33, 0.35])
    assert fit.drop * np.exp(-fit.rate * 0.1) == pytest.approx(0, abs=1e-6)
    assert fit.floor == pytest.approx(0.3225)


@pytest.mark.parametrize(
    ("alphas", "losses"), [([0.1, 0.2], [1, 2]), ([0.1, 0.2, 0.3], [1, 2]), ([0.0, 0.1, 0.2], [3, 2, 1])]
)
def test_bad_measurements_are_refused(alphas, losses):
    with pytest.raises(InputError):
        fit_losses(alphas, losses)


def test_bad_ranges_and_weights_are_refused():
    with pytest.raises(InputError, match="0 < low <= high, got 0 and 1"):
        optimum(Fit(1, 1, 0), WEIGHTS, 0, 1)
    with pytest.raises(InputError, match="weights must be four numbers"):
        optimum(Fit(1, 1, 0), (0.02, 6, -9, 1), 0.1, 1)


def test_a_level_for_all_rounds_refuses_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tradeoff", "--set", "privacy.schedule=power"]) == 2
    assert "privacy.schedule = 'power' is not obeyed by tradeoff" in capsys.readouterr().err
