"""`coterie agent` whose draws are written down, and given again where they are found: two runs with the same noise.

python -m tests.faults.replayed_agent agent AGREEMENT --me NAME --data FILE --keys DIR --state DIR [--listen HOST:PORT]

Draws lie in the folder `draws` beside the data. With COTERIE_DIES_AT="fsync .model.npz" it dies on entering that call
for a file whose name begins so: strace counts calls, and cannot name the file of one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.base import Law
from coterie.algorithms.laws import Grid
from coterie.deploy.noise import SystemSource
from coterie.deploy.process import run_party
from coterie.errors import InputError


class Replaying:
    """The draws of a folder; new ones are stored there first."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        path = self.folder / f"{round}.npz"
        if not path.exists():
            drawn = SystemSource().draw(round, laws)
            plain = {k: v.steps if isinstance(v, Grid) else v for k, v in drawn.items()}
            np.savez(
                path.with_suffix(".new.npz"),
                **plain,
                **{f"{k}.unit": v.unit for k, v in drawn.items() if isinstance(v, Grid)},
            )
            os.replace(path.with_suffix(".new.npz"), path)
        with np.load(path) as stored:
            return {
                n: Grid(stored[n], float(stored[f"{n}.unit"])) if f"{n}.unit" in stored else stored[n] for n in laws
            }


def deadly(call: str, name: str) -> None:
    """From now on this process dies on entering `fsync` or `rename` of such a file."""
    python = {"fsync": "fsync", "rename": "replace"}[call]
    real = getattr(os, python)

    def either(*given: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{given[0]}") if isinstance(given[0], int) else str(given[-1])
        if Path(path).name.startswith(name):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)

    setattr(os, python, either)


if __name__ == "__main__":
    if "COTERIE_DIES_AT" in os.environ:
        deadly(*os.environ["COTERIE_DIES_AT"].split())
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("agreement", type=Path)
    for name in ("me", "data", "keys", "state", "listen"):
        parser.add_argument(f"--{name}", type=str if name in ("me", "listen") else Path)
    a = parser.parse_args()
    source = Replaying(a.data.parent / "draws")
    try:
        sys.exit(run_party(a.agreement, a.keys, a.data, a.state, me=a.me, listen=a.listen, source=source))
    except InputError as error:  # as the command line does
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
