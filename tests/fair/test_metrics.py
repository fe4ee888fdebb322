"""Metrics against their definitions (and Fairlearn, where it is installed), and their private release."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.fair import metrics
from coterie.fair.noise import GridNoise, Seeded
from coterie.privacy.events import NonPrivate
from tests.fair.cases import Recorder


def _sample(seed, n=200, groups=2):
    rng = np.random.default_rng(seed)
    z = rng.integers(groups, size=n)
    y = (rng.random(n) < 0.3 + 0.1 * z).astype(int)
    return y, (rng.random(n) < 0.2 + 0.3 * y + 0.1 * z).astype(int), z


def _by_hand(y, hat, z, groups):
    """Every metric with loops over records only."""
    share = lambda rows: sum(hat[i] for i in rows) / len(rows) if rows else float("nan")  # noqa: E731
    n = range(len(y))
    selected = [share([i for i in n if z[i] == g]) for g in range(groups)]
    odds = [[share([i for i in n if z[i] == g and y[i] == c]) for g in range(groups)] for c in (0, 1)]
    right = [np.mean([hat[i] == y[i] for i in n if z[i] == g]) for g in range(groups)]
    return {
        "risk_difference": max(selected) - min(selected),
        "disparate_impact": min(selected) / max(selected),
        "equalized_odds_gap": max(max(o) - min(o) for o in odds),
        "accuracy": float(np.mean(y == hat)),
        "positive_rate": float(np.mean(hat)),
        "group_accuracy": right,
    }


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_they_are_their_definitions(seed, groups):
    y, hat, z = _sample(seed, groups=groups)
    found = metrics.evaluate(y, hat, z, groups)
    for name, value in _by_hand(y, hat, z, groups).items():
        assert np.allclose(getattr(found, name), value)


def test_they_agree_with_fairlearn():
    fairlearn = pytest.importorskip("fairlearn.metrics", reason="Fairlearn is not installed")
    for seed in range(20):
        y, hat, z = _sample(seed, groups=3)
        assert metrics.risk_difference(hat, z) == pytest.approx(
            fairlearn.demographic_parity_difference(y, hat, sensitive_features=z)
        )
        assert metrics.disparate_impact(hat, z) == pytest.approx(
            fairlearn.demographic_parity_ratio(y, hat, sensitive_features=z)
        )
        assert metrics.equalized_odds_gap(y, hat, z) == pytest.approx(
            fairlearn.equalized_odds_difference(y, hat, sensitive_features=z)
        )


def test_an_empty_group_is_not_zero():
    y, hat, z = np.array([0, 1, 1]), np.array([0, 1, 0]), np.zeros(3, int)
    found = metrics.evaluate(y, hat, z, number=2)
    assert np.isnan([found.risk_difference, found.disparate_impact, found.equalized_odds_gap]).all()
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.group_accuracy[0] == pytest.approx(2 / 3)
    assert np.isnan(found.group_accuracy[1])
    assert np.isnan(metrics.evaluate([0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 1]).disparate_impact)  # nobody selected
    no_positives = metrics.evaluate([0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1])
    assert np.isnan(no_positives.equalized_odds_gap)  # group 0 has no record with label 1
    assert no_positives.risk_difference == 0


def test_exact_metrics_are_marked():
    found = metrics.evaluate(*_sample(0))
    assert found.evaluation_only
    assert isinstance(found.events[0], NonPrivate)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_private_metrics_cost_their_budget_and_come_close(delta):
    y, hat, z = _sample(1, n=200_000)
    exact = metrics.evaluate(y, hat, z, 2)
    got = metrics.private_metrics(y, hat, z, 2, epsilon=0.5, delta=delta, noise=Seeded(np.random.default_rng(0)))
    assert not got.evaluation_only
    assert got.account.epsilon == pytest.approx(0.5, rel=1e-6)
    assert got.account.delta == delta
    assert got.risk_difference == pytest.approx(exact.risk_difference, abs=1e-3)
    assert got.risk_difference != exact.risk_difference
    secure = metrics.private_metrics(y, hat, z, 2, epsilon=0.5, delta=delta, noise=GridNoise())
    assert secure.account.epsilon <= 0.5


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_table_moves_by_its_sensitivity(delta):
    y, hat, z = _sample(2, n=30)
    flats = []
    for change in (False, True):
        yy, hh, zz = y.copy(), hat.copy(), z.copy()
        yy[0], hh[0], zz[0] = (1, 1, 1) if change else (0, 0, 0)
        note = Recorder()
        out = metrics.private_metrics(yy, hh, zz, 2, epsilon=1.0, delta=delta, noise=note)
        flats.append(note.flat)
    move = np.abs(flats[1][0] - flats[0][0]) / flats[0][1]
    if delta:
        assert np.linalg.norm(move) == pytest.approx(float(1 / out.events[0].sigma))
    else:
        assert move.sum() == pytest.approx(1.0)


def test_refusals():
    with pytest.raises(InputError, match="0 or 1"):
        metrics.evaluate([0, 2], [0, 1], [0, 1])
    with pytest.raises(InputError, match="as long"):
        metrics.evaluate([0, 1], [0, 1], [0])
    with pytest.raises(InputError, match=r"0 … 1"):
        metrics.evaluate([0, 1], [0, 1], [0, 2], 2)
