"""Private search: its total is the budget, by other accountants; nobody both trains and votes."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from coterie.errors import InputError
from coterie.estimators import (
    LabelsWarning,
    PrivateAdditiveClassifier,
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
    PrivateSearch,
    RepeatedFitWarning,
    forget_fits,
)
from coterie.estimators.votes import vote

N, DELTA = 600, 1e-5
GRID = {"ridge": [1e-3, 1e-2, 1e-1, 30.0]}


def people() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (N, 2))
    return x, np.where(x[:, 0] > 0.3, "yes", "no"), np.arange(N) % 3


class Watched(PrivateConsensusClassifier):
    """Remembers which records it was trained on and which voted."""

    trained: list = []  # noqa: RUF012
    voted: list = []  # noqa: RUF012

    def fit(self, X, y=None, **options):
        Watched.trained.append(X)
        return super().fit(X, y, **options)

    def _credit(self, X, y):
        Watched.voted.append(X)
        return super()._credit(X, y)


def base(kind=PrivateConsensusClassifier, **options):
    if issubclass(kind, PrivateConsensusClassifier):
        options = {"classes": ["no", "yes"], **options}
    return kind(bounds=(-1, 1), rounds=24, **options)


def gaussian_delta(mu: float, epsilon: float) -> float:
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_every_run_is_paid_for_where_messages_are_read():
    x, y, sites = people()
    search = PrivateSearch(base(), GRID, epsilon=1.5, delta=DELTA, random_state=0).fit(x, y, agents=sites)
    assert search.epsilon_spent_ == pytest.approx(1.5, rel=1e-9)
    assert [r["params"] for r in search.results_] == [{"ridge": r} for r in GRID["ridge"]]
    # recomputed from what the chosen model's parties released: four such runs, by Φ alone
    for ledger in search.best_estimator_.ledger_.values():
        events = [e.event for e in ledger.entries]
        square = sum(float(e.times @ (e.sensitivity / e.sigma) ** 2) for e in events)
        assert gaussian_delta((4 * square) ** 0.5, 1.5) == pytest.approx(DELTA, rel=1e-4)
        assert gaussian_delta((5 * square) ** 0.5, 1.5) > 1.5 * DELTA  # the broken twin: one run too many
    assert search.epsilon_run_ < 1.5 / 2 + 0.1
    assert search.best_estimator_.epsilon_spent_ == search.epsilon_spent_  # the chosen model tells the whole price
    assert search.best_estimator_.protects_["record"] == search.epsilon_spent_  # to whomever it may be
    assert search.best_estimator_.protects_["of_records"]["2"] > 2 * search.epsilon_spent_
    assert search.best_params_ == max(search.results_, key=lambda r: r["score"])["params"]


def test_nobody_both_trains_and_votes_and_everybody_does_one():
    Watched.trained.clear()
    Watched.voted.clear()
    x, y, sites = people()
    PrivateSearch(base(Watched), GRID, epsilon=1.0, holdout=0.25, random_state=0).fit(x, y, agents=sites)
    assert len(Watched.trained) == 4
    assert len(Watched.voted) == 4 * 3
    as_set = lambda rows: {tuple(r) for r in rows}  # noqa: E731
    trained = as_set(Watched.trained[0])
    voted = as_set(np.concatenate(Watched.voted[:3]))
    assert trained.isdisjoint(voted)
    assert len(trained | voted) == N
    assert len(voted) == N // 4
    assert all(as_set(t) == trained for t in Watched.trained)


def test_votes_carry_the_noise_that_makes_them_as_private_as_a_run():
    """The score scatters by √parties/(μ votes) around the true one: told from 1.5 times as much."""
    x, y, sites = people()
    search = PrivateSearch(base(), {"ridge": [0.01]}, epsilon=1.0, random_state=0).fit(x, y, agents=sites)
    mu = brentq(lambda m: gaussian_delta(m, 1.0) - DELTA, 1e-3, 5)
    voters = [np.arange(i, N, 3)[:40] for i in range(3)]
    rng = np.random.default_rng(0)
    held = [x[v] for v in voters], [y[v] for v in voters]
    votes = [vote(search.best_estimator_, *held, "credit", mu, rng) for _ in range(400)]
    scores, want = [one.score for one in votes], 3**0.5 / mu / 120
    assert votes[0].error == pytest.approx(want)
    assert abs(np.std(scores) / want - 1) < 4 / np.sqrt(800)
    assert abs(np.std(scores) / (1.5 * want) - 1) > 4 / np.sqrt(800)
    chosen = np.concatenate(voters)
    assert np.mean(scores) == pytest.approx(search.score(x[chosen], y[chosen]), abs=4 * want / 20)


@pytest.mark.filterwarnings("ignore:privacy.epsilon:UserWarning")
def test_a_large_budget_finds_the_setting_that_works():
    x, y, sites = people()
    search = PrivateSearch(base(), GRID, epsilon=60.0, random_state=0).fit(x, y, agents=sites)
    assert search.best_params_["ridge"] < 30.0  # which leaves nothing of the weights
    assert search.score(x, y) > 0.85
    assert search.predict_proba(x).shape == (N, 2)


@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_the_best_of_a_hidden_number_of_runs_costs_what_the_theorem_says(shape):
    x, y, sites = people()
    search = PrivateSearch(
        base(), GRID, epsilon=2.0, delta=DELTA, adversary="model", repeats=5.0, shape=shape, random_state=3
    ).fit(x, y, agents=sites)
    assert search.results_ is None  # neither the other runs nor how many there were
    assert search.epsilon_spent_ <= 2.0
    assert search.epsilon_spent_ == pytest.approx(2.0, rel=1e-4)
    (event,) = (e.event for e in search.best_estimator_.ledger_["0"].entries)
    mu = float(event.times @ (event.sensitivity / event.sigma) ** 2) ** 0.5
    for factor, fits in ((1.0, True), (1.03, False)):
        other = RdpAccountant(list(1 + np.geomspace(0.05, 500, 250)), dp_accounting.NeighboringRelation.REPLACE_ONE)
        other.compose(dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(1 / (factor * mu)), 5.0, shape))
        assert (other.get_epsilon(DELTA) <= 2.0 * (1 + 5e-3)) == fits


def test_regression_is_searched_too():
    x, _, sites = people()
    search = PrivateSearch(
        base(PrivateConsensusRegressor, target_bounds=(-1, 1)), {"ridge": [1e-3, 30.0]}, epsilon=20.0, random_state=0
    ).fit(x, x[:, 0], agents=sites)
    assert search.best_params_ == {"ridge": 1e-3}
    assert search.score(x, x[:, 0]) > 0.5
    assert not hasattr(search, "predict_proba")


def test_the_search_counts_as_one_fit_of_its_whole_price():
    x, y, sites = people()
    search = PrivateSearch(base(), {"ridge": [1e-3, 1e-2]}, epsilon=1.0, random_state=0).fit(x, y, agents=sites)
    with pytest.warns(RepeatedFitWarning, match="fit 2 on the same records") as told:
        search.fit(x, y, agents=sites)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (PrivateSearch(base(), {"epsilon": [1.0, 2.0]}), "cannot contain 'epsilon'"),
        (PrivateSearch(PrivateMean(), {"rounds": [1]}), "classifiers and regressors"),
        (PrivateSearch(base(), GRID, adversary="nobody"), "adversary"),
        (PrivateSearch(base(), GRID, holdout=1.0), "holdout"),
        (PrivateSearch(base(), GRID, scoring="f1"), "scoring"),
        (PrivateSearch(base(PrivateConsensusRegressor), GRID, scoring="auc"), "'auc' is for classifiers"),
        (PrivateSearch(make_pipeline(StandardScaler(), base()), {}), "step 'standardscaler' learns from the records"),
        (
            PrivateSearch(make_pipeline(Normalizer(), base()), {"normalizer": [StandardScaler()]}),
            "step 'normalizer' learns from the records",
        ),
        (
            PrivateSearch(make_pipeline(Normalizer(), base()), {"privateconsensusclassifier__delta": [0.1]}),
            "cannot contain 'privateconsensusclassifier__delta'",
        ),
        (PrivateSearch(base(settings={"batch": 20}), GRID, random_state=0), "Gaussian events alone"),
    ],
)
def test_mistakes_are_named(search, words):
    x, y, sites = people()
    with pytest.raises(InputError, match=words):
        search.fit(x, y, agents=sites)


def test_a_search_that_reads_its_labels_is_not_private():
    x, y, sites = people()
    with pytest.warns(LabelsWarning):
        read = PrivateSearch(base(classes=None), {"ridge": [0.01]}, random_state=0).fit(x, y, agents=sites)
    assert (read.private_, read.leaks_) == (False, ("the class labels are read from y",))
    forget_fits()
    told = PrivateSearch(base(), {"ridge": [0.01]}, random_state=0).fit(x, y, agents=sites)
    assert (told.private_, told.leaks_) == (True, ())


@pytest.mark.parametrize("state", [None, np.random.RandomState(3)])
def test_runs_of_a_search_that_nobody_seeds_have_whole_keys(monkeypatch, state):
    """What a run's noise is drawn with must not be guessed in 2³¹ tries."""
    seeds = []
    monkeypatch.setattr("coterie.estimators.base.train_paid", lambda *_, seed, **__: seeds.append(seed) or 1 / 0)
    x, y, sites = people()
    for _ in range(8):
        with pytest.raises(ZeroDivisionError):
            PrivateSearch(base(), GRID, random_state=state).fit(x, y, agents=sites)
    assert len(set(seeds)) == 8
    assert max(seeds) > 1 << 60


@pytest.mark.slow
def test_an_auc_is_voted_for_with_the_error_that_it_states():
    """Within two stated errors of the voters' own AUC in about 95 % of votes; and as private as a count."""
    x, y, sites = people()
    search = PrivateSearch(base(), {"ridge": [0.01]}, epsilon=4.0, random_state=0, scoring="auc")
    model = search.fit(x, y, agents=sites).best_estimator_
    voters = [np.arange(i, N, 3) for i in range(3)]
    held = [x[v] for v in voters], [y[v] for v in voters]
    rng = np.random.default_rng(0)
    exact = roc_auc_score(y == "yes", model.predict_proba(x)[:, 1])
    votes = [vote(model, *held, "auc", 1.0, rng) for _ in range(150)]
    inside = np.mean([abs(one.score - exact) < 2 * one.error for one in votes])
    assert 0.89 <= inside <= 1
    assert np.std([one.score for one in votes]) == pytest.approx(np.mean([one.error for one in votes]), rel=0.35)
    refused = vote(model, *held, "auc", 0.01, rng)
    assert refused.score == -np.inf
    assert "too close to none" in refused.why
    assert set(search.results_[0]) >= {"params", "score", "error"}


def test_a_vote_of_what_is_no_number_counts_as_none():
    """Sensitivity 1, whatever a record says."""

    class Odd(PrivateConsensusRegressor):
        def _credit(self, X, y):
            return np.array([np.nan, np.inf, -5.0, 1.0, 7.0])

    rng = np.random.default_rng(0)
    found = vote(Odd(), [np.zeros((5, 1))], [np.zeros(5)], "credit", 1e9, rng)
    assert found.score == pytest.approx(2 / 5)


@pytest.mark.slow
def test_pipelines_and_additive_models_are_searched():
    x, y, sites = people()
    halves = make_pipeline(FunctionTransformer(np.abs), base())
    grid = {"functiontransformer__func": [np.abs, np.negative]}
    search = PrivateSearch(halves, grid, epsilon=30.0, random_state=0).fit(x, y, agents=sites)
    assert search.best_params_["functiontransformer__func"] is np.negative  # of |x| nothing can be told
    assert search.best_estimator_[-1].epsilon_spent_ == search.epsilon_spent_ == pytest.approx(30.0)
    assert (search.n_features_in_, list(search.classes_), search.private_) == (2, ["no", "yes"], True)
    assert search.score(x, y) > 0.8
    curves = PrivateAdditiveClassifier(bounds=(-1, 1), classes=["no", "yes"], rounds=10)
    chosen = PrivateSearch(curves, {"bins": [None, "quantiles"]}, epsilon=8.0, random_state=0, scoring="auc")
    with pytest.warns(RepeatedFitWarning):
        chosen.fit(x, y, agents=sites)
    assert chosen.epsilon_spent_ == pytest.approx(8.0)
    assert chosen.score(x, y) > 0.75
