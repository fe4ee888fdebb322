"""Many agents in one pytree: a leading agent axis on everything but what they share."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms.base import Place
from coterie.problems import Shard

__all__ = ["axes", "rows", "stretch"]

# fields of Place and Shard that all agents share; of `shape` each may have a row of its own
SHARED = {"shape", "start", "ridge", "lipschitz", "smoothness", "horizon"}


def axes(tree: PyTree) -> PyTree:
    """`vmap` axes over agents of a batched Place, Shard, state or draw."""
    return jax.tree_util.tree_map_with_path(lambda path, x: None if _shared(tree, path, x) else 0, tree)


def rows(tree: PyTree, at: PyTree) -> PyTree:
    """The agents `at` (an index or a slice) of a batched Place, Shard, state or draw."""
    return jax.tree_util.tree_map_with_path(lambda path, x: x if _shared(tree, path, x) else x[at], tree)


def stretch(tree: PyTree, low: Array, size: int) -> PyTree:
    """The agents low … low + size − 1, where only the compiled program knows `low`."""
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, low, size)  # noqa: E731
    return jax.tree_util.tree_map_with_path(lambda path, x: x if _shared(tree, path, x) else cut(x), tree)


def _shared(tree: PyTree, path: tuple, x: PyTree) -> bool:
    if not isinstance(tree, Place | Shard) or path[0].name not in SHARED:
        return False
    return path[0].name != "shape" or np.ndim(x) == 1
