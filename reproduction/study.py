"""How a figure gets its numbers: from parts that are computed once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import numpy as np

import coterie
from coterie.report.files import write_atomically

__all__ = ["Study"]

T = TypeVar("T")


@dataclass
class Study:
    """The circumstances of one figure's run: full or quick, where its parts are kept, who hears of progress."""

    folder: Path | None = None  # of the stored parts; None: nothing is stored
    quick: bool = False
    fresh: bool = False  # ignore what is stored
    report: Callable[[str], None] = lambda _: None
    seconds: float = 0.0  # of processor time that the parts took when they were computed
    counted: set[str] = field(default_factory=set, repr=False)  # keys of the parts that are in it

    @property
    def seeds(self) -> int:
        """How many independent repetitions a curve averages."""
        return 3 if self.quick else 10

    def pick(self, full: T, quick: T) -> T:
        """A size for the full and one for the quick version."""
        return quick if self.quick else full

    def part(self, function: Callable[..., dict[str, Any]], **settings: Any) -> dict[str, Any]:
        """function(study, **settings), or what it returned when it last ran with this code and these settings.

        It returns {name: number, text, or array of numbers}; arrays come back as float64.
        """
        what = [coterie.__version__, _code(function.__code__, function.__doc__), settings]
        key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
        path = None if self.folder is None else self.folder / f"{function.__name__.strip('_')}-{key}.json"
        shown = ", ".join(f"{k} = {v}" for k, v in settings.items() if not isinstance(v, list | dict))
        self.report(f"{function.__name__.strip('_').replace('_', ' ')} ({shown})")
        with _alone(path):
            if path is not None and path.exists() and not self.fresh:
                stored = json.loads(path.read_text("utf-8"))
            else:
                stored = self._computed(function, settings, path)
        self.seconds += 0.0 if key in self.counted else stored["seconds"]
        self.counted.add(key)
        return {k: _number(v) for k, v in stored["values"].items()}

    def _computed(self, function: Callable[..., dict[str, Any]], settings: dict[str, Any], path: Path | None) -> Any:
        started = time.process_time()
        values = {k: _plain(v) for k, v in function(self, **settings).items()}
        stored = {"settings": settings, "seconds": time.process_time() - started, "values": values}
        if path is not None:
            text = json.dumps(stored, allow_nan=False) + "\n"
            write_atomically(path, lambda p: p.write_text(text, "utf-8"))
        return stored

    def simulate(self, experiment: Any, priced: Any, seeds: int | Sequence[int], **options: Any) -> Any:
        """`experiment.run` over seeds 0 … n − 1 (or those given); Ctrl-C interrupts instead of returning half a run."""
        return self.whole(
            experiment.run(priced, list(range(seeds)) if isinstance(seeds, int) else seeds, **options), priced.rounds
        )

    def whole(self, trace: Any, rounds: int) -> Any:
        """The trace of a `simulate` that went through all its rounds; otherwise somebody pressed Ctrl-C."""
        if trace.completed < rounds:
            raise KeyboardInterrupt
        return trace


@contextmanager
def _alone(path: Path | None) -> Iterator[None]:
    """Wait while another process computes this part: figures that share it may be made side by side."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.stem}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed, or its holder dies
        yield


def _code(code: CodeType, words: str | None) -> list[Any]:
    """What a function does, whatever its docstring, comments and layout."""
    constants = [
        _code(c, None) if isinstance(c, CodeType) else repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c)
        for c in code.co_consts
        if c != words or words is None
    ]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]


def _plain(value: Any) -> Any:
    """JSON for numbers of any kind: those that JSON lacks as text."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else f"{float(value)}"
    if isinstance(value, str):
        return value
    raise TypeError(f"a part returns numbers, texts and arrays of numbers, not {type(value).__name__}")


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return np.array(value, dtype=np.float64)
    return float(value) if value in ("inf", "-inf", "nan") else value
