"""`model.npz`: the answer of one run, and what ties it to the certificate that lists its hash.

A simulation keeps every agent's point, a deployed party its own. Either way the file holds one run, says which plan it
is of and after how many rounds, and holds nothing else: what a certificate lists is what it charges for.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["MODEL", "contents", "party_model", "run_model"]

Form = tuple[str | int, ...]  # of an array: the letter of its kind of numbers, and its shape

LARGE = 1 << 20  # numbers beyond which packing takes longer than it saves: digits of noise do not pack

MODEL = "model.npz"
"""The only file that a certificate may list: no other holds nothing but what the events pay for."""


def run_model(points: np.ndarray, features: Sequence[str], *, plan: str, rounds: int, seed: int) -> bytes:
    """The file of a simulation: `points` (agents, parameters) of one seed; `plan` is the plan's SHA-256."""
    return _packed(
        points=points, average=points.mean(0), feature_names=np.array(features), plan=plan, rounds=rounds, seed=seed
    )


def party_model(point: np.ndarray, *, plan: str, rounds: int, epsilon: float, delta: float) -> bytes:
    """The file of a deployed party: its own point, and what its ledger says that it cost."""
    return _packed(point=point, plan=plan, rounds=rounds, epsilon=epsilon, delta=delta)


def _packed(**arrays: ArrayLike) -> bytes:
    file = io.BytesIO()
    small = sum(np.size(x) for x in arrays.values()) < LARGE
    (np.savez_compressed if small else np.savez)(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def contents(path: Path, *, agents: int, parameters: int, features: int, simulated: bool) -> dict[str, object]:
    """The plan, the rounds and the seed that a model file names; ValueError if it is not the file of one run.

    Shapes are read from the headers, so that a file of another size is refused and not loaded.
    """
    expected: dict[str, Form] = {"plan": ("U",), "rounds": ("i",)}
    if simulated:
        expected |= {"points": ("f", agents, parameters), "average": ("f", parameters), "seed": ("i",)}
        expected |= {"feature_names": ("U", features)}
    else:
        expected |= {"point": ("f", parameters), "epsilon": ("f",), "delta": ("f",)}
    try:
        with zipfile.ZipFile(path) as file:
            found = {name.removesuffix(".npy"): _form(file, name) for name in file.namelist()}
            if len(found) < len(file.namelist()):
                raise ValueError("it has the same array twice")
        if found != expected:
            raise ValueError(f"expected the arrays of one run, {_listed(expected)}, got {_listed(found)}")
        with np.load(path, allow_pickle=False) as stored:
            named: dict[str, object] = {
                name: stored[name].item() for name in ("plan", "rounds", "seed") if name in found
            }
    except (OSError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise ValueError(str(error)) from None
    return named


def _form(file: zipfile.ZipFile, name: str) -> Form:
    with file.open(name) as array:
        version = np.lib.format.read_magic(array)
        if version != (1, 0):
            raise ValueError(f"{name} is written in another format than numpy's first")
        shape, _, dtype = np.lib.format.read_array_header_1_0(array)
        return ("i" if dtype.kind == "u" else dtype.kind, *shape)  # a seed of 64 bits has no room for a sign


def _listed(forms: dict[str, Form]) -> str:
    return ", ".join(f"{name} {form}" for name, form in sorted(forms.items()))
