"""Records in the unit ball, neighbours of them, and a noise source that only takes notes."""

import numpy as np

from coterie.fair.noise import Seeded
from coterie.fair.polynomial import Statistics


def records(n, d, seed=0, groups=2, signed=True):
    """Random records whose label and features both depend on the protected group."""
    rng = np.random.default_rng(seed)
    z = rng.integers(groups, size=n)
    x = rng.normal(size=(n, d)) + 0.8 * (z[:, None] == 1) * (np.arange(d) < 2)
    x[:, -1] = 1.0
    x = x if signed else np.abs(x)
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    y = (x[:, 0] + 0.5 * x[:, 1] + 0.2 * rng.normal(size=n) > 0.1).astype(int)
    return x, y, z


def point(rng, d, signed):
    """A record's features: often on the sphere, often sparse, where suprema live."""
    x = rng.normal(size=d) * (rng.random(d) < rng.choice([0.2, 0.6, 1.0]))
    x = x if signed else np.abs(x)
    norm = np.linalg.norm(x)
    return x / norm * rng.choice([1.0, 1.0, rng.random()]) if norm > 0 else x


class Recorder:
    """Adds nothing; keeps what it was asked to hide and how. Stage 0 always answers with the same count."""

    secure = False

    def __init__(self, count=None):
        self.count, self.seen = count, []
        self._seeded = Seeded(np.random.default_rng(0))

    def add(self, values, scale, law):
        scale = np.broadcast_to(scale, values.shape)
        self.seen.append((np.array(values), np.array(scale), law))
        if self.count is not None and len(self.seen) == 1:
            return np.full(values.shape, float(self.count))
        return np.array(values)

    def event(self, *args, **options):
        return self._seeded.event(*args, **options)

    @property
    def flat(self):
        return np.concatenate([v.ravel() for v, _, _ in self.seen]), np.concatenate(
            [s.ravel() for _, s, _ in self.seen]
        )


def statistics(n=400, d=4, seed=0, groups=2, signed=True):
    return Statistics.of(*records(n, d, seed, groups, signed), groups)
