"""Probabilities of models that were trained on clipped gradients: where those vanish, q is the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, root
from scipy.special import expit, softmax

from coterie.problems.clipped import unclipped


@pytest.mark.parametrize("q", [0.02, 0.107, 0.5, 0.8])
@pytest.mark.parametrize(("norm", "clip"), [(1.0, 0.5), (0.8, 0.45), (1.0, 0.9), (0.3, 0.5)])
def test_two_classes_get_their_shares_back(q, norm, clip):
    """Records at one place, a share q of them positive: solve for the score where clipped gradients balance."""

    def slope(score):
        up, down = expit(-score) * norm, expit(score) * norm
        return q * min(up, clip) - (1 - q) * min(down, clip)

    p = expit(brentq(slope, -40, 40))
    found = unclipped(np.array([[1 - p, p]]), norm, clip, two=True)
    np.testing.assert_allclose(found, [[1 - q, q]], atol=1e-9)
    if clip < norm * max(p, 1 - p):
        assert abs(p - q) > 1e-3 or q == 0.5  # the model's own probability is another: the correction is needed


def test_several_classes_get_their_shares_back():
    q, norm, clip = np.array([0.05, 0.25, 0.7]), 0.9, 0.4

    def slope(scores):
        gaps = softmax(scores) - np.eye(3)
        lengths = norm * np.linalg.norm(gaps, axis=1)
        return (q * np.minimum(1, clip / lengths)) @ gaps + scores.mean()

    solved = root(slope, np.log(q), tol=1e-12)
    assert solved.success
    p = softmax(solved.x)
    assert np.abs(p - q).max() > 0.02
    np.testing.assert_allclose(unclipped(p[None], np.array([norm]), clip), q[None], atol=1e-8)


def test_without_a_clip_nothing_changes_and_the_first_class_stays_first():
    p = softmax(np.random.default_rng(0).normal(0, 2, (200, 4)), axis=1)
    assert unclipped(p, 1.0, None) is p
    np.testing.assert_allclose(unclipped(p, 1.0, 2.0), p)
    corrected = unclipped(p, 1.0, 0.3)
    np.testing.assert_allclose(corrected.sum(axis=1), 1)
    np.testing.assert_array_equal(corrected.argmax(axis=1), p.argmax(axis=1))
