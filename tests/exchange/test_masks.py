"""Drop-outs: Shamir's shares, sums that survive them, and rounds that abort without revealing anything."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.masks import Masked
from coterie.exchange.protocol import Post, one_round
from coterie.exchange.shamir import PRIME, Combiner, share_secret
from coterie.exchange.sums import Aborted, Opened, SumTerms
from coterie.exchange.wire import Kind, Rejected, threshold_bytes
from coterie.graphs import make_graph
from tests.exchange.cases import seats

# ---- Shamir ----------------------------------------------------------------------------------------------------------


def test_the_field_is_a_field() -> None:
    """Miller and Rabin with 40 random bases: a composite passes with probability below 4^−40."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(40):
        x = pow(int.from_bytes(os.urandom(32), "big") % (PRIME - 3) + 2, odd, PRIME)
        assert x in (1, PRIME - 1) or any((x := x * x % PRIME) == PRIME - 1 for _ in range(twos - 1))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_t_shares_recover_and_fewer_do_not(data: st.DataObject) -> None:
    parties = data.draw(st.integers(2, 12))
    threshold = data.draw(st.integers(2, parties))
    secret = data.draw(st.binary(min_size=32, max_size=32))
    shares = share_secret(secret, threshold, parties)
    holders = data.draw(st.permutations(range(parties)))[:threshold]
    assert Combiner(holders).recover({i: shares[i] for i in holders}) == secret
    # t − 1 shares fit every secret: some polynomial of degree t − 1 goes through them and through any value at 0
    few, other = holders[:-1], int.from_bytes(os.urandom(32), "big")
    points = {0: other} | {i + 1: int.from_bytes(shares[i], "big") for i in few}
    x = holders[-1] + 1
    value = 0
    for a, y in points.items():
        top = bottom = 1
        for b in points:
            if b != a:
                top, bottom = top * (x - b) % PRIME, bottom * (a - b) % PRIME
        value = (value + y * top * pow(bottom, -1, PRIME)) % PRIME
    fits = {i: shares[i] for i in few} | {holders[-1]: value.to_bytes(33, "big")}
    assert Combiner(holders).recover(fits) == other.to_bytes(32, "big")


# ---- rounds ----------------------------------------------------------------------------------------------------------


def outcomes(parties: int, threshold: int, lost: dict[Kind, list[int]], size: int = 3, **more) -> tuple:
    values = np.random.default_rng(7).normal(size=(parties, size))
    post = Post(seats(parties, size, threshold=threshold), keep=True, **more)
    return values, post, one_round(post, 0, values, lost=lost)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_round_succeeds_exactly_from_the_threshold_on(data: st.DataObject) -> None:
    """Whoever vanishes after any step: the sum of those who sent one, or an abort if fewer than t are left."""
    parties = data.draw(st.integers(3, 9))
    threshold = data.draw(st.integers(max(3, (parties + 3) // 2), parties))
    when_lost = st.sampled_from(["stays", *Kind])
    steps = data.draw(st.lists(when_lost, min_size=parties, max_size=parties))
    lost = {s: [i for i, when in enumerate(steps) if when == s] for s in Kind}
    values, _, got = outcomes(parties, threshold, lost)
    summed = [i for i, when in enumerate(steps) if when is not Kind.SHARE]
    unmasked = [i for i, when in enumerate(steps) if when in ("stays", Kind.UNMASK)]
    for i in [i for i, when in enumerate(steps) if when == "stays"]:
        one = got[i]
        if min(len(summed), len(unmasked)) >= threshold:
            assert isinstance(one, Opened), one
            assert one.included == tuple(summed)
            assert np.abs(one.values - values[summed].sum(0)).max() <= parties * 2.0**-25
        else:
            assert isinstance(one, Aborted)
            assert "fewer than the threshold" in str(one)
            assert "nothing is opened" in str(one)


def test_below_the_threshold_no_share_is_given_out() -> None:
    _, post, got = outcomes(6, 5, {Kind.SHARE: [1, 4]})
    assert all(isinstance(o, Aborted) for o in got.values())
    assert not [e for view in post.views for e in view if e.kind is Kind.UNMASK]


def test_a_late_contribution_stays_covered() -> None:
    """Party 1 is counted as lost, its round key is recovered; its own y still hides behind its self-mask."""
    parties = seats(5, 2, threshold=4)
    post, values = Post(parties), np.arange(10.0).reshape(5, 2)
    post.deliver([e for p in parties for e in p.share(0, values[p.link.me])])
    late = parties[1].proceed()
    post.deliver([e for p in parties if p.link.me != 1 for e in p.proceed()])
    handed = [e for p in parties if p.link.me != 1 for e in p.proceed()]
    given_out = {}
    for e in handed:
        if e.receiver == 1:
            body = parties[1].link.open(e)
            entries = parties[1].member._entries(body)
            given_out[e.sender] = {owner: gone for owner, gone, _ in entries}
    assert all(kinds == {0: False, 1: True, 2: False, 3: False, 4: False} for kinds in given_out.values())
    post.deliver([e for e in handed if e.receiver != 1])
    post.deliver([e for e in late if e.receiver == 0])
    for p in (parties[0], parties[2]):
        got = p.result()
        assert got.included == (0, 2, 3, 4)
        np.testing.assert_allclose(got.values, values[[0, 2, 3, 4]].sum(0), atol=1e-6)
    with pytest.raises(InputError, match="no message round to go on to"):
        parties[0].proceed()


def test_parties_who_disagree_about_the_survivors_open_nothing() -> None:
    """Party 1's contribution reaches only half of the others: neither half has a quorum."""
    parties = seats(5, 2, threshold=4)
    post = Post(parties)
    post.deliver([e for p in parties for e in p.share(0, np.ones(2))])
    for p in parties:
        post.deliver([e for e in p.proceed() if p.link.me != 1 or e.receiver in (0, 2)])
    post.deliver([e for p in parties for e in p.proceed()])
    for p in parties:
        if p.link.me in (3, 4):
            with pytest.raises(Aborted, match="for the same survivors of 2 parties"):
                p.result()
        else:
            with pytest.raises(Aborted, match="for the same survivors of 3 parties"):
                p.result()


def test_a_wrong_share_is_found_out() -> None:
    """One survivor hands out a share that is off by one: nobody opens anything."""
    parties = seats(4, 2, threshold=3)
    post = Post(parties)
    post.deliver([e for p in parties for e in p.share(0, np.ones(2))])
    post.deliver([e for p in parties for e in p.proceed()])
    keep, parties[1].member._kept = (
        parties[1].member._kept,
        (int.from_bytes(parties[1].member._kept, "big") ^ 1).to_bytes(33, "big"),
    )
    assert keep != parties[1].member._kept
    post.deliver([e for p in parties for e in p.proceed()])
    with pytest.raises(Aborted, match="wrong shares of party 1"):
        parties[0].result()


def test_malformed_unmasking_is_rejected() -> None:
    parties = seats(4, 1, threshold=3)
    post = Post(parties)
    post.deliver([e for p in parties for e in p.share(0, [1.0])])
    entry = struct.pack("<IB33s", 2, 0, bytes(33))
    for body, why in ((b"\x0f" + entry[:-1], "truncated"), (b"", "truncated"), (b"\x0f" + 2 * entry, "two shares")):
        with pytest.raises(Rejected, match=why):
            parties[0].receive(parties[1].link.seal(0, 0, Kind.UNMASK, body))


def test_bytes_and_relays_with_a_threshold() -> None:
    _, post, got = outcomes(5, 4, {}, size=40)
    assert all(isinstance(o, Opened) for o in got.values())
    assert (post.sent == 4 * threshold_bytes(40, 5)).all()
    _, _, ring = outcomes(6, 5, {Kind.SUM: [2]}, graph=make_graph("complete", 6))
    assert all(isinstance(o, Opened) for o in ring.values())


def test_thresholds_that_protect_nobody_are_refused() -> None:
    for parties, bad in ((5, 3), (5, 6), (3, 2), (10, 5)):
        with pytest.raises(InputError, match=f"for {parties} parties, got {bad}"):
            seats(parties, 1, threshold=bad)
    assert isinstance(seats(10, 1, threshold=6)[0].member, Masked)


def test_the_stated_number_of_colluders() -> None:
    """By its three conditions: two honest contributions in any sum; no secret alone; not both secrets of one owner."""
    for n in range(3, 20):
        code = FixedPoint(n)
        assert SumTerms(code).tolerated == n - 2
        for t in range(3, n + 1):
            safe = [c for c in range(1, n) if t - c >= 2 and c < t and 2 * (t - c) > n - c]
            if safe:
                assert SumTerms(code, t).tolerated == max(safe)
            else:
                with pytest.raises(InputError, match="threshold must be in"):
                    SumTerms(code, t)
    text = SumTerms(FixedPoint(10), 8).statement().text()
    assert "up to 5 honest-but-curious colluders" in text
    assert "the exchange itself costs ε = 0" in text
    assert "up to 8 honest-but-curious colluders" in SumTerms(FixedPoint(10)).statement().text()
