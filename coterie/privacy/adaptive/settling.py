"""Settling: the noise falls by a factor whenever the released models have stopped getting anywhere.

Of the last `window` rounds with noise, the mean over all parties of what they said has moved a distance, along a path
of some length. Noise around a point that is reached makes the path long and the distance short: where their ratio falls
below `still`, later rounds get `factor` times the noise, and the rule looks again `window` rounds later.
"""

from __future__ import annotations

import numpy as np

from coterie.errors import InputError
from coterie.privacy.adaptive import History, Rule
from coterie.privacy.schedules import positive


def make(first: float = 1.0, factor: float = 0.7, window: float = 4, still: float = 0.5) -> Rule:
    """Begin with `first` times the planned noise."""
    positive("first", first)
    if not 0 < factor < 1:
        raise InputError(f"factor must be between 0 and 1, got {factor}")
    if not (window >= 2 and window == int(window)):
        raise InputError(f"window must be a whole number of rounds >= 2, got {window}")
    if not 0 < still < 1:
        raise InputError(f"still must be between 0 and 1, got {still}")

    def rule(round: int, released: History) -> float:
        noisy = [k for k, noise in enumerate(released.noise) if noise]
        if len(noisy) < 2:
            return first
        now = released.noise[noisy[-1]]
        since = [k for k in noisy if released.noise[k] == now]
        if len(since) % int(window):
            return now
        path = released.messages[since[-int(window) :]].mean(axis=1)
        length = float(np.sum(np.linalg.norm(np.diff(path, axis=0), axis=1)))
        return now * (factor if np.linalg.norm(path[-1] - path[0]) < still * length else 1.0)

    return rule
