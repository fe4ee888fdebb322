"""Secure randomness in deployment: fresh after forks, unseeded, safe from the support attack; grid noise, batches."""

import ast
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
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
    exact_discrete_gaussian,
    exact_discrete_laplace,
    grid_noise,
    uniform,
    uniform_bits,
)
from tests.privacy.secure_checks import accepted
from tests.support import mostly_slow

MODULES = [secure, secure_exact, secure_table]


# --- fresh for every call, process and fork

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


# --- the support attack

SHIFTS = [(0.3, 0.301, 1.0), (0.1, 0.2, 20.0), (-0.02, 0.03, 10.0)]  # (θ, θ', σ), μ = 0.001 … 0.005


def ruled_out(released: np.ndarray, possible: np.ndarray) -> float:
    """Share of released values that the other data set could not have produced."""
    possible = np.sort(possible)
    spot = np.minimum(np.searchsorted(possible, released), possible.size - 1)
    return float(np.mean(possible[spot] != released))


@pytest.mark.parametrize(("here", "there", "sigma"), mostly_slow(SHIFTS, SHIFTS[0]))
def test_grid_noise_survives_the_support_attack(here, there, sigma):
    """No released value is impossible under the other data set; a draw beyond the shared support has P < 1e-30."""
    z, g = grid_noise(sigma, 10**6)
    released = g * (np.rint(here / g) + z)
    first, numerators = DiscreteGaussianTable.from_variance(GRID_VARIANCE).base.law()
    solid = next(k for k, p in enumerate(numerators[-first:]) if p == 0 or k == -first) - 1  # no gap up to here
    assert solid > 12 * 1024  # so X₁ + 64 X₂ reaches every integer up to 65 · solid
    support = np.arange(-65 * solid, 65 * solid + 1)
    assert ruled_out(released, g * (np.rint(there / g) + support)) == 0
    assert ruled_out(released, g * (np.rint(there / g) + 2 * support)) > 0.4  # noise on even integers would be caught


@pytest.mark.slow
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


# --- grid noise, uniforms, batches


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
        assert check(1.05) < 1e-6


def test_uniforms(monkeypatch):
    draws = uniform(10_000)  # two equal: P < 1e-8
    assert accepted(lambda: float(stats.kstest(uniform(200_000), "uniform").pvalue))
    assert float(stats.kstest(uniform(200_000) ** 1.05, "uniform").pvalue) < 1e-6
    assert np.unique(draws).size == draws.size
    assert int(uniform_bits(10_000, bits=3).max()) == 7
    assert accepted(lambda: float(stats.chisquare(np.bincount(uniform_bits(80_000, bits=3).view(np.int64))).pvalue))
    ends = np.array([0, 2**64 - 1], np.uint64)
    monkeypatch.setattr(secure_table.os, "urandom", lambda n: ends.tobytes())
    assert uniform(2).tolist() == [2.0**-65, 1 - 2.0**-53]
    assert uniform_bits((1, 2)).tolist() == [[0, 2**64 - 1]]


def test_shapes():
    table, lap = DiscreteGaussianTable(2), DiscreteLaplaceTable(2)
    for shape, expected in ((0, (0,)), (3, (3,)), ((), ()), ((2, 0), (2, 0)), ((40_000, 1), (40_000, 1))):
        for draws in (
            table.sample(shape),
            lap.sample(shape),
            DiscreteGaussianTable.from_variance(GRID_VARIANCE).sample(shape),
        ):
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
        (lambda: grid_noise(-1.0, 3), "scale must be a finite number > 0, got -1.0"),
        (lambda: grid_noise(1e-310, 3), "scale must leave a normal float64 grid step, got 1e-310"),
        (lambda: grid_noise(1.0, 3, "cauchy"), "law must be 'gaussian' or 'laplace', got 'cauchy'"),
        (lambda: DiscreteGaussianTable(1.0).sample((2, -1)), r"shape must have no negative length, got \(2, -1\)"),
        (lambda: IntegerTable([1, 2], 0), r"numerators must be >= 0 and sum to 2\^128, got sum 3"),
        (lambda: uniform_bits(3, 65), r"bits must be in 1\.\.64, got 65"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
