"""A party's rounds end by its plan and by nothing that a record says: it speaks in every round, with the same sizes."""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coterie.deploy.frames import SIGNATURE_BYTES, seal
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Party, Records, Terms
from coterie.deploy.work import Turns, Work
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.plan import validate
from coterie.pricing import price
from tests.deploy.house import NAMES

ROUNDS = 4


def terms(slug: str, loss: str) -> Terms:
    parties = [{"name": n, "address": f"{n}.example:443"} for n in NAMES]
    return Terms.of(
        validate(
            {
                "partition": {"kind": "iid", "sizes": [12] * 3}, "graph": {"kind": "ring"},
                "problem": {"loss": loss, "dim": 3, "ridge": 1e-3}, "algorithm": {"name": slug},
                "privacy": {"epsilon": 2.0, "delta": 1e-5}, "run": {"rounds": ROUNDS}, "deploy": {"parties": parties},
            }
        )
    )  # fmt: skip


@pytest.mark.parametrize(("slug", "loss"), [("dp-dsgd", "logistic"), ("pr-admm", "logistic"), ("pr-admm", "hinge")])
def test_whatever_the_records_and_the_neighbours_say(slug: str, loss: str) -> None:
    """Labels from all alike to half and half, records at zero and at the bound, neighbours that shout or contradict."""
    agreed, source, lengths = terms(slug, loss), SystemSource(), set()
    for positive, scale in product((0, 1, 6, 12), (0.0, 1.0)):
        x = np.zeros((12, 3))
        x[:, 0] = scale
        labels = (np.arange(12) < positive).astype(int)
        party = Party.of(agreed, 0, Records(x, labels, ("no", "yes"), ()))
        carry = party.begin()
        for t in range(ROUNDS):
            carry, numbers, sent = party.turn(t, carry, source.draw(t, agreed.draws(0)))
            limit = int(agreed.steps.limit[0, t])
            assert sent
            assert np.abs(numbers).max() <= limit
            lengths.add((len(numbers), sum(len(part) for part in party.pack(carry))))
            for slot in range(len(party.neighbours)):
                loud = np.full(party.count, limit if (slot + t) % 2 else -limit)
                carry = party.heard(carry, slot, t, loud)
        assert np.isfinite(party.answer(carry)).all()
    assert len(lengths) == 1


def test_what_might_not_be_solved_is_refused_by_the_plan() -> None:
    """The twin: a subproblem that a public number of steps need not solve on all data never meets data."""
    tree = {
        "partition": {"kind": "iid", "sizes": [12] * 3},
        "algorithm": {"name": "pp-admm", "tolerance": 1e-10, "penalty": 1e-6},
        "problem": {"loss": "hinge", "dim": 3, "width": 1e-7}, "privacy": {}, "run": {"rounds": ROUNDS},
    }  # fmt: skip
    plan = validate(tree)
    with pytest.raises(InputError, match=r"may need .* gradient steps"):
        price(plan, public_network(plan))


@pytest.mark.parametrize(("slug", "stores"), [("dp-dsgd", 2), ("dp-consensus-gd", None), ("pr-admm", None)])
def test_what_was_sent_is_stored_once_and_a_party_goes_on_from_it(slug: str, stores: int | None) -> None:
    """A turn from what was stored, state and frames, says what a turn of the process that stored it says."""
    agreed = terms(slug, "logistic")
    x = np.random.default_rng(1).normal(size=(12, 3)) / 4
    party = Party.of(agreed, 0, Records(x, (np.arange(12) < 6).astype(int), ("no", "yes"), ()))
    carry, frame, key, draws = party.begin(), b"", Ed25519PrivateKey.generate(), SystemSource()
    heard: dict[int, bytes] = {}
    for t in range(ROUNDS):
        draw = draws.draw(t, agreed.draws(0))
        if t:
            again = party.unpack(b"".join(party.pack(carry)), frame, [heard[slot] for slot in sorted(heard)])
            assert all(map(np.array_equal, jax.tree.leaves(again), jax.tree.leaves(carry)))
            assert np.array_equal(party.turn(t, again, draw)[1], party.turn(t, carry, draw)[1])
        carry, numbers, _ = party.turn(t, carry, draw)
        frame = seal(key, bytes(32), 0, t, party.wire.encode(numbers, 0, t))
        for slot in range(not t, len(party.neighbours)):  # of the first there is nothing yet
            carry = party.heard(carry, slot, t, numbers + slot)
            said = seal(key, bytes(32), slot, t, (numbers + slot).astype(party.wire.dtype).tobytes())
            heard[slot] = said[:-SIGNATURE_BYTES]
    with pytest.raises(InputError, match=r"the stored state has \d+ bytes, .*: made by another version\?"):
        party.unpack(b"".join(party._pack(carry._replace(said=np.zeros(0)))), frame)  # with what was heard, as it was
    if stores is not None:  # of its three points the last is the message
        assert len(carry.kept) == stores
        assert np.array_equal(carry.said, numbers)


def test_a_party_that_may_stay_silent_stores_its_point() -> None:
    """Its frame is empty then."""
    agreed = terms("ipp-admm", "logistic")
    work, _ = Work.of(agreed, 0)
    assert set(work.own) == {None}
    assert not Turns.of(agreed, 0).first.said.size
