"""DP-EBM on one table, run in interpret's own environment: prints accuracy and AUC as a line of JSON."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np


def main() -> None:
    """argv: a file of `benchmarks.dp_ebm`, ε, δ, seed."""
    import interpret
    import pandas as pd
    from interpret.privacy import DPExplainableBoostingClassifier

    path, epsilon, delta, seed = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    with np.load(path, allow_pickle=False) as held:
        names, numbers = held["names"].tolist(), held["numbers"].tolist()
        train = pd.DataFrame({name: held[f"train {k}"] for k, name in enumerate(names)})
        test = pd.DataFrame({name: held[f"test {k}"] for k, name in enumerate(names)})
        y, truth = held["y"], held["truth"]
    kinds = ["continuous" if number else "nominal" for number in numbers]
    bounds = {name: (0.0, 1.0) for name, number in zip(names, numbers, strict=True) if number}
    model = DPExplainableBoostingClassifier(
        feature_types=kinds, privacy_bounds=bounds, epsilon=epsilon, delta=delta, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train, y)
    score = model.predict_proba(test)[:, 1]
    order = np.argsort(score, kind="stable")
    ranks = np.empty(len(score))
    ranks[order] = np.arange(1, len(score) + 1)
    for value in np.unique(score[np.flatnonzero(np.diff(np.sort(score)) == 0)]):
        ranks[score == value] = ranks[score == value].mean()
    ones = truth == 1
    auc = (ranks[ones].sum() - ones.sum() * (ones.sum() + 1) / 2) / (ones.sum() * (~ones).sum())
    right = float(np.mean((score > 0.5) == ones))
    print(json.dumps({"accuracy": right, "auc": float(auc), "version": interpret.__version__}))
