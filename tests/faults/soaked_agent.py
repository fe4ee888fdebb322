"""`coterie agent` as it is, but what it draws and what it hands to a link is noted in $COTERIE_TAP, for the soak.

    NAME.frames   one line of 36 bytes per frame handed to a link: round, SHA-256
    NAME.draws    one line per draw: round, and the numbers drawn; of several for one round the last was released

Every line is one write, so a kill leaves whole lines; draws are noted before they are used.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.base import Law
from coterie.algorithms.laws import Grid
from coterie.deploy import process
from coterie.deploy.courier import Courier
from coterie.deploy.frames import MAGIC, digest
from coterie.deploy.noise import SystemSource
from coterie.deploy.transport import Link

LINE = struct.Struct("<I32s")


class Tapped:
    """A link whose frames are noted before they are sent."""

    def __init__(self, link: Link, file: int):
        self._link, self._file = link, file

    async def read(self) -> bytes | None:
        return await self._link.read()

    async def write(self, data: bytes) -> None:
        if data.startswith(MAGIC):
            os.write(self._file, LINE.pack(int.from_bytes(data[44:48], "little"), digest(data)))
        await self._link.write(data)


class Noting(SystemSource):
    """Draws from the system that are written down."""

    def __init__(self) -> None:
        super().__init__()
        self._file = _append("draws")

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        drawn = super().draw(round, laws)
        plain = {k: [v.steps.tolist(), v.unit] if isinstance(v, Grid) else [v.tolist()] for k, v in drawn.items()}
        os.write(self._file, (json.dumps([round, plain]) + "\n").encode())
        return drawn


def frames(folder: Path, name: str) -> dict[tuple[str, int], set[bytes]]:
    """Every frame that a party has handed to a link, as `history` wants it."""
    out: dict[tuple[str, int], set[bytes]] = defaultdict(set)
    for round, content in LINE.iter_unpack((folder / f"{name}.frames").read_bytes()):
        out[name, round].add(content)
    return out


def draws(folder: Path, name: str, rounds: int) -> list[dict[str, Any]]:
    """What a party drew for the rounds that it released."""
    last: dict[int, dict[str, Any]] = {}
    for line in (folder / f"{name}.draws").read_text().splitlines():
        round, plain = json.loads(line)
        last[round] = {k: Grid(np.array(v[0]), v[1]) if len(v) == 2 else np.array(v[0]) for k, v in plain.items()}
    return [last[t] for t in range(rounds)]


def _append(kind: str) -> int:
    name = sys.argv[sys.argv.index("--me") + 1]
    return os.open(Path(os.environ["COTERIE_TAP"]) / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def tap() -> None:
    """From now on draws and links are noted."""
    plain, file = Courier.converse, _append("frames")

    async def converse(self: Courier, link: Link, peer: Any) -> None:
        await plain(self, Tapped(link, file), peer)

    Courier.converse = converse  # type: ignore[method-assign]
    process.SystemSource = Noting  # type: ignore[attr-defined, misc]


if __name__ == "__main__":
    from coterie.cli import main

    tap()
    sys.exit(main())
