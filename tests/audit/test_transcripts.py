"""Explanations: likelihoods against independent computation, and identities that only exact ones satisfy."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from coterie.algorithms.base import find
from coterie.audit.audit import EXACT, error_of, watch
from coterie.audit.densities import blurred
from coterie.audit.setting import ATTACKS, make_setting
from tests.support import mostly_slow


def test_likelihood_ratio_of_averaged_descent_against_its_own_recursion() -> None:
    setting = make_setting(find("gauss-avg-gd"), epsilon=2.0, rounds=4)
    attack = ATTACKS[3]  # a flipped label, neighbours at zero: the gradient depends on the point
    watched = watch(setting, attack, 1)
    y = np.asarray(watched.seen.messages.x)  # (transcript, round, 2)
    step = 3.0  # the example's
    sigma = float(setting.place.noise) * step * 2 / 4
    total = np.zeros(len(y))
    for sign, side in ((1.0, -1), (-1.0, 1)):  # first world, second world
        mean = np.broadcast_to([0.0, -400.0], (len(y), 2))
        for t in range(4):
            margin = sign * mean[:, 0]
            slope = 0.05 * mean
            slope = slope + np.stack([-sign / (1 + np.exp(margin)) / 4, 0 * margin], axis=1)
            total += side * np.sum(norm.logpdf(y[:, t], mean - step * slope, sigma), axis=1)
            mean = y[:, t] / 3  # the two neighbours stay at zero
    np.testing.assert_allclose(watched.ratio, total, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("width", [0.0, 1e-12, 0.3, -2.0, 7.0])
def test_density_of_blurred_laplace_noise(width: float) -> None:
    def density(x: float) -> float:
        with jax.enable_x64(True):
            return float(jnp.exp(blurred(jnp.asarray([x]), jnp.asarray([width]))))

    def expected(x: float) -> float:
        if abs(width) < 1e-9:
            return float(laplace.pdf(x))
        corner = min(max(x / width, 0.0), 1.0)
        return float(quad(lambda w: laplace.pdf(x - w * width), 0, 1, points=[corner])[0])

    for x in (-3.0, -0.2, 0.0, 0.1, 2.5, 9.0):
        assert density(x) == pytest.approx(expected(x), rel=1e-6)


@pytest.mark.parametrize("slug", mostly_slow(["ldp-admm", "sdm", "pp-admm"], "sdm"))
def test_noise_that_is_found_is_the_noise_that_was_drawn(slug: str) -> None:
    setting = make_setting(find(slug), epsilon=1.0, rounds=3)
    for attack in ATTACKS[2:]:
        watched = watch(setting, attack, 0)
        assert error_of(setting, watched, 0) < EXACT
        assert error_of(setting, watched, 1) > 1e-3  # the other world's explanation is another one
        ratio = watched.ratio
        for values in (np.exp(ratio), watch(setting, attack, 1).ratio):
            assert np.all(np.isfinite(values))
        # E[L'/L] = 1 in the first world: holds for true densities only, Jacobians included
        excess = np.exp(ratio) - 1
        assert abs(excess.mean()) < 5 * excess.std() / np.sqrt(len(excess)) + 1e-12


def test_a_solver_that_errs_is_not_called_exact() -> None:
    setting = make_setting(find("pp-admm"), epsilon=1.0, rounds=1)
    assert watch(replace(setting, slip=0.1), ATTACKS[0], 0).told is None
