"""Fault injection on whole agents, each a process of its own.

    python -m tests.faults.agent_faults NAME FOLDER [NUMBER...]

Every experiment prints one JSON object.

    errors             a sync or write of the ledger fails: EIO, ENOSPC
    full               the disk fills up
    copies             an old copy of the state folder, and a second process on the same one
    clock              another monotonic clock after a restart (a time namespace), and a pause of the process
    partition SECONDS  a party's link goes down and up again: the integers of an unbroken run; no listening socket
    crowd COUNT        the pace of rounds while so many connections that say nothing, or half of a greeting, are held
    nemesis SECONDS    five parties, everything at once
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.deploy.trial import free_ports
from tests.deploy.flood import flooding
from tests.deploy.house import rows
from tests.faults.lab import HUB, PORT, SENDS, Fleet, Lab, Proxy, address, fresh, lab_plan, sh, three


def integers(fleet: Fleet) -> dict[str, bytes]:
    """Every frame in every ledger."""
    return {f"{s.name} {t}": f for s in fleet.sites for t, f in rows(s.state / "ledger.db")[0].items()}


def _left(calls: list[str]) -> int:
    """Bytes that these calls sent to others; what the door carries to and from its own process has not left."""
    out, waiting = 0, set[str]()
    for call in calls:
        process = call.split()[0]
        if "<TCP" in call and call.endswith("<unfinished ...>"):
            waiting.add(process)
        elif ("<TCP" in call or ("resumed>" in call and process in waiting)) and (sent := re.search(r"= (\d+)$", call)):
            waiting.discard(process)
            out += int(sent[1])
    return out


def errors(folder: Path) -> dict[str, Any]:
    """The ledger of a running agent fails at a sync or a write: exit code 4, nothing more is sent, a clean resume."""
    fleet, found, after, ahead, codes = three(folder, 6), [], [], [], []
    trace, calls = folder / "trace", f"fdatasync,pwrite64,{SENDS}"

    def run(*fault: str) -> tuple[int, list[str]]:
        """The middle party under strace; its exit code and its calls."""
        fresh(fleet)
        fleet.start(0)
        fleet.start(2)
        watched = ["strace", "-f", "-qq", "-yy", "-o", str(trace), "-e", f"trace={calls}", *fault]
        return fleet.start(1, prefix=watched).wait(240), trace.read_text().splitlines()

    code, unharmed = run()
    if any([code, *fleet.wait(120)]) or not _left(unharmed):
        raise RuntimeError(fleet.errors())
    for call, error in (("fdatasync", "EIO"), ("fdatasync", "EIO"), ("pwrite64", "ENOSPC")):
        places = [i for i, line in enumerate(unharmed) if f" {call}(" in line]
        during = [k for k, i in enumerate(places, 1) if 0.55 < i / len(unharmed) < 0.75]  # between two messages
        code, lines = run("-e", f"inject={call}:error={error}:when={during[len(codes) % len(during)]}")
        codes.append(code)
        at = next((i for i, line in enumerate(lines) if "INJECTED" in line), len(lines))
        after.append(_left(lines[at:]))
        stored = rows(fleet.sites[1].state / "ledger.db")[0]
        if code:
            fleet.start(1)
        ends = fleet.wait(240)
        now = rows(fleet.sites[1].state / "ledger.db")[0]
        said = (fleet.sites[1].state / "log.jsonl").read_text()  # what the neighbours had when it was there again
        heard = [int(t) for t in re.findall(r"has my messages up to round (\d+)", said)]
        ahead.append(max(heard) - max(stored))
        wrong = [f"exit codes {ends}"] * any(ends) + fleet.violations(6)
        found += [f"{call}: {w}" for w in [*wrong, *(f"round {t} changed" for t in stored if stored[t] != now[t])]]
    return {"codes": codes, "ahead": ahead, "bytes after": after, "violations": found, "errors": fleet.errors()}


def full(folder: Path) -> dict[str, Any]:
    """A disk of 160 KiB under one party's state; later a larger one."""
    fleet = three(folder, 200)
    disk = fleet.sites[1].state
    disk.mkdir()
    sh("mount", "-t", "tmpfs", "-o", "size=160k,mode=700", "tmpfs", str(disk))
    for node in range(3):
        fleet.start(node)
    codes = [fleet.processes[1].wait(240)]
    seen = dict(rows(disk / "ledger.db")[0]) if (disk / "ledger.db").exists() else {}
    codes.append(fleet.start(1).wait(120))  # still no room
    sh("mount", "-o", "remount,size=64m", str(disk))
    fleet.start(1)
    ends = fleet.wait(240)
    after = rows(disk / "ledger.db")[0]
    found = fleet.violations(200) + [f"round {t} changed" for t in seen if after.get(t) != seen[t]]
    return {"codes": codes, "ends": ends, "rounds before": len(seen), "violations": found, "errors": fleet.errors()}


def copies(folder: Path) -> dict[str, Any]:
    """Party 1 only dials. An old copy of its folder is refused; so is a second process while the first one runs.

    The copies run with a key folder as on another machine, which does not know how far the ledger came: it is up to the
    neighbours. With its own key folder the party knows by itself ("known").
    """
    places: list[str | None] = [f"127.0.0.1:{p}" for p in free_ports(3)]
    places[1] = None
    fleet = Fleet(lab_plan(places, 500, "ring", deadline=5.0, patience=600.0, tick=0.2), folder, namespaces=False)
    spare = shutil.copytree(fleet.sites[1].keys, folder / "spare")
    for node in range(3):
        fleet.start(node)
    fleet.until(lambda: fleet.round(1) >= 4)
    site, old, same = fleet.sites[1], folder / "old", folder / "same"
    fleet.signal(1, signal.SIGSTOP)
    shutil.copytree(site.state, old)
    before = len(rows(old / "ledger.db")[0])
    fleet.signal(1, signal.SIGCONT)
    fleet.until(lambda: fleet.round(1) >= 7)
    original = fleet.processes[1]
    clone = fleet.start(1, replace(site, state=old, keys=spare)).wait(90)  # while the original runs
    folder_in_use = fleet.start(1, site).wait(90)
    original.kill()
    original.wait()
    shutil.copytree(site.state, same)
    known = fleet.start(1, replace(site, state=old)).wait(90)
    restored = fleet.start(1, replace(site, state=old, keys=spare)).wait(90)  # instead of the original
    had = len(rows(same / "ledger.db")[0])
    second = fleet.start(1, replace(site, state=same, keys=spare))  # an exact copy, at the same time as …
    first = fleet.start(1, site)

    def spoken() -> list[int]:
        return [len(rows(p / "ledger.db")[0]) - had for p in (site.state, same)]

    patience = time.monotonic() + 90  # each may have met one neighbour and wait for the other: then none speaks
    fleet.until(lambda: any(spoken()) or time.monotonic() > patience)
    time.sleep(15)
    speakers = spoken()
    for process in (first, second):
        process.terminate()
    ended = sorted([first.wait(60), second.wait(60)])
    if speakers[1] > speakers[0]:  # whoever was let in goes on
        shutil.rmtree(site.state)
        shutil.copytree(same, site.state)
    fleet.start(1, site)
    ends = fleet.wait(240)
    return {"clone": clone, "known": known, "in use": folder_in_use, "restored": restored,
            "new rounds of the old copy": len(rows(old / "ledger.db")[0]) - before, "new rounds of the two": speakers,
            "ended": ended, "ends": ends, "violations": fleet.violations(500), "errors": fleet.errors()}  # fmt: skip


def clock(folder: Path) -> dict[str, Any]:
    """One party starts again 28 hours later by its monotonic clock; then it is stopped for longer than a deadline."""
    fleet = three(folder, 30, tick=0.2, deadline=2.0)
    for node in range(3):
        fleet.start(node)
    fleet.until(lambda: fleet.round(1) >= 4)
    fleet.kill(1)
    shifted = ["unshare", "--time", "--fork", "--monotonic", str(28 * 3600), "--boottime", str(28 * 3600)]
    fleet.start(1, prefix=shifted)
    fleet.until(lambda: fleet.round(1) >= 10)
    children = sh("pgrep", "-P", str(fleet.processes[1].pid)).split()
    pid = int(children[0])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(6)
    os.kill(pid, signal.SIGCONT)
    return {"ends": fleet.wait(180), "violations": fleet.violations(30), "errors": fleet.errors()}


def partition(folder: Path, seconds: int = 60) -> dict[str, Any]:
    """Two runs with the same noise, one of them cut in the middle. Party 1 has no address (T5)."""
    lab, runs, sockets = Lab(3), [], {}
    places = [f"{address(0)}:{PORT}", None, f"{address(2)}:{PORT}"]
    fleet = Fleet(lab_plan(places, 24, "ring", deadline=10.0, patience=600.0, tick=0.4), folder)
    for cut in (False, True):
        for site in fleet.sites:  # a new run with the draws of the first
            shutil.rmtree(site.keys / "agreements", ignore_errors=True)
            shutil.rmtree(site.state, ignore_errors=True)
        for node in range(3):
            fleet.start(node)
        if cut:
            fleet.until(lambda: fleet.round(1) >= 4)
            sockets = {node: lab.listening(node) for node in (0, 1)}
            lab.link(1, "down")
            reached = [fleet.round(n) for n in range(3)]
            time.sleep(seconds)
            waited = [fleet.round(n) for n in range(3)]
            lab.link(1, "up")
        codes = fleet.wait(240)
        if any(codes):
            raise RuntimeError(f"{codes} {fleet.errors()}")
        runs.append(integers(fleet))
    apart = [name for name in runs[0] if runs[0][name] != runs[1].get(name)]
    return {
        "apart": apart[:9], "frames": len(runs[0]), "at the cut": reached, "at the end of it": waited,
        "listening": [len(sockets[0]), len(sockets[1])], "violations": fleet.violations(24),
    }  # fmt: skip


def crowd(folder: Path, count: int = 10_000) -> dict[str, Any]:
    """Two parties; the one that is called is the one that is crowded. Windows with and without take turns."""
    places: list[str | None] = [f"127.0.0.1:{p}" for p in free_ports(2)]
    plan = lab_plan(places, 30_000, "path", deadline=30.0, patience=600.0)
    fleet = Fleet(plan, folder, namespaces=False)
    for node in range(2):
        fleet.start(node)
    fleet.until(lambda: fleet.round(0) >= 50, 900)

    held = Path(f"/proc/{fleet.processes[1].pid}/fd")

    def pace(seconds: float = 5.0) -> float:
        """Rounds a second, once whoever has come or gone is dealt with: a busy machine is late with that."""
        before, quiet, patience = -1, 0, time.monotonic() + 60
        while quiet < 5 and time.monotonic() < patience:
            time.sleep(0.2)
            now = len(list(held.iterdir()))
            quiet, before = (quiet + 1 if now == before else 0), now
        start, first = time.monotonic(), fleet.round(1)
        time.sleep(seconds)
        return (fleet.round(1) - first) / (time.monotonic() - start)

    alone, pairs = [pace()], {"silent": [], "hello": []}  # type: ignore[var-annotated]
    for _ in range(3):
        for kind, ratios in pairs.items():
            with flooding(str(places[1]), count, kind):
                crowded = pace()
            alone.append(pace())
            ratios.append(2 * crowded / sum(alone[-2:]))  # to the quiet before and after: whatever else runs cancels
    codes = [process.poll() for process in fleet.processes.values()]
    for process in fleet.processes.values():
        process.terminate()
    medians = {kind: statistics.median(ratios) for kind, ratios in pairs.items()}
    return {"alone": alone, "ratios": pairs, "medians": medians, "running": [code is None for code in codes],
            "ended": fleet.wait(60)}  # fmt: skip


def nemesis(folder: Path, seconds: int = 600, seed: int = 1) -> dict[str, Any]:
    """Five parties in a ring, each behind a proxy and in a namespace; faults until the time is over, then peace."""
    rng, lab = random.Random(seed), Lab(5)
    rounds = 20 + int(1.5 * seconds)
    ports = [8000 + i for i in range(5)]
    listen: list[str | None] = [f"{address(i)}:{PORT}" for i in range(5)]
    plan = lab_plan([f"{HUB}:{p}" for p in ports], rounds, "ring", deadline=30.0, patience=3600.0, tick=0.5)
    fleet, done = Fleet(plan, folder, listen=listen), []
    proxies = [Proxy(p, (address(i), PORT)) for i, p in enumerate(ports)]

    async def fault(kind: str, node: int) -> None:
        length = rng.uniform(0.5, 6)
        match kind:
            case "kill":
                fleet.kill(node)
                await asyncio.sleep(length / 3)
                fleet.start(node)
            case "stop":
                fleet.signal(node, signal.SIGSTOP)
                await asyncio.sleep(length)
                fleet.signal(node, signal.SIGCONT)
            case "down":
                lab.link(node, "down")
                await asyncio.sleep(length)
                lab.link(node, "up")
            case "slow":
                lab.slow(node, rng.choice(["16kbit", "64kbit", "256kbit"]))
                await asyncio.sleep(length)
                lab.slow(node, None)
            case "reset":
                proxies[node].reset()
            case mood:
                proxies[node].mood = mood
                await asyncio.sleep(length)
                proxies[node].mood = ""
        done.append(kind)

    async def scenario() -> list[int]:
        for proxy in proxies:
            await proxy.start()
        for node in range(5):
            fleet.start(node)
        kinds = ["kill", "stop", "down", "slow", "reset", "latency", "bandwidth", "slicer", "timeout", "limit"]
        end, busy = time.monotonic() + seconds, set()  # type: ignore[var-annotated]

        async def afflict(node: int) -> None:
            busy.add(node)
            await fault(kinds[len(done) % len(kinds)] if len(done) < len(kinds) else rng.choice(kinds), node)
            busy.discard(node)

        tasks = []
        while time.monotonic() < end:
            free = [n for n in range(5) if n not in busy]
            if free:
                tasks.append(asyncio.create_task(afflict(rng.choice(free))))
            await asyncio.sleep(rng.uniform(0.2, 2.0))
        await asyncio.gather(*tasks)
        for node in range(5):  # whoever ended in between (exit code 6, say) starts again
            if fleet.processes[node].poll():
                fleet.codes[node].append(fleet.processes[node].returncode)
                fleet.start(node)
        return await asyncio.to_thread(fleet.wait, 600 + seconds)

    codes = asyncio.run(scenario())
    faults = {kind: done.count(kind) for kind in sorted(set(done))}
    return {"codes": codes, "rounds": rounds, "faults": faults, "violations": fleet.violations(rounds),
            "errors": fleet.errors() if any(codes) else ""}  # fmt: skip


if __name__ == "__main__":
    known = {f.__name__: f for f in (errors, full, copies, clock, partition, crowd, nemesis)}
    print(json.dumps(known[sys.argv[1]](Path(sys.argv[2]) / "fleet", *map(int, sys.argv[3:]))))
