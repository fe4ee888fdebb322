"""One party as a process: files in, exit code out, and what its owner sees meanwhile.

A party's folder (`--state`) holds `ledger.db` with its states beside it, `log.jsonl` (one line per event),
`status.json` and, at the end, `model.npz`. Nothing of it leaves the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import io
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from coterie.deploy.agent import Agent, GaveUp
from coterie.deploy.agreement import Agreement, read_agreement
from coterie.deploy.files import write_bytes
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.keys import PartyKeys, load_party
from coterie.deploy.ledger import DurableLedger, LedgerFailure, RolledBack
from coterie.deploy.noise import Source, SystemSource
from coterie.deploy.party import Party, Terms, read_records
from coterie.deploy.secret import join
from coterie.deploy.transport import RolledBack as NeighbourKnowsMore
from coterie.errors import InputError
from coterie.privacy.events import Free
from coterie.privacy.ledger import Budget, BudgetExceeded

__all__ = ["EXIT", "open_party", "read_status", "run_party"]

EXIT = {"done": 0, "input": 2, "budget": 3, "ledger": 4, "rolled back": 5, "gave up": 6, "stopped": 130}
EVERY = 1.0  # seconds between two writings of status.json
EFFORT = 200  # ε, for a party that runs, is worked out anew when so many times as long as that takes have passed


class Opened:
    """A party with everything checked that can be checked before a record is used or a byte is sent."""

    def __init__(self, agreement: Agreement, keys: PartyKeys, party: Party, ledger: DurableLedger):
        self.agreement, self.keys, self.party, self.ledger = agreement, keys, party, ledger


@contextlib.contextmanager
def open_party(agreement: Path, keys: Path, data: Path, state: Path, me: str | None = None) -> Iterator[Opened]:
    """Read the keys, the agreement, the ledger and, at last, the records of one party; refuse what does not fit."""
    own = load_party(keys)
    if me not in (None, own.name):
        raise InputError(f"the keys in {keys} belong to {own.name}, not to {me}")
    agreed = read_agreement(agreement, own.authority)
    agreed.check_keys(own.identity)
    node = agreed.index(own.name)
    terms = Terms.of(agreed.plan)
    privacy = agreed.plan.privacy
    assert privacy is not None  # a private algorithm has a budget
    epsilon = privacy.epsilon[node] if isinstance(privacy.epsilon, list) else privacy.epsilon
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {state}: {error.strerror}") from None
    with DurableLedger(
        state / "ledger.db", budget=Budget(epsilon, privacy.delta), plan_hash=agreed.plan_hash, agent=own.name,
        plan=[event for round in terms.charges(node) for event in round], create=True,
    ) as ledger:  # fmt: skip
        if ledger.closed is not None:  # before a record is read
            raise BudgetExceeded(f"the budget of {state / 'ledger.db'} is closed for good: {ledger.closed}")
        yield Opened(agreed, own, join(agreed, node, terms, read_records(agreed.plan, data)), ledger)


def run_party(
    agreement: Path,
    keys: Path,
    data: Path,
    state: Path,
    *,
    me: str | None = None,
    listen: str | None = None,
    source: Source | None = None,
    metrics: int | None = None,
    show: Callable[[str], None] | None = None,
) -> int:
    """Run one party to the end; returns the exit code (`EXIT`). A user's mistake raises InputError."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the loop has a better way to stop
    try:
        with open_party(agreement, keys, data, state, me) as opened:
            return asyncio.run(_main(opened, state, source or SystemSource(), listen, metrics, show))
    except BudgetExceeded as error:
        return _complain("budget", error)
    except LedgerFailure as error:
        _complain("ledger", error)
        os._exit(EXIT["ledger"])  # nothing may be written after a failed write, not even by a destructor
    except (RolledBack, NeighbourKnowsMore) as error:
        return _complain("rolled back", error)
    except GaveUp as error:
        return _complain("gave up", error)
    except KeyboardInterrupt:
        return EXIT["stopped"]


def _complain(kind: str, error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr)
    return EXIT[kind]


async def _main(opened: Opened, state: Path, source: Source, listen: str | None, metrics: int | None, show: Any) -> int:
    agreement, keys, party, ledger = opened.agreement, opened.keys, opened.party, opened.ledger
    note = Log(state / "log.jsonl")
    transport = GrpcTransport(
        agreement, keys.name, keys,
        wire=party.wire, outbox=ledger.frame, held=ledger.held(), listen=listen,
    )  # fmt: skip
    agent = Agent(agreement, keys, party, ledger, transport, source, note)
    watch = Watch(agent, state, show)
    server = None if metrics is None else await watch.serve(metrics)
    model = state / "model.npz"
    running = asyncio.ensure_future(agent.run(lambda point: _save(model, agent, point), _saved(model)))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    watching = asyncio.create_task(watch.forever())
    try:
        await running
        _certify(state / "certificate.json", opened)
        return EXIT["done"]
    except asyncio.CancelledError:
        note("stopped")
        return EXIT["stopped"]
    except LedgerFailure as error:
        note("end", phase=agent.status.phase)
        _complain("ledger", error)
        os._exit(EXIT["ledger"])  # at once: nothing may be sent or stored after a failed write, by no destructor either
    finally:
        if server is not None:
            server.close()
        watching.cancel()
        watch.write(ended=True)
        note("end", phase=agent.status.phase)
        note.close()


class Log:
    """log.jsonl: one line per event, for the owner. It decides nothing, so a line that cannot be written is dropped."""

    def __init__(self, path: Path):
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None

    def __call__(self, event: str, **facts: Any) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError):
            self._file.write((json.dumps({"time": now, "event": event, **facts}) + "\n").encode())

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def _save(path: Path, agent: Agent, point: np.ndarray) -> None:
    """The model, durably: neighbours may leave once it is there."""
    content = io.BytesIO()
    spent = agent.ledger.spent()
    np.savez(content, point=point, epsilon=spent, delta=agent.ledger.budget.delta)
    write_bytes(path, content.getvalue())
    agent.note("model", epsilon=spent)


def _saved(path: Path) -> np.ndarray | None:
    """The model that an earlier process of this party has stored."""
    try:
        with np.load(path) as stored:
            return np.asarray(stored["point"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _certify(path: Path, opened: Opened) -> None:
    """What this party was charged, signed with its frame key: `coterie verify` recomputes it (docs/certificate.md)."""
    from coterie.report.certificate import SECURE, certificate, seal

    terms, party = opened.party.terms, opened.party
    charged = {party.node: [entry.event for entry in opened.ledger.entries if not isinstance(entry.event, Free)]}
    body = certificate(terms.plan, terms.network, terms.priced, noise=SECURE, charged=charged)
    content = seal(body, opened.keys.folder / "frame.key")
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


class Watch:
    """What the owner sees: a status line, a status file, and numbers for Prometheus. All of it stays here."""

    def __init__(self, agent: Agent, state: Path, show: Callable[[str], None] | None):
        self.agent, self.state, self.show = agent, state, show
        self._priced, self._again = (-1, 0.0), 0.0

    def facts(self, ended: bool = False) -> dict[str, Any]:
        """Everything that is shown."""
        status, ledger = self.agent.status, self.agent.ledger
        now = time.monotonic()
        if self._priced[0] != ledger.last and (ended or now >= self._again):
            self._priced = (ledger.last, ledger.spent())
            self._again = time.monotonic() + EFFORT * (time.monotonic() - now)
        alive = self.agent.transport.alive
        return {
            **asdict(status), "epsilon": self._priced[1], "party": self.agent.name, "pid": os.getpid(),
            "neighbours": alive, "updated": time.time(),
        }  # fmt: skip

    def write(self, ended: bool = False) -> None:
        """Renew status.json, in one step."""
        with contextlib.suppress(OSError):
            new = self.state / "status.json.new"
            new.write_text(json.dumps(self.facts(ended) | {"ended": ended}), encoding="utf-8")
            new.replace(self.state / "status.json")

    async def forever(self) -> None:
        """Renew file and line, from time to time."""
        while True:
            self.write()
            if self.show is not None:
                self.show(line(self.facts()))
            await asyncio.sleep(EVERY)

    async def serve(self, port: int) -> asyncio.Server:
        """Prometheus text on the loopback address only."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
                body = self.metrics().encode()
                head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
            writer.close()

        try:
            return await asyncio.start_server(answer, "127.0.0.1", port, limit=8192)
        except OSError as error:
            raise InputError(f"--metrics {port}: {error.strerror}") from None

    def metrics(self) -> str:
        """The numbers in Prometheus' text format."""
        facts = self.facts()
        out = [
            ("coterie_rounds_sent", "counter", "rounds sent and charged", facts["round"]),
            ("coterie_rounds", "gauge", "rounds of the plan", facts["rounds"]),
            ("coterie_epsilon_spent", "gauge", "privacy budget spent", facts["epsilon"]),
            ("coterie_epsilon_budget", "gauge", "privacy budget", facts["budget"]),
            ("coterie_neighbours_alive", "gauge", "neighbours connected", sum(facts["neighbours"].values())),
        ]
        return "".join(f"# HELP {n} {h}\n# TYPE {n} {k}\n{n} {v}\n" for n, k, h, v in out)


def line(facts: dict[str, Any]) -> str:
    """The status in one line."""
    alive = facts["neighbours"]
    late = f", waiting for {', '.join(facts['waiting'])}" if facts["waiting"] else ""
    return (
        f"{facts['party']}: round {facts['round']}/{facts['rounds']}, ε {facts['epsilon']:.3f} of {facts['budget']:g}, "
        f"{sum(alive.values())}/{len(alive)} neighbours, {facts['phase']}{late}"
    )


def read_status(state: Path) -> dict[str, Any]:
    """The status of a party that runs, or ran, in this folder; `running` says which."""
    try:
        facts = json.loads((state / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"no agent has run in {state}: there is no status.json") from None
    try:
        os.kill(facts["pid"], 0)
        facts["running"] = not facts["ended"]
    except (OSError, KeyError):
        facts["running"] = False
    return facts
