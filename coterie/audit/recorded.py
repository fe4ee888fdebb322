"""Audit of a deployed run from what it left behind: ledgers, frames, and each party's own records.

Nobody can tell noise from a message without knowing what the message was before. A party knows: given its records and
the frames that it had received, its own compiled half of the round (`coterie.deploy.party.Party`) is run again without
noise, and what is left of the integers that were released is the noise, exactly. For every party of a folder as
`coterie launch` makes it (agreement.json, authority/ca.json, NAME/data.*, NAME/state/ledger.db):

- `ledger`: the chain is whole, the file belongs to this agreement and party, and every frame was charged, once, with
  the event that the plan declares for its round;
- `frames`: all have the agreed length and signature and bear their own round, and every frame that a neighbour used is
  the one that the sender's ledger holds: a message drawn anew after a crash is found here;
- `noise`: the integers are reproduced, and the noise in them has at least the declared scale (χ²), is fresh, and is
  there in every round that was charged;
- `secrets`, where neighbours share noise: in the sum over all parties own noise is left, of the declared scale.

Without the records the last is skipped; it needs the neighbours' ledgers, since a party keeps only receipts of what it
heard.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import chi2, gamma

from coterie.algorithms.laws import Grid, LaplaceLaw, Shared
from coterie.audit.checks import RARE, Finding
from coterie.deploy.agreement import Agreement, read_agreement
from coterie.deploy.frames import BadFrame, Frame, Receipt, open_frame
from coterie.deploy.keys import read_authority
from coterie.deploy.ledger import Damaged, read
from coterie.deploy.noise import UNITS
from coterie.deploy.pairs import shares
from coterie.deploy.party import Party, Terms, read_records, wire_of
from coterie.deploy.records import Book, canonical
from coterie.deploy.storage import Frames
from coterie.deploy.work import Work
from coterie.errors import InputError
from coterie.privacy.codec import to_json
from coterie.privacy.events import Free

__all__ = ["PartyFound", "audit_folder", "is_deployed"]


@dataclass(frozen=True)
class PartyFound:
    """What the files of one party say."""

    name: str
    rounds: int
    findings: list[Finding]
    residuals: np.ndarray | None = None  # noise in grid steps, (round, number), if it could be recomputed

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(f.passed for f in self.findings)

    def as_json(self) -> dict:
        """Everything but the noise."""
        found = [{"check": f.check, "verdict": f.verdict, "detail": f.detail} for f in self.findings]
        return {"party": self.name, "rounds": self.rounds, "passed": self.passed, "findings": found}


@dataclass(frozen=True)
class _Told:
    """A ledger with its bytes: every release's frame, and which frames it had used."""

    book: Book
    frames: list[bytes]
    held: list[dict[str, Receipt]]


def is_deployed(path: Path) -> bool:
    """Whether a folder holds a deployed run."""
    return (path / "agreement.json").is_file()


def audit_folder(folder: Path) -> list[PartyFound]:
    """Check every party whose ledger is in the folder; an InputError if the folder or its agreement cannot be read."""
    if not is_deployed(folder):
        raise InputError(f"{folder} has no agreement.json: expected the folder of a deployed run")
    long_ago = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # an agreement that has ended can still be audited
    agreement = read_agreement(folder / "agreement.json", read_authority(folder / "authority"), long_ago)
    terms = Terms.of(agreement.plan)
    told: dict[str, _Told] = {}
    broken: dict[str, str] = {}
    for party in agreement.parties:
        path = folder / party.name / "state" / "ledger.db"
        if not path.exists():
            continue
        try:
            told[party.name] = _read(path)
        except Damaged as error:
            broken[party.name] = str(error)
    if not told and not broken:
        raise InputError(f"{folder} holds no ledger (NAME/state/ledger.db of a party): nothing was released")
    out = []
    for party in agreement.parties:
        if party.name in broken:
            out.append(PartyFound(party.name, 0, [Finding("ledger", "refuted", broken[party.name])]))
        elif party.name in told:
            out.append(_audit(agreement, terms, party.name, told, folder / party.name))
    if not shares(terms.draws(0)):
        return out
    together = _cancels([found.residuals for found in out], len(agreement.parties))
    return [replace(found, findings=[*found.findings, together]) for found in out]


def _read(path: Path) -> _Told:
    book = read(path)  # chain, seal, prices
    with _copied(path) as copy, contextlib.closing(sqlite3.connect(copy)) as db:
        rows = db.execute("SELECT frame, held FROM release ORDER BY round").fetchall()
    frames = [Frames(path).read(frame) for frame, _ in rows]
    if [hashlib.sha256(f).digest() for f in frames] != [row.frame_hash for row in book.rows]:
        raise Damaged(f"ledger {path}: it changed while it was read")
    held = [{n: Receipt.unpack(bytes.fromhex(r)) for n, r in json.loads(h).items()} for _, h in rows]
    return _Told(book, frames, held)


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A copy with its log: reading a log needs a place to write, and the audit changes nothing."""
    with tempfile.TemporaryDirectory(prefix="coterie-audit-") as folder:
        for name in (path.name, f"{path.name}-wal"):
            if (path.parent / name).exists():
                shutil.copy(path.parent / name, folder)
        yield Path(folder) / path.name


def _audit(agreement: Agreement, terms: Terms, name: str, told: dict[str, _Told], home: Path) -> PartyFound:
    own, node = told[name], agreement.index(name)
    findings = [_ledger(agreement, terms, name, own)]
    data = next((p for p in sorted(home.glob("data.*"))), None)
    party = None if data is None else Party.of(terms, node, read_records(agreement.plan, data))
    count = Work.of(terms, node)[0].count if party is None else party.count
    frames: dict[str, list[Frame]] = {}
    try:
        wire = wire_of(terms, count)
        for sender in (name, *agreement.neighbours(name)):
            if sender in told:
                number = agreement.index(sender)
                opened = [
                    open_frame(f, agreement.frame_keys, agreement.plan_hash, wire, number) for f in told[sender].frames
                ]
                if [f.round for f in opened] != list(range(len(opened))):
                    raise BadFrame(f"{sender}: a frame bears another round than its row")
                frames[sender] = opened
    except BadFrame as error:
        findings.append(Finding("frames", "refuted", str(error)))
        return PartyFound(name, len(own.frames), findings)
    findings.append(_frames(name, own, frames, wire.frame_bytes))
    missing = [n for n in agreement.neighbours(name) if n not in frames]
    if party is None or missing:
        why = "no records" if party is None else f"no ledger of {', '.join(missing)}"
        findings.append(Finding("noise", "inconclusive", f"not recomputed: {why}"))
        return PartyFound(name, len(own.frames), findings)
    finding, residuals = _noise(party, own, frames, agreement)
    return PartyFound(name, len(own.frames), [*findings, finding], residuals)


# ---- the checks ------------------------------------------------------------------------------------------------------


def _ledger(agreement: Agreement, terms: Terms, name: str, own: _Told) -> Finding:
    meta = own.book.meta
    if meta.plan_hash != agreement.plan_hash or meta.agent != name:
        return Finding("ledger", "refuted", f"it was made for {meta.agent} under agreement {meta.plan_hash.hex()[:16]}")
    declared = terms.charges(agreement.index(name))
    if len(own.book.rows) > len(declared):
        return Finding("ledger", "refuted", f"{len(own.book.rows)} rounds were released, {len(declared)} are planned")
    text = lambda events: canonical([to_json(e) for e in events if not isinstance(e, Free)])  # noqa: E731
    for row, events in zip(own.book.rows, declared, strict=False):
        if text(row.events) != text(events):
            return Finding(
                "ledger", "refuted", f"round {row.round} was not charged with the event that is declared for it"
            )
    return Finding("ledger", "holds", f"{len(own.book.rows)} rounds, each charged once as declared")


def _frames(name: str, own: _Told, frames: dict[str, list[Frame]], size: int) -> Finding:
    for t, held in enumerate(own.held):
        for sender, receipt in held.items():
            if sender not in frames or receipt.round < 0:
                continue
            if receipt.round >= t:
                return Finding("frames", "refuted", f"round {t} used a frame of {sender} from round {receipt.round}")
            theirs = frames[sender]
            if receipt.round >= len(theirs) or theirs[receipt.round].digest != receipt.digest:
                return Finding(
                    "frames", "refuted",
                    f"{name} used another frame of {sender}, round {receipt.round}, than the ledger of {sender} holds: "
                    "a second one was sent",
                )  # fmt: skip
    return Finding("frames", "holds", f"{len(own.frames)} frames of {size} bytes, all signed")


def _noise(
    party: Party, own: _Told, frames: dict[str, list[Frame]], agreement: Agreement
) -> tuple[Finding, np.ndarray | None]:
    """Run the party again on its records and what it had heard; what is left of its integers is the noise."""
    laws = party.turns.laws
    noised = [n for n, law in laws.items() if type(law) in UNITS and int(np.prod(law.shape)) == party.count]
    if len(laws) != 1 or len(noised) != 1:
        return Finding("noise", "inconclusive", "not recomputed: more than one draw makes a message"), None
    if party.turns.steps.rounded:
        return Finding("noise", "inconclusive", "not recomputed: messages were rounded after their noise"), None
    (key,) = noised
    law, unit = laws[key], UNITS[type(laws[key])]
    declared, limits = party.charges, party.turns.steps.limit[party.node]
    names = [agreement.parties[int(j)].name for j in party.neighbours]
    carry, used, rows = party.begin(), dict.fromkeys(names, -1), []
    for t, frame in enumerate(frames[agreement.parties[party.node].name]):
        for slot, sender in enumerate(names):
            last = own.held[t][sender].round if sender in own.held[t] else -1
            for r in range(used[sender] + 1, last + 1):
                if not frames[sender][r].silent:
                    carry = party.heard(carry, slot, r, frames[sender][r].numbers)
            used[sender] = max(last, used[sender])
        quiet = party.turn(t, carry, {key: Grid(np.zeros(law.shape, np.int64), unit)})
        rest = frame.numbers - quiet[1]
        carry, again, sent = party.turn(t, carry, {key: Grid(rest.reshape(law.shape), unit)})
        if sent == frame.silent or not np.array_equal(again if sent else 0 * again, frame.numbers):
            return Finding("noise", "refuted", f"round {t}: no noise explains what was released"), None
        if not sent:
            continue
        paid = any(np.any(np.asarray(e.times) > 0) for e in declared[t])
        if paid:
            rows.append(rest)
            if not rest.any():
                return Finding("noise", "refuted", f"round {t} was charged as noised and carries no noise"), None
        if np.any(np.abs(frame.numbers) >= limits[t]):
            break  # cut at the public bound: the state goes on from the value before it, which is not in the frame
    if not rows:
        return Finding("noise", "holds", "no round carries noise"), None
    residuals = np.array(rows)
    standard = residuals / unit
    if isinstance(law, Shared):
        standard /= np.sqrt(1 + float(law.ratio) ** 2 * len(party.neighbours))
        added = np.sum(np.sum(standard, axis=0) ** 2) / len(standard)  # as large as a round's, where rounds are fresh
        if chi2.sf(added, standard.shape[1]) < RARE:
            return Finding("noise", "refuted", "rounds carry noise that is the same in part"), residuals
    if isinstance(law, LaplaceLaw):
        ratio, p = np.mean(np.abs(standard)), gamma.cdf(np.sum(np.abs(standard)), standard.size)
    else:
        ratio, p = np.sqrt(np.mean(standard**2)), chi2.cdf(np.sum(standard**2), standard.size)
    told = f"{ratio:.3f} times the declared scale over {standard.size} numbers"
    if p < RARE:
        return Finding("noise", "refuted", f"the noise is {told}, p = {p:.1g}"), residuals
    if len(np.unique(residuals, axis=0)) < len(residuals):
        return Finding("noise", "refuted", "two rounds carry the same noise"), residuals
    return Finding("noise", "holds", f"{told}, reproduced to the last integer"), residuals


def _cancels(residuals: list[np.ndarray | None], parties: int) -> Finding:
    """Whether secrets cancel in the sum of all parties' noise, and leave own noise of the declared scale."""
    known = [r for r in residuals if r is not None]
    if len(known) < parties or len({r.shape for r in known}) > 1:
        return Finding("secrets", "inconclusive", "not every party's noise was recomputed")
    left = np.sum(known, axis=0) / (UNITS[Shared] * parties**0.5)
    told = f"the sum of all parties' noise is {np.sqrt(np.mean(left**2)):.3f} times what own noise makes"
    if chi2.sf(np.sum(left**2), left.size) < RARE:
        return Finding("secrets", "refuted", f"{told}: two neighbours did not use the same secret")
    short = chi2.cdf(np.sum(left**2), left.size) < RARE
    return Finding("secrets", "refuted" if short else "holds", told if short else f"{told}: secrets cancel")
