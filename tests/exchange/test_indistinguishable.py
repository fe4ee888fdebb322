"""Two honest parties: who sees everything else cannot tell (v₀, v₁) from (v₀ + t, v₁ − t).

A classifier is trained on what the third party sees and computes, one coordinate being one example. Its AUC on held-out
examples must be ½ (standard error .008 by Mann and Whitney; five of them are allowed). The twins use a share twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

import coterie.exchange.additive as additive
from coterie.exchange.additive import Additive
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.members import member
from coterie.exchange.sums import Member, SumPart, SumTerms
from coterie.exchange.wire import Kind

D, SHIFT, EXAMPLES = 3_000, 1000.0, 2 * 3_000
ALLOWED = 5 * np.sqrt((EXAMPLES / 2 + 1) / (12 * (EXAMPLES / 4) ** 2))


def bytes_of(columns: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ascontiguousarray(c).view(np.uint8).reshape(len(c), 8) for c in columns], axis=1)


def one_sum(terms: SumTerms, shift: float) -> tuple[list[Member], dict[int, list[SumPart]]]:
    """Three parties after a sum, and all that each of them said."""
    found = [member(terms, i, D, b"p" * 32) for i in range(3)]
    values = np.stack([np.full(D, 5.0 + shift), np.full(D, 7.0 - shift), np.zeros(D)])
    said: dict[int, list[SumPart]] = {m.me: [] for m in found}
    for kind in found[0].kinds:
        now = {m.me: m.share(0, terms.code.encode(values[m.me])) if kind is Kind.SHARE else m.proceed() for m in found}
        for sender, parts in now.items():
            said[sender] += parts
            for part in parts:
                for m in found:
                    if m.me in ({part.receiver} if part.receiver is not None else {*range(3)} - {sender}):
                        m.take(0, sender, kind, part.body)
    assert (found[2].result().values == 12.0).all()
    return found, said


def additive_view(shift: float) -> np.ndarray:
    """Party 2's view of one round: shares it got, both others' sums, and these without all that it knows."""
    found, said = one_sum(SumTerms(FixedPoint(3)), shift)
    me = found[2]
    assert isinstance(me, Additive)
    words = {(i, part.receiver): me._words(part.kind, part.body) for i, parts in said.items() for part in parts}
    sent, got, sums = ({j: words[a, b] for j, a, b in ends} for ends in (
        [(0, 2, 0), (1, 2, 1)], [(0, 0, 2), (1, 1, 2)], [(0, 0, None), (1, 1, None)],
    ))  # fmt: skip
    known = [sums[j] - sent[j] + got[j] for j in (0, 1)]  # e_j − s_jk + s_kj: all that is left of v_j
    return bytes_of([*sent.values(), *got.values(), *sums.values(), *known])


def auc(view: Callable[[float], np.ndarray]) -> float:
    examples = np.concatenate([view(0.0), view(SHIFT)])
    labels = np.repeat([0, 1], D)
    order = np.random.default_rng(0).permutation(EXAMPLES)
    train, test = order[: EXAMPLES // 2], order[EXAMPLES // 2 :]
    with threadpool_limits(1):  # workers side by side: threads that wait for each other take minutes
        model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(examples[train], labels[train])
    return float(roc_auc_score(labels[test], model.predict_proba(examples[test])[:, 1]))


def test_a_classifier_learns_nothing() -> None:
    assert abs(auc(additive_view) - 0.5) < ALLOWED


def test_a_classifier_finds_reused_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: one word serves as share of all coordinates and rounds."""

    def stale(seed: bytes, size: int) -> np.ndarray:
        return np.full(size, 0x1234_5678_9ABC_DEF0, np.uint64)

    monkeypatch.setattr(additive, "expand", stale)
    assert auc(additive_view) > 0.99
