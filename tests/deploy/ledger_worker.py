"""A party reduced to its ledger: it releases random bytes and "sends" them by writing their hash to a pipe.

Run as a program it imports everything once and forks a worker for every trial, so that a hundred kills take seconds:

    python -m tests.deploy.ledger_worker kills FOLDER COUNT TWIN    workers killed at random times; prints a report
    python -m tests.deploy.ledger_worker open PATH                  one attempt to open a ledger
"""

import contextlib
import hashlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from coterie.deploy import storage
from coterie.deploy.frames import Receipt
from coterie.deploy.ledger import Damaged, DurableLedger, LedgerFailure, read
from coterie.errors import InputError
from coterie.privacy.events import Gaussian
from coterie.privacy.ledger import Budget

ROUNDS = 400
EVENT = Gaussian(1.0, 16.0)
COST = Fraction(1, 256)  # of one event in the measure of the plan, Σ μ²
FAILED, REFUSED = 3, 4  # exit codes of a worker


def settings(rounds: int = ROUNDS) -> dict[str, Any]:
    return {
        "budget": Budget(30.0, 1e-5),
        "plan_hash": b"p" * 32,
        "agent": "a",
        "plan": [Gaussian(1.0, 16.0, times=rounds)],
    }


def sent(round: int, frame: bytes) -> bytes:
    return f"{round} {hashlib.sha256(frame).hexdigest()}\n".encode()


def work(path: Path, wire: int, stop: int, size: int = 3000, twin: str = "") -> None:
    """Send again what the ledger holds last, then release up to round `stop`, sending each after its commit.

    Twins: "early" sends before the commit; "normal" does not sync its commits; "unsynced" does not sync its states;
    "late" writes a state after the commit that names it. "files" is as good as none: it keeps every state in a file, as
    the two before it do.
    """
    if twin in ("files", "unsynced", "late"):
        storage.SMALL = 0
    with DurableLedger(path, create=True, **settings()) as ledger:
        if twin == "normal":
            ledger._db.execute("PRAGMA synchronous = NORMAL")
        if twin == "unsynced":
            os.fdatasync = lambda fd: None  # SQLite does not call Python's
        if twin == "late":
            delay_states(ledger)
        last = ledger.frame(ledger.last)
        if last is not None:
            os.write(wire, sent(ledger.last, last))
        for round in range(ledger.last + 1, stop):
            frame = os.urandom(size)
            if twin == "early":
                os.write(wire, sent(round, frame))
            try:
                ledger.release(round, [EVENT], frame, os.urandom(size), {"b": Receipt(round, bytes(32))})
            except LedgerFailure:
                later_calls_fail(ledger, round)
                raise
            if twin != "early":
                os.write(wire, sent(round, frame))


def delay_states(ledger: Any) -> None:
    """Make a ledger write each state, to a file, after its commit."""
    write, commit, waiting = ledger._states.write, ledger._write, []

    def commit_first(*statements: Any) -> None:
        commit(*statements)
        time.sleep(0.05)
        write(*waiting.pop())

    def wait(*state: Any) -> list[Any]:
        waiting.append(state)
        return []

    ledger._states.write, ledger._write = wait, commit_first


def later_calls_fail(ledger: DurableLedger, round: int) -> None:
    """After a failure nothing may succeed."""
    attempts: list[Callable[[], object]] = [
        lambda: ledger.release(round, [EVENT], b"x" * 100, b"", {}), lambda: ledger.frame(0), ledger.state, ledger.seal
    ]  # fmt: skip
    for attempt in attempts:
        try:
            attempt()
        except LedgerFailure:
            continue
        raise AssertionError("a call after a failure succeeded")


class Worker:
    """A forked worker: its process id, what it has sent, and how it ended. It waits for `go`."""

    def __init__(self, job: Callable[[int], None]):
        self.wire, wire = os.pipe()
        gate, self._gate = os.pipe()
        self.pid = os.fork()
        self.lines = b""
        if self.pid == 0:
            code = 70
            try:
                os.read(gate, 1)
                job(wire)
                code = 0
            except LedgerFailure as error:
                print(error, file=sys.stderr)
                code = FAILED
            except InputError as error:
                print(error, file=sys.stderr)
                code = REFUSED
            finally:
                os._exit(code)
        os.close(wire)
        os.close(gate)

    def go(self) -> None:
        os.write(self._gate, b"g")

    def hear(self) -> dict[int, set[str]]:
        """What was sent so far, by round."""
        while select.select([self.wire], [], [], 0)[0]:
            data = os.read(self.wire, 1 << 16)
            if not data:
                break
            self.lines += data
        heard: dict[int, set[str]] = {}
        for line in self.lines.decode().splitlines(keepends=True):
            if line.endswith("\n"):
                heard.setdefault(int(line.split()[0]), set()).add(line.split()[1])
        return heard

    def end(self) -> tuple[int, dict[int, set[str]]]:
        """Wait for its end: exit code (−9: killed) and all that was sent."""
        _, status = os.waitpid(self.pid, 0)
        heard = self.hear()
        os.close(self.wire)
        os.close(self._gate)
        return os.waitstatus_to_exitcode(status), heard


def violations(path: Path, heard: dict[int, set[str]], spent_before: Fraction) -> tuple[list[str], Fraction]:
    """I1-I4 after a crash, from what was on the wire and what the ledger says."""
    if not path.exists():
        return (["sent without a ledger"] if heard else []), Fraction(0)
    try:
        book = read(path)
    except Damaged as error:
        return [f"refused: {error}"], spent_before
    found = [f"I1: {len(hashes)} payloads in round {t}" for t, hashes in heard.items() if len(hashes) != 1]
    for t, hashes in heard.items():
        row = book.rows[t] if t < len(book.rows) else None
        if row is None or {row.frame_hash.hex()} != hashes:
            found.append(f"I2: round {t} is on the wire and {'not' if row is None else 'otherwise'} in the ledger")
    spent = Fraction(book.allowance.spent)
    if spent != COST * len(book.rows) or spent > Fraction(book.allowance.limit):
        found.append(f"I3: {spent} for {len(book.rows)} rounds")
    if spent < spent_before:
        found.append(f"I4: spent {spent} after {spent_before}")
    return found, spent


def kills(folder: Path, count: int, twin: str, seed: int = 1) -> dict[str, Any]:
    """Kill workers of one ledger at random times; after each kill, look."""
    rng, path = random.Random(seed), folder / "ledger"
    heard: dict[int, set[str]] = {}
    spent, found, killed = Fraction(0), [], 0
    if count > 1:  # most of a start is reading and proving: the first worker may finish it
        first = Worker(lambda wire: work(path, wire, 2, 3000, twin))
        first.go()
        heard = first.end()[1]
    for _ in range(count):
        worker = Worker(lambda wire: work(path, wire, ROUNDS, 3000, twin))
        worker.go()
        wanted = rng.randrange(4)  # kill it some time after so many messages: on a busy machine too
        while wanted and len(worker.hear()) < wanted:
            time.sleep(0.0005)
        soon = 0.1 if twin == "late" else 0.01  # its moment comes after two syncs, on a busy disk too
        time.sleep(rng.choice((0.0, rng.uniform(0.0, soon))))
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        code, new = worker.end()
        killed += code == -signal.SIGKILL
        for round, hashes in new.items():
            heard.setdefault(round, set()).update(hashes)
        wrong, spent = violations(path, heard, spent)
        found += wrong
        if any(what.startswith("refused") for what in wrong) or (twin == "early" and wrong):
            break  # nobody can go on from here, or it is caught
    return {"killed": killed, "rounds": len(heard), "violations": found}


if __name__ == "__main__":
    if sys.argv[1] == "kills":
        print(json.dumps(kills(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
    else:
        try:
            DurableLedger(sys.argv[2], **settings()).close()
        except InputError as error:
            sys.exit(f"refused: {error}")
