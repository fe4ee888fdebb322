"""`coterie agent` whose draws are written down, and given again where they are found: two runs with the same noise.

python -m tests.faults.replayed_agent agent AGREEMENT --me NAME --data FILE --keys DIR --state DIR [--listen HOST:PORT]

Draws lie in the folder `draws` beside the data.
"""

from __future__ import annotations

import argparse
import os
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


if __name__ == "__main__":
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
