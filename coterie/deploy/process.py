"""One party as a process: files in, exit code out, and what its owner sees meanwhile.

A party's folder (`--state`) holds `ledger.db` with its states beside it, `log.jsonl` (one line per event),
`status.json` and, at the end, `model.npz`. Nothing of it leaves the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
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

from coterie import programs
from coterie.deploy.agent import Agent, GaveUp
from coterie.deploy.agreement import Agreement, Ended, read_agreement
from coterie.deploy.anchor import Anchor
from coterie.deploy.apart import apart
from coterie.deploy.files import private_files, private_folder, write_bytes
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.journal import Evidence, Log, listening
from coterie.deploy.keys import PartyKeys, load_party
from coterie.deploy.ledger import DurableLedger, LedgerFailure, RolledBack
from coterie.deploy.noise import Source, SystemSource
from coterie.deploy.party import Party, Records, Terms, read_records
from coterie.deploy.secret import join
from coterie.deploy.transport import RolledBack as NeighbourKnowsMore
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.privacy.ledger import Budget, BudgetExceeded

__all__ = ["EXIT", "open_party", "read_status", "run_party"]

EXIT = {"done": 0, "input": 2, "budget": 3, "ledger": 4, "rolled back": 5, "gave up": 6, "ended": 7, "stopped": 130}
READERS = 8  # of the numbers for Prometheus at a time
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
    turns = apart(lambda: Turns.of(Terms.of(agreed.plan), node).compiled())  # of public numbers alone
    if not data.is_file():
        raise InputError(f"--data {data} is no file")
    privacy = agreed.plan.privacy
    assert privacy is not None  # a private algorithm has a budget
    epsilon = privacy.epsilon[node] if isinstance(privacy.epsilon, list) else privacy.epsilon
    private_folder(state)
    charges = [event for round in turns.charges for event in round]
    with (
        contextlib.closing(Anchor(keys, agreed.plan_hash)) as anchor,
        DurableLedger(
            state / "ledger.db", budget=Budget(epsilon, privacy.delta), plan_hash=agreed.plan_hash, agent=own.name,
            plan=charges, create=True, anchor=anchor,
        ) as ledger,
    ):  # fmt: skip
        if ledger.closed is not None:  # before a record is read
            raise BudgetExceeded(f"the budget of {state / 'ledger.db'} is closed for good: {ledger.closed}")
        with contextlib.closing(Log(state / "log.jsonl")) as note, listening(note):  # only the owner hears of records
            read = lambda: read_records(agreed.plan, data)  # noqa: E731
            records = read() if data.suffix == ".npz" else apart(read)  # pandas is large, and nothing else needs it
            ledger.releases(fingerprint(own, records))
            party = join(turns, records, agreed.plan, agreed.plan_hash)
        yield Opened(agreed, own, party, ledger)


def fingerprint(keys: PartyKeys, records: Records) -> bytes:
    """Which records these are, as only their owner can tell: the ledger refuses others after its first release."""
    arrays = [np.ascontiguousarray(a) for a in (records.features, np.asarray(records.targets))]
    parts = [part for a in arrays for part in (f"{a.dtype.str}{a.shape}".encode(), a.tobytes())]
    return keys.keyed_hash(b"records", [*parts, *(name.encode() for name in records.classes or ())])


def run_party(
    agreement: Path,
    keys: Path,
    data: Path,
    state: Path,
    *,
    me: str | None = None,
    listen: str | None = None,
    behind: Path | None = None,
    source: Source | None = None,
    metrics: int | None = None,
    show: Callable[[str], None] | None = None,
) -> int:
    """Run one party to the end; returns the exit code (`EXIT`). A user's mistake raises InputError."""
    programs.keep_nothing()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the loop has a better way to stop
    with private_files():
        try:
            with open_party(agreement, keys, data, state, me) as opened:
                kind = asyncio.run(_main(opened, state, source or SystemSource(), listen, behind, metrics, show))
        except BaseException as error:
            kind = _kind(error)
            _note_end(state, kind, str(error) or type(error).__name__)
            if kind not in REASONS:  # a user's mistake, which the command line prints; or one of ours
                raise
            if kind != "stopped":
                print(f"error: {error}", file=sys.stderr)
            if kind == "ledger":
                os._exit(EXIT["ledger"])  # nothing may be written after a failed write, not even by a destructor
        else:
            _note_end(state, kind)
    return EXIT[kind]


REASONS: dict[str, tuple[type[BaseException], ...]] = {
    "budget": (BudgetExceeded,),
    "ledger": (LedgerFailure,),
    "rolled back": (RolledBack, NeighbourKnowsMore),
    "ended": (Ended,),
    "gave up": (GaveUp,),
    "stopped": (KeyboardInterrupt,),
}


def _kind(error: BaseException) -> str:
    """Why a process ends."""
    found = next((kind for kind, types in REASONS.items() if isinstance(error, types)), None)
    return found or ("input" if isinstance(error, InputError) else "failed")


def _note_end(state: Path, kind: str, reason: str = "") -> None:
    """The last line of the log: how it ended, with which exit code, and why."""
    with contextlib.suppress(InputError):
        if state.is_dir():  # else it did not come so far
            note = Log(state / "log.jsonl")
            note("end", how=kind, code=EXIT.get(kind, 1), reason=reason)
            note.close()


async def _main(
    opened: Opened, state: Path, source: Source, listen: str | None, behind: Path | None, metrics: int | None, show: Any
) -> str:
    """Take part to the end; how it ended ("done" or "stopped"), or an exception that says so."""
    agreement, keys, party, ledger = opened.agreement, opened.keys, opened.party, opened.ledger
    note, evidence = Log(state / "log.jsonl"), Evidence(state / "evidence")
    transport = GrpcTransport(
        agreement, keys.name, keys,
        wire=party.wire, outbox=ledger.frame, held=ledger.held(), listen=listen, behind=behind, evidence=evidence,
    )  # fmt: skip
    agent = Agent(agreement, keys, party, ledger, transport, source, note, evidence)
    watch = Watch(agent, state, show)
    server = None if metrics is None else await watch.serve(metrics)
    model = state / "model.npz"
    with listening(note):
        running = asyncio.ensure_future(agent.run(lambda point: _save(model, agent, point), _saved(model)))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        watching = asyncio.create_task(watch.forever())
        try:
            await running
            _certify(state / "certificate.json", opened)
            return "done"
        except asyncio.CancelledError:
            note("stopped")
            return "stopped"
        except LedgerFailure as error:
            _note_end(state, "ledger", str(error))
            print(f"error: {error}", file=sys.stderr)
            os._exit(EXIT["ledger"])  # at once: nothing may be sent or stored after a failed write
        finally:
            if server is not None:
                server.close()
            watching.cancel()
            watch.write(ended=True)
            note.close()


def _save(path: Path, agent: Agent, point: np.ndarray) -> None:
    """The model, durably: neighbours may leave once it is there."""
    from coterie.report.certificate import plan_hash
    from coterie.report.released import party_model

    spent, rounds = agent.ledger.spent(), agent.party.turns.rounds
    plan = plan_hash(agent.agreement.plan)
    model = party_model(point, plan=plan, rounds=rounds, epsilon=spent, delta=agent.ledger.budget.delta)
    write_bytes(path, model, private=True)
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
    from coterie.deploy.certify import unsigned_certificate
    from coterie.report.certificate import seal, sha256
    from coterie.report.released import MODEL

    files = {MODEL: sha256((path.parent / MODEL).read_bytes())}
    body = unsigned_certificate(opened.agreement.plan, opened.party.node, opened.ledger.entries, files)
    content = seal(body, opened.keys.folder / "frame.key")
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode(), private=True)


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
            "neighbours": alive, "trouble": self.agent.transport.trouble, "updated": time.time(),
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

        places = asyncio.Semaphore(READERS)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if places.locked():  # anybody on this machine may ask, and nobody may use up its descriptors
                writer.transport.abort()
                return
            async with places:
                await reply(reader, writer)

        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
    trouble = facts.get("trouble", {})
    names = (f"{name} ({trouble[name]})" if name in trouble else name for name in facts["waiting"])
    late = f", waiting for {', '.join(names)}" if facts["waiting"] else ""
    return (
        f"{facts['party']}: round {facts['round']}/{facts['rounds']}, ε {facts['epsilon']:.3f} of {facts['budget']:g}, "
        f"{sum(alive.values())}/{len(alive)} neighbours, {facts['phase']}{late}"
    )


def read_status(state: Path) -> dict[str, Any]:
    """The status of a party that runs, or ran, in this folder; `running` says which, None that it cannot be known."""
    try:
        facts = json.loads((state / "status.json").read_text(encoding="utf-8"))
    except PermissionError:
        raise InputError(f"cannot read {state}: whether an agent runs there is for its owner to ask") from None
    except (OSError, ValueError):
        raise InputError(f"no agent has run in {state}: there is no status.json") from None
    try:
        os.kill(facts["pid"], 0)
        facts["running"] = not facts["ended"]
    except PermissionError:  # there is such a process, of another user
        facts["running"] = False if facts.get("ended") else None
    except (OSError, KeyError):
        facts["running"] = False
    return facts
