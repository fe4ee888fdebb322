"""interpret's DP-EBM on the splits of `benchmarks.additive`: `python -m benchmarks.dp_ebm [--splits 5]`.

One holder of all training records, DP-EBM's defaults, the same ε and δ, public ranges as its `privacy_bounds`, levels
as nominal features. Its noise is for a record that is added or removed, ours for one that is replaced, which asks for
more. It gets an environment of its own in the user's cache (`benchmarks.peers`); where it cannot be installed or does
not finish, that is said, and the exit code is 3: no number is made up for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.additive import LOCAL, plan_of
from benchmarks.peers import CACHE, PACKAGES, call, environment
from coterie.data import Dataset
from coterie.experiment import prepare

NAME = "interpret"
RUN_SECONDS = 1800
RAW: dict[str, dict[str, Any]] = {
    "adult": {"row_norm": "none", "centre": False},
    "diabetes": {"target": "early", "row_norm": "none", "centre": False},
    "heart": {"row_norm": "none", "centre": False},
}


def columns(data: Dataset) -> tuple[list[str], list[bool], list[np.ndarray]]:
    """Attributes as DP-EBM takes them: numbers in [0, 1], levels as texts; also what our bins leave out."""
    where: dict[str, list[int]] = {}
    for k, name in enumerate(data.feature_names):
        if name != "constant":
            where.setdefault(name.partition("=")[0], []).append(k)
    names, numbers, found = [], [], []
    for name, at in where.items():
        block, single = np.asarray(data.features)[:, at], "=" not in data.feature_names[at[0]]
        names.append(name)
        numbers.append(single)
        if single:
            found.append(np.clip(block[:, 0], 0.0, 1.0))
        else:
            levels = np.array([data.feature_names[k].partition("=")[2] for k in at] + ["none"])
            found.append(levels[np.where(block.any(axis=1), block.argmax(axis=1), len(at))])
    return names, numbers, found


def table_of(data: str, split: int, path: Path) -> None:
    """Write the split's training and test records."""
    experiment = prepare(plan_of(data, split, 2, LOCAL, None, additive=False, options=RAW[data]))
    assert experiment.test is not None
    held: dict[str, Any] = {}
    for kind, some in (("train", experiment.dataset), ("test", experiment.test)):
        names, numbers, found = columns(some)
        held |= {"names": np.array(names), "numbers": np.array(numbers)}
        held |= {f"{kind} {k}": column for k, column in enumerate(found)}
        held |= {"y" if kind == "train" else "truth": (np.asarray(some.targets) > 0).astype(int)}
    np.savez_compressed(path, **held)


def main() -> int:
    """Print a table; exit code 3 where DP-EBM could not be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=RAW, default="adult")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--out", type=Path, help="keep every number as JSON")
    args = parser.parse_args()
    PACKAGES[NAME] = (["interpret-core", "pandas", "scikit-learn"], "3.11")
    python = environment(NAME, CACHE)
    if isinstance(python, str):
        print(f"DP-EBM {python}")
        return 3
    found: dict[str, list[dict[str, Any]]] = {f"{epsilon:g}": [] for epsilon in args.epsilon}
    with tempfile.TemporaryDirectory() as folder:
        for split in range(args.splits):
            path = Path(folder) / f"{split}.npz"
            table_of(args.data, split, path)
            for epsilon in args.epsilon:
                said = call(python, "benchmarks.dp_ebm_fit", [str(path), str(epsilon), "1e-4", str(split)], RUN_SECONDS)
                if isinstance(said, str):
                    print(f"DP-EBM on split {split} at ε = {epsilon:g}: {said}")
                    return 3
                found[f"{epsilon:g}"].append(said)
                print(f"split {split}, ε = {epsilon:g}: {said}", file=sys.stderr, flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(f"\n| {args.data}, {args.splits} splits, DP-EBM of one holder | accuracy | AUC |\n| --- | --- | --- |")
    for epsilon, rows in found.items():
        means = [np.mean([row[key] for row in rows]) for key in ("accuracy", "auc")]
        print(f"| ε = {epsilon}, interpret {rows[0]['version']} | {means[0]:.4f} | {means[1]:.4f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
