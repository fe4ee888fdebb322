"""Rounds per second and bytes per round of five parties over mutual TLS, beside the floor in the same run.

    python -m benchmarks.deploy [--sizes 100,10000,1000000] [--rounds 80] [--repeats 3] [--profile FOLDER]

The floor of a round is one gRPC round trip of a frame over mutual TLS plus one FULL commit of it, both in an otherwise
idle process. Five parties share the machine's cores, so a round of all five costs several floors even if each party
does only what none can leave out: draw noise, sign, commit the frame, send it, hear two neighbours and verify what they
sent. Five such parties, which compute nothing and keep no state, are measured too ("bare round"), and so is the
processor time of one party in a round, from all its threads, which depends less on who else is on the machine. Both
take turns, and their ratio is told turn by turn. With `--profile` every agent leaves a cProfile of its main thread's
processor time in FOLDER (read it with `python -m pstats`), and all times are longer; a coroutine is counted there once
for every time that it goes on, so a write that waits counts twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import VerifyKey

from benchmarks.measured import Row, arguments, finish, spread
from coterie.cli import main as coterie_command
from coterie.deploy import process
from coterie.deploy.agreement import read_agreement
from coterie.deploy.frames import HEADER_BYTES, SIGNATURE_BYTES, Wire, open_frame, seal
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.keys import load_party
from coterie.deploy.party import Records, Terms, wire_of
from coterie.deploy.trial import Site, free_ports, sign_trial, start_agent
from coterie.plan import validate
from coterie.privacy import secure
from coterie.sums.words import keyed

PARTIES = 5
WARM = 4  # one round in so many is left out: the first ones compile
PROFILE = "COTERIE_BENCH_PROFILE"  # round to begin with, and folder
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def trial(d: int, rounds: int, folder: Path) -> tuple[Path, tuple[Site, ...]]:
    """A mean of d numbers by gradient rounds on a ring: the cheapest computation, so that the network is measured."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(PARTIES)]
    plan = validate(
        {
            "name": f"d = {d}",
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [2] * PARTIES},
            "graph": {"kind": "ring"},
            "problem": {"loss": "mean", "dim": d, "ridge": 0.0},
            "algorithm": {"name": "dp-dsgd", "mixing": 1, "step": 0.5, "momentum": 0.0, "clip": 1.0},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {"parties": [{"name": f"p{i}", "address": a} for i, a in enumerate(addresses)], "bound": 1e4},
        }
    )
    rng = np.random.default_rng(0)
    shards = [Records(rng.uniform(-1, 1, (2, d)), np.zeros(2), None, ()) for _ in range(PARTIES)]
    return sign_trial(plan, shards, folder)


class Metered(process.Log):
    """The log of an agent, with the processor time used so far in every line; starts the profile, if one is wanted."""

    profile = cProfile.Profile(time.thread_time)

    def __call__(self, event: str, **facts: Any) -> None:
        super().__call__(event, processor=time.process_time(), **facts)
        begin, _, folder = os.environ.get(PROFILE, "").partition(" ")
        if folder and event == "sent" and facts["round"] == int(begin):
            self.profile.enable()
        if folder and event == "model":
            self.profile.disable()
            self.profile.dump_stats(f"{folder}/{os.getpid()}.prof")


def deployed(d: int, rounds: int, folder: Path) -> tuple[float, float, int]:
    """Median seconds of a round in steady state, processor seconds of a party in it, and bytes of a frame."""
    agreement, sites = trial(d, rounds, folder)
    processes = [start_agent(agreement, site, "benchmarks.deploy") for site in sites]
    try:
        for process, site in zip(processes, sites, strict=True):
            if process.wait(600):
                raise SystemExit((site.data.parent / "errors.txt").read_text())
    finally:
        for process in processes:
            process.kill()
    spans = []
    for site in sites:
        notes = [json.loads(line) for line in (site.state / "log.jsonl").read_text().splitlines()]
        sent = [(datetime.fromisoformat(n["time"]).timestamp(), n["processor"]) for n in notes if n["event"] == "sent"]
        tail = np.array(sent[len(sent) // WARM :])
        spans.append((tail[-1] - tail[0]) / (len(tail) - 1))
    wall, busy = np.median(spans, axis=0)
    return float(wall), float(busy), HEADER_BYTES + 4 * d + SIGNATURE_BYTES


def _full(path: Path) -> sqlite3.Connection:
    """A database that syncs every commit, with a table of blobs."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, blob BLOB)")
    return db


def commit_floor(size: int, folder: Path, repeats: int) -> float:
    """Median seconds of one FULL commit of a blob."""
    with contextlib.closing(_full(folder / "floor.db")) as db:
        blob, times = os.urandom(size), []
        for _ in range(repeats):
            start = time.perf_counter()
            db.execute("INSERT INTO t (blob) VALUES (?)", (blob,))
            times.append(time.perf_counter() - start)
    return statistics.median(times)


async def trip_floor(size: int, site: Site, repeats: int) -> float:
    """Median seconds of one round trip of a payload on a bidirectional stream over mutual TLS."""
    keys, name = load_party(site.keys), site.name
    root, pair = keys.authority.pem, (keys.tls_key_pem, keys.identity.pem)

    async def echo(incoming, context):  # type: ignore[no-untyped-def]
        async for message in incoming:
            yield message

    handler = grpc.method_handlers_generic_handler("floor", {"Echo": grpc.stream_stream_rpc_method_handler(echo)})
    server = grpc.aio.server(options=UNLIMITED)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair], root, True))
    await server.start()
    named = [*UNLIMITED, ("grpc.ssl_target_name_override", name)]
    async with grpc.aio.secure_channel(
        f"127.0.0.1:{port}", grpc.ssl_channel_credentials(root, *pair), named
    ) as channel:
        call, payload, times = channel.stream_stream("/floor/Echo")(), os.urandom(size), []
        for _ in range(repeats + 5):
            start = time.perf_counter()
            await call.write(payload)
            await call.read()
            times.append(time.perf_counter() - start)
        call.cancel()
    await server.stop(0)
    return statistics.median(times[5:])


async def bare(path: Path, site: Site, d: int, rounds: int) -> None:
    """One of five parties that only does what no party can leave out: noise, signature, commit, send, hear, verify."""
    keys = load_party(site.keys)
    agreement = read_agreement(path, keys.authority)
    parties, wire = agreement.deploy.parties, Wire(d, 4, rounds, lambda sender, round: 2**31 - 1)
    me = agreement.index(site.name)
    near = (me + 1) % PARTIES, (me - 1) % PARTIES
    ahead, noise = parties[near[0]], secure.DiscreteGaussianTable.from_variance(secure.GRID_VARIANCE)
    root, pair = keys.authority.pem, (keys.tls_key_pem, keys.identity.pem)
    inbox: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    caller: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def hear(incoming, context):  # type: ignore[no-untyped-def]
        caller.set_result(context)
        async for message in incoming:
            inbox.put_nowait((near[1], message))

    async def listen(call: Any) -> None:
        async for message in call:
            inbox.put_nowait((near[0], message))

    handler = grpc.method_handlers_generic_handler("bare", {"Round": grpc.stream_stream_rpc_method_handler(hear)})
    server = grpc.aio.server(options=UNLIMITED)
    server.add_generic_rpc_handlers((handler,))
    server.add_secure_port(parties[me].address, grpc.ssl_server_credentials([pair], root, True))
    await server.start()
    named = [*UNLIMITED, ("grpc.ssl_target_name_override", ahead.name)]
    credentials = grpc.ssl_channel_credentials(root, *pair)
    with contextlib.closing(_full(site.state / "bare.db")) as db:
        async with grpc.aio.secure_channel(ahead.address, credentials, named) as channel:
            call = channel.stream_stream("/bare/Round")(wait_for_ready=True)
            ears = asyncio.create_task(listen(call))
            behind, times = await caller, []
            for t in range(rounds):
                payload = wire.encode(noise.sample(d, keyed), me, t)
                frame = seal(keys.frame_key, agreement.plan_hash, me, t, payload)
                db.execute("INSERT INTO t (blob) VALUES (?)", (frame,))
                await asyncio.gather(call.write(frame), behind.write(frame))
                for _ in near:
                    sender, data = await inbox.get()
                    open_frame(data, agreement.frame_keys, agreement.plan_hash, wire, sender)
                times.append((time.perf_counter(), time.process_time()))
            await call.done_writing()
            await ears
    await server.stop(1)
    steady = np.array(times[len(times) // WARM :])
    (site.state / "bare.json").write_text(json.dumps(((steady[-1] - steady[0]) / (len(steady) - 1)).tolist()))


def bare_round(d: int, rounds: int, folder: Path) -> tuple[float, float]:
    """Median seconds of a round of five parties that do only what none can leave out, and one's processor time."""
    agreement, sites = trial(d, rounds, folder)
    children = []
    for site in sites:
        site.state.mkdir(exist_ok=True)
        what = (agreement, site.name, site.keys, site.data, site.state, d, rounds)
        children.append(subprocess.Popen([sys.executable, "-m", "benchmarks.deploy", "bare", *map(str, what)]))
    try:
        if any(child.wait(600) for child in children):
            raise SystemExit("a bare party failed")
    finally:
        for child in children:
            child.kill()
    wall, busy = np.median([json.loads((site.state / "bare.json").read_text()) for site in sites], axis=0)
    return float(wall), float(busy)


async def send_times(d: int, folder: Path, repeats: int = 100) -> list[float]:
    """Seconds from `push` at one party to `pull` at its neighbour: mutual TLS, signature checked, numbers decoded."""
    path, sites = trial(d, repeats, folder)
    keys = [load_party(site.keys) for site in sites[:2]]
    agreement = read_agreement(path, keys[0].authority)
    wire = wire_of(Terms.of(agreement.plan), d)
    numbers = np.random.default_rng(0).integers(-1000, 1000, d)
    frames = [seal(keys[0].frame_key, agreement.plan_hash, 0, t, wire.encode(numbers, 0, t)) for t in range(repeats)]
    ends = [
        GrpcTransport(agreement, key.name, key, wire=wire, outbox=lambda t: frames[t] if node == 0 else None)  # noqa: B023
        for node, key in enumerate(keys)
    ]
    times = []
    for end in ends:
        await end.start()
    await ends[0].receipt(keys[1].name)
    for t, frame in enumerate(frames):
        start = time.perf_counter()
        await ends[0].push(t, frame)
        await ends[1].pull(t)
        times.append(time.perf_counter() - start)
    for end in ends:
        await end.close()
    return times


def verify_times(repeats: int = 1000) -> tuple[float, float]:
    """Seconds to verify the signature of a frame: by libsodium, as frames are, and by OpenSSL."""
    key, message = Ed25519PrivateKey.generate(), os.urandom(86)
    signature, theirs = key.sign(message), key.public_key()
    ours, took = VerifyKey(theirs.public_bytes_raw()), []
    for verify in (lambda: ours.verify(message, signature), lambda: theirs.verify(signature, message)):
        start = time.perf_counter()
        for _ in range(repeats):
            verify()
        took.append((time.perf_counter() - start) / repeats)
    return took[0], took[1]


def main() -> None:
    """Print a table: one line per message size."""
    parser = arguments(__doc__)
    parser.add_argument("--sizes", default="100,10000,1000000")
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=3, help="turns of deployed and bare parties")
    parser.add_argument("--profile", type=Path)
    args = parser.parse_args()
    heads = ["d", "frame bytes", "rounds/s", "round ms", "party's processor ms", "round trip ms", "FULL commit ms"]
    heads += ["bare round ms", "bare processor ms", "round / floor", "bare / floor"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    rows = []
    for d in (int(x) for x in args.sizes.split(",")):
        turns = []
        with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=os.environ.get("COTERIE_BENCH_DIR")) as name:
            folder = Path(name)
            rounds = max(20, args.rounds // 4) if d >= 10**6 else args.rounds * (10 if d <= 1000 else 2)
            if args.profile is not None:
                args.profile.mkdir(parents=True, exist_ok=True)
                os.environ[PROFILE] = f"{rounds // WARM} {args.profile.absolute()}"
            for turn in range(args.repeats):
                seconds, busy, size = deployed(d, rounds, folder / f"trial{turn}")
                turns.append((seconds, busy, *bare_round(d, rounds, folder / f"bare{turn}")))
            site = Site("p0", folder / "trial0" / "p0" / "keys", Path(), Path())
            trip = asyncio.run(trip_floor(size, site, 30 if d >= 10**6 else 200))
            commit = commit_floor(size, folder, 30 if d >= 10**6 else 200)
        seconds, busy, least, lean = np.median(turns, axis=0)
        floor = trip + commit
        times = (f"{1e3 * x:.2f}" for x in (seconds, busy, trip, commit, least, lean))
        cells = [f"{1 / seconds:.1f}", *times, f"{seconds / floor:.1f}", f"{least / floor:.1f}"]
        print(f"| {d:,} | {size:,} | {' | '.join(cells)} |", flush=True)
        rounds_, busies, leasts, leans = zip(*turns, strict=True)
        for what, ours, peer in (
            ("a round", rounds_, leasts), ("a party's processor time in a round", busies, leans),
        ):  # fmt: skip
            told = f"{1e3 * np.median(ours):.2f} ms", f"bare parties {1e3 * np.median(peer):.2f} ms"
            rows.append(Row(f"{what}, d = {d:,}", *told, *spread(ours, peer)))
        floors = f"round trip and FULL commit {1e3 * floor:.2f} ms"
        rows.append(Row(f"a round, d = {d:,}", f"{1e3 * seconds:.2f} ms", floors, *[floor / seconds] * 3))
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as name:
        times = 1e3 * np.array(asyncio.run(send_times(10**5, Path(name) / "trial")))
    print(f"from push to pull at d = 100,000: p50 {np.median(times):.2f} ms, p99 {np.quantile(times, 0.99):.2f} ms")
    sodium, openssl = verify_times()
    print(f"one signature verified: libsodium {1e3 * sodium:.2f} ms, OpenSSL {1e3 * openssl:.2f} ms")
    note = (
        f"Five parties in a ring over mutual TLS, one process each, on {len(os.sched_getaffinity(0))} cores. Bare ones "
        "draw noise by the same cipher, sign, commit, send, hear and verify: they compute nothing and keep no state."
    )
    finish(args, "A round of five deployed parties", rows, note)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:  # one of the parties
        process.Log = Metered  # type: ignore[misc]
        sys.exit(coterie_command(sys.argv[1:]))
    if sys.argv[1:2] == ["bare"]:
        where, name, *places, d, rounds = sys.argv[2:]
        asyncio.run(bare(Path(where), Site(name, *map(Path, places)), int(d), int(rounds)))
        sys.exit()
    main()
