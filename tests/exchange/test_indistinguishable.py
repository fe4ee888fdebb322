"""Two honest parties: who sees everything else cannot tell (v₀, v₁) from (v₀ + t, v₁ − t).

A classifier is trained on what the third party sees and computes, one coordinate being one example. Its AUC on held-out
examples must be ½ (standard error .008 by Mann and Whitney; five of them are allowed). The twins use a share twice.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from coterie.exchange import additive
from coterie.exchange.fixed_point import FixedPoint

D, SHIFT, EXAMPLES = 3_000, 1000.0, 2 * 3_000
ALLOWED = 5 * np.sqrt((EXAMPLES / 2 + 1) / (12 * (EXAMPLES / 4) ** 2))


def bytes_of(columns: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ascontiguousarray(c).view(np.uint8).reshape(len(c), 8) for c in columns], axis=1)


def view(shift: float) -> np.ndarray:
    """Party 2's view of one sum: shares it gave and got, both others' sums, and these without all that it knows."""
    code = FixedPoint(3)
    values = np.stack([np.full(D, 5.0 + shift), np.full(D, 7.0 - shift), np.zeros(D)])
    dealt = np.stack([additive.deal(code.encode(v), 3) for v in values])  # (from, to)
    told = dealt.sum(axis=0)
    assert (code.decode(told.sum(axis=0)) == 12.0).all()
    known = [told[j] - dealt[2, j] + dealt[j, 2] for j in (0, 1)]  # e_j − s_jk + s_kj: all that is left of v_j
    return bytes_of([*dealt[2, :2], *dealt[:2, 2], *told[:2], *known])


def auc() -> float:
    examples = np.concatenate([view(0.0), view(SHIFT)])
    labels = np.repeat([0, 1], D)
    order = np.random.default_rng(0).permutation(EXAMPLES)
    train, test = order[: EXAMPLES // 2], order[EXAMPLES // 2 :]
    with threadpool_limits(1):  # workers side by side: threads that wait for each other take minutes
        model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(examples[train], labels[train])
    return float(roc_auc_score(labels[test], model.predict_proba(examples[test])[:, 1]))


def test_a_classifier_learns_nothing() -> None:
    assert abs(auc() - 0.5) < ALLOWED


def test_a_classifier_finds_reused_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: one word serves as share of all coordinates and rounds."""
    monkeypatch.setattr(additive, "uniform_bits", lambda shape: np.full(shape, 0x1234_5678_9ABC_DEF0, np.uint64))
    assert auc() > 0.99
