"""Parties of a secret sum: exact sums, uniform shares, what is rejected, relays that see nothing."""

from __future__ import annotations

import dataclasses
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.errors import InputError
from coterie.exchange.additive import Additive, expand
from coterie.exchange.channels import Channels, Keys
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.members import SumsHere
from coterie.exchange.protocol import Post, Routes, one_round
from coterie.exchange.sums import Aborted, Opened, SumTerms
from coterie.exchange.wire import OVERHEAD, SEED_BYTES, Envelope, Kind, Rejected
from coterie.graphs import make_graph
from tests.exchange.cases import seats


def opened(outcomes: dict[int, Opened | Aborted]) -> list[Opened]:
    found = [o for o in outcomes.values() if isinstance(o, Opened)]
    assert len(found) == len(outcomes), outcomes
    return found


# ---- the sum ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.integers(3, 64), st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_sum_is_exact_up_to_rounding(parties: int, size: int, bits: int, seed: int) -> None:
    """|opened − Σ v| ≤ N 2^(−f−1) against rational arithmetic, and the same words at every party."""
    bound = 2.0 ** min(20, 55 - bits)
    values = np.random.default_rng(seed).uniform(-bound, bound, (parties, size))
    post = Post(seats(parties, size, fraction_bits=bits, bound=bound))
    got = opened(one_round(post, 0, values))
    exact = [2**bits * sum(map(Fraction, column)) for column in values.T.tolist()]
    for one in got:
        assert (one.words == got[0].words).all()
        steps = one.words.view(np.int64).tolist()
        assert max(abs(w - e) for w, e in zip(steps, exact, strict=True)) <= Fraction(parties, 2)
        np.testing.assert_array_equal(one.values, np.ldexp(np.array(steps, float), -bits))


def test_the_rounding_bound_is_attained() -> None:
    """Every party just below half a step: N 2^(−f−1) cannot be lowered."""
    almost = (0.5 - 1e-9) / 16
    (got, *_) = opened(one_round(Post(seats(8, 1, fraction_bits=4, bound=10.0)), 0, np.full((8, 1), almost)))
    assert got.values[0] == 0.0
    assert 8 * almost > 0.999 * FixedPoint(8, 4, 10.0).error


@pytest.mark.parametrize("seeds", [True, False])
def test_bytes_are_as_stated_and_rounds_follow_each_other(seeds: bool) -> None:
    post = Post(seats(4, 100, seeds=seeds))
    for number in range(3):
        values = np.random.default_rng(number).normal(size=(4, 100))
        for one in opened(one_round(post, number, values)):
            assert np.abs(one.values - values.sum(0)).max() <= 4 * 2.0**-25
    share, words = SEED_BYTES if seeds else 8 * 100, 8 * 100
    assert (post.sent == 3 * 3 * (2 * OVERHEAD + share + words)).all()


def test_nothing_can_wrap_around() -> None:
    with pytest.raises(InputError, match=r"≥ 2\^63: lower bound or fraction_bits"):
        FixedPoint(1000, 44, 2.0**10)
    FixedPoint(1000, 43, 2.0**10)
    code = FixedPoint(4, 24, 8.0)
    for bad in (8.1, -np.inf, np.nan):
        with pytest.raises(InputError, match="expected at most bound = 8"):
            code.encode([1.0, bad])
    edge = FixedPoint(3, 40, 2.0**21)  # 3 · 2^61 < 2^63
    total = sum((edge.encode([-(2.0**21)]) for _ in range(3)), np.zeros(1, np.uint64))
    assert edge.decode(total)[0] == -3 * 2.0**21


def test_a_party_lost_between_the_message_rounds_aborts_the_round() -> None:
    outcome = one_round(Post(seats(5, 2)), 0, np.ones((5, 2)), lost={Kind.SHARE: [3]})
    assert sorted(outcome) == [0, 1, 2, 4]
    for reason in outcome.values():
        assert isinstance(reason, Aborted)
        assert "no SUM from 3" in str(reason)
        assert "nothing is opened" in str(reason)


def test_whole_numbers_of_any_size_come_out_exactly() -> None:
    """Sums between members of one process, one after the other, with noise in whole steps."""
    rng, n = np.random.default_rng(3), 5
    sums = SumsHere(SumTerms(FixedPoint(n, 0, 2.0**52, reach=2**58)), 6)
    for _ in range(2):
        values, noise = rng.integers(-(2**52), 2**52, (n, 6)), rng.integers(-(2**58), 2**58, (n, 6))
        got = sums.open(list(values), list(noise))
        assert got.steps.tolist() == (values + noise).sum(0).tolist()
        assert got.included == tuple(range(n))
    with pytest.raises(InputError, match="the encoding has room for"):
        sums.open(list(values), list(4 * noise + 2**60))


def test_a_member_that_a_ledger_kept_goes_on_as_if_nothing_had_happened() -> None:
    """Every member is made anew from its stored words before everything that it hears or says."""
    terms, d = SumTerms(FixedPoint(4)), 7
    values = np.random.default_rng(5).normal(size=(4, d))
    states = {}
    shares = {}
    for i in range(4):
        one = Additive(terms, i, d)
        shares[i] = one.share(3, terms.code.encode(values[i]))
        states[i] = one.state
    for sender, parts in shares.items():
        for part in parts:
            assert part.receiver is not None
            one = Additive(terms, part.receiver, d).resume(3, Kind.SHARE, states[part.receiver])
            one.take(3, sender, Kind.SHARE, part.body)
            states[part.receiver] = one.state
    for i in range(4):
        alone = Additive(terms, i, d).resume(3, Kind.SHARE, states[i])
        with pytest.raises(Aborted, match="no SHARE from"):
            alone.proceed()  # nobody has vouched that the others answered
        one = Additive(terms, i, d).resume(3, Kind.SHARE, states[i], alone.others)
        (told,) = one.proceed()
        states[i] = one.state
        for j in one.others:
            other = Additive(terms, j, d).resume(3, Kind.SUM, states[j])
            other.take(3, i, Kind.SUM, told.body)
            states[j] = other.state
    for i in range(4):
        done = Additive(terms, i, d).resume(3, Kind.SUM, states[i], [j for j in range(4) if j != i])
        np.testing.assert_array_equal(done.result().words, sum(terms.code.encode(v) for v in values))


def test_parts_that_come_early_count_once_the_sum_begins() -> None:
    terms = SumTerms(FixedPoint(3))
    members = [Additive(terms, i, 2) for i in range(3)]
    shares = {i: members[i].share(0, terms.code.encode([1.0, i])) for i in (0, 1)}
    for sender, parts in shares.items():
        for part in parts:
            if part.receiver == 2:
                members[2].take(0, sender, Kind.SHARE, part.body)
                with pytest.raises(Rejected, match="a second SHARE"):
                    members[2].take(0, sender, Kind.SHARE, part.body)
    members[2].share(0, terms.code.encode([1.0, 2.0]))
    assert members[2].missing() == []


def test_shares_are_used_once() -> None:
    party = seats(3, 1)[0]
    party.share(4, [1.0])
    for number in (4, 3):
        with pytest.raises(InputError, match="shares are used once"):
            party.share(number, [1.0])
    with pytest.raises(InputError, match="not finished round 4"):
        party.result()
    with pytest.raises(InputError, match="at least 3 parties"):
        seats(2, 1)


# ---- what is seen ----------------------------------------------------------------------------------------------------


def looks_uniform(words: np.ndarray) -> bool:
    """χ² on the top and on the bottom byte; a fair source fails once in 10⁶."""
    tests = [stats.chisquare(np.bincount((words >> np.uint64(s)).astype(np.uint8), minlength=256)) for s in (56, 0)]
    return min(t.pvalue for t in tests) > 0.5e-6


@pytest.mark.parametrize("seeds", [True, False])
def test_any_shares_but_one_are_uniform(seeds: bool) -> None:
    """Each of N − 1 shares, and a signed sum of them, whoever is left out; all N of them are not."""
    d, rng = 20_000, np.random.default_rng(1)
    for secret in (0.0, 123.456, -(2.0**20)):
        parties = seats(4, d, seeds=seeds)
        owner = parties[0].member
        assert isinstance(owner, Additive)
        told = parties[0].share(0, np.full(d, secret))
        shares = {e.receiver: owner._words(Kind.SHARE, parties[e.receiver].link.open(e)) for e in told}
        shares[0] = owner.state[0]
        for left_out in shares:
            seen = [s for j, s in shares.items() if j != left_out]
            signs = rng.choice(np.array([1, 2**64 - 1], np.uint64), 3)
            assert all(map(looks_uniform, [*seen, signs[0] * seen[0] + signs[1] * seen[1] + signs[2] * seen[2]]))
        assert not looks_uniform(sum(shares.values(), np.zeros(d, np.uint64)))


def test_the_uniformity_check_finds_weak_shares() -> None:
    """Broken twins: shares of 63 bits, and a share that repeats one seed's words."""
    assert looks_uniform(expand(os.urandom(32), 20_000))
    assert not looks_uniform(expand(os.urandom(32), 20_000) >> np.uint64(1))
    assert not looks_uniform(np.tile(expand(os.urandom(32), 200), 100))


def test_relays_see_only_ciphertext() -> None:
    """On a path all traffic of 0 and 3 passes 1 and 2. What passes holds no word that any share, sum or value has."""
    graph, d = make_graph("path", 4), 50
    post = Post(seats(4, d, seeds=False), graph, keep=True)
    values = np.random.default_rng(0).normal(size=(4, d))
    for one in opened(one_round(post, 0, values)):
        assert np.abs(one.values - values.sum(0)).max() <= 4 * 2.0**-25
    assert Routes(graph).path(0, 3) == [0, 1, 2, 3]
    passed = [e for e in post.views[1] if e.receiver != 1]
    assert {(e.sender, e.receiver) for e in passed} == {(0, 2), (0, 3), (2, 0), (3, 0)}
    clear = {w for p in post.seats for w in p.member._own.tolist()}
    words = {int.from_bytes(e.sealed[k : k + 8], "little") for e in passed for k in range(0, 8 * d, 8)}
    assert not clear & words
    for e in passed:
        with pytest.raises(Rejected, match="not for party 1"):
            post.seats[1].link.open(e)
        with pytest.raises(Rejected, match="fails authentication"):
            post.seats[1].link.open(dataclasses.replace(e, receiver=1, counter=99))
    sums = [e for e in passed if e.kind is Kind.SUM]
    noise = np.frombuffer(b"".join(e.sealed[: 8 * d] for e in sums), np.uint8)
    assert stats.chisquare(np.bincount(noise, minlength=256)).pvalue > 1e-6


def test_relays_work_on_every_connected_graph() -> None:
    for kind, size in (("ring", 7), ("star", 5), ("grid", 6)):
        values = np.random.default_rng(0).normal(size=(size, 3))
        post = Post(seats(size, 3), make_graph(kind, size))
        assert np.abs(opened(one_round(post, 0, values))[0].values - values.sum(0)).max() <= size * 2.0**-25
    outcome = one_round(Post(seats(5, 1), make_graph("star", 5)), 0, np.ones((5, 1)), lost={Kind.SHARE: [0]})
    assert all(isinstance(o, Aborted) for o in outcome.values())  # the hub relays nothing any more


# ---- what is rejected ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_altered_envelope_is_rejected(data: st.DataObject) -> None:
    parties = seats(3, 4)
    raw = bytearray(parties[0].share(0, np.ones(4))[0].pack())
    place, flip = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(1, 255))
    raw[place] ^= flip
    with pytest.raises(Rejected):
        parties[1].receive(Envelope.unpack(bytes(raw)))


def test_truncated_padded_replayed_duplicated_and_stale_shares_are_rejected() -> None:
    parties = seats(3, 4)
    first = parties[0].share(0, np.ones(4))[0]
    raw = first.pack()
    for cut in (b"", raw[:10], raw[:-1], raw + b"\0"):
        with pytest.raises(Rejected, match=r"truncated|says"):
            Envelope.unpack(cut)
    with pytest.raises(Rejected, match="fails authentication"):
        parties[1].receive(dataclasses.replace(first, sealed=first.sealed[:-1]))
    parties[1].receive(first)
    with pytest.raises(Rejected, match="is a replay"):
        parties[1].receive(first)
    again = parties[0].link.seal(1, 0, Kind.SHARE, os.urandom(32))
    with pytest.raises(Rejected, match="a second SHARE of party 0 in round 0"):
        parties[1].receive(again)
    short = parties[2].link.seal(1, 0, Kind.SHARE, os.urandom(31))
    with pytest.raises(Rejected, match="has 31 bytes, expected 32"):
        parties[1].receive(short)
    with pytest.raises(Rejected, match="of round 7, this party is in round -1"):
        parties[1].receive(parties[2].link.seal(1, 7, Kind.SHARE, os.urandom(32)))
    parties[1].share(5, np.ones(4))
    with pytest.raises(Rejected, match="of round 0, this party is in round 5"):
        parties[1].receive(parties[2].link.seal(1, 0, Kind.SHARE, os.urandom(32)))
    parties[1].receive(parties[2].link.seal(1, 5, Kind.SHARE, os.urandom(32)))  # the honest one is still taken


def test_an_envelope_is_bound_to_plan_session_receiver_and_round() -> None:
    keys = [Keys() for _ in range(3)]
    roster = [k.public for k in keys]
    here = [Channels(b"p" * 32, i, k, roster) for i, k in enumerate(keys)]
    other = [Channels(b"q" * 32, i, k, roster) for i, k in enumerate(keys)]
    envelope = here[0].seal(1, 3, Kind.SHARE, b"body")
    for changed in (
        dataclasses.replace(envelope, round=4),
        dataclasses.replace(envelope, kind=Kind.SUM),
        dataclasses.replace(envelope, sender=2),
        dataclasses.replace(envelope, counter=1),
    ):
        with pytest.raises(Rejected, match="fails authentication"):
            here[1].open(changed)
    with pytest.raises(Rejected, match="fails authentication"):
        other[1].open(envelope)
    with pytest.raises(Rejected, match="fails authentication"):
        here[2].open(dataclasses.replace(envelope, receiver=2))
    restarted = Keys(keys[1].identity)  # the same party in a new session: other keys, so no nonce meets a key twice
    late = Channels(b"p" * 32, 1, restarted, [roster[0], restarted.public, roster[2]])
    with pytest.raises(Rejected, match="fails authentication"):
        late.open(envelope)
    impostor = Keys()  # announces the right identity without its private key
    with pytest.raises(InputError, match="does not hold this party's keys"):
        Channels(b"p" * 32, 0, impostor, roster)
    assert here[1].open(envelope) == b"body"
    assert here[1].seal(0, 0, Kind.SHARE, b"").sealed != here[0].seal(1, 0, Kind.SHARE, b"").sealed
