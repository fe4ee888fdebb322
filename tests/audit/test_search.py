"""Gradient search for canaries: as strong as those crafted by hand, and never above what is declared (N5)."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.base import Algorithm, all_algorithms, find
from coterie.audit import audit, make_setting
from coterie.audit.search import Searched, ratios, search
from coterie.audit.setting import ANGLE, Setting
from coterie.errors import InputError
from tests.audit.seeded.hunting import FAULTS, plant

HIDDEN = {"qdpsgd1", "qdpsgd2", "qdpsgd2-grad"}  # a state behind rounding: nothing to differentiate
PRIVATE = [slug for slug, a in all_algorithms().items() if a.private and slug not in HIDDEN]
ONE = 1 + 1e-6


def setting(slug: str) -> Setting:
    return make_setting(find(slug), epsilon=8.0, rounds=3)


def by_hand() -> np.ndarray:
    """The antipodal pair on the axes and on the diagonals, neighbours far away: (attack, record or point, number)."""
    out = []
    for angle in (0.0, np.pi / 4):
        u, v = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        out.append([np.cos(ANGLE) * u + np.sin(ANGLE) * v, -np.cos(ANGLE) * u + np.sin(ANGLE) * v, -v])
    return np.array(out)


def hostile(count: int, seed: int = 0) -> np.ndarray:
    """Random pairs and points, from tiny to the bounds, many of them on these."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3, 2))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return x * np.where(rng.uniform(size=(count, 3, 1)) < 0.5, 1.0, 10 ** rng.uniform(-4, 0, (count, 3, 1)))


@pytest.fixture(scope="module")
def descent() -> tuple[Setting, Searched]:
    one = setting("gauss-avg-gd")
    return one, search(one)


def judge(slug: str, found: Searched | None = None) -> None:
    one = setting(slug)
    hand = ratios(one, by_hand()).max()
    found = found or search(one)
    print(f"\n{slug}: by hand {hand:.4f}, found {found.ratio:.4f}")
    assert hand <= ONE
    assert found.largest <= ONE
    assert found.ratio >= min(0.9, 0.97 * hand)
    if hand >= 0.9:
        assert found.ratio >= 0.9


@pytest.mark.slow
def test_search_finds_what_was_crafted(descent: tuple[Setting, Searched]) -> None:
    judge("gauss-avg-gd", descent[1])


@pytest.mark.slow
@pytest.mark.parametrize("slug", sorted(set(PRIVATE) - {"gauss-avg-gd"}))
def test_search_on_the_whole_zoo(slug: str) -> None:
    judge(slug)


def test_no_pair_moves_a_message_by_more_than_declared() -> None:
    got = ratios(setting("gauss-avg-gd"), hostile(2000))
    assert got.max() <= ONE
    assert got.max() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["gauss-avg-gd", "dp-admm", "dp-dsgd", "hmv-dgd", "ldp-admm", "sdm"])
def test_n5_100000_pairs_and_histories(slug: str) -> None:
    got = ratios(setting(slug), hostile(100_000))
    print(f"\n{slug}: {got.max():.4f}")
    assert got.max() <= ONE


def test_a_wrong_sensitivity_is_found_by_the_search() -> None:
    (fault,) = [f for f in FAULTS if f.name == "sensitivity without the factor 2"]
    broken = make_setting(Algorithm.of("gauss-avg-gd", plant(fault)), epsilon=8.0, rounds=3)
    assert search(broken, steps=10).ratio > 1.5


@pytest.mark.slow
def test_what_was_found_is_an_attack(descent: tuple[Setting, Searched]) -> None:
    one, found = descent
    verdict = audit(one, 250, attack=found.attack)
    assert not verdict.violated
    assert verdict.exact
    assert verdict.mu is not None
    assert verdict.mu_bound > 0.6 * verdict.mu


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(InputError, match="differentiate"):
        search(setting("qdpsgd1"))
