"""`coterie agent` as it is, for sums, but what it draws and what it lets out is noted in $COTERIE_TAP.

    NAME.draws   one line per masked vector: round, slot, grid steps of the vector and of every layer of noise
    NAME.given   one line per frame with shares that left: slot, the set that they were given for
    NAME.bytes   at the end: payloads of own packets each counted once, packets, bytes on connections, processor time

Every line is one write, so a kill leaves whole lines; draws are noted before they are stored. Of several lines for one
slot the last was stored: a party that dies between the two draws layer 0 again, and nothing had left.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.deploy import sum_agent
from coterie.sums.core import Outgoing
from coterie.sums.messages import HASH, Step
from coterie.sums.party import SumParty
from coterie.sums.words import to_signed

Drawn = dict[tuple[int, int], list[NDArray[np.int64]]]


def draws(folder: Path, name: str) -> Drawn:
    """(round, slot) → grid steps of the vector and of its layers, as they were stored."""
    out: Drawn = {}
    for line in _lines(folder, name, "draws"):
        round_, slot, rows = json.loads(line)
        out[round_, slot] = [np.array(row, np.int64) for row in rows]
    return out


def given(folder: Path, name: str) -> dict[int, set[str]]:
    """For which sets the shares of a slot left."""
    out: dict[int, set[str]] = {}
    for line in _lines(folder, name, "given"):
        slot, value = json.loads(line)
        out.setdefault(slot, set()).add(value)
    return out


def cost(folder: Path, name: str) -> dict[str, float]:
    """What a party that came to its end has sent and used in its last life; empty for others."""
    lines = _lines(folder, name, "bytes")
    return dict(json.loads(lines[-1])) if lines else {}


def _lines(folder: Path, name: str, kind: str) -> list[str]:
    path = folder / f"{name}.{kind}"
    return path.read_text().splitlines() if path.exists() else []


def _append(kind: str) -> int:
    name = sys.argv[sys.argv.index("--me") + 1]
    return os.open(Path(os.environ["COTERIE_TAP"]) / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _write(file: int, what: object) -> None:
    os.write(file, (json.dumps(what) + "\n").encode())


class Noting(SumParty):
    """Sums that write down what they draw."""

    file: int

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        layers = super().draw_layers(round_, slot, chain)
        assert self.vector is not None
        steps = [to_signed(self.terms.code.encode(self.vector)), *layers]
        _write(self.file, [round_, slot, [row.tolist() for row in steps]])
        return layers


def tap() -> None:
    """From now on draws, shares and bytes are noted."""
    Noting.file, shares, sizes = _append("draws"), _append("given"), _append("bytes")
    sum_agent.SumParty = Noting  # type: ignore[misc]
    plain, made = sum_agent.SumAgent._send, {"payload": 0, "packets": 0}
    agents: list[sum_agent.SumAgent] = []

    def send(self: sum_agent.SumAgent, out: Iterable[Outgoing]) -> None:
        going = list(out)
        agents[:] = [self]
        for frame in {frame.pack(): frame for _, frame in going}.values():
            made["payload"] += len(frame.pack())
            made["packets"] += 1
            if frame.kind is Step.SHARES and frame.sender == self.sums.me:
                _write(shares, [frame.slot, frame.body[:HASH].hex()])
        plain(self, going)

    def end() -> None:
        if agents:
            on_wires = {f"{kind} bytes": n for kind, n in agents[0].transport.sent.items()}
            _write(sizes, made | on_wires | {"processor": time.process_time()})

    sum_agent.SumAgent._send = send  # type: ignore[method-assign]
    atexit.register(end)


if __name__ == "__main__":
    from coterie.cli import main

    tap()
    sys.exit(main())
