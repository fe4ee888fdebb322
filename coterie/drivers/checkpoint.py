"""The state of a run on disk: written whole or not at all, one file per process, the last two kept.

A file holds the arrays that its process's devices hold, so nothing is gathered to write it and no shared disk is
needed. Processes go on from the latest step that all of them have. The files contain states before noise is added:
they are for study, as all of a simulation is, and not for others' eyes.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils

from coterie.errors import InputError

__all__ = ["Checkpoint", "fingerprint"]

KEEP = 2  # a process may die between two others' writes: the step before is then the latest that all have


class Checkpoint:
    """Stores a run's state in `folder` every `every` rounds."""

    def __init__(self, folder: Path, every: int):
        if every < 1:
            raise InputError(f"rounds between checkpoints must be at least 1, got {every}")
        if folder.exists() and not folder.is_dir():
            raise InputError(f"checkpoint {folder} is a file; expected a folder")
        self.folder, self.every = folder, every
        self.fingerprint = ""

    def path(self, step: int) -> Path:
        """This process's file of a step."""
        return self.folder / f"step-{step:09d}.process-{jax.process_index()}-of-{jax.process_count()}.npz"

    def steps(self) -> list[int]:
        """The steps this process has stored, oldest first."""
        pattern = f"step-*.process-{jax.process_index()}-of-{jax.process_count()}.npz"
        return sorted(int(p.name[5:14]) for p in self.folder.glob(pattern))

    def save(self, step: int, carry: object) -> None:
        """Store the state after `step` steps; earlier files go once this one is on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = {"fingerprint": np.array(self.fingerprint)}
        for k, leaf in enumerate(jax.tree.leaves(carry)):
            for j, shard in enumerate(leaf.addressable_shards):
                arrays[f"leaf{k}-{j}"] = np.asarray(shard.data)
        target = self.path(step)
        partial = target.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
        for old in self.steps()[:-KEEP]:
            self.path(old).unlink(missing_ok=True)

    def load(self, fingerprint: str, like: object) -> tuple[object, int] | None:
        """The latest state that all processes have, in the form of `like`, and its step; None to begin anew."""
        self.fingerprint = fingerprint
        mine = self.steps()[-KEEP:]
        step = _common(mine)
        if step is None:
            return None
        path = self.path(step)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                if str(stored["fingerprint"]) != fingerprint:
                    raise InputError(f"{path} belongs to another run: choose another checkpoint folder or empty it")
                leaves, tree = jax.tree.flatten(like)
                return jax.tree.unflatten(tree, [_restored(stored, k, x) for k, x in enumerate(leaves)]), step
        except InputError:  # an earlier step would be of that other run too
            raise
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} cannot be read ({error}): remove it to go on from an earlier step") from None


def fingerprint(what: object, arrays: object) -> str:
    """Tells a run from others: its settings, and every number that it is made of."""
    digest = hashlib.sha256(repr(what).encode())
    for leaf in jax.tree.leaves(eqx.filter(arrays, eqx.is_array)):
        array = np.ascontiguousarray(leaf)
        digest.update(repr((array.shape, str(array.dtype))).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _common(mine: list[int]) -> int | None:
    """The latest step that every process has stored."""
    padded = np.array([-1] * (KEEP - len(mine)) + mine, np.int32)
    heard = multihost_utils.process_allgather(padded) if jax.process_count() > 1 else padded[None]
    shared = set.intersection(*(set(row.tolist()) for row in np.asarray(heard))) - {-1}
    return max(shared) if shared else None


def _restored(stored: Mapping[str, np.ndarray], k: int, like: jax.Array) -> jax.Array:
    pieces = [jax.device_put(stored[f"leaf{k}-{j}"], s.device) for j, s in enumerate(like.addressable_shards)]
    return jax.make_array_from_single_device_arrays(like.shape, like.sharding, pieces)
