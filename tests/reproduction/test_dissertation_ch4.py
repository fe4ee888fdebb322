"""Ding, chapter 4: the printed noise, what it costs, and the clock."""

from __future__ import annotations

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms.base import find
from coterie.algorithms.batches import rows
from coterie.experiment import public_network
from coterie.pricing import settle
from coterie.privacy.rdp import zcdp_epsilon
from reproduction import _dissertation_ch4_runs as runs
from reproduction.base import all_figures
from reproduction.runner import reproduce
from reproduction.study import Study


def test_noise_of_remark_6() -> None:
    """ν = 6.20 and a mean-gradient std of .310 at ε = 1, m = 1000, T = 1000, B = 20, K = .5."""
    assert runs.printed_multiplier(1.0, 1000, 1000, 20) == pytest.approx(6.20, abs=5e-3)
    assert 0.5 * runs.remark6_sigma(1.0, 1000, 1000) == pytest.approx(0.310, abs=5e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 1.5])
def test_remark_6_is_theorem_11_backwards(epsilon: float) -> None:
    """8ρT/(m²σ²) + ln(1/δ)/(ρ − 1) = ε at the printed ρ = 2 ln(1/δ)/ε + 1; the best order gains next to nothing."""
    sigma, logs = runs.remark6_sigma(epsilon, 1000, 400), np.log(1 / runs.DELTA)
    order = 2 * logs / epsilon + 1
    assert 8 * order * 400 / (1000 * sigma) ** 2 + logs / (order - 1) == pytest.approx(epsilon)
    assert 0.99 * epsilon < zcdp_epsilon(8 * 400 / (1000 * sigma) ** 2, runs.DELTA) <= epsilon


def test_theorem_11_charges_too_much_with_whole_batches() -> None:
    """Upper ends of the spec's intervals for B = 20: .46 at T = 99, .37 at T = 990."""
    found = runs.true_epsilon(Study(), claimed=1.0, rounds=[99, 990], scheme="fixed", records=1000)
    assert found["true"] == pytest.approx([0.46, 0.37], abs=6e-3)
    assert found["printed"] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_theorem_11_charges_too_little_for_short_runs_at_a_deadline() -> None:
    """5.22 to 5.23 at T = 99 and .36 to .39 at T = 990 for b from 4 to 36; the clock's b ends at 35."""
    true = runs.true_epsilon(Study(), claimed=1.0, rounds=[99, 990], scheme="deadline", records=1000)["true"]
    assert true[0] == pytest.approx(5.23, rel=0.01)
    assert 0.36 < true[1] < 0.396


def test_rounds_last_as_the_spec_says() -> None:
    """.96 for the quantized methods; E max of ten B/V plus c T_c or T_c: 2.20 for SDM, 4.30 for DSGD."""
    speed = np.random.default_rng(0).uniform(10, 90, (200_000, 10))
    slowest = float((20 / speed).max(1).mean())
    for name, expected in (("qdpsgd1", 0.9625), ("sdm", slowest + 0.9), ("dsgd", slowest + 3.0)):
        epsilon = None if name == "dsgd" else 1.0
        plan = runs.plan_of(runs.settings(name, "", 20), epsilon, "mnist", 10, 1000, 1000, 1)
        settled = settle(plan, public_network(plan))
        coins = np.random.default_rng(1).uniform(size=(20_000, 10))
        took = np.asarray(find(name).duration(settled.cfg, settled.places, 0, {"speed": coins})) * np.ones((20_000, 10))
        assert took.max(1).mean() == pytest.approx(expected, rel=0.01)
    assert slowest + 0.9 == pytest.approx(2.20, abs=0.01)
    assert slowest + 3.0 == pytest.approx(4.30, abs=0.01)


def test_printed_noise_of_the_second_method_drowns_the_weights() -> None:
    """η = .01, p = 39,760: σK = 24.7 for each weight, 2474 steps of the grid."""
    nu = runs.printed_multiplier(1.0, 1000, 1000, 20)
    step, averaging = 0.3 / 1000 ** (1 / 6), 11 / 1000**0.5
    assert nu * (2 * step * averaging * 0.5 / 20 + 2 * 0.01 * 39_760**0.5) == pytest.approx(24.7, abs=0.05)


def test_share_of_time_ahead() -> None:
    time = np.array([0.0, 10.0])
    falling, level = np.array([2.0, 0.0]), np.array([1.0, 1.0])
    assert runs.ahead(time, falling, time, level) == pytest.approx(0.5, abs=0.01)
    assert runs.ahead(time, level - 0.1, time, level) == 1.0
    assert runs.ahead(time, level, 2 * time, level) == 0.0


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("slug", ["dissertation-ch4-fig14", "dissertation-ch4-fig15", "dissertation-ch4-fig16"])
def test_quick_versions_run(slug: str, tmp_path: Path) -> None:
    found = reproduce(all_figures()[slug], tmp_path, quick=True)
    assert found["quick"]
    assert found["seeds"] >= 2
    assert all(np.isfinite(list(c["value"].values())).all() for c in found["claims"])
    assert all(b["true"] <= 1.01 * b["claimed"] for b in found["budgets"] if b["version"] == "corrected")


def test_noise_of_sdm_is_that_of_its_factor() -> None:
    """By the mask's factor c alone the module's own claim is ε; on Theorem 11 it is √c of that noise."""
    plan = runs.plan_of(runs.settings("sdm", "as printed", 20), 1.0, "mnist", 10, 1000, 50, 1)
    settled = settle(plan, public_network(plan))
    flat = runs.sdm_multiplier(1.0, 1000, 50, 20, 0.3, sampled=False)
    with jax.enable_x64(True):
        place = eqx.tree_at(lambda p: p.noise, rows(settled.places, 0), jnp.asarray(flat))
        assert settled.algorithm.claim(settled.cfg, place, runs.DELTA) == pytest.approx(1.0, rel=1e-9)
    sampled = runs.sdm_multiplier(1.0, 1000, 50, 20, 0.3, sampled=True)
    assert sampled == pytest.approx(0.3**0.5 * runs.printed_multiplier(1.0, 1000, 50, 20))
    assert runs.cost_of(settled.algorithm, settled.cfg, settled.places, flat, runs.DELTA) < 1  # no batch was drawn
