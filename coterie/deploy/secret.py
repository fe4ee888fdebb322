"""A party whose messages are opened only as the sum over all parties: a `Member` inside the same signed frames.

    round 0        every party publishes a fresh X25519 key (its frame is signed, so the key is authentic)
    round 2t + 1   the first parts of the sum of message t (`coterie.exchange.additive`): a seed for every other party,
                   sealed for it alone. This is the release that is charged.
    round 2t + 2   the sum of the shares that the party holds. The sum of these over all parties is the sum of messages.

All frames have one length. Everybody sees all frames, and a seed only its receiver can open (ChaCha20-Poly1305 under a
key derived from both X25519 keys, with plan, round, sender and receiver bound to it). Up to N − 2 colluding parties
learn the sum of the honest messages and nothing else of them; a message itself is noised and charged all the same,
so the local guarantee does not rest on any of this.

The member's state and the key lie in the ledger's state until the round is over. A nonce is the round: it meets a key
twice only if the first frame never left (a crash before it was stored), since stored bytes are sent again as they are.
A share that cannot be opened ends the run: it is signed evidence against its sender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from jaxtyping import Array, Float, Int, UInt
from numpy.typing import ArrayLike

from coterie.deploy.frames import Wire
from coterie.deploy.noise import Source
from coterie.deploy.party import Carry, Party, Records
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.exchange.channels import derive
from coterie.exchange.members import member
from coterie.exchange.planned import sum_terms
from coterie.exchange.sums import Kept, Member, SumPart
from coterie.exchange.wire import Kind
from coterie.plan import Plan

__all__ = ["BadShare", "SecretParty", "join"]

KEY, TAG = 32, 16  # bytes of a public key, and those that a seal adds
WORD = 8  # bytes of a number of a frame


class BadShare(ArithmeticError):
    """A neighbour's signed frame holds a share or key that cannot be used."""


def join(turns: Turns, records: Records, plan: Plan, plan_hash: bytes) -> Party:
    """The party that the plan's exchange asks for."""
    terms = sum_terms(plan, turns.agents)
    if terms is None:
        return Party(turns, records)
    return SecretParty(turns, records, lambda: kept(member(terms, turns.node, turns.count, plan_hash)), plan_hash)


def kept(one: Member) -> Kept:
    """The same, if a ledger can keep it; an InputError for any other."""
    if not isinstance(one, Kept):
        raise InputError(f"a party cannot take part in a sum with a threshold yet, got {one.terms.threshold}")
    return one


class SecretCarry(eqx.Module):
    """What a party of a secret sum takes from round to round."""

    inner: Carry  # `heard`: the sum of the others' messages
    private: UInt[Array, " 32"]
    public: UInt[Array, "neighbours 32"]
    value: Float[Array, " count"]  # the own message
    state: tuple[UInt[Array, " count"], ...]  # of the member of the sum under way
    mine: Int[Array, ""]  # the round of `inner` that is under way


class SecretParty(Party):
    """One node of a secret sum. The agent sees rounds of the wire, `Party.turn` rounds of the algorithm."""

    def __init__(self, turns: Turns, records: Records, member: Callable[[], Kept], plan_hash: bytes):
        super().__init__(turns, records)
        self.member, self.plan_hash = member, plan_hash
        idle = member()
        self.kinds, self.code = idle.kinds, idle.terms.code
        self.rounds = len(self.kinds) * turns.rounds + 1
        self.sealed = {k: idle.body_bytes(k) + TAG for k in self.kinds if k.addressed}
        said = [len(self.neighbours) * n for n in self.sealed.values()]
        said += [idle.body_bytes(k) for k in self.kinds if not k.addressed]
        self.words = max(KEY, *said) // WORD

    # -- what the agent asks -------------------------------------------------------------------------------------------

    @property
    def wire(self) -> Wire:
        """Words of any value: shares are uniform."""
        return Wire(self.words, 8, self.rounds, lambda sender, round: 1 << 63)

    @property
    def late(self) -> str:
        """A sum needs everybody."""
        return "wait"

    def begin(self) -> Any:
        """A fresh key, and nothing else."""
        own = X25519PrivateKey.generate().private_bytes_raw()
        return eqx.tree_at(lambda c: c.private, self._fresh(), np.frombuffer(own, np.uint8))

    def speak(self, r: int, carry: Any, source: Source) -> tuple[Any, np.ndarray, bool]:
        """The words of wire round r."""
        if r == 0:
            public = X25519PrivateKey.from_private_bytes(_bytes(carry.private)).public_key().public_bytes_raw()
            return carry, self._padded(public), True
        t, step = divmod(r - 1, len(self.kinds))
        if step > 0:
            member = self._resumed(carry, t, step - 1, self.neighbours)
            said = member.proceed()
        else:
            inner = carry.inner if t == 0 else self._with_total(carry)
            inner, numbers, sent = self.turn(t, inner, source.draw(t, self.turns.laws))
            if not sent:
                raise BadShare(f"round {t}: an algorithm that may stay silent cannot be summed")
            value, member = numbers * self.turns.steps.size[self.node, t], self.member()
            said = member.share(t, self.code.encode(value))
            carry = eqx.tree_at(lambda c: (c.inner, c.value, c.mine), carry, (inner, value, np.array(t)))
        carry = eqx.tree_at(lambda c: c.state, carry, member.state)
        return carry, self._padded(b"".join(self._sealed(carry, r, part) for part in said)), True

    def heard(self, carry: Any, slot: int, r: int, numbers: np.ndarray) -> Any:
        """The carry after a neighbour's words of round r."""
        said = numbers.astype("<i8").tobytes()
        if r == 0:
            public = np.array(carry.public)
            public[slot] = np.frombuffer(said[:KEY], np.uint8)
            return eqx.tree_at(lambda c: c.public, carry, public)
        t, step = divmod(r - 1, len(self.kinds))
        kind, sender, member = self.kinds[step], int(self.neighbours[slot]), self._resumed(carry, t, step)
        body = self._opened(carry, r, kind, slot, said) if kind.addressed else said[: member.body_bytes(kind)]
        member.take(t, sender, kind, body)
        return eqx.tree_at(lambda c: c.state, carry, member.state)

    def answer(self, carry: Any) -> Float[np.ndarray, " dim"]:
        """The model after the last opened sum."""
        return super().answer(self._with_total(carry))

    def unpack(self, data: bytes) -> Any:
        """The carry in such bytes."""
        return self._unpack(data, self._fresh())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _fresh(self) -> SecretCarry:
        keys = np.zeros(KEY, np.uint8), np.zeros((len(self.neighbours), KEY), np.uint8)
        rest: list[Any] = [*keys, np.zeros(self.count), self.member().state, np.array(-1)]
        return SecretCarry(self.turns.first, *rest)

    def _resumed(self, carry: SecretCarry, t: int, step: int, answered: Iterable[int] = ()) -> Kept:
        """The member of sum t after it has spoken in a message round; the agent has waited for those who `answered`."""
        state = tuple(np.asarray(words) for words in carry.state)
        return self.member().resume(t, self.kinds[step], state, map(int, answered))

    def _with_total(self, carry: SecretCarry) -> Carry:
        """The algorithm's carry, told the sum of the others."""
        total = self._resumed(carry, int(carry.mine), len(self.kinds) - 1, self.neighbours).result()
        others = total.values - np.asarray(carry.value)
        return eqx.tree_at(lambda c: (c.heard, c.when), carry.inner, ((others,), np.asarray(carry.mine)[None]))

    def _padded(self, said: bytes) -> np.ndarray:
        return np.frombuffer(said.ljust(WORD * self.words, b"\0"), "<i8").astype(np.int64, copy=False)

    def _sealed(self, carry: SecretCarry, r: int, part: SumPart) -> bytes:
        """A part as it stands in a frame that everybody sees; addressed ones stand in the order of their receivers."""
        if part.receiver is None:
            return part.body
        slot = int(np.searchsorted(self.neighbours, part.receiver))
        return self._cipher(carry, slot, part.receiver, out=True).encrypt(_nonce(r), part.body, self._bound(r))

    def _opened(self, carry: SecretCarry, r: int, kind: Kind, slot: int, said: bytes) -> bytes:
        """This party's own part of a neighbour's frame."""
        sender, size = int(self.neighbours[slot]), self.sealed[kind]
        at = size * (self.node - (self.node > sender))  # on a complete graph everybody lists all others in order
        try:
            return self._cipher(carry, slot, sender, out=False).decrypt(_nonce(r), said[at : at + size], self._bound(r))
        except InvalidTag:
            raise BadShare(f"round {r}: the share of party {sender} cannot be opened; its frame is evidence") from None

    def _cipher(self, carry: SecretCarry, slot: int, other: int, out: bool) -> ChaCha20Poly1305:
        """The one-way key between this party and a neighbour."""
        try:
            theirs = X25519PublicKey.from_public_bytes(_bytes(carry.public[slot]))
            secret = X25519PrivateKey.from_private_bytes(_bytes(carry.private)).exchange(theirs)
        except ValueError:
            raise BadShare(f"the key of party {other} is no X25519 key") from None
        ends = (self.node, other) if out else (other, self.node)
        return ChaCha20Poly1305(derive(secret, b"deployed sum", self.plan_hash, *(e.to_bytes(4, "big") for e in ends)))

    def _bound(self, r: int) -> bytes:
        return self.plan_hash + r.to_bytes(4, "big")


def _bytes(array: ArrayLike) -> bytes:
    return np.asarray(array, np.uint8).tobytes()


def _nonce(r: int) -> bytes:
    return r.to_bytes(12, "big")
