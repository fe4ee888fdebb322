"""A ledger can be read while its agent writes: always whole, never in the way; damage is told from a race."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from coterie.cli import main
from coterie.deploy import reading
from coterie.deploy.ledger import Damaged, DurableLedger
from coterie.deploy.reading import look, read
from tests.deploy.ledger_worker import EVENT, settings
from tests.support import mostly_slow

ROUNDS = 150

WRITER = """
import sys
from pathlib import Path
from coterie.deploy import durable, ledger as module, storage
from tests.deploy.ledger_worker import EVENT, settings
path, rounds, lives, files = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
durable._LOG_LIMIT = 1 << 17  # folded in every few rounds: the moment at which a reader could be wrong
storage.SMALL = 0 if files == "files" else 1 << 30
for life in range(lives):
    with module.DurableLedger(path, create=True, **settings()) as ledger:
        for t in range(ledger.last + 1, (life + 1) * rounds):
            ledger.release(t, [EVENT], bytes([t % 256]) * 3000, bytes([t % 251]) * 20000, {})
            print(t, flush=True)
            if lives == 1 and t + 1 in (50, 100):
                sys.stdin.readline()
        if life == lives - 1:
            sys.stdin.readline()
"""


def writer(path: Path, rounds: int, lives: int = 1, files: str = "rows") -> subprocess.Popen:
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(path), str(rounds), str(lives), files]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("files", mostly_slow(["rows", "files"], "files"))
def test_every_reading_of_a_running_ledger_is_whole_and_the_writer_does_not_notice(tmp_path: Path, files: str) -> None:
    path, seen = tmp_path / "ledger.db", []
    with writer(path, ROUNDS, files=files) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdout.readline()
        while not seen or seen[-1] < ROUNDS:
            book, running = look(path)
            assert running
            if (
                len(book.rows) in (50, 100) and len(book.rows) not in seen
            ):  # however fast it is, it was at work meanwhile
                agent.stdin.write("\n")
                agent.stdin.flush()
            seen.append(len(book.rows))
        assert seen == sorted(seen)
        agent.stdin.write("\n")
        agent.stdin.close()
        assert agent.wait(20) == 0
    book, running = look(path)
    assert (len(book.rows), running) == (ROUNDS, False)
    assert {p.name for p in tmp_path.iterdir()} <= {
        "ledger.db",
        "ledger.db-state0",
        "ledger.db-state1",
        "ledger.db-frames",
    }


def test_an_agent_that_starts_while_others_read_is_not_refused(tmp_path: Path) -> None:
    """The question whether it is locked takes the lock for a moment: forty starts among readers without end."""
    path = tmp_path / "ledger.db"
    with writer(path, 1, lives=40) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdout.readline()
        while agent.poll() is None and len(read(path).rows) < 40:
            reading._is_held(path)
        agent.stdin.close()
        assert agent.wait(20) == 0
    assert len(read(path).rows) == 40


def test_the_commands_say_that_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.db"
    with writer(path, 12) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        while agent.stdout.readline().strip() != "11":
            pass
        assert main(["ledger", "show", str(path)]) == 0
        assert capsys.readouterr().out.startswith("running, round 12\n")
        assert main(["ledger", "show", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["running"] is True
        assert main(["ledger", "verify", str(path)]) == 0
        assert "12 rounds so far, running, every hash" in capsys.readouterr().out.replace("\n", " ")
        agent.stdin.close()
    assert main(["ledger", "show", str(path)]) == 0
    assert "running" not in capsys.readouterr().out


def test_damage_is_told_from_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that stay wrong are refused although somebody holds the lock."""
    path = tmp_path / "ledger.db"
    with DurableLedger(path, create=True, **settings()) as ledger:
        for t in range(3):
            ledger.release(t, [EVENT], b"x" * 3000, b"state", {})
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(reading, "PAUSE", 0.0)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Damaged, match=r"ledger .*ledger\.db: "):
            look(path)


def test_no_copy_is_left_in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state in it is not noisy. A log is there as after a crash."""
    path = tmp_path / "ledger.db"
    ledger = DurableLedger(path, create=True, **settings())
    ledger.release(0, [EVENT], b"x" * 3000, b"state", {})
    copy = tmp_path / "copy" / "ledger.db"
    copy.parent.mkdir()
    for end in ("", "-wal"):
        Path(f"{copy}{end}").write_bytes(Path(f"{path}{end}").read_bytes())

    def none(*_: object, **__: object) -> str:
        raise AssertionError("a temporary file")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    monkeypatch.setattr(tempfile, "mkstemp", none)
    assert len(read(copy).rows) == 1
    ledger.close()
