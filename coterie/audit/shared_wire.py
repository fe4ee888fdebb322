"""What a coalition knows of a deployed party's noise where neighbours share it: all but what it must guess.

The coalition Q sees every message and holds its own secrets. Of the attacked party's noise it takes off the secrets
that Q shares. The other parties H keep their own; but their records and states are known, so their noise is seen, and
it tells of the attacked party's by the secrets in both: in units of own noise all of H has the covariance
S = I + ratio² Laplacian of the graph without Q. What is left given the others' is Gaussian of variance 1/(S⁻¹)_00, and
the part that is known has the mean S_0H S_HH⁻¹ n_H.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping

import numpy as np

from coterie.algorithms.laws import Grid, Law, Normal, Shared
from coterie.deploy.noise import Drawn, Source, SystemSource
from coterie.deploy.pairs import PairSecrets, SharedSource

__all__ = ["Coalition", "many"]

TARGET = 0


def many(law: Law, count: int) -> Law:
    """The same law for so many runs at once."""
    if isinstance(law, Shared):
        return Shared(count, *law.shape, own=law.own, ratio=law.ratio)
    return type(law)(count, *law.shape)


class Coalition:
    """Draws of party 0 among parties that are all neighbours, and what `gone` of them know of these draws.

    Secrets come from the product's own derivation, with fresh keys for every object; own noise from `source`.

    Attributes:
        known: what is known of the noise in every round, in steps: (run, round, number).
        bare: what it would be if nobody but the coalition had noise of its own: secrets of the others cancel.
        variance: of what is not, in units of own noise.
    """

    def __init__(self, parties: int, gone: tuple[int, ...], ratio: float, source: Source | None = None):
        agreed = {pair: os.urandom(32) for pair in itertools.combinations(range(parties), 2)}
        plan = os.urandom(32)
        near = lambda i: {j: agreed[min(i, j), max(i, j)] for j in range(parties) if j != i}  # noqa: E731
        self._pairs = [PairSecrets(plan, i, near(i)) for i in range(parties)]
        self._gone, self._rest = gone, [i for i in range(1, parties) if i not in gone]
        self._own: Source = source or SystemSource()
        self._source = SharedSource(self._own, self._pairs[TARGET])
        left = [TARGET, *self._rest]
        hides = np.eye(len(left)) * (1 + ratio**2 * len(left)) - ratio**2
        self._told = np.linalg.solve(hides[1:, 1:], hides[1:, 0])
        self.variance = float(1 / np.linalg.inv(hides)[0, 0])
        self._known: list[np.ndarray] = []
        self._bare: list[np.ndarray] = []

    @property
    def known(self) -> np.ndarray:
        """What is known of the noise in every round, in steps: (run, round, number)."""
        return np.stack(self._known, axis=1)

    @property
    def bare(self) -> np.ndarray:
        """The same if nobody but the coalition had noise of its own."""
        return np.stack(self._bare, axis=1)

    def draw(self, round: int, laws: Mapping[str, Law]) -> Drawn:
        """One round's draws of the attacked party, whose law is the only one."""
        ((name, law),) = laws.items()
        assert isinstance(law, Shared)
        known = self._taken(TARGET, round, name, law)
        bare = known.copy()
        for share, other in zip(self._told, self._rest, strict=True):
            fresh = self._own.draw(round, {name: Normal(*law.shape)})[name]
            assert isinstance(fresh, Grid)
            noise = fresh.steps + self._pairs[other].total(round, name, law) - self._taken(other, round, name, law)
            known, bare = known + share * noise, bare - noise
        self._known.append(np.asarray(known, float))
        self._bare.append(bare)
        return self._source.draw(round, laws)

    def _taken(self, me: int, round: int, name: str, law: Shared) -> np.ndarray:
        """What a party adds of the secrets that it shares with the coalition."""
        secrets = [(1 if me < q else -1) * self._pairs[me].secret(q, round, name, law) for q in self._gone]
        return np.sum(secrets, axis=0) if secrets else np.zeros(law.shape, np.int64)
