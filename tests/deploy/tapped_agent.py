"""`coterie` as it is, but everything a party hands to a link is written to a file too: $COTERIE_TAP/PID.

The connections themselves are encrypted, so this is where bytes that leave can be read.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from coterie.deploy.courier import Courier
from coterie.deploy.transport import Link


class Tapped:
    """A link that notes what is written to it."""

    def __init__(self, link: Link):
        self._link = link

    async def read(self) -> bytes | None:
        return await self._link.read()

    async def write(self, data: bytes) -> None:
        with (Path(os.environ["COTERIE_TAP"]) / str(os.getpid())).open("ab") as file:
            file.write(data)
        await self._link.write(data)


def tap() -> None:
    """From now on every link is tapped."""
    plain = Courier.converse

    async def converse(self: Courier, link: Link, peer: Any) -> None:
        await plain(self, Tapped(link), peer)

    Courier.converse = converse  # type: ignore[method-assign]


if __name__ == "__main__":
    from coterie.cli import main

    tap()
    sys.exit(main())
