"""A state with parts that were hashed before: every bit is checked, and the row holds the hash of what names them."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from coterie.deploy import storage
from coterie.deploy.frames import Receipt
from coterie.deploy.kept_state import Hashed, laid_out, taken_apart
from coterie.deploy.ledger import Damaged, DurableLedger, read
from tests.deploy.ledger_worker import EVENT, settings

STATE = random.Random(0).randbytes(60)
SAID = [random.Random(1).randbytes(50), b"", random.Random(2).randbytes(50)]


def known(parts: list[bytes]) -> list[Hashed]:
    return [Hashed(hashlib.sha256(part).digest(), memoryview(part)) for part in parts]


def stored(parts: list[bytes]) -> tuple[bytes, bytes]:
    laid, hashed = laid_out([memoryview(STATE[:7]), memoryview(STATE[7:])], known(parts))
    return b"".join(laid), hashed


@pytest.mark.parametrize("parts", [[], SAID[:1], SAID])
def test_what_was_laid_out_is_found_again(parts: list[bytes]) -> None:
    whole, hashed = stored(parts)
    state, found = taken_apart(whole, hashed)
    assert state == STATE
    assert found == known(parts)
    named = b"coterie parts\0" * bool(parts) + whole[: len(whole) - sum(map(len, parts))]
    assert hashed == hashlib.sha256(named).digest()


def test_a_state_without_such_parts_is_its_bytes() -> None:
    """As it was before there were any: older ledgers are read as they are."""
    assert stored([]) == (STATE, hashlib.sha256(STATE).digest())


@pytest.mark.parametrize("parts", [[], SAID])
def test_any_other_bytes_are_refused(parts: list[bytes]) -> None:
    """Each bit flipped, cut off anywhere, longer, parts in another order or of other lengths."""
    whole, hashed = stored(parts)
    others = [whole[:at] for at in range(len(whole))] + [whole + b"\0", b"coterie parts\0" + whole]
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        others.append(bytes(changed))
    if parts:
        others.append(b"coterie parts\0" + whole[: len(whole) - sum(map(len, parts))])  # what is hashed, as a state
        others += [stored(parts[::-1])[0], stored([b"".join(parts)])[0], whole[:-50] + bytes(50)]
    for other in others:
        with pytest.raises(Damaged):
            taken_apart(other, hashed)


@pytest.mark.parametrize("small", [0, 1 << 16])
def test_a_ledger_keeps_what_neighbours_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(storage, "SMALL", small)
    path = tmp_path / "ledger.db"
    with DurableLedger(path, create=True, **settings()) as ledger:
        for t in range(3):
            held = {"b": Receipt(t, bytes(32))}
            ledger.release(t, [EVENT], b"f" * 100, STATE, held, known=known(SAID[: t + 1]))
    with DurableLedger(path, **settings()) as again:
        assert again.whole_state() == (STATE, known(SAID))
        assert again.state() == STATE
    assert len(read(path).rows) == 3
    if not small:
        file = Path(storage.States(path).name(2))
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        for opens in (lambda: DurableLedger(path, **settings()), lambda: read(path)):
            with pytest.raises(Damaged, match="the state is not the one of round 2"):
                opens()
