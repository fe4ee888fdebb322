"""Secret sums that survive drop-outs: pairwise masks that cancel, self-masks, and Shamir shares of both.

After Bonawitz et al. 2017, without a server. For every round party i makes an X25519 key and a self-mask seed b_i,
and gives each other party one Shamir share of both (first message round). Its contribution to the sum is

    y_i = e_i + PRG(b_i) + Σ_{j>i} PRG(k_ij) − Σ_{j<i} PRG(k_ij),   k_ij from the round keys of i and j,

sent to everybody (second message round). Who has then answered is a survivor. At least t survivors hand out their
shares of b_i for every survivor i and of the round key for everybody else (third message round): the self-masks, and
the masks that nobody cancels, come off the sum. A party never hands out both shares of one owner, so a contribution
that arrives late stays covered by its self-mask.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from coterie.errors import InputError
from coterie.exchange.additive import expand
from coterie.exchange.channels import derive
from coterie.exchange.fixed_point import Words
from coterie.exchange.shamir import Combiner, share_secret
from coterie.exchange.sums import Aborted, Member, Opened, SumPart, SumTerms
from coterie.exchange.wire import ENTRY, SEED_BYTES, SHARE_BODY, SHARE_BYTES, Kind, Rejected, bitmap_bytes

__all__ = ["Masked"]


class Masked(Member):
    """A sum is opened as long as `threshold` parties answer in all three message rounds; `plan` is a 32-byte hash."""

    kinds = (Kind.SHARE, Kind.SUM, Kind.UNMASK)

    def __init__(self, terms: SumTerms, me: int, size: int, plan: bytes) -> None:
        super().__init__(terms, me, size)
        self.plan, self.threshold = plan, terms.present
        self._key = X25519PrivateKey.generate()
        self._seed = b""
        self._kept = b""  # the own share of the own seed
        self._masked = np.zeros(size, np.uint64)
        self._partners: frozenset[int] = frozenset()
        self._survivors: frozenset[int] = frozenset()

    def _next(self, kind: Kind) -> list[SumPart]:
        return [SumPart(kind, None, self._sum() if kind is Kind.SUM else self._unmask())]

    def _sum(self) -> bytes:
        """What this party adds to the sum, and whose masks are in it."""
        partners = frozenset(self._got(Kind.SHARE))
        self._enough(len(partners) + 1, "shares")
        total = self._masked + expand(self._seed, self.size)
        for j in partners:
            total += self._mask(self._key, self.me, j, self._public(j))
        self._masked, self._partners = total, partners
        return _bitmap(partners, self.terms.parties) + total.astype("<u8").tobytes()

    def _unmask(self) -> bytes:
        """Shares of the self-masks of those who answered, of the round keys of those who did not.

        Given out once for a sum, and only if at least `threshold` parties answered.
        """
        survivors = frozenset(self._got(Kind.SUM)) | {self.me}
        self._enough(len(survivors), "sums")
        lists = self._lists(survivors)
        for i in survivors:
            for j in survivors - {i}:
                if j not in lists[i]:
                    raise Aborted(
                        f"round {self.number}: party {i} did not count in party {j}'s shares; nothing is opened"
                    )
        self._survivors = survivors
        body = _bitmap(survivors, self.terms.parties)
        for owner in sorted(survivors | frozenset().union(*lists.values())):
            gone = owner not in survivors
            share = self._share_of(owner, gone)
            body += b"" if share is None else ENTRY.pack(owner, gone, share)
        return body

    def _result(self) -> Opened:
        survivors = self._survivors
        lists = self._lists(survivors)
        own = {(o, o not in survivors): self._share_of(o, o not in survivors) for o in range(self.terms.parties)}
        given: dict[int, dict] = {self.me: own}
        for sender, body in self._got(Kind.UNMASK).items():
            if _listed(body, self.terms.parties) == survivors:  # who counts others as survivors is no help
                given[sender] = {(owner, gone): share for owner, gone, share in self._entries(body)}
        self._enough(len(given), "unmasking shares for the same survivors")
        total, skip = self._masked.copy(), bitmap_bytes(self.terms.parties)
        for j in survivors - {self.me}:
            total += np.frombuffer(self._got(Kind.SUM)[j][skip:], "<u8")
        combiners: dict[tuple[int, ...], Combiner] = {}
        for owner in sorted(survivors):
            seed = self._seed if owner == self.me else self._recover(owner, False, given, combiners)
            total -= expand(seed, self.size)
        for owner in sorted(frozenset().union(*lists.values()) - survivors):
            key = X25519PrivateKey.from_private_bytes(self._recover(owner, True, given, combiners))
            for j in survivors:
                if owner in lists[j]:
                    public = self._key.public_key().public_bytes_raw() if j == self.me else self._public(j)
                    total += self._mask(key, owner, j, public)  # cancels what j added for the pair
        return Opened(self.terms.code.decode(total), total, tuple(sorted(survivors)))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _share(self, words: Words) -> list[SumPart]:
        self._key, self._seed = X25519PrivateKey.generate(), os.urandom(SEED_BYTES)
        self._masked, self._partners, self._survivors = words.copy(), frozenset(), frozenset()
        n, public = (
            self.terms.parties,
            self._key.public_key().public_bytes_raw() + self._commitment(self.me, self._seed),
        )
        keys = share_secret(self._key.private_bytes_raw(), self.threshold, n)
        seeds = share_secret(self._seed, self.threshold, n)
        self._kept = seeds[self.me]
        return [SumPart(Kind.SHARE, j, public + keys[j] + seeds[j]) for j in self.others]

    def _check(self, kind: Kind, sender: int, body: bytes) -> None:
        listed = bitmap_bytes(self.terms.parties)
        if kind is Kind.SHARE:
            self._length(sender, kind, body, SHARE_BODY)
        elif kind is Kind.SUM:
            self._length(sender, kind, body, listed + 8 * self.size)
        else:
            entries, rest = divmod(len(body) - listed, ENTRY.size)
            if rest or entries < 0:
                raise Rejected(f"an UNMASK of party {sender} has {len(body)} bytes: it was truncated")
            owners = [owner for owner, _, _ in self._entries(body)]
            if len(set(owners)) < len(owners):
                raise Rejected(f"an UNMASK of party {sender} brings two shares of one owner")

    def _enough(self, count: int, what: str) -> None:
        if count < self.threshold:
            raise Aborted(
                f"round {self.number}: {what} of {count} parties, fewer than the threshold {self.threshold}; the round "
                "is aborted and nothing is opened"
            )

    def _commitment(self, owner: int, seed: bytes) -> bytes:
        where = struct.pack("<II", self.number, owner)
        return hashlib.sha256(b"coterie self-mask 1" + self.plan + where + seed).digest()

    def _public(self, owner: int) -> bytes:
        return self._got(Kind.SHARE)[owner][:SEED_BYTES]

    def _mask(self, key: X25519PrivateKey, owner: int, other: int, public: bytes) -> Words:
        """What `owner` adds for its pair with `other`; `other` adds the opposite."""
        low, high = min(owner, other), max(owner, other)
        secret = key.exchange(X25519PublicKey.from_public_bytes(public))
        where = struct.pack("<III", self.number, low, high)
        words = expand(derive(secret, self.plan, b"mask", where), self.size)
        return words if owner == low else np.negative(words)

    def _lists(self, survivors: frozenset[int]) -> dict[int, frozenset[int]]:
        """Whose shares each survivor counted in."""
        n, got = self.terms.parties, self._got(Kind.SUM)
        return {self.me: self._partners} | {j: _listed(got[j], n) for j in survivors - {self.me}}

    def _share_of(self, owner: int, of_key: bool) -> bytes | None:
        if owner == self.me:
            return None if of_key else self._kept
        body = self._got(Kind.SHARE).get(owner)
        if body is None:
            return None
        keys, seeds = body[2 * SEED_BYTES :][:SHARE_BYTES], body[2 * SEED_BYTES + SHARE_BYTES :]
        return keys if of_key else seeds

    def _entries(self, body: bytes) -> Iterable[tuple[int, bool, bytes]]:
        for owner, gone, share in ENTRY.iter_unpack(body[bitmap_bytes(self.terms.parties) :]):
            yield owner, bool(gone), share

    def _recover(
        self,
        owner: int,
        of_key: bool,
        given: dict[int, dict],
        combiners: dict[tuple[int, ...], Combiner],
    ) -> bytes:
        found = {i: share for i, shares in given.items() if (share := shares.get((owner, of_key))) is not None}
        self._enough(len(found), f"shares of party {owner}'s {'round key' if of_key else 'self-mask'}")
        holders = tuple(sorted(found)[: self.threshold])
        combiner = combiners.setdefault(holders, Combiner(holders))
        body = self._got(Kind.SHARE).get(owner)
        try:
            secret = combiner.recover({i: found[i] for i in holders})
        except InputError:
            secret = b""
        if body is not None and secret:
            if of_key:
                good = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() == body[:SEED_BYTES]
            else:
                good = self._commitment(owner, secret) == body[SEED_BYTES : 2 * SEED_BYTES]
            secret = secret if good else b""
        if not secret:
            raise Aborted(
                f"round {self.number}: wrong shares of party {owner}: they do not give what it committed to; nothing "
                "is opened"
            )
        return secret


def _bitmap(members: Iterable[int], parties: int) -> bytes:
    return sum(1 << i for i in members).to_bytes(bitmap_bytes(parties), "little")


def _listed(body: bytes, parties: int) -> frozenset[int]:
    bits = int.from_bytes(body[: bitmap_bytes(parties)], "little")
    return frozenset(i for i in range(parties) if bits >> i & 1)
