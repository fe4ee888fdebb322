"""The rows that a party of a secret sum keeps in its ledger: how they are written, the store that its protocol sees.

`coterie.sums` keeps all that it must never forget as rows (`SumStore`): own frames, words, votes, shares, totals. Here
they lie in the table `kept` of the party's durable ledger, so that one transaction holds the charge, the exact bytes
that will leave and the state that follows. What may be written only once is refused by the database too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from coterie.deploy.ledger import DurableLedger
from coterie.deploy.records import Rows
from coterie.deploy.sealing import Damaged
from coterie.privacy.events import Event
from coterie.sums.messages import BadSumFrame, Step, SumFrame
from coterie.sums.secrets import SlotSecrets
from coterie.sums.shamir import SECRET
from coterie.sums.store import ONCE, Charge, Key

__all__ = ["LedgerStore", "read_key", "read_value", "sent_again", "write_key", "write_value"]

_WHOLE = struct.Struct("<q")
NEAR = 1 << 25  # bytes of rows that are kept near; a question about old rounds must not bring the whole ledger here


class LedgerStore:
    """The rows of a party's ledger, as its sums see them.

    Args:
        ledger: open, made with rows.
        price: what a masked vector costs.
        state: what to go on from after a crash, at the time of a charge.
        again: masked vectors beyond one per round that the plan lets the party send. A round that it missed does not
            pay for another: the one that is sent again may be the dearer.
    """

    def __init__(
        self,
        ledger: DurableLedger,
        price: Callable[[Charge], Sequence[Event]],
        state: Callable[[], Sequence[memoryview]],
        again: int,
    ) -> None:
        self.ledger, self._price, self._state, self._left = ledger, price, state, again - sent_again(ledger)
        self._near: dict[Key, object] = {}  # rows of the round under way: asked for again and again
        self._read = 0  # bytes that were read into it

    def get(self, key: Key) -> object | None:
        """A row, or None."""
        if key not in self._near:
            stored = self.ledger.kept(*write_key(key))
            if stored is None:
                return None
            self._read += len(stored)
            if self._read > NEAR:
                self._near.clear()
                self._read = len(stored)
            self._near[key] = read_value(stored)
        return self._near[key]

    def keys(self, kind: str) -> list[Key]:
        """Keys of one kind."""
        return [read_key(kind, key) for key in self.ledger.kept_keys(kind)]

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        """One transaction: all of it or nothing."""
        gone = list(erase)
        written = [
            (*write_key(key), key[0] in ONCE, write_value(value)) for key, value in puts.items() if value is not None
        ]
        rows = Rows(written, [write_key(key) for key in gone])
        if charge is None:
            self.ledger.keep(rows)
        else:
            if not charge.main:
                if self._left <= 0:
                    self.ledger.stop(
                        f"round {charge.round}: all vectors beyond one per round that the plan allows have left"
                    )
                self._left -= 1
            (frame,) = (v for k, v in puts.items() if k[:2] == ("own", int(Step.COMMIT)) and isinstance(v, SumFrame))
            number = self.ledger.last + 1
            self.ledger.release(number, self._price(charge), frame.pack(), self._state(), {}, rows)
        if ("at",) in puts:
            self._near.clear()
            self._read = 0
        for key in gone:
            self._near.pop(key, None)
        self._near.update((key, value) for key, value in puts.items() if value is not None)


def sent_again(ledger: DurableLedger) -> int:
    """How many masked vectors beyond one per round have left, by the commitments in the ledger."""
    commits = [ledger.frame(number) or b"" for number in range(ledger.last + 1)]
    return len(commits) - len({SumFrame.unpack(frame).round for frame in commits})


def write_key(key: Key) -> tuple[str, str]:
    """A key as two texts: its kind, and the rest.

    >>> write_key(("own", 7, 3, 0, 65536)), read_key("own", "7,3,0,65536")
    (('own', '7,3,0,65536'), ('own', 7, 3, 0, 65536))
    """
    kind, *rest = key
    return str(kind), ",".join(f"'{part}" if isinstance(part, str) else str(part) for part in rest)


def read_key(kind: str, rest: str) -> Key:
    """The key in such texts."""
    return (kind, *(part[1:] if part.startswith("'") else int(part) for part in rest.split(",") if rest))


def write_value(value: object) -> bytes:
    """A value of a row as bytes: a letter for its type, then the value."""
    match value:
        case bool():
            return b"Y" if value else b"N"
        case int():
            return b"I" + _WHOLE.pack(value)
        case bytes():
            return b"B" + value
        case SumFrame():
            return b"F" + value.pack()
        case SlotSecrets():
            return b"S" + value.a + value.start
        case tuple():
            parts = [write_value(part) for part in value]
            return b"T" + b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    raise TypeError(f"a row cannot hold a {type(value).__name__}")


def read_value(data: bytes) -> object:
    """The value in such bytes."""
    letter, rest = data[:1], data[1:]
    try:
        match letter:
            case b"Y" | b"N":
                return letter == b"Y"
            case b"I":
                return int(_WHOLE.unpack(rest)[0])
            case b"B":
                return rest
            case b"F":
                return SumFrame.unpack(rest)
            case b"S" if len(rest) == 2 * SECRET:
                return SlotSecrets(rest[:SECRET], rest[SECRET:])
            case b"T":
                parts = []
                while rest:
                    end = 4 + int.from_bytes(rest[:4], "little")
                    parts.append(read_value(rest[4:end]))
                    rest = rest[end:]
                return tuple(parts)
    except (struct.error, BadSumFrame) as error:
        raise Damaged(f"a kept row cannot be read: {error}") from None
    raise Damaged(f"a kept row begins with {letter!r}")
