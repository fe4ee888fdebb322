"""What the estimators promise: the budget, the noise, public scales, and answers that are right without noise."""

from __future__ import annotations

import warnings

import dp_accounting
import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.optimize import minimize
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from coterie.api.bounds import default_radius
from coterie.errors import InputError
from coterie.estimators import (
    BoundsWarning,
    LabelsWarning,
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
    RepeatedFitWarning,
    forget_fits,
)
from tests.support import mostly_slow

N, D, SITES = 600, 3, 4
FAST = {"bounds": (-2, 2), "rounds": 24, "random_state": 0}
TWO = {**FAST, "classes": ["ill", "well"]}


def people(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and sites of unequal size."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (N, D))
    y = np.where(x @ [1.0, -1.0, 0.5] + 0.3 + 0.3 * rng.normal(size=N) > 0, "ill", "well")
    return x, y, rng.permutation(np.repeat(np.arange(SITES), [60, 120, 180, 240]))


def rows(x: np.ndarray) -> np.ndarray:
    """The scaled records, written down again: [−2, 2] to [−1, 1], the ball, the constant."""
    z = np.clip(x / 2, -1, 1)
    radius = default_radius(x.shape[1])
    z = np.where(
        np.linalg.norm(z, axis=1, keepdims=True) > radius, z / np.linalg.norm(z, axis=1, keepdims=True), z / radius
    )
    return np.column_stack([z, np.ones(len(z))]) / 2**0.5


# ---- the budget ------------------------------------------------------------------------------------------------------


def test_what_was_spent_is_within_the_budget_by_another_accountant():
    epsilon = 3.0
    x, y, sites = people()
    model = PrivateConsensusClassifier(epsilon, 1e-6, **TWO).fit(x, y, agents=sites)
    assert model.epsilon_spent_ <= epsilon
    assert model.epsilon_spent_ == pytest.approx(epsilon, rel=1e-6)
    assert list(model.ledger_) == [str(s) for s in range(SITES)]
    (event,) = (entry.event for entry in model.ledger_["0"].entries)
    for scale, fits in ((1.0, True), (0.95, False)):  # the broken twin: noise 5 % too small
        loss = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)  # noise in units of the gap
        for gap, noise, times in zip(event.sensitivity, event.sigma, event.times, strict=True):
            loss.compose(dp_accounting.GaussianDpEvent(scale * noise / gap), int(times))
        assert (loss.get_epsilon(1e-6) <= epsilon * (1 + 1e-2)) == fits


def test_every_party_may_have_its_own_budget():
    x, y, sites = people()
    model = PrivateConsensusClassifier([0.1, 0.5, 1.0, 2.0], **TWO).fit(x, y, agents=sites)
    spent = [ledger.spent() for ledger in model.ledger_.values()]
    assert spent == pytest.approx([0.1, 0.5, 1.0, 2.0], rel=1e-6)
    assert model.epsilon_spent_ == pytest.approx(2.0, rel=1e-6)


def test_noise_of_the_mean_has_the_size_that_the_ledger_says():
    """One release for each party: mean_ scatters as √Σσ²/N says, tested over seeds; 10 % off would be seen."""
    x = np.random.default_rng(1).uniform(-2, 2, (200, 40))
    found = []
    for seed in range(12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RepeatedFitWarning)
            model = PrivateMean(1.0, bounds=(-2, 2), random_state=seed).fit(x, agents=np.arange(200) % SITES)
        found.append(model.mean_ - x.mean(axis=0))
    sigma = [float(e.event.sigma[0]) for ledger in model.ledger_.values() for e in ledger.entries]
    want = 2 * np.sqrt(np.sum(np.square(sigma))) / SITES  # 2: half the width of the bounds
    seen, numbers = np.std(found), np.size(found)
    assert abs(seen / want - 1) < 4 / np.sqrt(2 * numbers)
    assert abs(seen / (1.2 * want) - 1) > 4 / np.sqrt(2 * numbers)


# ---- right without noise ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_with_a_huge_budget_the_classifier_is_the_pooled_optimum():
    x, y, sites = people()
    model = PrivateConsensusClassifier(
        1e6, graph="complete", bounds=(-2, 2), classes=["ill", "well"], ridge=0.01, weighting="records",
        random_state=0, rounds=600, settings={"clip": 10.0, "step": 2.0, "momentum": 0.9, "tail": 0.1},
    ).fit(x, y, agents=sites)  # fmt: skip
    z, t = rows(x), np.where(y == "well", 1.0, -1.0)
    loss = lambda w: np.mean(np.logaddexp(0, -t * (z @ w))) + 0.005 * w @ w  # noqa: E731
    best = minimize(loss, np.zeros(D + 1), method="BFGS", options={"gtol": 1e-9}).x
    plain = np.column_stack([x / 2 / default_radius(D), np.ones(N)]) / 2**0.5
    np.testing.assert_allclose(model.decision_function(x), plain @ best, atol=0.02 * np.abs(plain @ best).max())
    private = PrivateConsensusClassifier(0.05, graph="complete", ridge=0.01, **TWO)
    with pytest.warns(RepeatedFitWarning):
        private.fit(x, y, agents=sites)
    assert np.abs(private.decision_function(x) - plain @ best).max() > 0.2 * np.abs(plain @ best).max()


def test_with_a_huge_budget_the_mean_is_the_mean():
    x, _, sites = people()
    model = PrivateMean(1e6, bounds=(-2, 2), random_state=0).fit(x, agents=sites)
    np.testing.assert_allclose(model.mean_, x.mean(axis=0), atol=1e-3)
    assert model.score(x) == pytest.approx(-np.sum(x.var(axis=0)), rel=1e-5)


def test_with_a_huge_budget_the_regressor_recovers_the_line():
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 10, (800, 2))
    y = 5 + 2 * x[:, 0] - x[:, 1]
    model = PrivateConsensusRegressor(
        1e6, bounds=(0, 10), target_bounds=(-5, 25), graph="complete", ridge=1e-6, rounds=600, random_state=0,
        settings={"clip": 10.0, "step": 1.0, "momentum": 0.95, "tail": 0.1},
    ).fit(x, y, agents=np.arange(800) % 3)  # fmt: skip
    assert model.coef_ == pytest.approx([2.0, -1.0], abs=0.02)
    assert model.intercept_ == pytest.approx(5.0, abs=0.15)
    assert model.score(x, y) > 0.999


@pytest.mark.slow
def test_three_classes():
    x, y = make_blobs(900, centers=[[-1, -1], [1, -1], [0, 1.2]], cluster_std=0.3, random_state=0)
    names = np.array(["a", "b", "c"])[y]
    model = PrivateConsensusClassifier(3.0, **FAST, classes=["a", "b", "c"]).fit(
        x, names, agents=np.arange(900) % SITES
    )
    assert model.coef_.shape == (3, 2)
    assert model.score(x, names) > 0.95
    chances = model.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(x)).all()


# ---- the same records in other clothes -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning")
def test_sites_frames_names_and_order_of_records_do_not_matter():
    x, y, sites = people()
    one = PrivateConsensusClassifier(**TWO).fit(x, y, agents=sites)
    listed = PrivateConsensusClassifier(**TWO).fit([(x[sites == s], y[sites == s]) for s in range(SITES)])
    columns = [f"c{j}" for j in range(D)]
    frame = PrivateConsensusClassifier(**{**TWO, "bounds": dict.fromkeys(columns, (-2, 2))}).fit(
        pd.DataFrame(x, columns=columns), pd.Series(y), agents=pd.Series(sites).map("site {}".format)
    )
    order = np.random.default_rng(0).permutation(N)
    shuffled = PrivateConsensusClassifier(**TWO).fit(x[order], y[order], agents=sites[order])
    for other in (listed, frame, shuffled):
        np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-9)
    assert list(frame.feature_names_in_) == columns
    assert frame.agents_ == tuple(f"site {s}" for s in range(SITES))
    other = PrivateConsensusClassifier(**TWO).fit(x, y, agents=np.roll(sites, 1))  # the broken twin
    assert not np.allclose(other.coef_, one.coef_)


@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning")
def test_swapping_the_labels_swaps_the_model():
    x, y, sites = people()
    quiet = {"epsilon": 1e6, **FAST}
    one = PrivateConsensusClassifier(**quiet, classes=["ill", "well"]).fit(x, y, agents=sites)
    two = PrivateConsensusClassifier(**quiet, classes=["well", "ill"]).fit(x, y, agents=sites)
    np.testing.assert_allclose(two.coef_, -one.coef_, atol=1e-3 * np.abs(one.coef_).max())
    assert (one.predict(x) == two.predict(x)).mean() > 0.995


# ---- nothing about a record reaches a scale --------------------------------------------------------------------------


def public_part(model) -> dict:
    events = [e.event for ledger in model.ledger_.values() for e in ledger.entries]
    numbers = [getattr(e, k) for e in events for k in ("sensitivity", "sigma", "times")]
    return {
        "rounds": model.n_iter_,
        "settings": model.settings_,
        "numbers": np.concatenate(numbers).tolist(),
        "history": model.history_["round"].tolist(),
        "curves": sorted(model.history_),
        "box": repr(vars(model).get("_target")),
    }


@pytest.mark.parametrize(
    ("kind", "bounds"),
    mostly_slow(
        [(k, b) for b in (None, (-2, 2)) for k in (PrivateConsensusClassifier, PrivateConsensusRegressor, PrivateMean)],
        (PrivateConsensusClassifier, None),
        (PrivateConsensusRegressor, (-2, 2)),
        (PrivateMean, None),
    ),
)
@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning", "ignore::coterie.estimators.BoundsWarning")
def test_one_record_changes_no_scale(kind, bounds):
    x, y, sites = people()
    target = y if kind is PrivateConsensusClassifier else np.where(y == "ill", 1.0, 0.0)
    options = {"epsilon": 1.0, "rounds": 24, "random_state": 0, "bounds": bounds}
    if kind is PrivateConsensusClassifier:
        options["classes"] = ["ill", "well"]
    before = kind(**options).fit(x, target, agents=sites)
    moved, changed = x.copy(), target.copy()
    moved[7] = 1e9  # an outlier that every data-dependent scale would follow
    if kind is PrivateConsensusRegressor:
        changed[7] = -1e9
    after = kind(**options).fit(moved, changed, agents=sites)
    fitted = [public_part(m) for m in (before, after)]
    if kind is PrivateConsensusRegressor:
        assert fitted[0].pop("box") != "None"
        fitted[1].pop("box")
        assert before._target.half == after._target.half
    assert fitted[0] == fitted[1]


def test_without_bounds_it_warns_and_says_what_it_does():
    x, y, sites = people()
    with pytest.warns(BoundsWarning, match=r"\[-3, 3\].*leak"):
        PrivateConsensusClassifier(rounds=24, random_state=0, classes=["ill", "well"]).fit(x, y, agents=sites)
    forget_fits()
    model = PrivateConsensusRegressor(bounds=(-2, 2), rounds=24, random_state=0)
    with pytest.warns(BoundsWarning, match="target_bounds"):
        model.fit(x, x[:, 0], agents=sites)


def test_labels_read_from_the_records_are_not_private():
    """One record with a rare label changes the model's shape; stated labels do not move, whatever the records say."""
    x, y, sites = people()
    rare = y.copy()
    rare[7] = "dead"
    with pytest.warns(LabelsWarning, match="not private"):
        read = [PrivateConsensusClassifier(**FAST).fit(x + k, t, agents=sites) for k, t in enumerate((y, rare))]
    assert [m.coef_.shape for m in read] == [(1, D), (3, D)]
    assert [(m.private_, m.leaks_) for m in read] == [(False, ("the class labels are read from y",))] * 2
    stated = {**FAST, "classes": ["ill", "well", "dead"]}
    told = [PrivateConsensusClassifier(**stated).fit(x + 2 + k, t, agents=sites) for k, t in enumerate((y, rare))]
    assert [m.coef_.shape for m in told] == [(3, D)] * 2
    assert [(m.private_, m.leaks_) for m in told] == [(True, ())] * 2
    with pytest.raises(InputError, match="'dead' is not one of the classes"):
        PrivateConsensusClassifier(**TWO).fit(x, rare, agents=sites)
    assert PrivateMean(**FAST).fit(x + 4, agents=sites).private_


def test_noise_that_nobody_seeds_has_the_whole_key(monkeypatch):
    """Neither the default nor a `RandomState` of the caller's is squeezed through 32 bits."""
    seeds = []
    monkeypatch.setattr("coterie.estimators.base.train_paid", lambda *_, seed, **__: seeds.append(seed) or 1 / 0)
    x, y, sites = people()
    for state in (None, np.random.RandomState(3), 3):
        for _ in range(8):
            with pytest.raises(ZeroDivisionError):
                PrivateConsensusClassifier(**{**TWO, "random_state": state}).fit(x, y, agents=sites)
    assert min(max(seeds[:8]), max(seeds[8:16])) > 1 << 60  # 8 draws of 64 bits below that: once in 10⁹⁶
    assert len(set(seeds[:16])) == 16
    assert len(set(seeds[16:])) == 1
    assert seeds[16] < 1 << 32


class Unread:
    """Records that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"a record was read ({name})")

    def __len__(self):
        raise AssertionError("a record was read")


@pytest.mark.parametrize("kind", [PrivateConsensusClassifier, PrivateConsensusRegressor, PrivateMean])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"algorithm": "admm"}, "admm is not private"),
        ({"algorithm": "dgp"}, "unknown algorithm 'dgp'"),
        ({"settings": {"clip": -1.0}}, "clip"),
        ({"delta": 2.0}, "delta"),
        ({"rounds": 0}, "rounds"),
        ({"algorithm": "gauss-avg-gd"}, "runs on complete graphs"),
    ],
)
def test_a_contract_that_fails_is_refused_before_a_record_is_read(kind, options, why):
    with pytest.raises(InputError, match=why):
        kind(**options).fit(Unread(), Unread())


def test_losses_that_an_algorithm_does_not_take_are_refused_before_a_record_is_read():
    with pytest.raises(InputError, match="priv-rcd needs"):
        PrivateConsensusRegressor(algorithm="priv-rcd", graph="complete").fit(Unread(), Unread())


def test_history_holds_no_number_that_was_not_paid_for():
    x, y, sites = people()
    model = PrivateConsensusClassifier(**TWO).fit(x, y, agents=sites)
    assert set(model.history_) == {"round", "consensus_gap"}
    with pytest.warns(RepeatedFitWarning):
        model.fit(x, y, agents=sites, test=people(seed=5)[:2])
    assert set(model.history_) == {"round", "consensus_gap", "test_score"}
    assert model.history_["test_score"][-1] == pytest.approx(model.score(*people(seed=5)[:2]), abs=0.1)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fit", "words"),
    [
        ({}, {"sample_weight": np.ones(N)}, "sample_weight is refused.*what one record can change"),
        ({}, {"agents": np.zeros(N)}, "at least 2 sites"),
        ({}, {"agents": np.arange(3)}, "agents must name the party of each of the 600"),
        ({"bounds": [(-2, 2)]}, {}, "bounds have shape"),
        ({"bounds": (2, -2)}, {}, "low < high"),
        ({"radius": 0.0}, {}, "radius must be > 0"),
        ({"epsilon": -1.0}, {}, "epsilon"),
        ({"algorithm": "dgd"}, {}, "not private"),
        ({"algorithm": "nonsense"}, {}, "nonsense"),
        ({"classes": ["ill", "sick"]}, {}, "'well' is not one of"),
        ({"algorithm": "dp-consensus-gd", "settings": {"as_printed": True}}, {}, "not private"),
    ],
)
def test_mistakes_are_named(options, fit, words):
    x, y, _ = people()
    with pytest.raises(InputError, match=words):
        PrivateConsensusClassifier(**{**TWO, **options}).fit(x, y, **fit)


def test_missing_parties_are_refused():
    x, y, sites = people()
    ids = sites.astype(float)
    ids[3] = np.nan
    with pytest.raises(InputError, match="missing"):
        PrivateConsensusClassifier(**TWO).fit(x, y, agents=ids)


# ---- with the rest of scikit-learn -----------------------------------------------------------------------------------


def test_pipeline():
    x, y, sites = people()
    model = make_pipeline(
        FunctionTransformer(lambda v: v / 2), PrivateConsensusClassifier(5.0, **{**TWO, "bounds": (-1, 1)})
    )
    model.fit(x, y, privateconsensusclassifier__agents=sites)
    assert model.score(x, y) > 0.8


@pytest.mark.slow
def test_grid_search_is_told_what_it_costs():
    x, y, sites = people()
    grid = GridSearchCV(PrivateConsensusClassifier(**TWO), {"ridge": [1e-3, 1e-2]}, cv=2)
    with pytest.warns(RepeatedFitWarning) as told:
        grid.fit(x, y, agents=sites)
    # 2 settings × 2 folds and the refit: a record is in one training fold of each setting and in the refit
    last = str(told[-1].message)
    assert "fit 3 on the same records" in last
    # three fits of ε = 1 at δ = 1e-5 by Gaussian composition, from Φ alone
    assert f"ε = {composed(1.0, 1e-5, 3):.3g} " in last
    assert composed(1.0, 1e-5, 3) < 2.0
    assert "PrivateSearch" in last


def composed(epsilon: float, delta: float, times: int) -> float:
    """ε of `times` Gaussian mechanisms that have (ε, δ) each, by bisection on Φ."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    spent = lambda mu, e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu)  # noqa: E731
    mu = brentq(lambda m: spent(m, epsilon) - delta, 1e-3, 5)
    return brentq(lambda e: spent(mu * times**0.5, e) - delta, 0, 50)


def test_other_records_do_not_warn():
    for seed in (0, 1):
        x, y, sites = people(seed)
        PrivateConsensusClassifier(**TWO).fit(x, y, agents=sites)


def test_another_target_of_the_same_records_costs_again_and_one_shared_record_suffices():
    x, y, sites = people()
    PrivateConsensusClassifier(**TWO).fit(x, y, agents=sites)
    with pytest.warns(RepeatedFitWarning, match="fit 2"):
        PrivateMean(bounds=(-2, 2), random_state=0).fit(x, agents=sites)
    forget_fits()
    PrivateMean(bounds=(-2, 2), random_state=0).fit(x, agents=sites)
    other = people(seed=1)[0]
    other[5] = x[80]
    with pytest.warns(RepeatedFitWarning, match=f"ε = {composed(1.0, 1e-5, 2):.3g} "):
        PrivateMean(bounds=(-2, 2), random_state=0).fit(other, agents=sites)


def test_probabilities_of_a_rare_class_are_calibrated():
    """At 8 % positive the clipped model's own probabilities are far too low: the corrected ones are near."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, (20_000, 4))
    y = (rng.uniform(size=20_000) < 0.16 * x[:, 0]).astype(int)
    model = PrivateConsensusClassifier(epsilon=4.0, bounds=(0, 1), classes=[0, 1], random_state=0, graph="complete")
    model.fit(x[:16_000], y[:16_000], agents=np.arange(16_000) % 4)
    rest, rate = x[16_000:], y[:16_000].mean()
    own = 1 / (1 + np.exp(-model.decision_function(rest)))
    assert own.mean() < rate - 0.02
    assert model.predict_proba(rest)[:, 1].mean() == pytest.approx(rate, abs=0.015)
    assert model.ridge_ == 1e-5


def test_records_are_scored_as_they_are_trained_on():
    """Beyond bounds and radius a record is pulled back, where it trains and where it is asked about."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (400, 6))  # √6 long, and the radius is 1.5
    model = PrivateConsensusClassifier(
        epsilon=5.0, bounds=(-1, 1), radius=1.5, classes=[0, 1], random_state=0, rounds=40
    ).fit(x, (x[:, 0] > 0).astype(int), agents=np.arange(400) % 4)
    np.testing.assert_allclose(model.decision_function(x), model.decision_function(x * 1.5 / 6**0.5))
    np.testing.assert_allclose(model.decision_function(x), model.decision_function(7 * x))
    inside = 0.2 * x
    np.testing.assert_allclose(model.decision_function(inside), inside @ model.coef_[0] + model.intercept_[0])
