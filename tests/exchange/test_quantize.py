"""The quantizer: unbiased, its effect on sensitivity, discrete Gaussian noise, bytes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.algorithms import quantize as q
from coterie.algorithms.laws import Grid
from tests import packing


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def test_rounding_is_unbiased_with_the_stated_variance():
    x, step, n = jnp.array([0.13, -0.777, 2.0, -0.05]), 0.3, 200_000
    dither = jax.random.uniform(jax.random.key(0), (n, 4), jnp.float64)
    rounded = step * np.asarray(q.dithered(x, dither, step))
    fraction = np.asarray(x) / step - np.floor(np.asarray(x) / step)
    spread = step * np.sqrt(fraction * (1 - fraction))
    assert np.all(np.abs(rounded.mean(0) - x) <= 4.5 * spread / np.sqrt(n) + 1e-12)
    np.testing.assert_allclose(rounded.std(0), spread, rtol=0.01, atol=1e-9)
    nearest = step * np.rint(np.asarray(x) / step)  # the broken twin: rounding to nearest is biased
    assert np.any(np.abs(nearest - x) > 4.5 * spread / np.sqrt(n) + 1e-12)


def test_saturation_keeps_the_range_and_counts():
    whole, cut = q.saturate(jnp.array([-9.0, -4.0, 0.0, 3.0, 4.0]), 3)
    assert whole.tolist() == [-4, -4, 0, 3, 3]  # the paper's upper end 2^s − 1 would need another bit
    assert float(cut) == 2


def test_common_dither_limits():
    assert float(q.common_dither(0.0, 0.1, 50, 1e-6)) == 0
    assert float(q.common_dither(0.3, 1e-12, 50, 1e-6)) == pytest.approx(0.3, rel=1e-5)
    assert float(q.common_dither(0.3, 0.1, 50, 0.0)) == pytest.approx(0.3 + 0.1 * np.sqrt(50))
    # MNIST network, η = Δ/√p: at most 1.14 Δ; 1.24 at p = 10³ and 1.48 at 10²
    for dim, factor in ((39_760, 1.14), (1000, 1.24), (100, 1.48)):
        assert float(q.common_dither(1.0, dim**-0.5, dim, 5e-9)) == pytest.approx(factor, abs=0.005)


@pytest.mark.parametrize(("dim", "ratio"), [(1, 0.3), (5, 4.0), (200, 1.0), (200, 14.0)])
def test_common_dither_bounds_the_rounded_distance(dim, ratio):
    rng, step, failure, n = np.random.default_rng(0), 0.1, 0.01, 20_000
    shift = ratio * step
    for spread in (np.eye(dim)[0], np.full(dim, dim**-0.5)):
        x = rng.standard_normal(dim)
        dither = jnp.asarray(rng.uniform(size=(n, dim)))
        gap = step * (
            q.dithered(jnp.asarray(x + shift * spread), dither, step) - q.dithered(jnp.asarray(x), dither, step)
        )
        np.testing.assert_allclose(np.mean(gap, 0), shift * spread, atol=5 * step / np.sqrt(n))
        bound = float(q.common_dither(shift, step, dim, failure))
        norms = np.linalg.norm(gap, axis=1)
        assert np.mean(norms > bound * (1 + 1e-9)) <= failure
        if dim == 200:  # forgetting the rounding altogether would be caught
            assert np.mean(norms > shift * (1 + 1e-9)) > failure or spread[0] == 1


@pytest.mark.parametrize("scale", [2.0, 7.3])
def test_simulated_discrete_gaussian(scale):
    normal = jax.random.normal(jax.random.key(1), (400_000,), jnp.float64)
    drawn = np.asarray(q.discrete_gaussian(normal, scale))
    assert np.all(drawn == np.rint(drawn))
    reach = int(4 * scale)
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-(support**2) / (2 * scale**2))
    mass /= np.exp(-(np.arange(-200, 201) ** 2) / (2 * scale**2)).sum()
    seen = np.array([np.sum(drawn == k) for k in support])
    assert (
        stats.chisquare([*seen, len(drawn) - seen.sum()], len(drawn) * np.array([*mass, 1 - mass.sum()])).pvalue > 1e-3
    )
    wide = np.rint(scale * np.asarray(normal))  # rounding the Gaussian itself has variance scale² + 1/12
    seen = np.array([np.sum(wide == k) for k in support])
    if scale == 2.0:
        expected = len(drawn) * np.array([*mass, 1 - mass.sum()])
        assert stats.chisquare([*seen, len(drawn) - seen.sum()], expected).pvalue < 1e-6


def test_release_stays_on_the_grid_and_a_deployed_draw_uses_its_own():
    x, dither = jnp.array([0.123, -4.5]), jnp.array([0.2, 0.7])
    out = q.released(x, dither, jnp.array([1.0, -0.5]), 0.25, 2.0)
    np.testing.assert_allclose(out / 0.25, np.rint(out / 0.25), atol=1e-9)
    steps = np.array([700, -1200])
    deployed = q.released(x, dither, Grid(jnp.array(steps), 1000.0), 0.25, 2.0)
    fine = 0.002 * (np.floor(x / 0.002 + dither) + steps)
    np.testing.assert_allclose(deployed, 0.25 * np.rint(fine / 0.25), atol=1e-12)
    for draw in (jnp.array([1.0, -0.5]), Grid(jnp.array(steps), 1000.0)):
        np.testing.assert_allclose(q.released(x, dither, draw, 0.25, 0.0), 0.25 * np.floor(x / 0.25 + dither))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.lists(st.floats(0, 1, exclude_max=True), max_size=40))
def test_integers_survive_packing(bits, shares):
    values = np.array([int(s * 2**bits) - 2 ** (bits - 1) for s in shares], np.int64)
    data = packing.pack_integers(values, bits)
    np.testing.assert_array_equal(packing.unpack_integers(data), values)
    assert len(data) == -(-q.packed_bits(len(values), bits) // 8)


def test_packing_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="do not fit 3 bits"):
        packing.pack_integers(np.array([4]), 3)
    with pytest.raises(ValueError, match="has 7 bytes, got 6"):
        packing.unpack_integers(packing.pack_integers(np.array([1, 2, 3]), 3)[:-1])


def test_a_three_bit_message_costs_three_bits_a_coordinate():
    assert len(packing.pack_integers(np.zeros(39_760), 3)) == 5 + 39_760 * 3 // 8


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 7, 64, 300]), st.floats(0, 1), st.sampled_from([np.float32, np.float64]), st.integers(0, 9))
def test_sparse_vectors_survive_packing(dim, share, kind, seed):
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(dim) * (rng.uniform(size=dim) < share)).astype(kind)
    data = packing.pack_sparse(values)
    back = packing.unpack_sparse(data)
    assert back.dtype == kind
    np.testing.assert_array_equal(back, values)
    assert 0 <= 8 * len(data) - int(q.sparse_bits(jnp.asarray(values))) < 8


@pytest.mark.parametrize(("numbers", "width"), [([0, 0], 1), ([-1, 0], 1), ([1], 2), ([-4, 3], 3), ([4], 4), ([-5], 4)])
def test_width(numbers, width):
    assert int(q.width_of(jnp.asarray(numbers, float))) == width
    packing.pack_integers(np.array(numbers), width)
    if width > 1:
        with pytest.raises(ValueError):
            packing.pack_integers(np.array(numbers), width - 1)
