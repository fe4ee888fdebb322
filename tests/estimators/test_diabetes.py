"""Readmission within 30 days, five specialties as sites, split by person: rare positives, sites of unequal size."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from coterie.data import load
from coterie.estimators import PrivateConsensusClassifier, forget_fits

SITES = ("InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology", "Surgery-General")
COLUMNS = 60


@pytest.mark.slow
@pytest.mark.data
def test_rare_readmissions_get_calibrated_probabilities():
    data = load("diabetes", target="early", encounters="all", site="medical_specialty", centre=False,
                row_norm="none")  # fmt: skip
    kept = np.isin(data.sites, [data.site_names.index(name) for name in SITES])
    x, y, sites, people = (column[kept] for column in (data.features, data.targets, data.sites, data.people))
    assert x.shape == (37_246, COLUMNS)
    _, person = np.unique(people, return_inverse=True)
    found: dict[float, list[tuple[float, ...]]] = {1.0: [], 8.0: []}
    for seed in range(5):
        held_out = np.random.default_rng(seed).permutation(person.max() + 1) < 0.2 * (person.max() + 1)
        test = held_out[person]
        pooled = LogisticRegression(C=1e5 / np.sum(~test), max_iter=3000).fit(x[~test], y[~test])
        best, rate = roc_auc_score(y[test], pooled.predict_proba(x[test])[:, 1]), y[test].mean()
        for epsilon, rows in found.items():
            model = PrivateConsensusClassifier(epsilon=epsilon, bounds=(0, 1), classes=[0, 1], random_state=seed)
            model.fit(x[~test], y[~test], agents=sites[~test])
            forget_fits()
            p = model.predict_proba(x[test])[:, 1]
            constant = log_loss(y[test], np.full(len(p), rate))
            auc = roc_auc_score(y[test], model.decision_function(x[test]))
            rows.append((best - auc, p.mean() - rate, log_loss(y[test], p) - constant))
    for rows in found.values():
        assert abs(np.mean([bias for _, bias, _ in rows])) < 0.01  # mean probability against the base rate, .111
    assert np.mean([loss for _, _, loss in found[8.0]]) < 0  # better than the best constant
    # At ε = 1 noise of each message hides most of a signal that is worth an AUC of .651 (docs/defaults.md)
    assert np.mean([gap for gap, _, _ in found[8.0]]) < 0.02
    assert np.mean([gap for gap, _, _ in found[1.0]]) < 0.09
