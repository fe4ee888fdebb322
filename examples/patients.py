"""A table of made-up patients to try things on: `python -m examples.patients patients.csv`.

Sixty practices with 20 to 60 patients each. Whether somebody comes back depends on age, blood pressure, earlier visits,
weight and ward, by the same rule everywhere, and on chance; pulse and sex say nothing of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

PRACTICES = 60


def patients(seed: int = 0) -> pd.DataFrame:
    """The table, one patient a row."""
    rng = np.random.default_rng(seed)
    sizes = np.linspace(20, 60, PRACTICES).astype(int)
    count = int(sizes.sum())
    age = rng.integers(18, 96, count)
    systolic = rng.normal(130, 22, count).clip(70, 220).round()
    visits = rng.integers(0, 12, count)
    weight = rng.normal(80, 18, count).clip(40, 180).round()
    surgical = rng.random(count) < 0.5
    score = (age - 57) / 20 + (systolic - 130) / 22 + (visits - 5.5) / 3 + (weight - 80) / 25 + 1.5 * (surgical - 0.5)
    again = rng.random(count) < 1 / (1 + np.exp(-score))
    return pd.DataFrame({
        "practice": np.repeat([f"practice-{k + 1:02d}" for k in range(PRACTICES)], sizes),
        "age": age, "systolic": systolic.astype(int), "visits": visits, "weight": weight.astype(int),
        "pulse": rng.normal(72, 10, count).clip(40, 140).round().astype(int),
        "sex": np.where(rng.random(count) < 0.5, "f", "m"), "ward": np.where(surgical, "surgical", "medical"),
        "readmitted": np.where(again, "yes", "no"),
    })  # fmt: skip


if __name__ == "__main__":
    patients().to_csv(Path(sys.argv[1] if len(sys.argv) > 1 else "patients.csv"), index=False)
