"""What a party's owner can read, meanwhile and afterwards: a line for every event and trouble, and frames as evidence.

All of it stays at home: JSON lines in the state folder, words on standard error, the latest of them for the owner's
page. The log decides nothing: a line that cannot be written is dropped. Whoever makes trouble cannot fill the disk with
it: the same trouble about the same party is written once in a while, with how often it came, and evidence is kept up
to a limit. What is said of records (`for_owner`) goes to the file and to standard error, and to no page.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.deploy.files import private_folder, write_bytes
from coterie.deploy.frames import Receipt, digest
from coterie.deploy.storage import sync_folder
from coterie.errors import InputError

__all__ = ["LEVELS", "EvidenceFolder", "Log", "Recent", "for_owner", "listening", "log", "shown"]

EVERY = 60.0  # seconds in which the same trouble is written once
PER_PARTY = 16  # frames kept as evidence against one party
TOTAL = 1 << 26  # bytes of all of them
LINES = 50  # that a page shows
LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
log = logging.getLogger("coterie.deploy")
for_owner = logging.getLogger("coterie.deploy.records")  # what depends on the records: never on a page

# events in words; the file has their facts
WORDS: dict[str, tuple[int, str]] = {
    "start": (logging.INFO, "all neighbours are met: the first of %(rounds)d rounds begins"),
    "resume": (logging.INFO, "goes on after round %(round)d, whose message is offered again"),
    "joined": (logging.INFO, "enough of the others are met: goes on with round %(round)d of %(rounds)d"),
    "compiling": (logging.INFO, "compiles its program; an agent keeps none from earlier starts"),
    "sent": (logging.DEBUG, "round %(round)d is sent, %(seconds).3f s after the one before"),
    "slow": (logging.DEBUG, "round %(round)d: time for %(share).3g of the batch"),
    "late": (logging.WARNING, "round %(round)d goes on without %(parties)s"),
    "left": (logging.WARNING, "leaves, though %(missing)s has not said that it is done"),
    "model": (logging.INFO, "the model is stored; ε spent: %(epsilon).4g"),
    "refusals": (logging.WARNING, "refused so far: %(counts)s"),
    "stopped": (logging.INFO, "asked to stop; started again, it goes on from here"),
}


class Log:
    """log.jsonl: one line per event, for the owner."""

    def __init__(self, path: Path):
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None

    def __call__(self, event: str, **facts: object) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError, ValueError):  # a full disk; closed
            self._file.write((json.dumps({"time": now, "event": event, **facts}) + "\n").encode())
        if event in WORDS and log.isEnabledFor((level := WORDS[event])[0]):
            spoken = {"event": event} | {k: ", ".join(v) if isinstance(v, list) else v for k, v in facts.items()}
            log.log(*level, spoken, extra={"noted": True})

    def close(self) -> None:
        """No more lines."""
        self._file.close()


class _Throttle(logging.Filter):
    """Lets the same text about the same party pass once in a while; then it says how many were held back."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[tuple[str, str], float] = {}
        self._held: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG or hasattr(record, "paced"):  # all are wanted; or said seldom anyway
            return True
        key, now = (str(record.msg), str(getattr(record, "about", ""))), time.monotonic()
        if now < self._next.get(key, 0.0):
            self._held[key] += 1
            return False
        self._next[key] = now + EVERY
        record.held_back = self._held.pop(key, 0)
        return True


class _Journal(logging.Handler):
    """Writes what the transport says into the log; events are there already."""

    def __init__(self, note: Log):
        super().__init__(logging.INFO)
        self._note = note
        self.addFilter(lambda record: not hasattr(record, "noted"))
        self.addFilter(_Throttle())

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"level": record.levelname.lower(), "about": getattr(record, "about", ""), "text": record.getMessage()}
        if record.name == for_owner.name:
            facts["of"] = "records"  # so that no page repeats it
        self._note(
            "trouble" if record.levelno > logging.INFO else "news", **facts, held_back=getattr(record, "held_back", 0)
        )


class _Words(logging.Formatter):
    """A line for people: when, how bad, what."""

    def format(self, record: logging.LogRecord) -> str:
        now = dt.datetime.fromtimestamp(record.created, dt.UTC)
        more = f" ({held} more like it)" if (held := getattr(record, "held_back", 0)) else ""
        text = f"{now:%H:%M:%SZ} {record.levelname.lower()}: {record.getMessage()}{more}"
        return "".join(c if c.isprintable() else "?" for c in text)  # a neighbour's words are no orders to a terminal


class Recent(logging.Handler):
    """The latest lines, for the owner's page; none about records."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[dict[str, str]] = deque(maxlen=LINES)
        self.addFilter(lambda record: record.name == log.name)
        self.addFilter(_Throttle())

    def emit(self, record: logging.LogRecord) -> None:
        when = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="seconds")
        self.lines.append({"time": when, "level": record.levelname.lower(), "text": record.getMessage()})


@contextlib.contextmanager
def _handled(*handlers: logging.Handler) -> Iterator[None]:
    before = log.level
    log.setLevel(min(before or logging.WARNING, *(handler.level for handler in handlers)))
    for handler in handlers:
        log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
        log.setLevel(before)


@contextlib.contextmanager
def listening(note: Log) -> Iterator[None]:
    """While this lasts, all that is logged goes to the file too."""
    with _handled(_Journal(note)):
        yield


@contextlib.contextmanager
def shown(level: str = "info") -> Iterator[Recent]:
    """While this lasts, what is logged is shown on standard error, from a level on; the latest lines of all."""
    if level not in LEVELS:
        raise InputError(f"--log-level is one of {', '.join(LEVELS)}, got {level!r}")
    words, recent = logging.StreamHandler(sys.stderr), Recent()
    words.setLevel(LEVELS[level])
    words.addFilter(_Throttle())
    words.setFormatter(_Words())
    with _handled(words, recent):
        yield recent


class EvidenceFolder:
    """Signed frames that nobody should have made, in a folder; each with a note of why it is there.

    A frame's signature is its maker's, so whoever holds the agreement can check it. Of two versions of a round the
    second lies here whole, and the first by its digest and signature, which prove as much; so do both, where a
    neighbour has told of the other one.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, party: str, reason: str, frame: bytes, *receipts: Receipt) -> None:
        """Keep a frame (empty: only the receipts prove it), durably, unless there are enough."""
        try:
            self._keep(party, reason, frame, receipts)
        except (InputError, OSError) as error:
            log.error("evidence against %s (%s) could not be kept: %s", party, reason, error, extra={"about": party})

    def _keep(self, party: str, reason: str, frame: bytes, receipts: Sequence[Receipt]) -> None:
        private_folder(self.folder)
        digests = [digest(frame)] * bool(frame) + [receipt.digest for receipt in receipts]
        there = list(self.folder.iterdir())
        used = sum(path.stat().st_size for path in there) + len(frame)
        note = self.folder / f"{party}_{digests[0].hex()[:16]}.json"
        mine = sum(path.name.startswith(f"{party}_") and path.suffix == ".json" for path in there)
        if used > TOTAL or mine >= PER_PARTY or note.exists():
            return
        facts = {
            "party": party,
            "reason": reason,
            "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "frame": digests[0].hex() if frame else None,
            "signed": [{"round": r.round, "digest": r.digest.hex(), "signature": r.signature.hex()} for r in receipts],
        }
        if frame:
            write_bytes(note.with_suffix(".frame"), frame, private=True)
        write_bytes(note, (json.dumps(facts, indent=1) + "\n").encode(), private=True)
        sync_folder(self.folder)
        log.warning("evidence against %s is kept: %s (%s)", party, note, reason, extra={"about": party})
