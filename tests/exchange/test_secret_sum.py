"""Additive shares: exact sums, uniform views, no silent wrap-around."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.errors import InputError
from coterie.exchange.secret_sum import open_sum, secret_shared_sum, split


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 12), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_sum_is_exact(parties: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = [rng.integers(-(2**58), 2**58, size) for _ in range(parties)]
    assert (secret_shared_sum(vectors) == np.sum(vectors, axis=0)).all()


def test_any_shares_but_one_are_uniform_whatever_is_shared() -> None:
    """χ² on the top byte of the shares that others see; the twin, shares of a few bits, is rejected.

    One try fails with probability 1e-6.
    """
    for secret in (0, 123_456_789, -1):
        shares = split(np.full(20_000, secret), 3, own=0)
        seen = np.concatenate([shares[1] >> np.uint64(56), (shares[0] + shares[1]) >> np.uint64(56)]).astype(int)
        assert stats.chisquare(np.bincount(seen, minlength=256)).pvalue > 1e-6
    weak = shares[1] >> np.uint64(3)
    assert stats.chisquare(np.bincount((weak >> np.uint64(56)).astype(int), minlength=256)).pvalue < 1e-6


def test_two_honest_parties_hide_everything_but_their_sum() -> None:
    """Moving t from one honest party to the other leaves the law of what the third sees, and the opened sum, alike."""
    worlds = []
    for shift in (0, 10**6):
        v = [np.full(20_000, 5 + shift), np.full(20_000, 7 - shift), np.zeros(20_000, np.int64)]
        sent = [split(x, 3, i) for i, x in enumerate(v)]
        partial = [sent[0][j] + sent[1][j] + sent[2][j] for j in range(3)]
        assert (open_sum(partial) == 12).all()
        worlds.append(
            np.concatenate([(x >> np.uint64(40)).astype(float) for x in (sent[0][2], sent[1][2], partial[0])])
        )
    assert stats.ks_2samp(*worlds).pvalue > 1e-6


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least 3 parties"):
        secret_shared_sum([np.zeros(1, np.int64)] * 2)
    with pytest.raises(InputError, match="party 1 holds an entry"):
        secret_shared_sum([np.zeros(1, np.int64), np.array([2**62]), np.zeros(1, np.int64)])
    with pytest.raises(InputError, match="can exceed 63 bits"):
        secret_shared_sum([np.zeros(1, np.int64)] * 4, bound=2**61)
