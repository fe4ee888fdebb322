"""Showkatbakhsh et al.: closed forms, the bound, and small runs of what the figures plot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.algorithms.dp_consensus_gd import showkatbakhsh_alpha
from coterie.privacy.gdp import mu_for
from reproduction import _showkatbakhsh_runs as runs
from reproduction.base import all_figures
from reproduction.runner import reproduce
from reproduction.study import Study

UNIT = runs.DIM * runs.gap() ** 2 / runs.AGENTS  # p c²/(Nκ) at Σ Δ²/M² = 1


@pytest.mark.parametrize(
    ("rounds", "bare", "released"), [(1, 0.0, 2.0), (10, 1.221, 1.421), (100, 1.323, 1.343), (1000, 1.332, 1.334)]
)
def test_error_of_the_printed_schedule(rounds: int, bare: float, released: float) -> None:
    m = runs.scales(rounds, 1.0, "printed")
    assert runs.mean_error(m, runs.AGENTS, runs.DIM, False) / UNIT == pytest.approx(bare, abs=6e-4)
    assert runs.mean_error(m, runs.AGENTS, runs.DIM, True) / UNIT == pytest.approx(released, abs=6e-4)
    assert runs.mean_error(runs.scales(rounds, 1.0, "uniform"), runs.AGENTS, runs.DIM, True) == pytest.approx(UNIT)


@pytest.mark.parametrize(("rounds", "share"), [(10, 0.794), (100, 0.929), (1000, 0.977), (10_000, 0.993)])
def test_printed_noise_spends_less_than_its_budget(rounds: int, share: float) -> None:
    moves = runs.gap() / np.arange(1, rounds + 1)
    assert np.sum((moves / runs.scales(rounds, 0.8, "printed")) ** 2) / 0.8 == pytest.approx(share, abs=6e-4)
    assert np.sum((moves / runs.scales(rounds, 0.8, "uniform")) ** 2) == pytest.approx(0.8)


@pytest.mark.parametrize(("epsilon", "delta", "inflation"), [(0.1, 1e-3, 2.25), (1, 1e-3, 1.56), (4, 1e-3, 1.33)])
def test_noise_of_14_over_exact_noise(epsilon: float, delta: float, inflation: float) -> None:
    assert mu_for(epsilon, delta) / showkatbakhsh_alpha(epsilon, delta) ** 0.5 == pytest.approx(inflation, abs=6e-3)


def test_slope_of_figure_2_by_theory() -> None:
    """With κ of (14) the local slope is −2 + ε/(ε + 2 ln(2/δ)); with the exact μ it is flatter."""
    epsilon, delta, h = 1.0, 1e-3, 1e-4
    near = np.array([epsilon, epsilon * (1 + h)])
    printed = runs.slope_of(near, [1 / showkatbakhsh_alpha(e, delta) for e in near])
    exact = runs.slope_of(near, [1 / float(mu_for(e, delta)) ** 2 for e in near])
    assert printed == pytest.approx(-2 + epsilon / (epsilon + 2 * np.log(2 / delta)), abs=1e-3)
    assert -1.9 < exact < -1.5
    assert exact > printed + 0.05


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_first_nodes_closed_form_is_that_of_the_recursion(share: float) -> None:
    """4,000 runs of the printed rounds in NumPy, on a sparse graph with nodes that differ."""
    rng, rounds, seeds = np.random.default_rng(0), 6, 4000
    mix = runs.weights(0.3, 1).dense()
    means = 1.0 + rng.standard_normal((runs.AGENTS, runs.DIM))
    noise = np.linspace(1.0, 0.4, rounds)
    x = np.zeros((seeds, *means.shape))
    for t in range(1, rounds + 1):
        sent = x + (noise[t - 2] * rng.standard_normal(x.shape) if t > 1 else 0.0)
        heard = np.einsum("ij,sjk->sik", mix, sent)
        x = heard - share / t * (heard - means)
    errors = np.sum((x[:, 0] - means.mean(axis=0)) ** 2, axis=1)
    exact = runs.node_path(mix, noise, share, means)
    assert abs(errors.mean() - exact) < 4 * errors.std() / seeds**0.5
    assert abs(errors.mean() - runs.node_path(mix, 1.1 * noise, share, means)) > 4 * errors.std() / seeds**0.5


def test_floor_of_figure_1() -> None:
    """2.8e-4 with κ of (14), 1.2e-4 with exact, uniform noise."""
    delta, size = 1e-3, float(np.sum(runs.data(100).mean(axis=0) ** 2))
    alpha, mu = showkatbakhsh_alpha(4.0, delta), float(mu_for(4.0, delta))
    assert 4 / 3 * UNIT / alpha / size == pytest.approx(2.8e-4, rel=0.03)
    assert UNIT / mu**2 / size == pytest.approx(1.2e-4, rel=0.03)


def test_bound_by_its_recursion() -> None:
    """The closed sums are the recursion of the proof, summed: t S(t) and d_t step by step, β^k summed without end."""
    m, c, g, beta, p = runs.scales(40, 0.8, "printed"), 1.3, 2.0, 0.7, 3
    total, d = 0.0, 0.0
    for t in range(1, 41):
        if t > 1:
            d = beta * (d + g * c / (t - 1) + p**0.5 * m[t - 2])  # both over √N
            total += p * (t - 1) * m[t - 2] ** 2
        total += c**2 * g**2 / t + 2 * c * g * d
    bound = runs.thm2_bound(m, p, c, g, beta)
    assert total / 40 < bound < 1.2 * total / 40
    assert bound > runs.mean_error(m, 10, p, False)
    assert runs.thm2_bound(m, p, c, g, 0.9) > bound


def test_records_lie_in_the_box_around_their_centre() -> None:
    found = runs.data(100)
    assert found.shape == (1000, runs.DIM)
    assert np.abs(found).max() <= runs.RADIUS
    assert found.mean() == pytest.approx(3.36, abs=0.1)  # N(3.5, 1) cut at 5


@pytest.fixture(scope="module")
def few_steps() -> dict[bool, dict[str, np.ndarray]]:
    common = {"stage": 4, "budgets": [[4.0, 1e-3], [1.0, 1e-3]], "seeds": 1000}
    return {printed: runs.descend(Study(), printed=printed, **common) for printed in (True, False)}


@pytest.mark.slow
def test_simulated_error_is_the_closed_form(few_steps: dict[bool, dict[str, np.ndarray]]) -> None:
    def deviation(measured: np.ndarray, expected: float) -> float:
        return abs(measured.mean() / expected - 1) * len(measured) ** 0.5  # in standard errors: p = 2 is exponential

    for printed, found in few_steps.items():
        spent = showkatbakhsh_alpha(4.0, 1e-3) if printed else float(mu_for(4.0, 1e-3)) ** 2
        m = runs.scales(4, spent, "printed" if printed else "uniform")
        expected = runs.mean_error(m, runs.AGENTS, runs.DIM, not printed) / float(found["size"])
        assert deviation(found["mean"][0], expected) < 4
        assert deviation(found["mean"][0], 0.8 * expected) > 4  # a schedule 20 % off is noticed


@pytest.mark.slow
def test_costs_and_versions(few_steps: dict[bool, dict[str, np.ndarray]]) -> None:
    printed, corrected = few_steps[True], few_steps[False]
    assert corrected["epsilon"] == pytest.approx([4.0, 1.0], rel=1e-6)
    assert np.all(np.asarray(printed["epsilon"]) < [4.0, 1.0])  # (14) and 2√T are loose, had the last message noise
    assert printed["mean"][1].mean() > 5 * printed["mean"][0].mean()
    ratio = printed["mean"][1] / printed["mean"][0]  # the same draws at another scale
    expected = showkatbakhsh_alpha(4.0, 1e-3) / showkatbakhsh_alpha(1.0, 1e-3)
    assert np.median(ratio) == pytest.approx(expected, rel=1e-9)  # where no point was projected


@pytest.mark.slow
def test_quick_figure(tmp_path: Path) -> None:
    verdict = reproduce(all_figures()["showkatbakhsh-fig4"], tmp_path, quick=True)
    assert all(outcome["margin"] > 0 for claim in verdict["claims"] for outcome in claim["outcomes"][-1:])
    assert (tmp_path / "showkatbakhsh-fig4.png").stat().st_size > 5000
