"""An inbox's reductions against dense NumPy on random neighbourhoods: any chunking, floats and whole numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms.base import Inbox

AGENTS, DIM = 8, 3


class Letter(eqx.Module):
    """A message of a vector and a whole number."""

    x: jax.Array
    k: jax.Array


@cache
def reader(chunk: int) -> Any:
    """Everything an inbox can do, for one agent, compiled once per chunk size."""

    def read(x: Any, k: Any, index: Any, weight: Any, here: Any, memory: Any) -> dict[str, Any]:
        inbox = Inbox(Letter(x, k), index, weight, here, memory, None, chunk)
        return {
            "total": inbox.total,
            "mixed": inbox.mixed.x,
            "least": inbox.reduce(lambda m, w, e: m, "min"),
            "most": inbox.reduce(lambda m, w, e: m, "max"),
            "own": inbox.reduce(lambda m, w, e: jnp.sum(m.x * e) - w),
            "next": inbox.map(lambda m, w, e: e + w * m.x),
            "stack": inbox.stack().x,
        }

    return jax.jit(read)


@pytest.mark.parametrize("chunk", [1, 3, 7, 16])
@given(st.integers(0, 2**32 - 1), st.integers(1, AGENTS - 1))
@settings(max_examples=15, deadline=None)
def test_reductions_equal_the_dense_computation(chunk: int, seed: int, degree: int) -> None:
    rng, width = np.random.default_rng(seed), AGENTS - 1
    x, k = rng.standard_normal((AGENTS, DIM)), rng.integers(-9, 9, AGENTS).astype(np.int32)
    near = rng.choice(AGENTS, degree, replace=False)
    index, here = rng.integers(0, AGENTS, width).astype(np.int32), np.arange(width) < degree  # rubbish in empty slots
    index[:degree] = near
    weight, memory = rng.uniform(0.1, 1, width), rng.standard_normal((width, DIM))
    with jax.enable_x64(True):
        got = jax.tree.map(np.asarray, reader(chunk)(*map(jnp.asarray, (x, k, index, weight, here, memory))))
    w, e = weight[:degree], memory[:degree]
    np.testing.assert_allclose(got["total"].x, x[near].sum(0), atol=1e-12)
    np.testing.assert_allclose(got["mixed"], w @ x[near], atol=1e-12)
    np.testing.assert_array_equal(got["least"].x, x[near].min(0))
    np.testing.assert_array_equal(got["most"].x, x[near].max(0))
    np.testing.assert_allclose(got["own"], (x[near] * e).sum() - w.sum(), atol=1e-12)
    np.testing.assert_allclose(got["next"][:degree], e + w[:, None] * x[near], atol=1e-12)
    np.testing.assert_array_equal(got["stack"][:degree], x[near])
    for name, fold in (("total", np.sum), ("least", np.min), ("most", np.max)):
        assert got[name].k.dtype == np.int32
        assert got[name].k == fold(k[near])
    if degree < width:  # a reader that forgot `here` would take these in too
        assert not np.allclose(got["total"].x, x[index].sum(0))
