"""Secret sums with shared noise: bytes, processor time and seconds of a round, beside a broadcast in the same run.

    python -m benchmarks.shared [--parties 5 10 20 100] [--dimension 142] [--processes 5 10 20] [--flower [PYTHON]]

The first table is the real protocol of all parties in one process, with all that is dealt for a batch of rounds.
*Originated* are the bytes of the frames that a party makes, one for many counted once, in the mean of all parties and
rounds (a leader's part is spread over all, since everybody leads in turn), against what `bytes_per_round` says and
against 24 d + 200 N. *Sent* is what leaves a party on its connections, own and others', where packets take the shortest
way and a packet for many crosses an edge once. "Hub" is the middle of a star. Processor time is that of one party in a
round, ledgers in memory and without a network; the broadcast beside it signs d numbers, and checks and adds up what
neighbours on the same graph sent.

With `--processes` the same as deployed parties over mutual TLS on a ring, with ledgers, against the same plan without
secret sums. `--flower` runs Flower's SecAgg+ after it, server and clients in one process, in an environment that has
flwr or in one that it makes as `benchmarks.peers` does; if that does not succeed it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl.signing import VerifyKey

from benchmarks.peers import CACHE, environment
from coterie.cli import main as command
from coterie.deploy import process, sum_agent
from coterie.deploy.frames import Wire, open_frame, seal
from coterie.deploy.party import Records
from coterie.deploy.sharing import ATTEMPTS
from coterie.deploy.trial import Site, free_ports, sign_trial, start_agent
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.sums import SumTerms, bytes_per_round
from coterie.graphs import make_graph
from coterie.plan import validate
from coterie.sums.core import Outgoing
from coterie.sums.messages import SumFrame
from coterie.sums.noise import Layers
from coterie.sums.party import SumParty
from coterie.sums.store import MemoryStore
from coterie.sums.terms import BATCH, SharedTerms, spares_for
from coterie.sums.words import Code

HONEST = {5: 4, 10: 8, 20: 11, 100: 51}  # beyond these: a little more than half
PACKET = 20  # bytes around a payload on a connection, beside a bit per party
FEW, SOME = 20, 4  # beyond so many parties only so many rounds are run; what is dealt for a batch is spread as ever
LATER = 4  # one round in so many is left out of times: connections, compilation
SPARSE = {100: (100, 22, 33)}  # SecAgg+ with 32 neighbours: against c = D = 10, where ours has c = 49
GRAPHS: dict[str, dict[str, Any]] = {"ring": {}, "regular": {"degree": 4}, "star": {}}


def sum_terms(parties: int) -> SumTerms:
    """How many are honest, and the fewest that may answer then."""
    honest = HONEST.get(parties, parties // 2 + 1)
    return SumTerms(FixedPoint(parties), honest, (2 * parties - honest) // 2 + 1, shared=True)


def neighbours_of(kind: str, parties: int) -> tuple[tuple[int, ...], ...]:
    """Who is connected to whom."""
    graph = make_graph(kind, parties, seed=0, **GRAPHS[kind])
    return tuple(tuple(int(j) for j in graph.neighbours(i)) for i in range(parties))


# ---- all parties in one process --------------------------------------------------------------------------------------


class Town:
    """All parties in one process; what arrives is handled in the order in which it was sent, and nothing is lost."""

    def __init__(self, parties: int, size: int):
        terms = sum_terms(parties)
        layers = Layers(parties, terms.colluders, terms.levels, Fraction(1 << 24))
        self.signing = [Ed25519PrivateKey.generate() for _ in range(parties)]
        sealing = [X25519PrivateKey.generate() for _ in range(parties)]
        self.terms = SharedTerms(
            plan=bytes(32), colluders=terms.colluders, threshold=terms.quorum, dropouts=terms.dropouts,
            neighbours=neighbours_of("ring", parties), size=size, layers=layers,
            code=Code(parties, 16, 4.0, layers.reach),
            signing=tuple(k.public_key().public_bytes_raw() for k in self.signing),
            sealing=tuple(k.public_key().public_bytes_raw() for k in sealing),
            rounds=BATCH, spares=spares_for(parties), attempts=ATTEMPTS, patience=1e6, last=BATCH,
        )  # fmt: skip
        layers.tables  # noqa: B018 - made once, not in a round
        self.parties = [
            SumParty(self.terms, i, self.signing[i], sealing[i], MemoryStore()) for i in range(parties)
        ]  # fmt: skip
        self.packets: list[tuple[int, tuple[int, ...], int]] = []  # from, to, bytes
        self.on_its_way: deque[Outgoing] = deque()
        self.dealing = self.rounds = 0  # packets of the dealing, rounds after it

    def send(self, sender: int, out: Iterable[Outgoing]) -> None:
        """As `SumAgent` does: a frame to several parties is one packet."""
        whom: dict[bytes, tuple[SumFrame, list[int]]] = {}
        for to, frame in out:
            whom.setdefault(frame.digest, (frame, []))[1].append(to)
        for frame, receivers in whom.values():
            self.packets.append((sender, tuple(receivers), len(frame.pack())))
            self.on_its_way.extend((to, frame) for to in receivers)

    def run(self, rounds: int, values: np.ndarray) -> tuple[float, float]:
        """Open so many sums; processor seconds until the secrets of a batch were dealt, and of a round after it."""
        start = time.process_time()
        for i, party in enumerate(self.parties):
            self.send(i, party.begin(0.0))
        self._deliver()
        assert all(party.batch == 0 for party in self.parties)
        dealt, self.dealing = time.process_time(), len(self.packets)
        for t in range(rounds):
            for i, party in enumerate(self.parties):
                self.send(i, party.give_vector(values[i], 0.0))
            self._deliver()
            outcomes = [party.outcome(t) for party in self.parties]
            assert all(o is not None and o.checked and len(o.members) == len(self.parties) for o in outcomes)
            first = outcomes[0]
            assert first is not None
            error = np.abs(self.terms.code.decode(first.total) - values.sum(0)).max()
            assert error < 2.0**-16 * 12 * (len(self.parties) * float(self.terms.layers.kept(0))) ** 0.5
        self.rounds = rounds
        return dealt - start, (time.process_time() - dealt) / rounds

    def _deliver(self) -> None:
        while self.on_its_way:
            to, frame = self.on_its_way.popleft()
            self.send(to, self.parties[to].handle(SumFrame.unpack(frame.pack()), 0.0))

    def carried(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Bytes that leave each party on its connections in a round: its own packets, and those that it hands on."""
        n = len(self.parties)
        around = neighbours_of(kind, n)
        own, passed = np.zeros(n), np.zeros(n)
        trees = [_tree(around, i) for i in range(n)]
        for number, (sender, receivers, size) in enumerate(self.packets):
            parent, edges = trees[sender], set[tuple[int, int]]()
            for to in receivers:
                at = to
                while at != sender and (parent[at], at) not in edges:
                    edges.add((parent[at], at))
                    at = parent[at]
            for via, _ in edges:
                whole = size + PACKET + self.terms.bitmap
                (own if via == sender else passed)[via] += whole / (BATCH if number < self.dealing else self.rounds)
        return own, passed


def _tree(around: tuple[tuple[int, ...], ...], root: int) -> list[int]:
    parent, queue = [-1] * len(around), deque([root])
    parent[root] = root
    while queue:
        i = queue.popleft()
        for j in around[i]:
            if parent[j] < 0:
                parent[j] = i
                queue.append(j)
    return parent


def broadcast(town: Town, values: np.ndarray, rounds: int) -> float:
    """Processor seconds of rounds in which everybody signs its numbers and its neighbours check and add them."""
    n, d = values.shape
    wire = Wire(d, 4, rounds, lambda sender, round: 2**31 - 1)
    plan, public = bytes(32), {i: VerifyKey(key) for i, key in enumerate(town.terms.signing)}
    steps = np.rint(values * 2**16).astype(np.int64)
    start = time.process_time()
    for t in range(rounds):
        frames = [seal(town.signing[i], plan, i, t, wire.encode(steps[i], i, t)) for i in range(n)]
        for i in range(n):
            heard = [open_frame(frames[j], public, plan, wire, j).numbers for j in town.terms.neighbours[i]]
            assert np.abs(np.sum(heard, axis=0)).max() < 2**31
    return time.process_time() - start


def in_one_process(counts: list[int], size: int) -> list[dict[str, float]]:
    """One line of figures per number of parties."""
    out = []
    for n in counts:
        values = np.random.default_rng(0).uniform(-1, 1, (n, size))
        town = Town(n, size)
        dealing, each = town.run(BATCH if n <= FEW else SOME, values)
        plain = broadcast(town, values, town.rounds) / town.rounds
        made = np.zeros(n)
        for number, (sender, _, length) in enumerate(town.packets):
            made[sender] += length / (BATCH if number < town.dealing else town.rounds)
        facts: dict[str, float] = {
            "parties": n, "honest": n - town.terms.colluders, "threshold": town.terms.threshold,
            "originated": made.mean(),
            "formula": bytes_per_round(sum_terms(n), size), "limit": 24 * size + 200 * n,
            "ms": 1e3 * (dealing / BATCH + each) / n, "of it dealing": 1e3 * dealing / n / BATCH,
            "broadcast ms": 1e3 * plain / n,
        }  # fmt: skip
        for kind in GRAPHS:
            if kind == "regular" and n < 6:
                continue
            own, passed = town.carried(kind)
            facts |= {f"{kind} own": own.mean(), f"{kind} relayed": passed.mean()}
            if kind == "star":
                facts["hub"] = own[0] + passed[0]
        out.append(facts)
        print(json.dumps({k: round(v, 3) for k, v in facts.items()}), file=sys.stderr, flush=True)
    return out


# ---- one process each ------------------------------------------------------------------------------------------------


class Metered(process.Log):
    """The log of an agent, with processor time and bytes so far in every line."""

    sent: dict[str, int] = {"made": 0}  # noqa: RUF012

    def __call__(self, event: str, **facts: Any) -> None:
        super().__call__(event, processor=time.process_time(), **self.sent, **facts)


def meter() -> None:
    """From now on what an agent of sums makes and sends is counted."""
    plain = sum_agent.SumAgent._send

    def send(self: sum_agent.SumAgent, out: Iterable[Outgoing]) -> None:
        going = list(out)
        Metered.sent["made"] += sum(map(len, {frame.pack() for _, frame in going}))
        plain(self, going)
        Metered.sent.update(self.transport.sent)

    sum_agent.SumAgent._send = send  # type: ignore[method-assign]
    process.Log = Metered  # type: ignore[misc]


def deployed(n: int, size: int, rounds: int, summed: bool, folder: Path) -> dict[str, float]:
    """Seconds, a party's processor seconds and bytes of a round of real parties on a ring."""
    terms = sum_terms(n)
    parties = [{"name": f"p{i}", "address": f"127.0.0.1:{port}"} for i, port in enumerate(free_ports(n))]
    exchange = {"kind": "secret-sum", "noise": "central", "honest": terms.honest, "threshold": terms.threshold}
    plan = validate(
        {
            "name": f"{n} parties",
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [2] * n},
            "graph": {"kind": "ring"},
            "problem": {"loss": "mean", "dim": size, "ridge": 0.0},
            "algorithm": {"name": "dp-dsgd", "mixing": 1, "step": 0.5, "momentum": 0.0, "clip": 1.0},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "exchange": exchange if summed else {"kind": "broadcast"},
            "run": {"rounds": rounds},
            "deploy": {"parties": parties, "bound": 1e4, "deadline": 120.0},
        }
    )
    rng = np.random.default_rng(0)
    shards = [Records(rng.uniform(-1, 1, (2, size)), np.zeros(2), None, ()) for _ in range(n)]
    agreement, sites = sign_trial(plan, shards, folder)
    agents = [start_agent(agreement, site, "benchmarks.shared") for site in sites]
    try:
        for agent, site in zip(agents, sites, strict=True):
            if agent.wait(900):
                raise SystemExit((site.data.parent / "errors.txt").read_text())
    finally:
        for agent in agents:
            agent.kill()
    return _measured(sites, "opened" if summed else "sent", rounds)


def _measured(sites: tuple[Site, ...], event: str, rounds: int) -> dict[str, float]:
    spans, ends = [], []
    for site in sites:
        notes = [json.loads(line) for line in (site.state / "log.jsonl").read_text().splitlines()]
        ticks = [n for n in notes if n["event"] == event]
        tail = np.array([(datetime.fromisoformat(n["time"]).timestamp(), n["processor"]) for n in ticks])
        tail = tail[len(tail) // LATER :]
        spans.append((tail[-1] - tail[0]) / (len(tail) - 1))
        ends.append([ticks[-1].get(k, 0) / rounds for k in ("made", "own", "relayed", "upkeep")])
    wall, busy = np.median(spans, axis=0)
    made, own, relayed, upkeep = np.mean(ends, axis=0)
    return {
        "round": wall, "processor": busy, "originated": made, "own": own, "relayed": relayed, "upkeep": upkeep,
    }  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, nargs="*", default=[5, 10, 20, 100])
    parser.add_argument("--dimension", type=int, default=142)
    parser.add_argument("--processes", type=int, nargs="*", default=[], help="numbers of deployed parties, 20 at most")
    parser.add_argument("--rounds", type=int, default=BATCH, help="of deployed parties")
    parser.add_argument(
        "--flower", metavar="PYTHON", nargs="?", const="", help="of an environment with flwr, or make one"
    )
    args = parser.parse_args()
    d = args.dimension
    heads = ["N", "h", "t", "originated", "formula", "24 d + 200 N", "sent on a ring: own", "relayed"]
    heads += ["4-regular: own", "relayed", "star: hub", "ms of a party", "of it dealing", "broadcast ms", "ratio"]
    facts = in_one_process(args.parties, d)
    print(f"d = {d}, {BATCH} rounds; bytes of one party in a round\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for f in facts:
        sizes = ("originated", "formula", "limit", "ring own", "ring relayed", "regular own", "regular relayed", "hub")
        cells = [f"{f[k]:.0f}" for k in ("parties", "honest", "threshold")]
        cells += [f"{f[k]:,.0f}" if k in f else "–" for k in sizes]
        cells += [f"{f[k]:.2f}" for k in ("ms", "of it dealing", "broadcast ms")]
        cells += [f"{f['ms'] / f['broadcast ms']:.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    if args.flower is not None:
        beside_flower(facts, d, args.flower)
    if args.processes:
        by_processes(args.processes, d, args.rounds)


def flower(python: str, dimension: int, asked: list[tuple[int, int, int]], repeats: int) -> list[dict[str, float]]:
    """Flower's SecAgg+ in its own environment: a round for each (parties, threshold, shares)."""
    script = Path(__file__).with_name("flower_secagg.py")
    command = [python, str(script), str(dimension), str(repeats), *(":".join(map(str, one)) for one in asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"Flower's SecAgg+ failed in {python}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def beside_flower(facts: list[dict[str, float]], size: int, given: str) -> None:
    """A table of Flower's SecAgg+ on vectors of the same length, or why there is none."""
    python = given or environment("flower", CACHE)
    if isinstance(python, str) and not given:
        print(f"\nFlower's SecAgg+ was not run: flwr {python}", flush=True)
        return
    ours = {int(f["parties"]): f for f in facts}
    asked = [(n, sum_terms(n).quorum, n) for n in ours] + [SPARSE[n] for n in ours if n in SPARSE]
    heads = ["N", "shares", "t", "a client sends", "gets", "ms of a client", "ms of the server"]
    heads += ["here: originated", "ms of a party"]
    print(f"\nFlower's SecAgg+, one round, d = {size}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for f in flower(str(python), size, asked, 1):
        cells = [f"{f[k]:.0f}" for k in ("parties", "shares", "threshold")]
        cells += [f"{f[k]:,.0f}" for k in ("bytes", "received")]
        cells += [f"{1e3 * f[k]:.1f}" for k in ("client", "server")]
        mine = ours[int(f["parties"])]
        cells += [f"{mine['originated']:,.0f}", f"{mine['ms']:.1f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def by_processes(counts: list[int], size: int, rounds: int) -> None:
    """A table of deployed parties, each beside a broadcast."""
    heads = ["N", "round", "broadcast round", "ratio", "processor of a party", "broadcast", "ratio", "originated"]
    heads += ["sent: own", "relayed", "upkeep"]
    print(f"\nDeployed, {rounds} rounds, a ring\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for n in counts:
        with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=os.environ.get("COTERIE_BENCH_DIR")) as name:
            sums, plain = (deployed(n, size, rounds, kind, Path(name) / str(kind)) for kind in (True, False))
        cells = [str(n)]
        for k in ("round", "processor"):
            cells += [f"{1e3 * sums[k]:.0f} ms", f"{1e3 * plain[k]:.0f} ms", f"{sums[k] / plain[k]:.1f}"]
        cells += [f"{sums[k]:,.0f}" for k in ("originated", "own", "relayed", "upkeep")]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:  # one of the parties
        meter()
        sys.exit(command(sys.argv[1:]))
    main()
