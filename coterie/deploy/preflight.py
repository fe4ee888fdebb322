"""Everything that can be checked before a party starts, all problems at once. Nothing is charged, stored or greeted.

What is found in the records is for their owner: it is shown where the command runs and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import coterie
from coterie.data.planned import options_of
from coterie.data.survey import survey
from coterie.deploy.accounts import DataAccount
from coterie.deploy.agreement import EVER, Agreement, read_agreement, unverified
from coterie.deploy.anchor import Anchor
from coterie.deploy.data import is_stored
from coterie.deploy.door import crowd_limit, listening_sockets
from coterie.deploy.drawing import Drawing, need_account
from coterie.deploy.host import has_host
from coterie.deploy.journal import for_owner
from coterie.deploy.keys import PartyKeys, load_party, read_certificate
from coterie.deploy.party import Records, Terms, read_records
from coterie.deploy.reach import Level, ReachFinding, certificate_findings, reach
from coterie.deploy.reading import look
from coterie.deploy.sealing import PAGE, VOLATILE, filesystem
from coterie.deploy.shared import SharedParty, join
from coterie.deploy.storage import SMALL, refuse_network
from coterie.deploy.succession import check_amended, in_all
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.names import host_and_port

__all__ = ["ledger_need", "preflight"]

SOON = 3.0  # days before the end of the agreement
LOG = 1 << 26  # bytes: how large the ledger's log becomes before it is folded in
ROW, HELD = 1600, 260  # bytes of a round beside its frame, and for each neighbour
PAGES = 4  # of the log for each transaction, beside frame and state
STEPS, DEALING = 16, 6  # such transactions of a secret sum for each round, and of a batch for each party


def preflight(
    agreement: Path, keys: Path, data: Path, state: Path, me: str, listen: str | None, behind: Path | None = None,
    account: DataAccount | None = None,
) -> list[ReachFinding]:  # fmt: skip
    """Look at everything; a problem in one place does not hide those in others."""
    checks = _Checks()
    checks.say("ok", "software", f"coterie {coterie.__version__}")
    own = checks.keys(keys, me)
    agreed = checks.agreement(agreement, own)
    if agreed is None:
        return checks.found
    with checks.about("agreement"):
        agreed.index(me)
        if own is not None:  # first: when a neighbour hears of it must not depend on how long records take to read
            found = asyncio.run(_all(*(reach(own, agreed, name) for name in agreed.neighbours(me))))
            checks.found += [finding for each in found for finding in each]
        running = checks.ledger(agreed, keys, state, me)
        checks.plan(agreed, data, state, me)
        checks.account(agreed, own, data, state, account)
        checks.listening(agreed, me, listen, behind, running)
    return checks.found


async def _all(*jobs) -> list[list[ReachFinding]]:  # type: ignore[no-untyped-def]
    return list(await asyncio.gather(*jobs))


def ledger_need(frame: int, state: int, rounds: int, neighbours: int, steps: float = 1) -> int:
    """Bytes that a ledger of so many rounds needs, its log and states included; on the large side.

    `steps`: transactions of a round.
    """
    rows, state = rounds * (frame + ROW + HELD * neighbours), state + neighbours * frame
    log = rounds * (steps * PAGES * PAGE + frame + min(state, SMALL))
    return int(1.1 * (rows + min(LOG + frame, log) + 2 * state)) + (1 << 16)


class _Checks:
    """Collects findings."""

    def __init__(self) -> None:
        self.found: list[ReachFinding] = []

    def say(self, level: Level, about: str, text: str) -> None:
        self.found.append(ReachFinding(level, about, text))

    @contextlib.contextmanager
    def about(self, what: str) -> Iterator[None]:
        """Whatever is refused inside is a problem of this."""
        try:
            yield
        except InputError as error:
            self.say("problem", what, str(error))

    def keys(self, folder: Path, me: str) -> PartyKeys | None:
        with self.about("keys"):
            certificate = read_certificate(folder / "certificate.pem").certificate
            own = load_party(folder, certificate.not_valid_before_utc)  # its dates are looked at below
            if own.name != me:
                raise InputError(f"the keys in {folder} belong to {own.name}, not to {me}")
            self.found += certificate_findings(own.identity, own, None)
            start = own.authority.certificate.not_valid_before_utc
            if dt.datetime.now(dt.UTC) < start:
                self.say("problem", "clock", f"the authority was made on {start:%Y-%m-%d}: our clock is behind")
            return own
        return None

    def agreement(self, path: Path, own: PartyKeys | None) -> Agreement | None:
        agreed = None
        with self.about("agreement"):
            if own is None:
                agreed = unverified(path)
                self.say("warning", "agreement", "its signature is not checked: the keys cannot be read")
            else:
                agreed = read_agreement(path, own.authority, EVER)  # its date is looked at below
                self.say("ok", "agreement", f"signed by {own.authority.name}, plan hash {agreed.plan_hash.hex()[:16]}")
        if agreed is None:
            return None
        with self.about("agreement"):
            agreed.check_date()
            left = (agreed.valid_until - dt.datetime.now(dt.UTC)).total_seconds() / 86400
            text = f"valid until {agreed.valid_until:%Y-%m-%d %H:%M} UTC, {left:.1f} days"
            self.say("warning" if left < SOON else "ok", "agreement", text)
        with self.about("pins"):
            if own is not None:
                agreed.check_keys(own.identity)
                self.say("ok", "pins", "our keys are those in the agreement")
        return agreed

    def plan(self, agreed: Agreement, data: Path, state: Path, me: str) -> None:
        """The records against the plan, and the disk against what the plan will write."""
        node, plan = agreed.index(me), agreed.plan
        terms = None
        with self.about("plan"):
            terms = Terms.of(plan)
        before = len(self.found)
        with self.about("data"):
            if not data.is_file():
                raise InputError(f"--data {data} is no file")
            if not is_stored(data) and plan.data.label is not None:
                problems, changed = survey(data, options_of(plan, "csv"))
                self.found += [ReachFinding("problem", "data", f"{data}: {text}") for text in problems]
                self.found += [ReachFinding("warning", "data", f"{data}: {text}") for text in changed]
            if not any(f.level == "problem" for f in self.found[before:]):
                with _told() as told:
                    records = read_records(plan, data)
                    told.clear()  # the survey has said so
                    if terms is not None:
                        terms.outline(node).shard(records)
                self.found += [ReachFinding("warning", "data", f"{data}: {text}") for text in told]
                whose = (
                    f" of {len(np.unique(records.people))} people"
                    if plan.by_person and records.people is not None
                    else ""
                )
                self.say("ok", "data", f"{len(records.features)} records{whose} of {records.features.shape[1]} numbers")
        with self.about("disk"):
            need = None if terms is None else _need(agreed, node, terms)
            self.disk(state, need)

    def disk(self, state: Path, need: int | None) -> None:
        place = next(p for p in (state, *state.absolute().parents) if p.exists())
        if not place.is_dir():
            raise InputError(f"{place} is a file, not a folder")
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            raise InputError(f"{place} cannot be written: {error.strerror}") from None
        refuse_network(place)
        if (kind := filesystem(place)) in VOLATILE:
            self.say("warning", "disk", f"the state folder is on {kind}: a reboot loses the ledger")
        if need is None:
            return
        used = sum(p.stat().st_size for p in state.glob("ledger.db*")) if state.is_dir() else 0
        free, wanted = shutil.disk_usage(place).free, max(0, need - used)
        text = f"{_size(wanted)} are needed for the ledger, {_size(free)} are free on {place}"
        self.say("problem" if free < wanted else "warning" if free < 2 * wanted else "ok", "disk", text)

    def ledger(self, agreed: Agreement, keys: Path, state: Path, me: str) -> bool:
        """Whether an agent runs here; what is wrong with the ledger that is there, or is not."""
        path = state / "ledger.db"
        identity, heads = "", []
        with self.about("ledger"):
            if path.exists():
                book, running = look(path)
                if running:
                    self.say("warning", "ledger", f"an agent is running in {state}, round {len(book.rows)}")
                    return True
            rounds = Terms.of(agreed.plan).charges(agreed.index(me)) if agreed.deploy.follows else []
            charges = [event for round in rounds for event in round]
            if earlier := check_amended(keys, state, agreed, me, charges):
                spent = in_all(earlier)
                said = f"ε {spent.epsilon:.4g} at δ {spent.delta:g} was spent under it and before"
                self.say("ok", "ledger", f"goes on from agreement {earlier[-1].plan_hash[:16]}: {said}")
            elif path.exists():
                if book.stopped:
                    raise InputError(f"the budget of {path} is closed for good: {book.stopped}")
                identity, heads = book.meta.identity, [row.hash for row in book.rows]
                self.say("ok", "ledger", f"{path}: {len(book.rows)} rounds are done")
            with contextlib.closing(Anchor(keys, agreed.plan_hash)) as anchor:
                anchor.refuse(path, identity, heads)
        return False

    def account(
        self, agreed: Agreement, own: PartyKeys | None, data: Path, state: Path, account: DataAccount | None
    ) -> None:  # fmt: skip
        """Whether the account that is given, or is not, would let the party start."""
        if own is None:
            return
        with self.about("account"):
            need_account(own, agreed, account)
            if account is None:
                return
            node = agreed.index(own.name)
            drawing = Drawing.of(account, agreed, own, Turns.of(Terms.of(agreed.plan), node), data)
            draw = drawing.check(check_amended(own.folder, state, agreed, own.name))
            found = account.statement()
            left = f"spent ε {found.spent:.4g} of {found.rules.budget.epsilon:g}"
            text = "the agreement fits" if draw is None else f"ε {draw.epsilon:.4g} is drawn for this agreement"
            self.say("ok", "account", f"{account.path}: {left}; {text}")

    def listening(self, agreed: Agreement, me: str, listen: str | None, behind: Path | None, running: bool) -> None:
        callers = [name for name in agreed.neighbours(me) if agreed.dials(name, me)]
        if not callers:
            return
        with self.about("open files"):
            crowd_limit(len(callers))
            self.say("ok", "open files", "the limit is high enough")
        address = agreed.party(me).address
        assert address is not None  # somebody calls it
        with self.about("own address"):
            host, port = host_and_port(address)
            try:
                places = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
            except OSError as error:
                raise InputError(f"our own name {host} cannot be resolved here: {error.strerror or error}") from None
            self.say("ok", "own address", f"{host} is {', '.join(sorted(places))}; {', '.join(callers)} will call it")
        if behind is not None:
            with self.about("host"):
                if not behind.is_dir():
                    raise InputError(f"--behind {behind} is no folder: start `coterie host` with it first")
                if not has_host(behind):
                    raise InputError(f"no `coterie host` is at work for {behind}: nobody could call")
                self.say("ok", "host", f"calls come through the host of {behind}")
        elif not running:
            with self.about("own address"):
                for one in listening_sockets(listen or address):
                    one.close()
                self.say("ok", "own address", f"{listen or address} can be listened at")


@contextlib.contextmanager
def _told() -> Iterator[list[str]]:
    """What the owner would be told of the records when the party starts."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    for_owner.addHandler(handler)
    try:
        yield lines
    finally:
        for_owner.removeHandler(handler)


def _need(agreed: Agreement, node: int, terms: Terms) -> int:
    """What the ledger will need, with records that nobody has: their number decides it, not what they say."""
    turns = Turns.of(terms, node)
    count, width, classes = turns.outline.count, turns.outline.width, turns.outline.classes
    names = None if classes is None else tuple(map(str, range(classes)))
    people = None if turns.outline.per_person is None else np.arange(count)
    targets = np.zeros(count, float if names is None else int)
    nothing = Records(np.zeros((count, width)), targets, names, (), people=people)
    party = join(turns, nothing)
    state = sum(part.nbytes for part in party.pack(party.begin()))
    if isinstance(party, SharedParty):  # of every round: SET, certificate and opening; of a batch: everybody's deal
        shared = party.sharing.terms(agreed, party.count)
        batch = shared.parties * (64 * shared.slots + 17 * shared.kinds * shared.slots + 64 * shared.parties + 300)
        frame = 24 * party.count + 300 * shared.parties + 1000 + 2 * batch // shared.rounds
        return ledger_need(frame, state, party.rounds, 0, STEPS + DEALING * shared.parties / shared.rounds)
    return ledger_need(party.wire.frame_bytes, state, party.rounds, len(party.neighbours))


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
