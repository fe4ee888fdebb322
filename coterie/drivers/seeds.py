"""Seeds and keys of simulated randomness: noise and batches alike.

The generator is Threefry-2x32, whose key has 64 bits: that is what guessing an unknown seed takes at most, and no
wider seed would make it harder. A seed that somebody chose is public; one that nobody gave comes from the operating
system, all 64 bits of it. What protects somebody's records in earnest takes no seed at all (`coterie.privacy.secure`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Key

__all__ = ["IMPL", "SEED_BITS", "fresh_seed", "keys_of", "wide_generator"]

IMPL = "threefry2x32"
SEED_BITS = 64


def fresh_seed() -> int:
    """A seed that nobody gave, from the operating system."""
    return secrets.randbits(SEED_BITS)


def keys_of(seeds: Sequence[int]) -> Key[Array, " runs"]:
    """The keys that seeds of up to `SEED_BITS` bits stand for; each seed is a key of its own.

    >>> bool((jax.random.key_data(keys_of([7]))[0] == jax.random.key_data(jax.random.key(7))).all())
    True
    """
    words = np.array([[seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF] for seed in seeds], np.uint32)  # the last, then 0
    return jax.random.wrap_key_data(jax.device_put(words), impl=IMPL)


def wide_generator(random_state: object) -> np.random.Generator:
    """NumPy's generator for a scikit-learn random state: 128 bits of the operating system, or of a `RandomState`."""
    from sklearn.utils import check_random_state

    if random_state is None:
        return np.random.default_rng()
    state = check_random_state(random_state)
    if isinstance(random_state, int | np.integer):  # a number of 32 bits, and the caller's own
        return np.random.default_rng(state.randint(1 << 31))
    return np.random.default_rng(state.randint(0, 1 << 32, size=4, dtype=np.uint32).tolist())
