"""Judged models are measured after the loop that kept them, by one program for all algorithms, runs and rounds."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.compiler import of_runs
from coterie.drivers.compiled import kept
from coterie.drivers.layout import Arrays
from coterie.drivers.program import Held, Program
from coterie.problems import HeldShard

__all__ = ["Judge"]

BLOCK = 48  # models of a judge that are measured by one call …
ROOMY = 1 << 22  # … where its scores are not more than so many


class Judge:
    """Train loss and test score of models that a run has kept; each is measured once."""

    def __init__(self, program: Program, arrays: Arrays):
        self._program = program
        without = lambda a: (a.place, a.agent_ids, a.adjacency)  # noqa: E731
        self._arrays = eqx.tree_at(without, arrays, (None,) * 3, is_leaf=lambda x: x is None)
        self.compile_s = 0.0  # what compiling its program took, once it has measured
        self._known: dict[int, dict[str, np.ndarray]] = {}

    def at(self, slots: Sequence[int], models: np.ndarray) -> list[dict[str, np.ndarray]]:
        """What every run has at each of these slots of `models` (runs, slots, judges, d)."""
        if new := [slot for slot in slots if slot not in self._known]:
            asked = models[:, new]
            found = self._measured(asked.reshape(-1, *asked.shape[2:]), len(asked))
            for k, slot in enumerate(new):
                self._known[slot] = {name: v.reshape(asked.shape[:2])[:, k] for name, v in found.items()}
        return [self._known[slot] for slot in slots]

    def _measured(self, models: np.ndarray, runs: int) -> dict[str, np.ndarray]:
        """Of models (any number, judges, d), some at a time."""
        block = BLOCK if len(models) > runs and self._records() * BLOCK <= ROOMY else runs
        given = self._arrays, self._program.test, jax.ShapeDtypeStruct((block, *models.shape[1:]), models.dtype)
        code = type(self._program), self._program.agents
        started = time.perf_counter()
        compiled = kept(
            code, given, lambda: jax.jit(self._judged).lower(*given).compile(of_runs(block, math.inf, False))
        )
        self.compile_s += time.perf_counter() - started
        parts = []
        for low in range(0, len(models), block):
            some = models[low : low + block]
            whole = np.concatenate([some, np.repeat(some[-1:], block - len(some), axis=0)])
            found = compiled(*given[:2], whole)
            parts.append({name: np.asarray(v)[: len(some)] for name, v in found.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _judged(self, arrays: Arrays, test: Held, models: Array) -> dict[str, Array]:
        program = copy.copy(self._program)
        program.test = test
        return program.judged_models(arrays, jnp.swapaxes(models, 0, 1))

    def _records(self) -> float:
        """How many there are in memory, padding included."""
        shards = [group.shards for group in self._arrays.groups]
        return float(sum(s.targets.size if isinstance(s, HeldShard) else math.inf for s in shards))
