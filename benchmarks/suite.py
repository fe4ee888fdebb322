"""The problems on which default settings are chosen (one half) and reported (the other): `benchmarks.defaults`.

Rules are chosen on the `choosing` half only. Nothing here is tuned: sizes, seeds and splits are fixed. Records are
split into test (15 %), validation (12 %) and training records, by person where one has several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from coterie.data import load

__all__ = ["SUITE", "Case", "Records"]

TEST, VALIDATION = 0.15, 0.27  # where each part ends


@dataclass(frozen=True)
class Records:
    """A problem's records: features of norm at most 1, and labels −1 and 1."""

    features: np.ndarray
    targets: np.ndarray
    people: np.ndarray | None = None

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows for training, validation and testing."""
        rng, people = np.random.default_rng(0), self.people
        if people is None:
            where = rng.permutation(len(self.features)) / len(self.features)
        else:
            _, person = np.unique(people, return_inverse=True)
            where = (rng.permutation(person.max() + 1) / (person.max() + 1))[person]
        training = rng.permutation(np.flatnonzero(where >= VALIDATION))
        return training, np.flatnonzero((where >= TEST) & (where < VALIDATION)), np.flatnonzero(where < TEST)


@dataclass(frozen=True)
class Case:
    """One problem: who holds how many of its records, and to which half it belongs."""

    name: str
    half: Literal["choosing", "reporting"]
    agents: int
    make: Callable[[], Records]
    small: bool = False  # few records: cheap, and noise decides more


def _signs(name: str, rows: int | None = None, **options: object) -> Callable[[], Records]:
    def make() -> Records:
        data = load(name, **options)
        return Records(data.features[:rows], np.where(data.targets == 1, 1.0, -1.0)[:rows], data.people)

    return make


def _made(records: int, columns: int, rate: float, used: int, seed: int) -> Callable[[], Records]:
    """Yes-or-no columns of which `used` matter, and a share `rate` of positive labels."""

    def make() -> Records:
        rng = np.random.default_rng(seed)
        z = (rng.uniform(size=(records, columns)) < rng.uniform(0.02, 0.5, size=columns)).astype(float)
        score = z[:, :used] @ (1.2 * rng.normal(size=used))
        shift = brentq(lambda c: float(np.mean(expit(score + c))) - rate, -30, 30)
        targets = np.where(rng.uniform(size=records) < expit(score + shift), 1.0, -1.0)
        return Records(_unit(z), targets)

    return make


def _unit(z: np.ndarray) -> np.ndarray:
    z = np.column_stack([np.ones(len(z)), z])
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def _breast() -> Records:
    """Tumours, each column divided by a rounded upper limit of the published table."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    high = np.array([30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1, 3, 5, 22, 550, 0.04, 0.14, 0.4, 0.06, 0.08, 0.03,
                     40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21])  # fmt: skip
    return Records(_unit(np.clip(table.data / high, 0, 1)), np.where(table.target == 1, 1.0, -1.0))


SUITE = (
    Case("heart", "choosing", 4, _signs("heart"), small=True),
    Case("clinics", "choosing", 5, _signs("clinics"), small=True),
    Case("made, 5 % positive", "choosing", 8, _made(20_000, 60, 0.05, 15, 1)),
    Case("made, 200 columns", "choosing", 5, _made(20_000, 200, 0.3, 40, 2)),
    Case("adult, 5 agents", "choosing", 5, _signs("adult")),
    Case("breast", "reporting", 3, _breast, small=True),
    Case("made, 3,000 records", "reporting", 10, _made(3000, 20, 0.5, 10, 4), small=True),
    Case("adult, 100 agents", "reporting", 100, _signs("adult", 40_000)),
    Case("diabetes, any", "reporting", 10, _signs("diabetes")),
    Case("diabetes, early", "reporting", 5, _signs("diabetes", target="early", encounters="all")),
)
