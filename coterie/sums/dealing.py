"""Batches: secrets dealt ahead, and agreement on who holds them.

Dealing needs no data. Per batch every party announces a fresh key (KEYS), publishes X_i, C_i and the roots over its
shares (DEAL), seals every holder's shares (ENVELOPE) and says whose deals it has stored, by name (HELD). The ROSTER,
agreed like any value, names the members and their DEALs, with the members' signed HELDs in it: otherwise a lying owner
could show different keys to different parties. The batch key is erased as soon as the roster stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coterie.sums.agreement import Agreeing
from coterie.sums.core import Missing, Outgoing
from coterie.sums.messages import HASH, NONE, BadSumFrame, Deal, Roster, Step, SumFrame, pieces
from coterie.sums.secrets import Context, SlotSecrets, agrees, leaves_of, open_envelope, root_of, seal_envelope
from coterie.sums.store import Key
from coterie.sums.terms import ROSTER_BIT

__all__ = ["NO_SLOT", "Dealing"]

NO_SLOT = 2**32 - 1
DEALING = (Step.KEYS, Step.DEAL, Step.ENVELOPE, Step.HELD)


class Dealing(Agreeing):
    """The part of a party that deals and holds secrets."""

    _deals: dict[int, SumFrame]
    _envelopes: dict[int, SumFrame]
    _said_held: bool
    _rosters: dict[int, Roster]

    @property
    def batch(self) -> int:
        """The last batch that was agreed on, or −1."""
        found = self.row(("batch",), int)
        return -1 if found is None else found

    @property
    def coming(self) -> int:
        """The batch after the last one agreed on."""
        return self.batch + 1

    def roster(self, batch: int) -> Roster:
        """The agreed roster of a batch."""
        known = self._rosters.get(batch)
        if known is None:
            frame = self.row(("roster", batch), SumFrame)
            assert frame is not None
            known = Roster.read(frame.body, self.terms)
            self._rosters = {batch: known}  # one: it holds everybody's HELD
        return known

    def members(self) -> tuple[int, ...]:
        """Who takes part in the batch under way."""
        return self.roster(self.batch).members

    def deal_of(self, batch: int, owner: int) -> Deal:
        """What a member published for a batch."""
        frame = self.row(("deal", batch, owner), SumFrame)
        assert frame is not None
        return Deal.read(frame.body, self.terms)

    def context(self, slot: int) -> Context:
        """The context of a slot's secrets."""
        return Context(self.terms.plan, slot)

    # -- KEYS, DEAL, ENVELOPE, HELD ------------------------------------------------------------------------------------

    def begin_batch(self) -> None:
        """Announce a fresh key for the batch that is needed, if one is."""
        instance = ROSTER_BIT | self.coming
        if self.coming * self.terms.rounds < self.terms.last and self.own(Step.KEYS, instance, 0, NO_SLOT) is None:
            key = X25519PrivateKey.generate()
            frame = self.frame(Step.KEYS, instance, 0, NO_SLOT, key.public_key().public_bytes_raw())
            self.commit({("batch key", self.coming): key.private_bytes_raw()}, self.to_all(frame))

    def on_keys(self, frame: SumFrame) -> None:
        """Note a batch key; deal when all are here."""
        if len(frame.body) != 32 or not agrees(frame.body):
            raise BadSumFrame("a batch key is not a valid key")
        key: Key = ("keys", self.coming, frame.sender)
        if self.store.get(key) is None:
            self.commit({key: frame})
        self.begin_batch()
        if self.own(Step.DEAL, frame.round, 0, NO_SLOT):
            self.send_envelope(frame.sender)
        elif len(self.keys_heard()) == self.terms.parties:
            self.deal()

    def keys_heard(self) -> dict[int, SumFrame]:
        """Batch keys by party."""
        found = {j: self.row(("keys", self.coming, j), SumFrame) for j in self.everybody}
        return {j: frame for j, frame in found.items() if frame is not None}

    def deal(self) -> None:
        """Draw the secrets of all slots, store them with everybody's shares, and publish what is public."""
        terms, batch, instance = self.terms, self.coming, self.instance
        if self.own(Step.DEAL, instance, 0, NO_SLOT) or self.me not in self.keys_heard():
            return
        puts: dict[Key, object] = {}
        shares: list[list[bytes]] = [[] for _ in self.everybody]
        public = []
        for index in range(terms.slots):
            where, drawn = self.context(batch << 16 | index), SlotSecrets.fresh()
            puts["secret", where.slot] = drawn
            public.append(drawn.public(where, self.me, terms.layers.last))
            dealt = drawn.shares(where, self.me, terms.layers.last, terms.threshold, terms.parties)
            for holder, row in enumerate(dealt):
                shares[holder] += row
        roots = [root_of(terms.plan, batch, self.me, j, row) for j, row in enumerate(shares)]
        keys = self.own(Step.KEYS, instance, 0, NO_SLOT)
        assert keys is not None
        frame = self.frame(Step.DEAL, instance, 0, NO_SLOT, Deal(keys.digest, tuple(public), tuple(roots)).pack())
        puts |= {("undealt", batch, j): tuple(row) for j, row in enumerate(shares)}
        self.commit(puts, self.to_all(frame))
        for j in self.keys_heard():
            self.send_envelope(j)

    def send_envelope(self, j: int) -> None:
        """Seal a holder's shares, once."""
        batch, instance = self.coming, self.instance
        made = self.own(Step.ENVELOPE, instance, j, NO_SLOT)
        shares, key = self.row(("undealt", batch, j), tuple), self.row(("batch key", batch), bytes)
        theirs = self.keys_heard().get(j)
        if made is None and (shares is None or key is None or theirs is None):
            return
        if made is not None:
            self.pass_on(made, j)  # asked for again: it is stored
        else:
            assert shares is not None and key is not None and theirs is not None  # noqa: PT018
            mine = (self.sealing, X25519PrivateKey.from_private_bytes(key))
            sealed = seal_envelope(
                self.terms.plan, batch, (self.me, j), mine, (self.terms.sealing[j], theirs.body), shares
            )
            self.commit(send=[(j, self.frame(Step.ENVELOPE, instance, j, NO_SLOT, sealed))])

    def on_deal(self, frame: SumFrame) -> None:
        """Note what an owner published."""
        deal = Deal.read(frame.body, self.terms)
        keys = self.keys_heard().get(frame.sender)
        if keys is None:
            raise Missing(deal.keys)
        if keys.digest != deal.keys:
            raise BadSumFrame("a deal under another key")
        self._deals.setdefault(frame.sender, frame)
        self.hold(frame.sender)

    def on_envelope(self, frame: SumFrame) -> None:
        """Note sealed shares."""
        self._envelopes.setdefault(frame.sender, frame)
        self.hold(frame.sender)

    def hold(self, owner: int) -> None:
        """Store an owner's shares once its deal and envelope are here and fit."""
        terms, batch = self.terms, self.coming
        deal, sealed = self._deals.get(owner), self._envelopes.get(owner)
        keys, key = self.keys_heard().get(owner), self.row(("batch key", batch), bytes)
        if self.store.get(("deal", batch, owner)) or not (deal and sealed and keys and key):
            return
        mine = (self.sealing, X25519PrivateKey.from_private_bytes(key))
        shares = open_envelope(
            terms.plan, batch, (owner, self.me), mine, (terms.sealing[owner], keys.body), sealed.body
        )
        public = Deal.read(deal.body, terms)
        if shares is None or len(shares) != terms.slots * terms.kinds:
            return
        if root_of(terms.plan, batch, owner, self.me, shares) != public.roots[self.me]:
            return
        if not all(agrees(slot[:32]) for slot in public.public):
            return  # with such a key nobody could make a mask
        puts: dict[Key, object] = {("deal", batch, owner): deal, ("frame", deal.digest.hex()): deal}
        for index in range(terms.slots):
            row = shares[index * terms.kinds : (index + 1) * terms.kinds]
            puts["shares", batch << 16 | index, owner] = tuple(row)
        puts["leaves", batch, owner] = tuple(leaves_of(terms.plan, batch, owner, self.me, shares))
        self.commit(puts)
        if len(self.deals_held()) == terms.parties or self._said_held:
            self.say_held()

    def deals_held(self) -> dict[int, SumFrame]:
        """Deals that are stored here with their shares."""
        found = {j: self.row(("deal", self.coming, j), SumFrame) for j in self.everybody}
        return {j: frame for j, frame in found.items() if frame is not None}

    def say_held(self) -> None:
        """Tell everybody whose deals are stored here, by name."""
        held = self.deals_held()
        body = b"".join(held[j].digest if j in held else NONE for j in self.everybody)
        known = self.row(("held count", self.coming), int) or 0
        last = self.own(Step.HELD, self.instance, known, NO_SLOT)
        if last is None or last.body != body:
            self._said_held = True
            frame = self.frame(Step.HELD, self.instance, known + 1, NO_SLOT, body)
            self.commit({("held count", self.coming): known + 1}, self.to_all(frame))

    def on_held(self, frame: SumFrame) -> None:
        """Note whose deals someone holds; propose when everybody holds all."""
        pieces(frame.body, HASH, self.terms.parties)
        if frame.ballot > self.terms.parties + 1:  # each names more deals than the one before
            raise BadSumFrame(f"says for the {frame.ballot}th time what it holds")
        key: Key = ("held by", self.coming, frame.sender)
        last = self.row(key, SumFrame)
        if last is None or last.ballot < frame.ballot:
            self.commit({key: frame})
        if self.promised() == 0 and self.terms.leader(self.instance, 0) == self.me:
            members, _ = self.best_roster()
            if len(members) == self.terms.parties:
                self.propose_roster(0, ())

    # -- the roster ----------------------------------------------------------------------------------------------------

    def best_roster(self) -> tuple[tuple[int, ...], list[SumFrame]]:
        """The members of whom everyone holds everyone's deal, by what was heard; and their HELDs."""
        frames = {j: self.row(("held by", self.coming, j), SumFrame) for j in self.everybody}
        held = {j: pieces(f.body, HASH, self.terms.parties) for j, f in frames.items() if f is not None}
        if self.me not in held:
            return (), []
        members = {j for j in held if held[self.me][j] != NONE}
        while True:
            wrong = {
                j: sum(held[j][i] != held[self.me][i] or held[i][j] != held[self.me][j] for i in members)
                for j in members
            }
            if not any(wrong.values()):
                break
            members.discard(max(wrong, key=lambda j: (wrong[j], j)))
        chosen = tuple(sorted(members))
        return chosen, [frame for j in chosen if (frame := frames[j]) is not None]

    def propose_roster(self, ballot: int, promises: Sequence[SumFrame]) -> None:
        """Propose the largest roster that the HELDs allow."""
        members, helds = self.best_roster()
        if len(members) < self.terms.least or self.store.get(("proposal", self.instance, ballot)):
            return
        names = pieces(helds[members.index(self.me)].body, HASH, self.terms.parties) if self.me in members else None
        if names is None:
            names = pieces(helds[0].body, HASH, self.terms.parties)
        body = Roster(
            self.coming * self.terms.rounds, members, tuple(names[j] for j in members), (*helds, *promises)
        ).pack(self.terms)
        self.propose(self.frame(Step.ROSTER, self.instance, ballot, NO_SLOT, body))

    def check_roster(self, frame: SumFrame) -> bool:
        """Whether every member of a proposed roster says that it holds every member's deal."""
        roster = Roster.read(frame.body, self.terms)
        helds = {f.sender: f for f in roster.promises if f.kind is Step.HELD and f.round == frame.round}
        if len(roster.members) < self.terms.least or set(helds) != set(roster.members) or frame.slot != NO_SLOT:
            return False
        if roster.first != (frame.round & ~ROSTER_BIT) * self.terms.rounds or NONE in roster.deals:
            return False
        wanted = dict(zip(roster.members, roster.deals, strict=True))
        for held in helds.values():
            listed = pieces(held.body, HASH, self.terms.parties)
            if any(listed[j] != name for j, name in wanted.items()):
                return False
        return True

    def adopt_roster(self, value: SumFrame, cert: SumFrame) -> None:
        """The batch is agreed: keep what it needs, erase the rest."""
        batch, roster = self.coming, Roster.read(value.body, self.terms)
        deals = {j: self.known(name) for j, name in zip(roster.members, roster.deals, strict=True)}
        puts: dict[Key, object] = {
            ("final", value.round): value.digest,
            ("cert", value.round): cert,
            ("roster", batch): value,
            ("batch",): batch,
            ("frame", cert.digest.hex()): cert,
            ("frame", value.digest.hex()): value,
        }
        erase: list[Key] = [("batch key", batch)]
        erase += [("undealt", batch, j) for j in self.everybody]
        if batch:
            erase += [
                key for kind in ("secret", "shares") for key in self.store.keys(kind) if int(key[1]) >> 16 < batch
            ]
            erase += [key for key in self.store.keys("leaves") if int(key[1]) < batch]
        for j in self.everybody:
            held = self.row(("deal", batch, j), SumFrame)
            if j not in deals or (held is not None and held.digest != deals[j].digest):
                erase += [("shares", batch << 16 | k, j) for k in range(self.terms.slots)]
                erase += [("leaves", batch, j), *([("deal", batch, j)] if j in deals else [])]
        if self.me not in roster.members:
            erase += [("secret", batch << 16 | k) for k in range(self.terms.slots)]
        puts |= {("deal", batch, j): frame for j, frame in deals.items()}
        puts |= {("frame", frame.digest.hex()): frame for frame in deals.values()}  # for those who are later still
        self.commit(puts, erase=erase)
        self._deals, self._envelopes, self._said_held = {}, {}, False

    def tick_dealing(self) -> None:
        """Deal without the keys that did not come, then say what is held, then propose with what is there."""
        waited, step = self.now - self.entered, self.terms.deadline(self.promised()) / 8
        if waited >= step and len(self.keys_heard()) >= self.terms.least:
            self.deal()
        if waited >= 2 * step and self.own(Step.DEAL, self.instance, 0, NO_SLOT):
            self.say_held()
        if waited >= 3 * step and self.promised() == 0 and self.terms.leader(self.instance, 0) == self.me:
            self.propose_roster(0, ())

    def promise(self, ballot: int) -> None:
        """As ever; while secrets are dealt, what a party said leaves once more with every ballot: it may be lost."""
        before = self.promised()
        super().promise(ballot)
        if self.instance & ROSTER_BIT and self.promised() > before:
            for j in self.everybody:
                for to, frame in self.frames_for(self.instance, j):
                    if frame.kind in DEALING and to != self.me:
                        self.pass_on(frame, to)

    def frames_for(self, instance: int, whom: int) -> list[Outgoing]:
        """Own frames of an instance that were meant for this party: they leave again, the same bytes."""
        found = []
        for key in self.store.keys("to"):
            if key[2] == instance and key[-1] == whom:
                frame = self.row(("own", *key[1:-1]), SumFrame)
                if frame is not None:
                    found.append((whom, frame))
        return found
