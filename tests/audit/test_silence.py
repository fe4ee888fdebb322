"""Silences have likelihoods: quadrature against scipy's, edges against the algorithm's own query."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from coterie.algorithms._admm import solve
from coterie.algorithms.base import find
from coterie.algorithms.ipp_admm import _test_noise, query
from coterie.algorithms.laws import LaplaceLaw, Normal
from coterie.audit.audit import EXACT, error_of, watch
from coterie.audit.checks import gather, replay
from coterie.audit.setting import ATTACKS, Setting, make_setting, place_of, worlds
from coterie.audit.silence import bit_weights, edge_of


def setting(test: str, **options: object) -> Setting:
    """Tests that take half the budget and decide about two messages."""
    ipp = find("ipp-admm")
    cfg = ipp.example.replace(tolerance=1e-10, broadcasts=2, test_share=0.5, test=test)
    return make_setting(ipp, cfg, epsilon=8.0, **options)  # type: ignore[arg-type]


def test_the_edge_of_a_decision() -> None:
    with jax.enable_x64(True):
        for at in (0.3, -17.0, 12345.678):
            assert float(edge_of(lambda v, at=at: v >= at)) == pytest.approx(at, rel=1e-12)  # type: ignore[misc]
        assert float(edge_of(lambda v: jnp.array(False))) == np.inf
        assert float(edge_of(lambda v: jnp.array(True))) == -np.inf


def test_bits_of_independent_tests() -> None:
    edges = np.array([[0.5, -1.0, np.inf]])
    sent = np.array([[True, False, False]])
    got = bit_weights({"test": Normal()}, edges, None, sent)
    np.testing.assert_allclose(got, [[norm.logsf(0.5), norm.logcdf(-1.0), 0.0]])


@pytest.mark.parametrize("bits", [(0, 0, 1), (1, 0, 0), (0, 0, 0), (1, 1, 1)])
def test_bits_of_a_sparse_vector_are_an_integral_over_its_threshold(bits: tuple[int, ...]) -> None:
    edges, slope = np.array([0.7, -1.4, 2.0]), np.array([0.9, 0.9, 1.3])
    sent = np.array(bits, bool)
    got = bit_weights({"test": LaplaceLaw(), "bar": LaplaceLaw()}, edges[None], (edges + slope)[None], sent[None])[0]

    def joint(rho: float, last: int) -> float:
        at = edges[:last] + slope[:last] * rho
        return float(laplace.pdf(rho) * np.prod(np.where(sent[:last], laplace.sf(at), laplace.cdf(at))))

    kinks = sorted([0.0, *(-edges / slope)])
    for last in (1, 2, 3):
        expected = quad(joint, -60, 60, args=(last,), points=kinks, epsabs=1e-14, limit=400)[0]
        assert np.exp(got[:last].sum()) == pytest.approx(expected, rel=1e-9)
    # as if every test had a threshold of its own: another number
    alone = lambda r, e, s: laplace.pdf(r) * laplace.cdf(e + s * r)  # noqa: E731
    apart = [quad(alone, -60, 60, args=(e, s), points=[0.0, -e / s])[0] for e, s in zip(edges, slope, strict=True)]
    each = np.where(sent, 1 - np.array(apart), apart)
    assert abs(np.prod(each) / np.exp(got.sum()) - 1) > 0.01


def test_a_test_that_never_runs_again_says_nothing() -> None:
    edges = np.array([[0.5, np.inf, np.inf]])
    sent = np.array([[True, False, False]])
    got = bit_weights({"test": LaplaceLaw(), "bar": LaplaceLaw()}, edges, edges + 1.0, sent)[0]
    assert got[1:] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert bit_weights({"test": Normal()}, edges, None, ~sent)[0, 1] == -np.inf


@pytest.mark.slow
def test_gaussian_tests_of_ipp_admm_are_explained() -> None:
    one = setting("gauss")
    attack = ATTACKS[3]
    watched = watch(one, attack, 0)
    assert watched.told is not None
    with jax.enable_x64(True):
        place = place_of(one, attack)
        over, _ = _test_noise(one.cfg, one.place)
        for shard, told in zip(worlds(one, attack), watched.told, strict=True):
            state = one.algorithm.init(one.cfg, place)
            there, _ = solve(one.cfg.penalty, place, state, shard, one.cfg.tolerance)
            fall = query(one.cfg, state.x, there, shard)
            expected = float((one.cfg.threshold - fall) / over)
            np.testing.assert_allclose(told.edge[:, 0], expected, rtol=1e-6, atol=1e-9)
    assert error_of(one, watched, 0) < EXACT
    excess = np.exp(watched.ratio) - 1  # E[L'/L] = 1: bits and messages together
    assert abs(excess.mean()) < 5 * excess.std() / np.sqrt(len(excess))
    silent = ~np.asarray(watched.seen.sent)
    edges = np.asarray(watched.told[0].edge)
    expected = np.where(np.isinf(edges), 0.0, norm.logcdf(edges))
    np.testing.assert_allclose(np.asarray(watched.told[0].weight)[silent], expected[silent], rtol=1e-9, atol=1e-12)
    assert replay(gather(one, [attack])).passed


@pytest.mark.slow
def test_sparse_vector_of_ipp_admm_is_explained_and_the_printed_test_is_not() -> None:
    one = setting("svt")
    for attack in ATTACKS[2:]:
        for world in (0, 1):
            watched = watch(one, attack, world)
            assert watched.told is not None
            assert error_of(one, watched, world) < EXACT
            assert not np.isnan(watched.told[0].edge).any()
            excess = np.exp((1 - 2 * world) * watched.ratio) - 1
            assert abs(excess.mean()) < 5 * excess.std() / np.sqrt(len(excess))
    printed = watch(setting("svt", printed=True), ATTACKS[3], 0)
    assert printed.told is not None
    assert np.isnan(printed.told[0].edge).all()
