"""The abstract protocol: frames, the rules that make them valid, and what an honest party does with them."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache

from coterie.sums.noise import default_levels

Slot = tuple[int, int]  # (0, round): the slot of a round's first attempt; (1, k): the k-th spare


@dataclass(frozen=True, eq=False)
class Start:
    round: int
    ballot: int
    slot: Slot
    promises: tuple[Promise, ...]


@dataclass(frozen=True, eq=False)
class Set:
    start: Start
    members: frozenset[int]
    hashes: tuple[tuple[int, Start | None], ...]  # to which START each member's committed words belong

    @property
    def ballot(self) -> int:
        return self.start.ballot

    @property
    def value(self) -> Set:
        return self


@dataclass(frozen=True, eq=False)
class Finish:
    ballot: int
    value: Set
    promises: tuple[Promise, ...]


Proposal = Set | Finish


@dataclass(frozen=True, eq=False)
class Promise:
    sender: int
    round: int
    ballot: int
    vote: Proposal | None
    used: tuple[Start, ...]


@dataclass(frozen=True)
class Vote:
    sender: int
    round: int
    ballot: int
    value: Set


@dataclass(frozen=True, eq=False)
class Cert:
    value: Set
    votes: tuple[Vote, ...]


@dataclass(frozen=True)
class Opened:
    cert: Cert


@dataclass(frozen=True)
class Committed:
    sender: int
    start: Start


@dataclass
class Node:
    """What an honest party has stored, and (volatile) what it has heard."""

    me: int
    alive: bool = True
    round: int = 0
    promise: int = 0
    vote: Proposal | None = None
    voted: dict[tuple[int, int], Set] = field(default_factory=dict)
    used: dict[Slot, Start] = field(default_factory=dict)
    charged: set[int] = field(default_factory=set)
    cert: Cert | None = None
    given: dict[Slot, Set] = field(default_factory=dict)
    erased: set[Slot] = field(default_factory=set)
    proposed: dict[tuple[int, int], object] = field(default_factory=dict)
    done: dict[int, Opened] = field(default_factory=dict)
    promises: dict[tuple[int, int], dict[int, Promise]] = field(default_factory=lambda: defaultdict(dict))
    commits: dict[Start, set[int]] = field(default_factory=lambda: defaultdict(set))
    votes: dict[tuple[int, Set], dict[int, Vote]] = field(default_factory=lambda: defaultdict(dict))

    def forget(self) -> None:
        self.promises, self.commits, self.votes = defaultdict(dict), defaultdict(set), defaultdict(dict)


class Broken(Exception):
    """An invariant does not hold; the text says what the coalition learned."""


class Protocol:
    """Honest parties on a network; `bugs` plants faults in them."""

    def __init__(
        self, n: int, c: int, seed: int = 0, bugs: str = "", lies: bool = True, liars: frozenset[int] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.n, self.c, self.bugs = n, c, frozenset(bugs.split())
        self.t = n // 2 + 1 if "small-quorum" in self.bugs else (n + c) // 2 + 1
        self.d = n - (n + c) // 2 - 1
        self.levels = default_levels(self.d)
        chosen = frozenset(self.rng.sample(range(n), c)) if lies else frozenset()
        self.liars = chosen if liars is None else liars
        keep = self.rng.randint(n - self.d, n) if liars is None and self.rng.random() < 0.3 else n
        self.roster = frozenset(self.rng.sample(range(n), keep))
        self.nodes = {i: Node(i) for i in range(n) if i not in self.liars}
        self.net: list[tuple[int, object]] = []
        self.pool: dict[type, list] = defaultdict(list)  # everything that was ever on a wire
        self.words: dict[tuple[int, Slot], set[Start]] = defaultdict(set)
        self.shares: dict[tuple[Slot, int, object], set[int]] = defaultdict(set)  # (slot, owner, "a" or level): givers
        self.opened: dict[int, set[frozenset]] = defaultdict(set)
        self.named = False
        self.valid = lru_cache(maxsize=None)(self._valid)
        for node in self.nodes.values():
            self.lead(node, 0)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def leader(self, round_: int, ballot: int) -> int:
        return (round_ + ballot) % self.n

    def basis(self, promises: tuple[Promise, ...], round_: int, ballot: int) -> tuple[bool, Set | None]:
        """Whether these promises allow a proposal, and the value that it must then have (None: fresh)."""
        mine = [p for p in promises if (p.round, p.ballot) == (round_, ballot)]
        if len({p.sender for p in mine}) < self.t or len(mine) < len(promises):
            return False, None
        reported = [p.vote for p in mine if p.vote and p.vote.ballot < ballot and self.valid(p.vote)]
        reported = [v for v in reported if v.value.start.round == round_]
        if not reported or "never-adopt" in self.bugs:
            return True, None
        top = max(v.ballot for v in reported)
        values = {v.value for v in reported if v.ballot == top}
        if len(values) > 1:
            self.named = True  # both are signed by one leader
            return False, None
        return True, values.pop()

    def next_slot(self, promises: tuple[Promise, ...], round_: int) -> Slot:
        starts = [s for p in promises for s in p.used if self.valid(s)]
        spares = [s.slot[1] for s in starts if s.slot[0] == 1]
        if not spares and not any(s.slot == (0, round_) for s in starts):
            return (0, round_)
        return (1, max(spares, default=-1) + 1)

    def _valid(self, frame: Start | Set | Finish) -> bool:
        if isinstance(frame, Start):
            if frame.ballot == 0:
                return frame.slot == (0, frame.round) or "no-slot-rule" in self.bugs
            fine, value = self.basis(frame.promises, frame.round, frame.ballot)
            due = "no-slot-rule" in self.bugs or frame.slot == self.next_slot(frame.promises, frame.round)
            return fine and value is None and due
        if isinstance(frame, Set):
            fits = self.n - self.d <= len(frame.members) and frame.members <= self.roster
            # every member's COMMIT to that START is in the frame, signed; a liar signs what it likes
            signed = "no-slot-rule" in self.bugs or all(
                start is frame.start and (i in self.liars or start in self.words[i, self.secret_slot(start.slot)])
                for i, start in frame.hashes
            )
            return fits and signed and frame.members == {i for i, _ in frame.hashes} and self.valid(frame.start)
        fine, value = self.basis(frame.promises, frame.value.start.round, frame.ballot)
        return fine and value is frame.value and self.valid(frame.value)

    def bound(self, node: Node) -> bool:
        """A party that saw a set become final has done with the round: it gives shares for that set and no other."""
        return node.cert is not None and not {"per-slot", "give-any"} & self.bugs

    # -- honest parties ------------------------------------------------------------------------------------------------

    def send(self, message: object, to: int | None = None) -> None:
        self.pool[type(message)].append(message)
        self.net += [(j, message) for j in self.nodes if to is None or j == to]

    def lead(self, node: Node, ballot: int) -> None:
        key = (node.round, ballot)
        if self.leader(*key) != node.me or key in node.proposed or self.bound(node):
            return
        if ballot == 0:
            frame: object = Start(node.round, 0, (0, node.round), ())
        else:
            promises = tuple(node.promises[key].values())
            fine, value = self.basis(promises, *key)
            if not fine or node.promise > ballot:
                return
            if value is None:
                frame = Start(*key, self.next_slot(promises, node.round), promises)
            else:
                frame = Finish(ballot, value, promises)
        node.proposed[key] = frame
        self.send(frame)

    def receive(self, i: int, message: object) -> None:
        node = self.nodes[i]
        if not node.alive:
            return
        match message:
            case Start():
                self.answer(node, message)
            case Committed(sender, start):
                node.commits[start].add(sender)
                if len(node.commits[start]) == len(self.roster):
                    self.choose(node, start)
            case Set() | Finish():
                self.vote(node, message)
            case Promise() if message.round == node.round:
                if node.cert:
                    self.send(node.cert, message.sender)
                node.promises[message.round, message.ballot][message.sender] = message
                ahead: dict[int, int] = {}
                for (_, ballot), got in node.promises.items():
                    ahead |= {i: max(ballot, ahead.get(i, 0)) for i in got}
                if len(ahead) > self.c:  # one of c + 1 is honest, and its clock went there
                    self.promise(node, sorted(ahead.values(), reverse=True)[self.c])
                if len(node.promises[message.round, message.ballot]) == self.n:
                    self.lead(node, message.ballot)
            case Promise() if message.round in node.done:
                self.send(node.done[message.round], message.sender)
            case Vote():
                got = node.votes[message.ballot, message.value]
                got[message.sender] = message
                if len(got) == self.t and message.round == node.round:
                    self.send(Cert(message.value, tuple(got.values())))
            case Cert():
                self.give(node, message)
            case Opened(cert) if cert.value.start.round == node.round:
                node.done[node.round] = message
                self.settle(node, cert.value.start.slot)
                node.round, node.promise, node.vote, node.cert = node.round + 1, 0, None, None
                node.forget()
                self.lead(node, 0)

    def answer(self, node: Node, start: Start) -> None:
        slot = self.secret_slot(start.slot)
        ours = [s for s in node.used.values() if (s.round, s.ballot) == (start.round, start.ballot)]
        if start.round != node.round or start.ballot < node.promise or self.bound(node) or not self.valid(start):
            return
        if node.me not in self.roster or (ours and "mask-twice" not in self.bugs):
            return
        if start.ballot and "erase-early" in self.bugs:
            node.erased |= set(node.used)
        spares = [s[1] for s in node.used if s[0] == 1]
        stale = slot in node.used or slot in node.given or (slot[0] == 1 and slot[1] <= max(spares, default=-1))
        if stale and not {"mask-twice", "one-slot"} & self.bugs:
            return
        node.used[slot] = start
        if "charge-late" not in self.bugs:
            node.charged.add(node.round)
        self.words[node.me, slot].add(start)
        self.promise(node, start.ballot, quiet=True)
        self.send(Committed(node.me, start), self.leader(start.round, start.ballot))

    def secret_slot(self, slot: Slot) -> Slot:
        return (0, 0) if "one-slot" in self.bugs else slot

    def choose(self, node: Node, start: Start) -> None:
        key = (start.round, start.ballot, "set")
        got = node.commits[start] & self.roster
        if node.round != start.round or len(got) < self.n - self.d or key in node.proposed:
            return
        if node.promise > start.ballot or node.proposed.get(key[:2]) is not start:
            return
        frame = Set(start, frozenset(got), tuple((i, start) for i in sorted(got)))
        node.proposed[key] = frame
        self.send(frame)

    def vote(self, node: Node, proposal: Proposal) -> None:
        value, start = proposal.value, proposal.value.start
        key = (start.round, proposal.ballot)
        if start.round != node.round or proposal.ballot < node.promise or self.bound(node) or not self.valid(proposal):
            return
        if key in node.voted and (node.voted[key] is not value or node.vote is None) and "vote-twice" not in self.bugs:
            return
        earlier = any(v.start.slot == start.slot and r != start.round for (r, _), v in node.voted.items())
        if earlier and "no-slot-rule" not in self.bugs:
            return
        if "vote-unstored" not in self.bugs:
            node.voted[key], node.vote = value, proposal
            self.promise(node, proposal.ballot, quiet=True)
        if "charge-late" in self.bugs:
            node.charged.add(node.round)
        self.send(Vote(node.me, *key, value), self.leader(*key))

    def promise(self, node: Node, ballot: int, quiet: bool = False) -> None:
        if ballot <= node.promise:
            return
        node.promise = ballot
        if not quiet:
            used = tuple(s for s in node.used.values() if s.slot[0] == 1 or s.round == node.round)
            self.send(Promise(node.me, node.round, ballot, node.vote, used))

    def give(self, node: Node, cert: Cert | Set) -> None:
        if isinstance(cert, Cert):
            voters = {v.sender for v in cert.votes if v.value is cert.value and v.ballot == cert.votes[0].ballot}
            if cert.value.start.round != node.round or len(voters) < self.t:
                return
            if self.bound(node) and node.cert is not None and node.cert.value is not cert.value:
                return
            node.cert, value = cert, cert.value
        else:
            value = cert  # on request: a planted fault
        slot = self.secret_slot(value.start.slot)
        if slot in node.erased or node.me not in self.roster:
            return
        if node.given.get(slot, value) is not value and not {"on-request", "one-slot", "give-any"} & self.bugs:
            return
        node.given[slot] = value
        count = len(value.members)
        if "own-count" in self.bugs and self.rng.random() < 0.5:
            count = min(self.n, count + 1)  # late words that this party happens to know of
        level = next(k for k, l in enumerate(self.levels) if l >= self.n - count)
        for owner in self.roster:
            self.shares[slot, owner, level if owner in value.members else "a"].add(node.me)
        if node.cert and len({i for i in self.nodes if self.nodes[i].given.get(slot) is value}) >= self.t:
            self.send(Opened(node.cert))

    def settle(self, node: Node, slot: Slot) -> None:
        if "no-slot-rule" in self.bugs:
            node.erased.add(slot)
            return
        spares = max([slot[1]] if slot[0] else [-1])
        node.erased |= {s for s in node.used if s[0] == 1 or s[1] <= node.round}
        node.erased |= {(0, r) for r in range(node.round + 1)} | {(1, k) for k in range(spares + 1)}

    # -- time and death ---------------------------------------------------------------------------------------------

    def timeout(self, node: Node, step: bool = True) -> None:
        """A deadline passed: close what this party leads, then go to the next ballot."""
        for start in list(node.commits):
            self.choose(node, start)
        for round_, ballot in list(node.promises):
            if round_ == node.round and len(node.promises[round_, ballot]) >= self.t:
                self.lead(node, ballot)
        if node.cert:
            self.send(node.cert)
            self.give(node, node.cert)
        if step and not self.bound(node):
            self.promise(node, node.promise + 1)

    def restart(self, node: Node) -> None:
        node.alive = True
        node.forget()
        if "mask-twice" in self.bugs:
            for start in list(node.used.values()):
                if start.round == node.round:
                    self.words[node.me, start.slot].add(Start(start.round, start.ballot, start.slot, ()))
        for key, frame in node.proposed.items():
            if key[0] == node.round:
                self.send(frame)
