"""One party as a process: files in, exit code out, and what its owner sees meanwhile.

A party's folder (`--state`) holds `ledger.db` with its states beside it, `agreement.json` as it was given, `log.jsonl`
(one line per event), `status.json` and, at the end, `model.npz` and `certificate.json`. Nothing of it leaves the
machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from coterie import programs
from coterie.deploy.accounts import DataAccount
from coterie.deploy.agent import Agent, GaveUp
from coterie.deploy.agreement import AGREEMENT, Agreement, Ended, read_agreement
from coterie.deploy.anchor import Anchor
from coterie.deploy.apart import apart, keep_buffers
from coterie.deploy.data import is_stored
from coterie.deploy.drawing import Drawing, need_account
from coterie.deploy.files import private_files, private_folder, write_bytes
from coterie.deploy.grpc_transport import GrpcPost, GrpcTransport
from coterie.deploy.journal import EvidenceFolder, Log, Recent, for_owner, listening, log, shown
from coterie.deploy.kept import sent_again
from coterie.deploy.keys import PartyKeys, load_party
from coterie.deploy.ledger import DurableLedger, LedgerFailure, RolledBack
from coterie.deploy.node_program import without_threads
from coterie.deploy.noise import Source, SystemSource
from coterie.deploy.pairs import PairSecrets, shares
from coterie.deploy.party import Party, Records, Terms, read_records
from coterie.deploy.sealing import VOLATILE, filesystem
from coterie.deploy.shared import SharedParty, join
from coterie.deploy.succession import carry_over, check_amended
from coterie.deploy.sum_agent import Disputed, SumAgent
from coterie.deploy.transport import NeighbourKnowsMore
from coterie.deploy.watch import Watch
from coterie.deploy.window import Window, WindowPlace
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.privacy.ledger import Budget, BudgetExceeded
from coterie.problems.people import numbered_people

__all__ = ["EXIT", "open_party", "run_party"]

LARGE = 1 << 20  # bytes of a buffer: from here on the pages of a fresh one cost more than its use
EXIT = {
    "done": 0, "input": 2, "budget": 3, "ledger": 4, "rolled back": 5, "gave up": 6, "ended": 7, "disputed": 8,
    "stopped": 130,
}  # fmt: skip


class ReadyParty:
    """A party with everything checked that can be checked before a record is used or a byte is sent."""

    def __init__(self, agreement: Agreement, keys: PartyKeys, party: Party, ledger: DurableLedger, note: Log):
        self.agreement, self.keys, self.party, self.ledger, self.note = agreement, keys, party, ledger, note


@contextlib.contextmanager
def open_party(
    agreement: Path, keys: Path, data: Path, state: Path, me: str | None = None, account: DataAccount | None = None
) -> Iterator[ReadyParty]:  # fmt: skip
    """Read the keys, the agreement, the ledger and, at last, the records of one party; refuse what does not fit.

    With an `account` the agreement's whole charge is drawn from it, once, before anything can be released.
    """
    programs.keep_nothing()  # nor is one taken from a cache: such a program cannot be sent on to another process
    without_threads()
    own = load_party(keys)
    if me not in (None, own.name):
        raise InputError(f"the keys in {keys} belong to {own.name}, not to {me}")
    agreed = read_agreement(agreement, own.authority)
    agreed.check_keys(own.identity)
    node = agreed.index(own.name)
    log.info("agreement %s, valid until %s; works out its noise and price", agreed.plan_hash.hex()[:16],
             f"{agreed.valid_until:%Y-%m-%d %H:%M} UTC")  # fmt: skip
    turns = apart(lambda: Turns.of(Terms.of(agreed.plan), node).compiled())  # of public numbers alone
    if 8 * turns.count > LARGE:
        keep_buffers()
    if shares(turns.laws):
        PairSecrets.of(agreed, own)  # refuses a key that gives no secret
    if not data.is_file():
        raise InputError(f"--data {data} is no file")
    privacy = agreed.plan.privacy
    assert privacy is not None  # a private algorithm has a budget
    epsilon = privacy.epsilon[node] if isinstance(privacy.epsilon, list) else privacy.epsilon
    private_folder(state)
    need_account(own, agreed, account)
    drawing = None if account is None else Drawing.of(account, agreed, own, turns, data)
    if drawing is not None:
        drawing.check(check_amended(keys, state, agreed, own.name))  # before the agreement in force is closed for it
    if (kind := filesystem(state)) in VOLATILE:
        log.warning("the state folder is on %s: a reboot loses the ledger", kind)
    charges = [event for round in turns.charges for event in round]
    earlier = carry_over(keys, state, agreed, own.name, charges)
    with (
        contextlib.closing(Anchor(keys, agreed.plan_hash)) as anchor,
        DurableLedger(
            state / "ledger.db", budget=Budget(epsilon, privacy.delta), plan_hash=agreed.plan_hash, agent=own.name,
            plan=charges, create=True, anchor=anchor, most=None if turns.sharing is None else turns.sharing.most,
            earlier=earlier,
        ) as ledger,
    ):  # fmt: skip
        agreed.write(state / AGREEMENT, private=True)  # for the report
        if ledger.closed is not None:  # before a record is read
            raise BudgetExceeded(f"the budget of {state / 'ledger.db'} is closed for good: {ledger.closed}")
        with contextlib.closing(Log(state / "log.jsonl")) as note, listening(note):
            note("agreement", plan_hash=agreed.plan_hash.hex())
            log.info("ledger %s: %d of %d rounds are done; reads %s", state / "ledger.db", ledger.last + 1,
                     len(turns.charges), data)  # fmt: skip
            read = lambda: read_records(agreed.plan, data)  # noqa: E731
            records = read() if is_stored(data) else apart(read)  # pandas is large, and nothing else needs it
            for column, remark in records.remarks:  # only the owner hears of them
                for_owner.warning(remark, extra={"about": column})
            ledger.releases(fingerprint(own, records))
            party = join(turns, records)
            if drawing is not None:
                draw = drawing.draw(ledger.earlier)
                log.info("account %s: ε %.4g is drawn for this agreement", drawing.account.path, draw.epsilon)
            yield ReadyParty(agreed, own, party, ledger, note)


def fingerprint(keys: PartyKeys, records: Records) -> bytes:
    """Which records these are, as only their owner can tell: the ledger refuses others after its first release."""
    given = [records.features, np.asarray(records.targets)]
    if records.people is not None:  # numbered, so that another way to write the same names is the same
        given.append(numbered_people(records.people))
    arrays = [np.ascontiguousarray(a) for a in given]
    parts = [part for a in arrays for part in (f"{a.dtype.str}{a.shape}".encode(), a.tobytes())]
    return keys.keyed_hash(b"records", [*parts, *(name.encode() for name in records.classes or ())])


def run_party(
    agreement: Path,
    keys: Path,
    data: Path,
    state: Path,
    *,
    me: str | None = None,
    account: DataAccount | None = None,
    listen: str | None = None,
    behind: Path | None = None,
    source: Source | None = None,
    metrics: WindowPlace | None = None,
    show: Callable[[str], None] | None = None,
    level: str = "info",
) -> int:
    """Run one party to the end; returns the exit code (`EXIT`). A user's mistake raises InputError."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the loop has a better way to stop
    with private_files(), shown(level) as recent:
        try:
            with open_party(agreement, keys, data, state, me, account) as opened:
                kind = asyncio.run(
                    _main(opened, state, source or SystemSource(), listen, behind, metrics, show, recent)
                )
        except BaseException as error:
            kind = _kind(error)
            log.info("ends: %s, exit code %d", kind, EXIT.get(kind, 1))
            _note_end(state, kind, str(error) or type(error).__name__)
            if kind not in REASONS:  # a user's mistake, which the command line prints; or one of ours
                raise
            if kind != "stopped":
                print(f"error: {error}", file=sys.stderr)
            if kind == "ledger":
                os._exit(EXIT["ledger"])  # nothing may be written after a failed write, not even by a destructor
        else:
            log.info("ends: %s, exit code %d", kind, EXIT[kind])
            _note_end(state, kind)
    return EXIT[kind]


REASONS: dict[str, tuple[type[BaseException], ...]] = {
    "budget": (BudgetExceeded,),
    "ledger": (LedgerFailure,),
    "rolled back": (RolledBack, NeighbourKnowsMore),
    "ended": (Ended,),
    "gave up": (GaveUp,),
    "disputed": (Disputed,),
    "stopped": (KeyboardInterrupt,),
}


def _kind(error: BaseException) -> str:
    """Why a process ends."""
    found = next((kind for kind, types in REASONS.items() if isinstance(error, types)), None)
    return found or ("input" if isinstance(error, InputError) else "failed")


def _note_end(state: Path, kind: str, reason: str = "") -> None:
    """The last line of the log: how it ended, with which exit code, and why."""
    with contextlib.suppress(InputError, OSError):
        if state.is_dir() and not state.stat().st_mode & stat.S_ISVTX:  # it came so far, and no other user writes there
            note = Log(state / "log.jsonl")
            note("end", how=kind, code=EXIT.get(kind, 1), reason=reason)
            note.close()


async def _main(
    opened: ReadyParty, state: Path, source: Source, listen: str | None, behind: Path | None,
    metrics: WindowPlace | None, show: Callable[[str], None] | None, recent: Recent,
) -> str:  # fmt: skip
    """Take part to the end; how it ended ("done" or "stopped"), or an exception that says so."""
    agreement, keys, note = opened.agreement, opened.keys, opened.note
    agent, calls = _agent(opened, source, EvidenceFolder(state / "evidence"), listen, behind)
    watch, model = Watch(agent, calls, state, recent, show), state / "model.npz"
    _announce(agreement, keys.name, listen)
    async with Window(metrics, watch):
        running = asyncio.ensure_future(agent.run(lambda point: _save(model, agent, point), _saved(model)))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        watching = asyncio.create_task(watch.forever())
        try:
            await running
            log.info("works out its certificate")
            await asyncio.to_thread(_certify, state / "certificate.json", opened)  # seconds; the window stays open
            return "done"
        except asyncio.CancelledError:
            note("stopped")
            return "stopped"
        except LedgerFailure as error:
            _note_end(state, "ledger", str(error))
            print(f"error: {error}", file=sys.stderr)
            os._exit(EXIT["ledger"])  # at once: nothing may be sent or stored after a failed write
        finally:
            watching.cancel()
            watch.write(ended=True)
            watch.tell_refusals()


def _agent(
    opened: ReadyParty, source: Source, evidence: EvidenceFolder, listen: str | None, behind: Path | None
) -> tuple[Agent | SumAgent, GrpcPost | GrpcTransport]:
    """The agent that the plan's exchange asks for, and its connections."""
    agreement, keys, party, ledger = opened.agreement, opened.keys, opened.party, opened.ledger
    if isinstance(party, SharedParty):
        terms = party.sharing.terms(agreement, party.count)
        post = GrpcPost(agreement, keys.name, keys, largest=terms.longest, listen=listen, behind=behind)
        return SumAgent(agreement, keys, party, ledger, post, terms, source, opened.note, evidence), post
    transport = GrpcTransport(
        agreement, keys.name, keys,
        wire=party.wire, outbox=ledger.frame, held=ledger.held(), listen=listen, behind=behind, evidence=evidence,
    )  # fmt: skip
    return Agent(agreement, keys, party, ledger, transport, source, opened.note), transport


def _announce(agreement: Agreement, me: str, listen: str | None) -> None:
    """Whom this party waits for and whom it calls: the order in which they start does not matter."""
    around = agreement.neighbours(me)
    calls = [f"{n} at {agreement.party(n).address}" for n in around if agreement.dials(me, n)]
    called = [n for n in around if agreement.dials(n, me)]
    if called:
        log.info("waits at %s for calls of %s", listen or agreement.party(me).address, ", ".join(called))
    if calls:
        log.info("calls %s, again and again until it answers", ", ".join(calls))


def _save(path: Path, agent: Agent | SumAgent, point: np.ndarray) -> None:
    """The model, durably: neighbours may leave once it is there."""
    from coterie.report.released import party_model
    from coterie.report.sealing import plan_hash

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


def _certify(path: Path, opened: ReadyParty) -> None:
    """What this party was charged, signed with its frame key: `coterie verify` recomputes it (docs/certificate.md)."""
    from coterie.deploy.certify import unsigned_certificate
    from coterie.report.released import MODEL
    from coterie.report.sealing import seal, sha256

    files = {MODEL: sha256((path.parent / MODEL).read_bytes())}
    again = sent_again(opened.ledger) if isinstance(opened.party, SharedParty) else 0
    body = unsigned_certificate(opened.agreement.plan, opened.party.node, opened.ledger.entries, again, files)
    content = seal(body, opened.keys.folder / "frame.key")
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode(), private=True)
