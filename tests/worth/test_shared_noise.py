"""Readmissions at five specialties with noise that the parties share: how near the private model comes to a pooled one.

The numbers of docs/defaults.md: `python -m pytest -m slow -s tests/worth/test_shared_noise.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from coterie.data.dataset import ALL_PUBLIC
from coterie.drivers.simulate import Test
from coterie.experiment import assemble
from coterie.losses.logistic import Logistic
from coterie.plan import validate
from coterie.pricing import price
from coterie.worth.judge import judge
from tests.worth.test_golden import SPECIALTIES, diabetes

PLAN = {
    "graph": {"kind": "complete"},
    "exchange": {"kind": "secret-sum", "noise": "central", "honest": 4},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
    "run": {"seeds": 1},
}


@pytest.mark.slow
@pytest.mark.data
def test_shared_noise_comes_within_015_of_pooled_records_with_nothing_but_defaults(real_data: object) -> None:
    data = diabetes()
    assert data.sites is not None
    assert data.people is not None
    problem, plan = Logistic(data.features.shape[1]), validate(PLAN)
    features, labels = problem.admit(data.features, np.where(data.targets == 1, 1.0, -1.0))
    _, person = np.unique(data.people, return_inverse=True)
    found = []
    for seed in range(5):
        held = (np.random.default_rng(seed).permutation(person.max() + 1) < 0.2 * (person.max() + 1))[person]
        parts = [np.flatnonzero(~held & (data.sites == site)) for site in range(len(SPECIALTIES))]
        owned = [np.flatnonzero(data.sites[held] == site) for site in range(len(SPECIALTIES))]
        experiment = assemble(
            plan, problem, features, labels, parts, names=SPECIALTIES, origins=ALL_PUBLIC,
            test=Test(features[held], labels[held]), own_test=owned,
        )  # fmt: skip
        priced = price(plan, experiment.network)
        assert not priced.warnings
        points = experiment.run(priced, [seed], every=priced.rounds).points
        told = judge(experiment, points, "none", clip=priced.algorithm.clips(priced.cfg)).metrics
        whole = LogisticRegression(C=1 / (plan.ridge * np.sum(~held)), fit_intercept=False, max_iter=3000, tol=1e-6)
        whole.fit(features[~held], labels[~held])
        pooled = roc_auc_score(labels[held], whole.decision_function(features[held]))
        rates = [np.mean(labels[rows] > 0) for rows in (~held, held)]
        private = told["test_auc"][0]
        found.append((pooled, private, told["test_calibration"][0], rates[0] - rates[1]))
        print(f"seed {seed}: pooled {pooled:.4f}, private {private:.4f}, calibration {found[-1][2]:+.4f}, "
              f"base rate of training − of test records {found[-1][3]:+.4f}")  # fmt: skip
    pooled, private, calibration, shift = np.mean(found, axis=0)
    print(f"mean: pooled {pooled:.4f}, private {private:.4f}, calibration {calibration:+.4f}, {shift:+.4f}")
    assert pooled - private < 0.015
    assert abs(calibration) < 0.01
