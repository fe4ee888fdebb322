"""Noise schedules: printed totals, printed scales, common normalisation, optimality."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.privacy import gdp, schedules
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian


@pytest.mark.parametrize(
    ("rounds", "period", "rate", "printed"),
    [(50, 1, 0.925, 595.7930316), (50, 5, 0.925, 72.80573032), (50, 10, 0.5, 310), (7, 3, 0.5, 13)],
)
def test_periodic_total(rounds: int, period: int, rate: float, printed: float) -> None:
    variance = rate ** (np.arange(rounds) // period)
    assert schedules.periodic_total(rounds, rate, period) == pytest.approx(printed, rel=1e-9)
    assert schedules.periodic_total(rounds, rate, period) == pytest.approx(np.sum(1 / variance))
    shape = schedules.make("periodic", rounds, rate=rate, period=period)
    assert (shape / shape[0]) ** 2 == pytest.approx(variance)
    assert schedules.periodic_total(rounds, 1.0, period) == rounds


@pytest.mark.parametrize(("rounds", "rate", "printed"), [(50, 0.015, 625.75), (1, 0.3, 1.0)])
def test_the_iteration_schedule(rounds: int, rate: float, printed: float) -> None:
    k = np.arange(1, rounds)
    variance = np.concatenate([[1.0], 1 / (rate * k * (k + 1))])
    assert np.sum(1 / variance) == pytest.approx(printed)
    shape = schedules.make("iteration", rounds, rate=rate)
    assert (shape / shape[0]) ** 2 == pytest.approx(variance)


def test_published_decay_rises_first() -> None:
    """R_T = .015: 33 times the first variance at round 2, below it from round 9 on."""
    shape = schedules.make("iteration", 50, rate=0.015)
    assert (shape[1] / shape[0]) ** 2 == pytest.approx(33.3, abs=0.05)
    assert np.argmax(shape < shape[0]) + 1 == 9


def test_printed_scales() -> None:
    """Δ = 1.25e-4, K = 50, ε = 1, δ = 1e-4."""
    unit = np.sqrt(50) / gdp.mu_for(1.0, 1e-4) * 1.25e-4
    periodic, iteration = unit * schedules.make("periodic", 50), unit * schedules.make("iteration", 50)
    assert periodic[0] == pytest.approx(9.71993e-3, rel=1e-6)
    assert periodic[-1] == pytest.approx(1.43925e-3, rel=1e-5)
    assert iteration[0] == pytest.approx(9.96129e-3, rel=1e-6)


def needed(name: str, rounds: int) -> dict[str, list[float]]:
    """Options that a schedule cannot do without."""
    return {"noise": (1 + np.arange(rounds) % 3).tolist()} if name == "listed" else {}


@pytest.mark.parametrize("name", schedules.SCHEDULES.names)
@given(rounds=st.integers(1, 300))
def test_all_cost_the_same(name: str, rounds: int) -> None:
    shape = schedules.make(name, rounds, **needed(name, rounds))
    assert shape.shape == (rounds,)
    assert np.sum(1 / shape**2) == pytest.approx(rounds)


@pytest.mark.parametrize("name", schedules.SCHEDULES.names)
def test_equal_epsilon_at_equal_multiplier(name: str) -> None:
    total = account([Gaussian(1.0, 3.0 * schedules.make(name, 70, **needed(name, 70)))], 1e-5, fast=True)
    assert total.epsilon == pytest.approx(account([Gaussian(1.0, 3.0, times=70)], 1e-5, fast=True).epsilon)


@pytest.mark.parametrize(("contraction", "printed"), [(0.8, 5.6), (0.9, 2.7), (0.95, 1.5), (0.99, 1.02)])
def test_optimal_gain_and_optimality(contraction: float, printed: float) -> None:
    weights = contraction ** (2.0 * np.arange(49, -1, -1))

    def error(shape: np.ndarray) -> float:
        return float(weights @ shape**2)

    best = schedules.make("optimal", 50, contraction=contraction)
    assert error(schedules.make("uniform", 50)) / error(best) == pytest.approx(printed, rel=0.02)
    assert best[1] ** 2 / best[0] ** 2 == pytest.approx(contraction)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = best * np.exp(0.3 * rng.normal(size=50))
        other *= np.sqrt(np.mean(1 / other**2))  # back to the same budget
        assert np.sum(1 / other**2) == pytest.approx(50)
        assert error(other) > error(best)


def test_optimal_with_varying_sensitivity() -> None:
    """σ_t² = (Δ_t/√w_t) Σ_r Δ_r √w_r/(2ρ) for ρ = T/2."""
    gaps, weights = np.array([1.0, 0.2, 3.0]), 0.7 ** (2.0 * np.array([2, 1, 0]))
    sigma = schedules.make("optimal", 3, contraction=0.7, sensitivity=gaps) * gaps
    assert sigma**2 == pytest.approx(gaps / np.sqrt(weights) * np.sum(gaps * np.sqrt(weights)) / 3)


def test_power_is_t_to_minus_three_halves_for_decaying_sensitivity() -> None:
    """M_t² = c² S_T t^{−3/2}/κ with Δ_t = 2Gc/t, κ = μ²/(4G²), S_T = Σ s^{−1/2}; G = 1, c = .7."""
    t = np.arange(1, 101)
    gaps, mu = 2 * 0.7 / t, 0.5
    variance = (np.sqrt(100) / mu * schedules.make("power", 100) * gaps) ** 2
    assert variance == pytest.approx(0.7**2 * np.sum(t**-0.5) * t**-1.5 / (mu**2 / 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedules.make("linear", 5), "unknown schedule 'linear'; there are"),
        (lambda: schedules.make("uniform", 5, rate=0.5), "does not take rate"),
        (lambda: schedules.make("uniform", 0), "rounds must be"),
        (lambda: schedules.make("uniform", 2.5), "rounds must be"),
        (lambda: schedules.make("periodic", 5, rate=0.0), "rate must be > 0"),
        (lambda: schedules.make("periodic", 5, period=0), "period must be"),
        (lambda: schedules.make("iteration", 5, rate=-1.0), "rate must be > 0"),
        (lambda: schedules.make("optimal", 5, contraction=1.5), "contraction must be"),
        (lambda: schedules.make("optimal", 5, contraction=0.5, sensitivity=[1.0, 2.0]), "5 positive numbers"),
        (lambda: schedules.make("power", 5, exponent=np.inf), "must be finite"),
        (lambda: schedules.make("periodic", 10_000, rate=0.5), "not representable"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
