"""The protocol of `coterie.sums` without cryptography: who signed what, who knows which secret, who was charged.

Parties, an adversary that owns the network and up to c liars, and a random schedule of deliveries, losses, repeats,
time-outs, deaths, restarts and lies. What the coalition can compute is worked out exactly: an honest party's words
y_i are covered by a mask of its own (known from B_i) and by one mask with each honest partner (known from a_i or a_j,
bound to the START that the words answered), so the sums it can open are the closed components of that graph.

`bugs` plants one fault; a planted fault must be found, the protocol as it stands must not fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tests.sums.protocol import Broken, Cert, Committed, Finish, Opened, Promise, Protocol, Set, Slot, Start, Vote

__all__ = ["Broken", "Cert", "Committed", "Finish", "Opened", "Promise", "Set", "Start", "Vote", "World"]


class World(Protocol):
    """The abstract protocol with an adversary, and what that one knows."""

    # -- lies ----------------------------------------------------------------------------------------------------------

    def lie(self) -> None:
        rng, liar = self.rng, self.rng.choice(sorted(self.liars))
        promises, starts = self.pool[Promise], self.pool[Start]
        kind = rng.randrange(6)
        if kind == 0 and promises:
            like = rng.choice(promises)
            vote = rng.choice([None, *self.pool[Set][-3:], *self.pool[Finish][-3:]])
            self.send(Promise(liar, like.round, like.ballot + rng.randrange(2), vote, ()))
        elif kind == 1:
            round_ = rng.choice([s.round for s in starts] or [0])
            ballot = (liar - round_) % self.n + self.n * rng.randrange(2)
            got = [p for p in promises if (p.round, p.ballot) == (round_, ballot)]
            chosen = tuple({p.sender: p for p in rng.sample(got, len(got))}.values())[: self.t]
            frame: object = Start(round_, ballot, self.next_slot(chosen, round_) if ballot else (0, round_), chosen)
            fine, value = self.basis(chosen, round_, ballot) if ballot else (True, None)
            if fine and value:
                frame = Finish(ballot, value, chosen)
            self.some(frame)
        elif kind == 2 and (mine := [s for s in starts if self.leader(s.round, s.ballot) == liar]):
            start = rng.choice(mine)
            slot = self.secret_slot(start.slot)
            can = sorted(i for i in self.roster if i in self.liars or self.words[i, slot])
            if len(can) < self.n - self.d:
                return
            members = sorted(rng.sample(can, rng.randint(self.n - self.d, len(can))))
            hashes = tuple(
                (i, start if i in self.liars or start in self.words[i, slot] else next(iter(self.words[i, slot])))
                for i in members
            )
            self.some(Set(start, frozenset(members), hashes))
        elif kind == 3 and (proposals := self.pool[Set] + self.pool[Finish]):
            frame = rng.choice(proposals[-6:])
            self.send(Vote(liar, frame.value.start.round, frame.ballot, frame.value))
        elif kind == 4 and "on-request" in self.bugs and self.pool[Set]:
            for node in self.nodes.values():
                if node.alive:
                    self.give(node, rng.choice(self.pool[Set]))
        elif kind == 5 and self.pool[Vote]:
            like = rng.choice(self.pool[Vote][-8:])
            got = {v.sender: v for v in self.pool[Vote] if (v.ballot, v.value) == (like.ballot, like.value)}
            self.some(Cert(like.value, tuple(got.values())))

    def some(self, message: object) -> None:
        self.pool[type(message)].append(message)
        self.net += [(j, message) for j in self.nodes if self.rng.random() < 0.6]

    # -- what the coalition knows --------------------------------------------------------------------------------------

    def known(self, slot: Slot, owner: int) -> tuple[bool, int | None]:
        """Whether a_owner is out, and the lowest B_{owner,k} that is."""
        ours = len(self.liars & self.roster) if self.liars else self.c
        out = {
            what: len(givers) + ours >= self.t
            for (g, o, what), givers in self.shares.items()
            if (g, o) == (slot, owner)
        }
        levels = [k for k, there in out.items() if there and k != "a"]
        return out.get("a", False), min(levels, default=None)

    def check(self) -> None:
        final: dict[int, Set] = {}
        for cert in self.pool[Cert]:
            if (
                len({v.sender for v in cert.votes}) >= self.t
                and final.setdefault(cert.value.start.round, cert.value) is not cert.value
                and not {"per-slot", "give-any"} & self.bugs
            ):
                raise Broken(f"two sets of round {cert.value.start.round} are final")
        for slot in {g for _, g in self.words} | {g for g, _, _ in self.shares}:
            state = {i: self.known(slot, i) for i in self.nodes if i in self.roster}
            for i, (a, b) in state.items():
                if a and b is not None:
                    raise Broken(f"both secrets of party {i} in slot {slot} are out")
                if len(self.words[i, slot]) > 1:
                    raise Broken(f"party {i} masked two vectors with slot {slot}: their difference is out")
            for i in state:
                for start in self.words[i, slot]:
                    component = self.component(slot, i, start, state)
                    if component:
                        self.record(slot, start, component, state)

    def component(self, slot: Slot, i: int, start: Start, state: dict) -> frozenset[int] | None:
        """The honest parties whose words open together with those of i, or None if they stay covered."""
        reached, todo = {i}, [i]
        while todo:
            j = todo.pop()
            a, b = state[j]
            if b is None or not self.words[j, slot]:
                return None
            if "unbound" not in self.bugs and start not in self.words[j, slot]:
                return None
            partners = set() if a else {k for k in state if not state[k][0]} - reached
            reached |= partners
            todo += partners
        return frozenset(reached)

    def record(self, slot: Slot, start: Start, members: frozenset[int], state: dict) -> None:
        used = {s for i in members for s in self.words[i, slot]}
        for round_ in {s.round for s in used}:
            self.opened[round_].add(frozenset({(slot, members)}))
            if len(self.opened[round_]) > 1:
                raise Broken(f"round {round_} was charged once and two sums are open: {self.opened[round_]}")
            for i in members:
                if round_ not in self.nodes[i].charged:
                    raise Broken(f"party {i} is in the opened sum of round {round_} and was not charged")
        left = sum(Fraction(1, self.n - self.c - self.levels[state[i][1]]) for i in members)
        if left < 1:
            raise Broken(f"{left} σ² of honest noise is left in slot {slot}")

    # -- scripts -------------------------------------------------------------------------------------------------------

    def hear(self, kind: type, to: Iterable[int] | None = None, drop: bool = False) -> None:
        """Deliver what is under way of one kind to these parties; the rest waits, or is lost."""
        now = [(j, m) for j, m in self.net if isinstance(m, kind) and (to is None or j in to)]
        gone = {id(m) for _, m in self.net if isinstance(m, kind)} if drop else {id(m) for _, m in now}
        self.net = [(j, m) for j, m in self.net if id(m) not in gone or ((j, m) not in now and not drop)]
        for j, message in now:
            self.receive(j, message)

    def claim(self, ballot: int, who: Iterable[int]) -> None:
        """These parties' deadlines pass, up to this ballot."""
        for i in who:
            if i in self.nodes and self.nodes[i].alive:
                self.promise(self.nodes[i], ballot)

    # -- schedules -----------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """A random schedule; then the network turns quiet and the round must open."""
        rng = self.rng
        loss, split = rng.choice([0.0, 0.1, 0.4]), frozenset(rng.sample(range(self.n), self.n // 2))
        cut = rng.random() < 0.3
        starved = {(kind, i) for kind in (Cert, Opened, Set, Start) for i in self.nodes if rng.random() < 0.5}
        starved = starved if rng.random() < 0.5 else set()
        for k in range(steps):
            roll = rng.random()
            if self.liars and roll < 0.15:
                self.lie()
            elif roll < 0.2:
                self.timeout(self.nodes[rng.choice(list(self.nodes))], step=rng.random() < 0.3)
            elif roll < 0.22:
                node = self.nodes[rng.choice(list(self.nodes))]
                if node.alive:
                    node.alive = False
                else:
                    self.restart(node)
            elif self.net:
                to, message = self.net.pop(rng.randrange(len(self.net)))
                sender = getattr(message, "sender", None)
                parted = cut and k < steps // 2 and sender is not None and (sender in split) != (to in split)
                if parted or rng.random() >= (0.95 if (type(message), to) in starved else loss):
                    self.net += [(to, message)] * (parted or rng.random() < 0.05)
                    if not parted:
                        self.receive(to, message)
            if k % 10 == 0:
                self.check()
        self.check()
        self.quiet()

    def quiet(self) -> None:
        for node in self.nodes.values():
            if not node.alive and self.rng.random() < 0.7:
                self.restart(node)
        live = [node for node in self.nodes.values() if node.alive]
        if len({node.me for node in live} & self.roster) < max(self.t, self.n - self.d):
            return
        goal = max(node.round for node in live) + 1
        for _ in range(6 * self.n):
            for _ in range(8):  # everything arrives before the next deadline; close ballots when it has
                waiting, self.net = self.net, []
                for to, message in waiting:
                    self.receive(to, message)
                for node in live:
                    self.timeout(node, step=False)
            if all(node.round >= goal for node in live) or self.named:
                break
            for node in live:
                for done in node.done.values():
                    self.send(done)
            for node in [x for x in live if x.promise == min(y.promise for y in live if y.round == x.round)]:
                self.timeout(node)  # deadlines grow from ballot to ballot: who is behind catches up
        else:
            raise Broken("the network is quiet, enough parties live, and the round does not open")
        self.check()
