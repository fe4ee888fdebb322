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

import coterie.exchange.masks as masks
import coterie.exchange.parties as parties
from coterie.exchange.masks import ThresholdParty
from coterie.exchange.parties import AdditiveParty
from coterie.exchange.protocol import Post, make_parties
from coterie.exchange.wire import Kind

D, SHIFT, EXAMPLES = 3_000, 1000.0, 2 * 3_000
ALLOWED = 5 * np.sqrt((EXAMPLES / 2 + 1) / (12 * (EXAMPLES / 4) ** 2))


def bytes_of(columns: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ascontiguousarray(c).view(np.uint8).reshape(len(c), 8) for c in columns], axis=1)


def additive_view(shift: float) -> np.ndarray:
    """Party 2's view of one round: shares it got, both others' sums, and these without all that it knows."""
    found = make_parties(3, D)
    post = Post(found)
    values = np.stack([np.full(D, 5.0 + shift), np.full(D, 7.0 - shift), np.zeros(D)])
    post.deliver([e for p in found for e in p.share(0, values[p.me])])
    me = found[2]
    assert isinstance(me, AdditiveParty)
    sent = {j: me._words(found[j]._got(Kind.SHARE)[2]) for j in (0, 1)}
    got = {j: me._words(me._got(Kind.SHARE)[j]) for j in (0, 1)}
    post.deliver([e for p in found for e in p.sums()])
    sums = {j: np.frombuffer(me._got(Kind.SUM)[j], "<u8") for j in (0, 1)}
    assert (me.result().values == 12.0).all()
    known = [sums[j] - sent[j] + got[j] for j in (0, 1)]  # e_j − s_jk + s_kj: all that is left of v_j
    return bytes_of([*sent.values(), *got.values(), *sums.values(), *known])


def masked_view(shift: float) -> np.ndarray:
    """The same with a threshold: contributions without self-masks, and without the masks shared with party 2."""
    found = make_parties(3, D, threshold=3)
    post = Post(found)
    values = np.stack([np.full(D, 5.0 + shift), np.full(D, 7.0 - shift), np.zeros(D)])
    for step in ("share", "sums", "unmask"):
        post.deliver([e for p in found for e in (p.share(0, values[p.me]) if step == "share" else getattr(p, step)())])
    me = found[2]
    assert isinstance(me, ThresholdParty)
    assert (me.result().values == 12.0).all()
    columns = []
    for j in (0, 1):
        y = np.frombuffer(me._got(Kind.SUM)[j][1:], "<u8")
        bare = y - masks.expand(found[j]._seed, D) + me._mask(me._key, 2, j, me._public(j))
        columns += [y, bare]
    return bytes_of(columns)


def auc(view: Callable[[float], np.ndarray]) -> float:
    examples = np.concatenate([view(0.0), view(SHIFT)])
    labels = np.repeat([0, 1], D)
    order = np.random.default_rng(0).permutation(EXAMPLES)
    train, test = order[: EXAMPLES // 2], order[EXAMPLES // 2 :]
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(examples[train], labels[train])
    return float(roc_auc_score(labels[test], model.predict_proba(examples[test])[:, 1]))


@pytest.mark.parametrize("view", [additive_view, masked_view])
def test_a_classifier_learns_nothing(view: Callable[[float], np.ndarray]) -> None:
    assert abs(auc(view) - 0.5) < ALLOWED


@pytest.mark.parametrize("view", [additive_view, masked_view])
def test_a_classifier_finds_reused_shares(view: Callable[[float], np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: one word serves as share (or mask) of all coordinates and rounds."""

    def stale(seed: bytes, size: int) -> np.ndarray:
        return np.full(size, 0x1234_5678_9ABC_DEF0, np.uint64)

    monkeypatch.setattr(parties, "expand", stale)
    monkeypatch.setattr(masks, "expand", stale)
    assert auc(view) > 0.99
