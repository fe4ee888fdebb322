"""Secure samplers against laws computed independently: mpmath, closed forms, Euler-Maclaurin, float64 pmfs.

The draws are unseeded, as in deployment. A statistical check at level 1e-3 gets three independent tries and fails when
all of them do: a correct sampler fails it with probability 1e-9 (the 30-odd checks here: below 1e-7 per run), while a
5 % wrong scale is rejected in every try with p-values far below 1e-9.
"""

import ast
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import accumulate, combinations, permutations
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.errors import InputError
from coterie.privacy import secure, secure_exact, secure_table
from coterie.privacy.secure import (
    GRID_LAPLACE_SCALE,
    GRID_VARIANCE,
    DiscreteGaussianTable,
    DiscreteLaplaceTable,
    IntegerTable,
    exact_bernoulli_exp,
    exact_discrete_gaussian,
    exact_discrete_laplace,
    grid_noise,
    permutation,
    poisson_subset,
    uniform,
    uniform_bits,
    uniform_subset,
)

ONE = 2**128
TOLERANCE = mp.mpf(2) ** -120  # goal N2
MODULES = [secure, secure_exact, secure_table]


@pytest.fixture(autouse=True)
def _two_hundred_bits():
    with mp.workprec(200):
        yield


def grid_table() -> DiscreteGaussianTable:
    return DiscreteGaussianTable.from_variance(GRID_VARIANCE)


# --- statistics -----------------------------------------------------------------------------------------------


def accepted(p_value: Callable[[], float], level: float = 1e-3, tries: int = 3) -> bool:
    return any(p_value() > level for _ in range(tries))


def p_value(draws: np.ndarray, pmf: Callable[[np.ndarray], np.ndarray], spread: float, bins: int = 40) -> float:
    """χ² of draws against a law on the integers, in about `bins` intervals of equal probability."""
    reach = math.ceil(40 * spread) + 3
    support = np.arange(-reach, reach + 1)
    weights = pmf(support / spread)
    cdf = np.cumsum(weights) / weights.sum()
    last = np.unique(np.searchsorted(cdf, np.arange(1, bins) / bins))  # last support point of each interval
    expected = np.diff(np.concatenate(([0.0], cdf[last], [1.0])))
    keep = expected * draws.size > 10  # an interval that is all but empty joins its neighbour
    if not keep.all():
        last = last[keep[:-1]]
        expected = np.diff(np.concatenate(([0.0], cdf[last], [1.0])))
    counts = np.bincount(np.searchsorted(support[last], draws), minlength=expected.size)
    return float(stats.chisquare(counts, expected * draws.size).pvalue)


def gaussian(z: np.ndarray) -> np.ndarray:
    return np.exp(-(z**2) / 2)


def laplace(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.abs(z))


# --- the tables are the laws ----------------------------------------------------------------------------------


def gaussian_reference(variance: Fraction, reach: int) -> list[mp.mpf]:
    """P(X = k) for k = -reach … reach by direct summation."""
    rate = mp.mpf(variance.denominator) / (2 * variance.numerator)
    half = [mp.exp(-k * k * rate) for k in range(reach + 1)]
    total = 2 * mp.fsum(half) - 1  # for the reaches used here the rest is below 2^-150
    return [half[abs(k)] / total for k in range(-reach, reach + 1)]


def cdf_error(table: IntegerTable, reference: list[mp.mpf], reach: int) -> mp.mpf:
    first, numerators = table.law()
    ours = [0] * (first + reach) + list(accumulate(numerators))
    ours += [ONE] * (len(reference) - len(ours))
    return max(abs(mp.mpf(a) / ONE - b) for a, b in zip(ours, accumulate(reference), strict=True))


@pytest.mark.parametrize("sigma", [0.3, 1.0, Fraction(17, 3), 64.5, 1024.0])
def test_gaussian_table_is_the_law(sigma):
    table = DiscreteGaussianTable(sigma)
    reach = math.ceil(15 * sigma) + 5
    reference = gaussian_reference(table.variance, reach)
    assert table.fold == 0
    assert cdf_error(table.base, reference, reach) <= mp.mpf(2) ** -128

    first, numerators = table.base.law()
    assert first == -table.reach
    assert numerators == numerators[::-1]
    padded = [0] * (reach - table.reach) + numerators + [0] * (reach - table.reach)
    distance = sum(abs(mp.mpf(a) / ONE - b) for a, b in zip(padded, reference, strict=True)) / 2
    assert distance <= table.total_variation <= 1e-34
    assert distance >= table.total_variation / 20  # the bound says something


def test_cdf_check_rejects_wrong_tables():
    reach, right = 155, DiscreteGaussianTable(10.0)
    reference = gaussian_reference(right.variance, reach)
    assert cdf_error(right.base, reference, reach) < TOLERANCE
    assert cdf_error(DiscreteGaussianTable(10.0 * (1 + 1e-15)).base, reference, reach) > TOLERANCE
    weights = np.exp(-(np.arange(-90, 91) ** 2) / 200)  # float64 probabilities
    floats = [int(Fraction(float(p)) * ONE) for p in weights / weights.sum()]
    floats[90] += ONE - sum(floats)
    assert cdf_error(IntegerTable(floats, -90), reference, reach) > TOLERANCE


def gaussian_cdf(variance: Fraction, z: int) -> mp.mpf:
    """P(X ≤ z) by Euler-Maclaurin: for σ ≥ 2^12, twelve correction terms leave less than 2^-200."""
    sigma = mp.sqrt(mp.mpf(variance.numerator) / variance.denominator)
    u = mp.mpf(z) / sigma
    w = mp.exp(-u * u / 2)
    hermite = [mp.mpf(1), u]  # the n-th derivative of w is (-1)^n He_n(u) w / σ^n
    for n in range(1, 25):
        hermite.append(u * hermite[n] - n * hermite[n - 1])
    corrections = (
        mp.bernoulli(2 * j) / mp.factorial(2 * j) * -hermite[2 * j - 1] * w / sigma ** (2 * j - 1) for j in range(1, 13)
    )
    total = sigma * mp.sqrt(2 * mp.pi)
    return mp.ncdf(u) + (w / 2 + sum(corrections)) / total


@pytest.mark.parametrize("variance", [Fraction(GRID_VARIANCE), Fraction(4096) ** 2, Fraction(262144) ** 2])
def test_folded_gaussian_is_the_law(variance):
    """X₁ + m X₂, summed exactly over the integer numerators, at points from the centre to the far tail."""
    table = DiscreteGaussianTable.from_variance(variance)
    first, numerators = table.base.law()
    cumulative = [0, *accumulate(numerators)]

    def cdf(z: int) -> mp.mpf:
        inner = (min(max(z - table.fold * (first + j) - first + 1, 0), len(numerators)) for j in range(len(numerators)))
        return mp.mpf(sum(p * cumulative[c] for p, c in zip(numerators, inner, strict=True))) / ONE**2

    sigma = table.sigma
    for u in (-11.0, -7.3, -3.1, -1.0, -0.01, 0.0, 0.4, 2.0, 5.0):
        z = round(u * sigma)
        assert abs(cdf(z) - gaussian_cdf(variance, z)) < TOLERANCE
    z = round(sigma)
    assert abs(cdf(z) - gaussian_cdf(variance * Fraction(10**15 + 1, 10**15), z)) > TOLERANCE


def test_the_grid_table_is_the_one_the_design_names():
    table = grid_table()
    assert table.fold == 64
    assert table.base is DiscreteGaussianTable(1024).base  # cached
    assert table.sigma == pytest.approx(65544, abs=0.01)
    assert table.total_variation < 1e-32


@pytest.mark.parametrize("scale", [0.2, 1.0, Fraction(10, 3), 300.0, GRID_LAPLACE_SCALE])
def test_laplace_table_is_the_law(scale):
    table = DiscreteLaplaceTable(scale)
    rate = mp.mpf(table.scale.denominator) / table.scale.numerator
    first, blocks = table.blocks.law()
    _, units = table.units.law()
    below, within = [0, *accumulate(blocks)], [0, *accumulate(units)]

    def cdf(x: int) -> mp.mpf:
        """P(X ≤ x): whole blocks below, and within its own block U runs upwards (x ≥ 0) or downwards (x < 0)."""
        number, offset = divmod(x, table.block)
        if not 0 <= number - first < len(blocks):
            return mp.mpf(number >= first)
        part = within[offset + 1] if x >= 0 else ONE - within[table.block - 1 - offset]
        return mp.mpf(below[number - first] * ONE + blocks[number - first] * part) / ONE**2

    spots = {round(u * float(scale)) + k for u in (-95, -80, -20, -3, -1, 0, 0.5, 2, 30, 85, 95) for k in (-1, 0, 1)}
    for x in spots:
        tail = mp.exp(-(abs(x) if x < 0 else x + 1) * rate) / (1 + mp.exp(-rate))
        assert abs(cdf(x) - (tail if x < 0 else 1 - tail)) <= mp.mpf(2) ** -126
    assert table.total_variation < 1e-34
    if scale <= 10:  # the whole law
        reach = table.block * len(blocks)
        pmf = {x: cdf(x) - cdf(x - 1) for x in range(-reach, reach + 1)}
        ideal = mp.tanh(rate / 2)
        distance = sum(abs(p - ideal * mp.exp(-abs(x) * rate)) for x, p in pmf.items()) / 2
        assert table.total_variation / 100 < distance <= table.total_variation


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.5])
def test_variance_is_between_its_bounds(sigma):
    first, numerators = DiscreteGaussianTable(sigma).base.law()
    variance = mp.mpf(sum((first + i) ** 2 * p for i, p in enumerate(numerators))) / ONE
    s2 = mp.mpf(sigma) ** 2
    assert 1 / (mp.exp(1 / s2) - 1) <= variance <= s2


@given(st.lists(st.integers(0, 2**100), min_size=1, max_size=70), st.integers(-5, 5))
@settings(max_examples=60, deadline=None)
def test_integer_table_holds_any_law(weights, first):
    numerators = [*weights, ONE - sum(weights)]
    assert IntegerTable(numerators, first).law() == (first, numerators)


def test_sample_follows_the_rows(monkeypatch):
    """Chosen words on both sides of every threshold and row end give the outcome that integer arithmetic gives."""
    table = DiscreteGaussianTable(3.0).base
    rows = table._high.size
    limits = [int(h) << 64 | int(l) for h, l in zip(table._high, table._low, strict=True)]
    words = [
        w % ONE for r in range(rows) for w in (r * ONE // rows, limits[r] - 1, limits[r], (r + 1) * ONE // rows - 1)
    ]
    expected = [int(table._outcome[2 * r + (w < limits[r])]) for w in words for r in [w * rows // ONE]]
    given_bytes = np.array([w >> 64 for w in words] + [w % 2**64 for w in words], np.uint64).tobytes()
    asked = []
    monkeypatch.setattr(secure_table.os, "urandom", lambda n: asked.append(n) or given_bytes)
    assert table.sample(len(words)).tolist() == expected
    assert asked == [16 * len(words)]  # two words per draw, whatever they are


# --- the draws follow the laws --------------------------------------------------------------------------------

GAUSSIANS = [DiscreteGaussianTable(1.5), DiscreteGaussianTable(1024), DiscreteGaussianTable(5000.25), grid_table()]


@pytest.mark.parametrize("table", GAUSSIANS, ids=lambda t: f"{t.sigma:.6g}")
@pytest.mark.parametrize("size", [10**6, pytest.param(10**7, marks=pytest.mark.slow)])
def test_gaussian_draws(table, size):
    assert accepted(lambda: p_value(table.sample(size), gaussian, table.sigma))
    for off in (0.95, 1.05):
        assert not accepted(lambda: p_value(table.sample(10**6), gaussian, off * table.sigma))  # noqa: B023


@pytest.mark.parametrize("scale", [0.8, 300.0, GRID_LAPLACE_SCALE])
@pytest.mark.parametrize("size", [10**6, pytest.param(10**7, marks=pytest.mark.slow)])
def test_laplace_draws(scale, size):
    table = DiscreteLaplaceTable(scale)
    assert accepted(lambda: p_value(table.sample(size), laplace, scale))
    for off in (0.95, 1.05):
        assert not accepted(lambda: p_value(table.sample(10**6), laplace, off * scale))  # noqa: B023


def many(draw: Callable[[], int], size: int) -> np.ndarray:
    return np.fromiter((draw() for _ in range(size)), np.int64, size)


@pytest.mark.parametrize("variance", [Fraction(9, 4), Fraction(1024**2)])
def test_exact_gaussian_draws(variance):
    def draw() -> np.ndarray:
        return many(lambda: exact_discrete_gaussian(variance), 40_000)

    sigma, draws = math.sqrt(variance), draw()
    assert p_value(draws, gaussian, 1.07 * sigma, bins=12) < 1e-6  # χ² non-central by 250: missed with P < 1e-20
    assert p_value(draws, gaussian, sigma) > 1e-3 or accepted(lambda: p_value(draw(), gaussian, sigma), tries=2)


@pytest.mark.parametrize("scale", [Fraction(3, 7), Fraction(5, 2), Fraction(1000)])
def test_exact_laplace_draws(scale):
    def draw() -> np.ndarray:
        return many(lambda: exact_discrete_laplace(scale), 30_000)

    spread, draws = float(scale), draw()
    assert p_value(draws, laplace, 1.12 * spread, bins=12) < 1e-6  # χ² non-central by 300
    assert p_value(draws, laplace, spread) > 1e-3 or accepted(lambda: p_value(draw(), laplace, spread), tries=2)


def test_exact_and_table_agree():
    """Two-sample χ², in intervals of equal probability; a table 10 % off is told apart."""
    edges = np.rint(200 * stats.norm.ppf(np.arange(1, 16) / 16))

    def compare(exact: np.ndarray, sigma: float) -> float:
        samples = (exact, DiscreteGaussianTable(sigma).sample(10**6))
        counts = [np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in samples]
        return float(stats.chi2_contingency(counts).pvalue)

    def draw() -> np.ndarray:
        return many(lambda: exact_discrete_gaussian(200**2), 25_000)

    draws = draw()
    assert compare(draws, 220) < 1e-6  # χ² non-central by 330
    assert compare(draws, 200) > 1e-3 or accepted(lambda: compare(draw(), 200), tries=2)


@pytest.mark.parametrize("gamma", [Fraction(1, 3), 1, 2.5])
def test_exact_bernoulli_exp(gamma):
    def share(claim: float) -> float:
        return float(stats.binomtest(sum(exact_bernoulli_exp(gamma) for _ in range(20_000)), 20_000, claim).pvalue)

    assert accepted(lambda: share(math.exp(-gamma)))
    assert not accepted(lambda: share(math.exp(-gamma) * 0.7))
    assert exact_bernoulli_exp(0)


def test_exact_bernoulli_exp_is_the_series(monkeypatch):
    """It ends after k tosses with the right odds and says k is odd; summed over k ≤ 40 that is e^(-γ) to 1e-45."""
    n, d = 3, 5
    gamma, total, reached = Fraction(n, d), Fraction(0), Fraction(1)
    for k in range(1, 41):
        sides: list[int] = []

        def toss(side: int, k: int = k, sides: list[int] = sides) -> int:
            sides.append(side)
            return n - 1 if len(sides) < k else n  # the largest success, the smallest failure

        monkeypatch.setattr(secure_exact.secrets, "randbelow", toss)
        said = exact_bernoulli_exp(gamma)
        assert len(sides) == k
        odds = [Fraction(n, side) for side in sides]
        total += said * reached * (1 - odds[-1])
        reached *= odds[-1]
    assert abs(mp.mpf(total.numerator) / total.denominator - mp.exp(-mp.mpf(n) / d)) < 1e-45


# --- fresh for every call, process and fork --------------------------------------------------------------------

FORK = """
import os
from coterie.privacy.secure import DiscreteGaussianTable
table = DiscreteGaussianTable(1024)
table.sample(10)
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*table.sample(40))
print(*table.sample(40), flush=True)
os._exit(0)
"""


def test_noise_is_fresh_after_fork_restart_and_call():
    """Equal draws by chance: 40 coordinates of collision probability below 1e-3 each."""
    runs = [
        subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    lines = [line for run in runs for line in run.splitlines()]
    assert [len(line.split()) for line in lines] == [40] * 8
    assert len(set(lines)) == 8


def forbidden(source: str) -> set[str]:
    """Pseudo-random sources and seeds that a module names."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] in ("random", "jax") or "random" in a.name}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{a.name}" for a in node.names}
            found |= {n for n in names if n.split(".")[0] in ("random", "jax") or ".random" in n}
        elif isinstance(node, ast.Attribute) and node.attr in ("random", "default_rng"):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.arg) and node.arg in ("seed", "key", "rng"):
            found.add(node.arg)
    return found


def test_no_pseudo_randomness_and_no_seed():
    for module in MODULES:
        assert forbidden(Path(module.__file__).read_text()) == set()
    for bad in (
        "import random",
        "import jax",
        "import jax.random",
        "from numpy import random",
        "from numpy.random import normal",
        "import numpy as np\nnp.random.normal()",
        "def draw(seed): ...",
    ):
        assert forbidden(bad), bad


# --- the support attack (spec 06, N1) -------------------------------------------------------------------------


SHIFTS = [(0.3, 0.301, 1.0), (0.1, 0.2, 20.0), (-0.02, 0.03, 10.0)]  # (θ, θ', σ), μ = 0.001 … 0.005


def ruled_out(released: np.ndarray, possible: np.ndarray) -> float:
    """Share of released values that the other data set could not have produced."""
    possible = np.sort(possible)
    spot = np.minimum(np.searchsorted(possible, released), possible.size - 1)
    return float(np.mean(possible[spot] != released))


@pytest.mark.parametrize(("here", "there", "sigma"), SHIFTS)
def test_grid_noise_survives_the_support_attack(here, there, sigma):
    """No released value is impossible under the other data set; a draw beyond the shared support has P < 1e-30."""
    z, g = grid_noise(sigma, 10**6)
    released = g * (np.rint(here / g) + z)
    first, numerators = grid_table().base.law()
    solid = next(k for k, p in enumerate(numerators[-first:]) if p == 0 or k == -first) - 1  # no gap up to here
    assert solid > 12 * 1024  # so X₁ + 64 X₂ reaches every integer up to 65 · solid
    support = np.arange(-65 * solid, 65 * solid + 1)
    assert ruled_out(released, g * (np.rint(there / g) + support)) == 0
    assert ruled_out(released, g * (np.rint(there / g) + 2 * support)) > 0.4  # noise on even integers would be caught


def test_float32_normals_fall_to_the_support_attack():
    """The control: one float32 coordinate rules the other data set out over 80 % of the time, if |θ| < σ/3.

    (For |θ| ≈ σ, where the sum loses more bits of the noise, it is still 73-77 %.)
    """
    bits = jnp.arange(2**23, dtype=jnp.uint32)
    low = np.nextafter(np.float32(-1), np.float32(0))

    @jax.jit
    def from_bits(bits):  # what jax.random.normal does with its 23 random bits
        unit = jax.lax.bitcast_convert_type(bits | np.uint32(0x3F800000), jnp.float32) - np.float32(1)
        return np.float32(np.sqrt(2)) * jax.lax.erf_inv(jnp.maximum(low, unit * (np.float32(1) - low) + low))

    support = np.asarray(from_bits(bits))
    noise = np.asarray(jax.random.normal(jax.random.key(7), (10**5,), jnp.float32))
    assert ruled_out(noise, support) == 0  # the enumeration is complete
    for here, there, sigma in SHIFTS:
        released = np.float32(here) + np.float32(sigma) * noise
        assert ruled_out(released, np.float32(here) + np.float32(sigma) * support) == 0
        assert ruled_out(released, np.float32(there) + np.float32(sigma) * support) >= 0.8


# --- grid noise, uniforms, batches ----------------------------------------------------------------------------


@given(st.floats(1e-300, 1e300))
@settings(deadline=None)
def test_grid_step_never_undershoots(scale):
    for law, power, units in (("gaussian", 2, GRID_VARIANCE), ("laplace", 1, GRID_LAPLACE_SCALE)):
        z, g = grid_noise(scale, (1, 2), law)
        ratio = Fraction(g) ** power * units / Fraction(scale) ** power
        assert 1 <= ratio <= 1 + Fraction(1, 2**49)
        assert (z.shape, z.dtype) == ((1, 2), np.int64)


def test_grid_noise_has_the_scale_asked_for():
    def gauss(off: float) -> float:
        z, g = grid_noise(0.37, 200_000)
        return float(stats.kstest(g * z, stats.norm(scale=0.37 * off).cdf).pvalue)

    def lap(off: float) -> float:
        z, g = grid_noise(4.1, 200_000, "laplace")
        return float(stats.kstest(g * z, stats.laplace(scale=4.1 * off).cdf).pvalue)

    for check in (gauss, lap):
        assert accepted(lambda: check(1.0))  # noqa: B023
        assert not accepted(lambda: check(1.05))  # noqa: B023


def equally_likely(draw: Callable[[], Iterable[int]], outcomes: Iterable[tuple[int, ...]], size: int) -> float:
    counts = Counter(tuple(draw()) for _ in range(size))
    cells = list(outcomes)
    assert set(counts) <= set(cells)
    return float(stats.chisquare([counts[c] for c in cells]).pvalue)


def test_permutations_and_subsets_are_uniform():
    assert accepted(lambda: equally_likely(lambda: permutation(4).tolist(), permutations(range(4)), 24_000))
    assert accepted(lambda: equally_likely(lambda: uniform_subset(5, 2).tolist(), permutations(range(5), 2), 20_000))
    assert accepted(lambda: equally_likely(lambda: sorted(uniform_subset(6, 3)), combinations(range(6), 3), 20_000))

    # a well-known wrong shuffle: swap every place with any place
    def naive() -> list[int]:
        order = list(range(4))
        for i, j in enumerate(uniform_bits(4, bits=2).tolist()):
            order[i], order[j] = order[j], order[i]
        return order

    assert not accepted(lambda: equally_likely(naive, permutations(range(4)), 24_000))
    assert sorted(permutation(10**5).tolist()) == list(range(10**5))
    assert permutation(0).size == uniform_subset(3, 0).size == 0


def test_permutation_draws_again_on_equal_keys(monkeypatch):
    keys = [np.array(k, np.uint64).tobytes() for k in ([5, 1, 5], [9, 4, 6])]
    monkeypatch.setattr(secure.os, "urandom", lambda n: keys.pop(0))
    assert permutation(3).tolist() == [1, 2, 0]
    assert keys == []


def test_poisson_subset():
    def sizes(rate: float) -> float:
        hits = sum(poisson_subset(500, 0.03).size for _ in range(2000))
        return float(stats.binomtest(hits, 10**6, rate).pvalue)

    assert accepted(lambda: sizes(0.03))
    assert not accepted(lambda: sizes(0.03 * 1.05))
    assert poisson_subset(10**4, 0.0).size == 0
    assert np.array_equal(poisson_subset(1000, 1.0), np.arange(1000))
    assert np.all(np.diff(poisson_subset(1000, 0.5)) > 0)


def test_poisson_threshold_is_exact(monkeypatch):
    rate = 3 * 2.0**-70  # its threshold 3·2^58 lies in the low word
    words = np.array([0, 0, 1, 3 * 2**58 - 1, 3 * 2**58, 0], np.uint64)
    monkeypatch.setattr(secure_table.os, "urandom", lambda n: words.tobytes())
    assert poisson_subset(3, rate).tolist() == [0]


def test_uniforms(monkeypatch):
    draws = uniform(200_000)
    assert accepted(lambda: float(stats.kstest(uniform(200_000), "uniform").pvalue))
    assert not accepted(lambda: float(stats.kstest(uniform(200_000) ** 1.05, "uniform").pvalue))
    assert np.unique(draws).size == draws.size
    assert int(uniform_bits(10_000, bits=3).max()) == 7
    assert accepted(lambda: float(stats.chisquare(np.bincount(uniform_bits(80_000, bits=3).view(np.int64))).pvalue))
    ends = np.array([0, 2**64 - 1], np.uint64)
    monkeypatch.setattr(secure.os, "urandom", lambda n: ends.tobytes())
    assert uniform(2).tolist() == [2.0**-65, 1 - 2.0**-53]
    assert uniform_bits((1, 2)).tolist() == [[0, 2**64 - 1]]


def test_shapes():
    table, lap = DiscreteGaussianTable(2), DiscreteLaplaceTable(2)
    for shape, expected in ((0, (0,)), (3, (3,)), ((), ()), ((2, 0), (2, 0)), ((40_000, 1), (40_000, 1))):
        for draws in (table.sample(shape), lap.sample(shape), grid_table().sample(shape)):
            assert (draws.shape, draws.dtype) == (expected, np.int64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DiscreteGaussianTable(0.0), "sigma must be a finite number > 0, got 0.0"),
        (lambda: DiscreteGaussianTable(math.nan), "sigma must be a finite number > 0, got nan"),
        (lambda: DiscreteGaussianTable(10**6), "sigma must be <= 262144, got 1000000.0"),
        (lambda: DiscreteGaussianTable.from_variance(-1), "variance must be a finite number > 0, got -1"),
        (lambda: DiscreteLaplaceTable(math.inf), "scale must be a finite number > 0, got inf"),
        (lambda: DiscreteLaplaceTable(2**27), "scale must be <= 67108864, got 134217728"),
        (lambda: exact_discrete_gaussian(0), "variance must be a finite number > 0, got 0"),
        (lambda: exact_discrete_laplace(-2), "scale must be a finite number > 0, got -2"),
        (lambda: exact_bernoulli_exp(-1), "gamma must be a finite number > 0, got -1"),
        (lambda: grid_noise(-1.0, 3), "scale must be a finite number > 0, got -1.0"),
        (lambda: grid_noise(1e-310, 3), "scale must leave a normal float64 grid step, got 1e-310"),
        (lambda: grid_noise(1.0, 3, "cauchy"), "law must be 'gaussian' or 'laplace', got 'cauchy'"),
        (lambda: DiscreteGaussianTable(1.0).sample((2, -1)), r"shape must have no negative length, got \(2, -1\)"),
        (lambda: IntegerTable([1, 2], 0), r"numerators must be >= 0 and sum to 2\^128, got sum 3"),
        (lambda: uniform_bits(3, 65), r"bits must be in 1\.\.64, got 65"),
        (lambda: uniform_subset(3, 4), r"size must be in 0\.\.3, got 4"),
        (lambda: poisson_subset(3, 1.5), r"rate must be in \[0, 1\], got 1.5"),
        (lambda: poisson_subset(-3, 0.5), "shape must have no negative length, got -3"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
