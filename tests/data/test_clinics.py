"""The synthetic clinics keep what their documentation promises."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from coterie.data import make_clinics, split
from coterie.data.clinics import EFFECTS
from coterie.errors import InputError


def fit(data, rows) -> LogisticRegression:
    model = LogisticRegression(C=1000 / len(rows), fit_intercept=False, max_iter=500)  # ridge 1e-3 on the mean loss
    return model.fit(data.features[rows], data.targets[rows])


def test_unit_ball_constant_and_names() -> None:
    data = make_clinics(seed=4)
    assert np.linalg.norm(data.features, axis=1).max() <= 1 + 1e-12
    np.testing.assert_allclose(data.features[:, 0], 1 / np.sqrt(12))
    assert data.feature_names == ("constant", *EFFECTS)
    assert data.columns["smoker"].dtype == bool
    assert data.source == "synthetic seed=4"


def test_the_seed_decides() -> None:
    first, again, other = make_clinics(seed=1), make_clinics(seed=1), make_clinics(seed=2)
    assert np.array_equal(first.features, again.features)
    assert np.array_equal(first.targets, again.targets)
    assert not np.array_equal(first.features, other.features)


def test_sites_differ_in_size_and_case_mix() -> None:
    data = make_clinics(seed=0)
    sizes = np.bincount(data.sites)
    assert sizes.tolist() == [300, 450, 600, 750, 900]
    means = np.array([data.features[data.sites == s].mean(axis=0)[1:] for s in range(5)])
    error = 0.3 / np.sqrt(300)  # a coordinate's standard deviation is below 0.3
    assert np.ptp(means, axis=0).min() > 4 * error


def test_truth_is_the_truth() -> None:
    """Logistic regression on many records finds θ; the outcome's rate follows the stated probability."""
    data = make_clinics(seed=3, records=80_000)
    z, theta = data.features, data.truth.coefficients
    chance = 1 / (1 + np.exp(-z @ theta))
    assert abs((data.targets - chance).sum()) < 4 * np.sqrt((chance * (1 - chance)).sum())
    fisher = (z * (chance * (1 - chance))[:, None]).T @ z
    error = np.sqrt(np.diag(np.linalg.inv(fisher)))
    found = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8, max_iter=1000).fit(z, data.targets).coef_[0]
    assert np.abs((found - theta) / error).max() < 4
    assert np.abs((found - 1.1 * theta) / error).max() > 4  # the check would notice 10 %
    right = ((z @ theta > 0) == data.targets).mean()
    assert right == pytest.approx(data.truth.bayes_accuracy, abs=4 * np.sqrt(0.25 / len(z)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_collaboration_pays(seed: int) -> None:
    """Pooled training nears the best possible rule and clearly beats what a clinic can do on its own."""
    data = make_clinics(seed=seed)
    train, test = split(data, 0.25, seed=seed)
    score = lambda rows: fit(data, rows).score(data.features[test], data.targets[test])  # noqa: E731
    pooled, alone = score(train), [score(train[data.sites[train] == s]) for s in range(5)]
    assert 0.80 <= pooled <= 0.88
    assert pooled > data.truth.bayes_accuracy - 0.03
    assert max(alone) < pooled - 0.01
    assert np.mean(alone) < pooled - 0.03


def test_other_sizes_and_refusals() -> None:
    data = make_clinics(sites=7, records=701, features=15)
    assert data.features.shape == (701, 15)
    assert data.site_names[5:] == ("clinic-6", "clinic-7")
    assert data.feature_names[-3:] == ("marker_1", "marker_2", "marker_3")
    assert make_clinics(sites=1, records=50, features=2).features.shape == (50, 2)
    with pytest.raises(InputError, match="records >= 10 a site"):
        make_clinics(records=49)


def test_many_records_are_drawn_by_all_cores_and_are_those_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond MANY records chunks have streams of their own: the same patients whatever draws them, and none twice."""
    monkeypatch.setattr("coterie.data.clinics.MANY", 5000)
    monkeypatch.setattr("coterie.data.clinics.CHUNK", 700)
    monkeypatch.setattr("coterie.data.clinics.BLOCK", 300)
    first, again = make_clinics(seed=1, records=20_000), make_clinics(seed=1, records=20_000)
    assert np.array_equal(first.features, again.features)
    assert len(np.unique(first.features, axis=0)) == 20_000
    for features in (2, 12, 40):  # in float32, and rounding leaves none outside
        many = make_clinics(seed=1, records=20_000, features=features).features
        assert many.dtype == np.float32
        assert np.linalg.norm(many.astype(float), axis=1).max() <= 1
    monkeypatch.setattr("coterie.data.clinics.MANY", 10**6)
    one_stream = make_clinics(seed=1, records=20_000)
    for site in range(5):  # the clinics are the same, their patients others
        gap = first.features[first.sites == site].mean(0) - one_stream.features[one_stream.sites == site].mean(0)
        assert np.abs(gap).max() < 6 * 0.3 / np.sqrt(2000 / 2)
