"""Noise of a party from a cipher: a key for every table and call, none that outlives it, and the same law."""

import os
import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from coterie.algorithms.base import Inside, LaplaceLaw, Normal, Uniform
from coterie.deploy.noise import SystemSource
from coterie.privacy import secure
from coterie.privacy.secure_table import words64
from coterie.sums import words
from coterie.sums.noise import Layers

SIZE = 5000


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every key that a stream is made of."""
    used: list[bytes] = []
    true = words.keystream

    def noted(key: bytes) -> Callable[[int], bytes]:
        used.append(key)
        return true(key)

    monkeypatch.setattr(words, "keystream", noted)
    return used


@pytest.mark.parametrize(("law", "tables"), [(Normal, 1), (Inside, 3), (LaplaceLaw, 2), (Uniform, 1)])
def test_every_table_of_every_draw_has_its_own_key(keys: list[bytes], law: type, tables: int) -> None:
    source = SystemSource()
    for t in range(3):
        source.draw(t, {"one": law(SIZE), "two": law(SIZE)})
    assert len(keys) == 3 * 2 * tables
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 32 for key in keys)


def test_few_numbers_come_from_the_system_itself(keys: list[bytes]) -> None:
    SystemSource().draw(0, {"noise": Normal(100), "coins": Uniform(7)})
    assert not keys
    assert words.keyed(words.FEW - 1) is words64
    assert words.keyed(words.MANY + 1) is words64


def test_a_stream_is_that_of_the_cipher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(count)))
    read = words.keyed(SIZE)
    whole = np.frombuffer(words.keystream(bytes(range(32)))(8 * SIZE), np.uint64)
    assert np.array_equal(np.concatenate([read(1000), read(SIZE - 1000)]), whole)


def test_a_fork_draws_anew() -> None:
    """Both sides of a fork had the same memory: their next noise must differ."""
    source = SystemSource()
    source.draw(0, {"noise": Normal(SIZE)})
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's: the child calls nothing of it
        child = os.fork()
    if child == 0:
        os.write(writer, np.asarray(source.draw(1, {"noise": Normal(SIZE)})["noise"].steps[:500]).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(reader, 4000), np.int64)
    ours = np.asarray(source.draw(1, {"noise": Normal(SIZE)})["noise"].steps[:500])
    assert theirs.size == 500
    assert np.mean(ours == theirs) < 0.1


def _fits(table: secure.IntegerTable, drawn: NDArray[np.int64]) -> float:
    first, mass = table.law()
    share = np.array([float(x) / 2.0**128 for x in mass])
    edges = np.searchsorted(np.cumsum(share), np.linspace(0.02, 0.98, 49))
    cells = np.searchsorted(edges, drawn - first, side="left")
    expected = np.diff(np.concatenate([[0.0], np.cumsum(share)[edges], [1.0]]))
    return float(chisquare(np.bincount(cells, minlength=50), expected * drawn.size).pvalue)


def test_the_law_is_that_of_the_table() -> None:
    table = secure.DiscreteGaussianTable(300.0)
    assert _fits(table.base, table.sample(200_000, words.keyed)) > 1e-6
    assert _fits(table.base, 2 * (table.sample(200_000, words.keyed) // 2)) < 1e-6  # and the test can tell


def test_noise_that_nobody_is_given_has_a_key_for_each_draw(keys: list[bytes]) -> None:
    layers = Layers(parties=5, colluders=1, levels=(0, 1), variance=Fraction(10**8))
    layers.fresh(SIZE)
    layers.fresh(SIZE)
    assert len(set(keys)) == 2
