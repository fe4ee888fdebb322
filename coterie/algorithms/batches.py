"""Many agents in one pytree: a leading agent axis on everything but what they share."""

from __future__ import annotations

from typing import Any

import jax

from coterie.algorithms.base import Place
from coterie.problems import Shard

__all__ = ["axes", "rows"]

SHARED = {"shape", "start", "ridge", "lipschitz", "smoothness"}  # fields of Place and Shard that all agents share


def axes(tree: Any) -> Any:
    """`vmap` axes over agents of a batched Place, Shard, state or draw."""
    return jax.tree_util.tree_map_with_path(lambda path, _: None if _shared(tree, path) else 0, tree)


def rows(tree: Any, at: Any) -> Any:
    """The agents `at` (an index or a slice) of a batched Place, Shard, state or draw."""
    return jax.tree_util.tree_map_with_path(lambda path, x: x if _shared(tree, path) else x[at], tree)


def _shared(tree: Any, path: tuple) -> bool:
    return isinstance(tree, Place | Shard) and path[0].name in SHARED
