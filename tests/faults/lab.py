"""A network of namespaces for fault tests: every party in its own, joined by a bridge; links go down and slow down.

Run the experiment itself under `unshare -n -m`: whatever it makes ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.deploy.party import Records
from coterie.deploy.trial import Site, free_ports, sign_trial
from coterie.plan import Plan, validate
from tests.deploy.house import history, small_records

HUB = "10.77.0.254"
PORT = 7000
SENDS = "sendmsg,sendto,writev"
ROOT = Path(__file__).parents[2]


def sh(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def address(node: int) -> str:
    return f"10.77.0.{node + 1}"


class Lab:
    """Namespaces p0, p1, … with addresses 10.77.0.1, 10.77.0.2, … and this one at 10.77.0.254."""

    def __init__(self, count: int):
        self.count = count
        Path("/run/netns").mkdir(exist_ok=True)
        sh("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "hub", "type", "bridge")
        sh("ip", "address", "add", f"{HUB}/24", "dev", "hub")
        sh("ip", "link", "set", "hub", "up")
        for i in range(count):
            sh("ip", "netns", "add", f"p{i}")
            sh("ip", "link", "add", f"v{i}", "type", "veth", "peer", "name", "eth0", "netns", f"p{i}")
            sh("ip", "link", "set", f"v{i}", "master", "hub", "up")
            sh("ip", "-n", f"p{i}", "link", "set", "lo", "up")
            sh("ip", "-n", f"p{i}", "link", "set", "eth0", "up")
            sh("ip", "-n", f"p{i}", "address", "add", f"{address(i)}/24", "dev", "eth0")

    def link(self, node: int, state: str) -> None:
        """Take a party's link up or down."""
        sh("ip", "link", "set", f"v{node}", state)

    def slow(self, node: int, rate: str | None) -> None:
        """Let everything to a party pass a bucket of this rate, such as 64kbit; None: as fast as it goes."""
        with contextlib.suppress(RuntimeError):
            sh("tc", "qdisc", "del", "dev", f"v{node}", "root")
        if rate:
            sh("tc", "qdisc", "add", "dev", f"v{node}", "root", "tbf", "rate", rate, "burst", "8kb", "latency", "400ms")

    def listening(self, node: int) -> list[str]:
        """Listening sockets in a party's namespace."""
        return sh("ip", "netns", "exec", f"p{node}", "ss", "-ltnH").splitlines()


class Proxy:
    """A TCP proxy before one listener whose `mood` is the fault in force, after Toxiproxy's toxics."""

    MOODS = ("", "latency", "bandwidth", "slicer", "timeout", "reset", "limit")

    def __init__(self, port: int, target: tuple[str, int]):
        self.port, self.target, self.mood = port, target, ""
        self.streams: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, HUB, self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other: asyncio.StreamWriter | None = None
        try:
            back, other = await asyncio.wait_for(asyncio.open_connection(*self.target), 5)
            self.streams |= {writer, other}
            await asyncio.gather(self._pipe(reader, other), self._pipe(back, writer))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in (writer, other):
                if end is not None:
                    self.streams.discard(end)
                    end.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed = 0
        while data := await reader.read(65536):
            match self.mood:
                case "latency":
                    await asyncio.sleep(random.uniform(0.02, 0.3))
                case "bandwidth":
                    await asyncio.sleep(len(data) / 20_000)
                case "timeout":  # nothing passes, nothing is closed
                    while self.mood == "timeout":
                        await asyncio.sleep(0.05)
                case "slicer":
                    for i in range(0, len(data), 7):
                        writer.write(data[i : i + 7])
                        await writer.drain()
                        await asyncio.sleep(0)
                    continue
                case "limit":
                    if (passed := passed + len(data)) > 3000:
                        raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        writer.close()

    def reset(self) -> None:
        """Cut every connection."""
        for stream in list(self.streams):
            stream.transport.abort()


def lab_plan(addresses: list[str | None], rounds: int, graph: str, **deploy: Any) -> Plan:
    """A logistic model of three features over as many parties as there are addresses."""
    names = [f"p{i}" for i in range(len(addresses))]
    parties = [{"name": n} | ({} if a is None else {"address": a}) for n, a in zip(names, addresses, strict=True)]
    return validate(
        {
            "name": "lab",
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [12] * len(names)},
            "graph": {"kind": graph},
            "problem": {"loss": "logistic", "dim": 3, "ridge": 0.1},
            "algorithm": {"name": "pr-admm"},  # needs every message
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {"parties": parties, **deploy},
        }
    )


class Fleet:
    """The agents of one agreement as processes, each in its namespace (or here, without a lab)."""

    def __init__(self, plan: Plan, folder: Path, *, namespaces: bool = True, listen: list[str | None] | None = None,
                 shards: list[Records] | None = None):  # fmt: skip
        self.plan, self.folder, self.namespaces = plan, folder, namespaces
        count = len(plan.deploy.parties)  # type: ignore[union-attr]
        self.agreement, self.sites = sign_trial(plan, shards or (small_records() * 2)[:count], folder)
        self.listen = listen or [None] * count
        self.processes: dict[int, subprocess.Popen] = {}
        self.codes: dict[int, list[int]] = {i: [] for i in range(count)}

    def command(self, node: int, site: Site | None = None) -> list[str]:
        site = site or self.sites[node]
        listen = self.listen[node]
        return [
            *(["ip", "netns", "exec", f"p{node}"] if self.namespaces else []), sys.executable, "-W", "ignore", "-m",
            "tests.faults.replayed_agent", "agent", str(self.agreement), "--me", site.name, "--data", str(site.data),
            "--keys", str(site.keys), "--state", str(site.state), *(["--listen", listen] if listen else []),
        ]  # fmt: skip

    def start(self, node: int, site: Site | None = None, prefix: list[str] | None = None) -> subprocess.Popen:
        alone = {
            **os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        with (self.folder / f"p{node}.errors").open("a") as errors:
            self.processes[node] = subprocess.Popen(
                [*(prefix or []), *self.command(node, site)],
                cwd=ROOT,
                env=alone,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        return self.processes[node]

    def signal(self, node: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.processes[node].pid, number)

    def kill(self, node: int) -> None:
        self.signal(node, signal.SIGCONT)
        self.signal(node, signal.SIGKILL)
        self.codes[node].append(self.processes[node].wait())

    def wait(self, seconds: float) -> list[int]:
        """Exit codes of all; −9 for those that had to be ended."""
        deadline, out = time.monotonic() + seconds, []
        for process in self.processes.values():
            try:
                out.append(process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                out.append(process.wait())
        return out

    def round(self, node: int) -> int:
        """The last round that a party's log speaks of."""
        try:
            lines = (self.sites[node].state / "log.jsonl").read_text().splitlines()
        except OSError:
            return -1
        sent = [line for line in lines if '"sent"' in line]
        return int(json.loads(sent[-1])["round"]) if sent else -1

    def until(self, condition: Callable[[], bool], seconds: float = 400) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(self.errors())
            time.sleep(0.05)

    def errors(self) -> str:
        return "\n".join(p.read_text()[-400:] for p in sorted(self.folder.glob("*.errors")))

    def violations(self, rounds: int | None) -> list[str]:
        """The history in the ledgers: every use of a message is of the one that its sender's ledger holds."""
        ledgers = {s.name: s.state / "ledger.db" for s in self.sites}
        return history(ledgers, {}, rounds)


def three(folder: Path, rounds: int = 3, **deploy: Any) -> Fleet:
    """Three agents on this machine's loopback."""
    places: list[str | None] = [f"127.0.0.1:{p}" for p in free_ports(3)]
    plan = lab_plan(places, rounds, "ring", **{"deadline": 5.0, "patience": 120.0} | deploy)
    return Fleet(plan, folder, namespaces=False)


def fresh(fleet: Fleet) -> None:
    """Forget states and draws, and that the key folders know of them, which nobody does in earnest: a new run."""
    for site in fleet.sites:
        shutil.rmtree(site.keys / "agreements", ignore_errors=True)
        shutil.rmtree(site.state, ignore_errors=True)
        shutil.rmtree(site.data.parent / "draws", ignore_errors=True)
