"""`coterie agent`, but every draw is also written down, so that a test can give a simulation the same ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.base import Law
from coterie.algorithms.laws import Grid
from coterie.deploy.noise import SystemSource
from coterie.deploy.process import run_party


class Recording:
    """Draws from the system, kept in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        drawn = SystemSource().draw(round, laws)
        keep_draws(self.folder, round, drawn)
        return drawn


def keep_draws(folder: Path, round: int, drawn: Mapping[str, Any]) -> None:
    """One round's draws, for `load_draws`."""
    plain = {k: v.steps if isinstance(v, Grid) else v for k, v in drawn.items()}
    units = {f"{k}.unit": v.unit for k, v in drawn.items() if isinstance(v, Grid)}
    np.savez(folder / f"draw-{round}.npz", **plain, **units)


def load_draws(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Every round's draws."""
    out = []
    for t in range(rounds):
        with np.load(folder / f"draw-{t}.npz") as stored:
            names = [n for n in stored if not n.endswith(".unit")]
            grid = lambda n: Grid(stored[n], float(stored[f"{n}.unit"])) if f"{n}.unit" in stored else stored[n]  # noqa: E731
            out.append({n: grid(n) for n in names})
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("agreement", type=Path)
    for name in ("me", "data", "keys", "state"):
        parser.add_argument(f"--{name}", type=str if name == "me" else Path)
    a = parser.parse_args()
    a.state.mkdir(parents=True, exist_ok=True)
    sys.exit(run_party(a.agreement, a.keys, a.data, a.state, me=a.me, source=Recording(a.state)))
