"""Secret sums with shared noise: bytes, processor time and seconds of a round, beside a broadcast in the same run.

    python -m benchmarks.shared [--parties 5 10 20 100] [--dimension 142] [--processes 5 10 20] [--flower [PYTHON]]

First the real protocol of all parties in one process, with all that is dealt for a batch of rounds. *Originated* are
the bytes of the frames that a party makes, one for many counted once, in the mean of all parties and rounds (a leader's
part is spread over all, since everybody leads in turn), against what `bytes_per_round` says and against 24 d + 200 N.
*Sent* is what leaves a party on its connections, own and others', where packets take the shortest way and a packet for
many crosses an edge once. Processor time is that of one party in a round, ledgers in memory and without a network; in
the broadcast beside it a party signs d numbers, and checks and adds up what neighbours on the same graph sent.

`--flower` runs Flower's SecAgg+ after it, server and clients in one process, in an environment that has flwr or in one
that it makes as `benchmarks.peers` does; if that does not succeed it says so. With `--processes` the same as deployed
parties over mutual TLS on a ring, with ledgers, against the same plan without secret sums.
"""

from __future__ import annotations

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

from benchmarks.measured import Row, arguments, beside, finish
from benchmarks.peers import CACHE, environment, last_line
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


def broadcast(town: Town, values: np.ndarray, rounds: int) -> tuple[float, int]:
    """Processor seconds of rounds in which everybody signs its numbers and its neighbours check and add them; a frame's
    bytes."""
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
    return time.process_time() - start, len(frames[0])


def in_one_process(n: int, size: int, turns: int) -> tuple[list[Row], list[float], float]:
    """Rows of so many parties; milliseconds of a party in a round, turn by turn, and the bytes that it originates."""
    values, ours, plain = np.random.default_rng(0).uniform(-1, 1, (n, size)), list[float](), list[float]()
    for _ in range(turns):
        town = Town(n, size)
        dealing, each = town.run(BATCH if n <= FEW else SOME, values)
        seconds, frame = broadcast(town, values, town.rounds)
        ours.append(1e3 * (dealing / BATCH + each) / n)
        plain.append(1e3 * seconds / town.rounds / n)
    made = sum(length / (BATCH if k < town.dealing else town.rounds) for k, (*_, length) in enumerate(town.packets)) / n
    what, say, linear = f"N = {n}, {n - town.terms.colluders} honest", "{:,.0f}", 24 * size + 200 * n
    rows = [
        beside(f"{what}: processor time of a party", ours, "broadcast", plain, "{:.2f} ms"),
        beside(f"{what}: bytes originated", [made], "bytes_per_round", bytes_per_round(sum_terms(n), size), say, False),
        beside(f"{what}: bytes originated", [made], "24 d + 200 N", linear, say),
    ]
    for kind in GRAPHS:
        if kind == "regular" and n < 6:
            continue
        own, passed = town.carried(kind)
        around, total = [len(near) for near in neighbours_of(kind, n)], own + passed
        peer = "frames of a broadcast", frame * float(np.mean(around)), say
        rows.append(beside(f"{what}: bytes sent, {kind}, own and relayed", [float(total.mean())], *peer))
        if kind == "star":
            rows.append(beside(f"{what}: bytes sent by its hub", [float(total[0])], peer[0], frame * around[0], say))
    print(f"{what}: {dealing / BATCH / n * 1e3:.2f} ms of a party's are for dealing", file=sys.stderr, flush=True)
    return rows, ours, made


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


def flower(python: str, dimension: int, asked: list[tuple[int, int, int]]) -> list[dict[str, float]] | str:
    """Flower's SecAgg+ in its own environment: a round for each (parties, threshold, shares), or what went wrong."""
    script = Path(__file__).with_name("flower_secagg.py")
    command = [python, str(script), str(dimension), "1", *(":".join(map(str, one)) for one in asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"failed: {last_line(done.stderr)}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def beside_flower(ours: dict[int, tuple[list[float], float]], size: int, turns: int, given: str) -> list[Row] | str:
    """Rows beside Flower's SecAgg+ on vectors of the same length, or why there are none."""
    python = given or environment("flower", CACHE)
    if isinstance(python, str) and not given:
        return python
    asked = [(n, sum_terms(n).quorum, n) for n in ours] + [SPARSE[n] for n in ours if n in SPARSE]
    found = [flower(str(python), size, asked) for _ in range(turns)]
    told = [one for one in found if not isinstance(one, str)]
    if len(told) < turns:
        return next(one for one in found if isinstance(one, str))
    rows = []
    for k, (n, _, shares) in enumerate(asked):
        milliseconds, made = ours[n]
        client, what, peer = [1e3 * one[k]["client"] for one in told], f"N = {n}", f"Flower, {shares} shares,"
        rows += [
            beside(f"{what}: processor time of a party", milliseconds, f"{peer} a client", client, "{:.2f} ms"),
            beside(f"{what}: bytes originated", [made], f"{peer} sent by a client", told[0][k]["bytes"], "{:,.0f}"),
        ]
    return rows


def by_processes(n: int, size: int, rounds: int) -> list[Row]:
    """Deployed parties beside a broadcast."""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=os.environ.get("COTERIE_BENCH_DIR")) as name:
        sums, plain = (deployed(n, size, rounds, kind, Path(name) / str(kind)) for kind in (True, False))
    what = f"N = {n}, deployed on a ring"
    kinds = (("a round", "round"), ("processor time of a party in a round", "processor"))
    rows = [beside(f"{what}: {a}", [1e3 * sums[k]], "broadcast", 1e3 * plain[k], "{:.1f} ms") for a, k in kinds]
    said = bytes_per_round(sum_terms(n), size)
    return [*rows, beside(f"{what}: bytes originated", [sums["originated"]], "bytes_per_round", said, "{:,.0f}", False)]


def main() -> None:
    """Print and store what was asked for."""
    parser = arguments(__doc__)
    parser.add_argument("--parties", type=int, nargs="*", default=[5, 10, 20, 100])
    parser.add_argument("--dimension", type=int, default=142)
    parser.add_argument("--turns", type=int, default=3, help="of what is in one process")
    parser.add_argument("--processes", type=int, nargs="*", default=[], help="numbers of deployed parties, 20 at most")
    parser.add_argument("--rounds", type=int, default=BATCH, help="of deployed parties")
    parser.add_argument("--flower", metavar="PYTHON", nargs="?", const="", help="that has flwr, or make one")
    args = parser.parse_args()
    rows, ours, said = [], {}, ""
    for n in args.parties:
        found, *ours[n] = in_one_process(n, args.dimension, args.turns)
        rows += found
    if args.flower is not None:
        found = beside_flower(ours, args.dimension, args.turns, args.flower)
        rows, said = (rows, f" Flower's SecAgg+ {found}.") if isinstance(found, str) else ([*rows, *found], "")
    for n in args.processes:
        rows += by_processes(n, args.dimension, args.rounds)
    finish(args, "Secret sums with shared noise", rows, f"d = {args.dimension}; bytes and times of one round.{said}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:  # one of the parties
        meter()
        sys.exit(command(sys.argv[1:]))
    main()
