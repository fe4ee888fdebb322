r"""Sums of a linear model's gradients that read every record once, on a GPU.

Σ_r w_r clip(slope_r) features_r takes two looks at a record: for its score, then for its part of the sum. As two matrix
products those are two passes over memory, which is all that such a sum costs where parties are many and small. Here a
party's records are held in the registers of one program between the two looks.

It serves parties of a batch whose records fit there (`SMALL`), in numbers of 32 bits or fewer, for losses whose slope
is made of operations that such programs know (`KNOWN`); everything else takes the plain sum. Both are the same up to
rounding, which is finer here: a GPU's matrix products round their factors to 10 bits unless they are told not to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

__all__ = ["KNOWN", "SMALL", "gradients", "once", "worth_it"]

Slope = Callable[[Array, Array], Array]
WEIGHTS = 3  # their place among the arguments
SMALL = 8192  # numbers, padded to powers of two: 32 KiB, what a program holds without spilling
KNOWN = {
    "abs", "add", "and", "broadcast_in_dim", "convert_element_type", "copy", "div", "eq", "exp", "exp2", "ge", "gt",
    "integer_pow", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "select_n",
    "sign", "sqrt", "square", "sub", "tanh",
}  # fmt: skip


def worth_it(slope: Slope, features: Array, targets: Array) -> bool:
    """Whether records of this shape on this machine are read once."""
    if jax.default_backend() != "gpu" or features.ndim != 2 or targets.ndim != 1 or features.dtype.itemsize > 4:
        return False
    rows, columns = features.shape
    return _padded(rows) * _padded(columns) <= SMALL and _known(slope, features.shape[0], features.dtype)


def gradients(
    plain: Callable[..., Array], slope: Slope, x: Array, features: Array, targets: Array, weights: Array,
    clip: Array | None,
) -> Array:  # fmt: skip
    """`plain` of the other arguments; where parties are batched, and one run of them, by `once` on a GPU."""
    args = (x, features, targets, weights, *(() if clip is None else (clip,)))

    @custom_vmap
    def alone(*args: Array) -> Array:
        return plain(*args)

    @alone.def_vmap
    def side_by_side(size: int, which: list[bool], *args: Array) -> tuple[Array, bool]:
        if not which[1]:  # many points, the same records
            return jax.vmap(plain, [0 if one else None for one in which])(*args), True
        own = [one or k != WEIGHTS for k, one in enumerate(which)]  # weights that are the same for all are read once
        every = [
            a if one or not mine else jnp.broadcast_to(a, (size, *a.shape))
            for a, one, mine in zip(args, which, own, strict=True)
        ]
        return _of_parties(plain, slope, own)(*every), True

    return alone(*args)


def _of_parties(plain: Callable[..., Array], slope: Slope, own: list[bool]) -> Callable[..., Array]:
    """The sums of a batch of parties; `own`: which arguments have the parties as their first axis."""
    one_by_one = jax.vmap(plain, [0 if mine else None for mine in own])

    @custom_vmap
    def parties(*args: Array) -> Array:
        return jax.lax.platform_dependent(*args, cuda=partial(once, slope), default=one_by_one)

    @parties.def_vmap
    def runs(size: int, which: list[bool], *args: Array) -> tuple[Array, bool]:  # runs share records: products do
        return jax.vmap(one_by_one, [0 if one else None for one in which])(*args), True

    return parties


def once(
    slope: Slope, x: Array, features: Array, targets: Array, weights: Array, clip: Array | None = None, *,
    interpret: bool = False,
) -> Array:  # fmt: skip
    """The sums of all parties of a batch: every argument has the parties as its first axis, but shared weights."""
    from jax.experimental import pallas as pl  # takes its time to import, and only a GPU needs it
    from jax.experimental.pallas import triton

    parties, rows, columns = features.shape
    r, c = _padded(rows), _padded(columns)

    def party(*refs: Any) -> None:
        x, features, targets, weights, *clip, out = refs
        row, column = jnp.arange(r) < rows, jnp.arange(c) < columns
        load = partial(triton.load, other=0)
        point = load(x.at[:], mask=column)
        record = load(features.at[:, :], mask=row[:, None] & column[None, :]).astype(point.dtype)
        steep = slope(jnp.sum(record * point[None, :], axis=1), load(targets.at[:], mask=row))
        steep = jnp.where(jnp.abs(steep) < jnp.inf, steep, 0.0)  # as `sound`: what is no number counts as none
        if clip:
            norm = jnp.abs(steep) * jnp.sqrt(jnp.sum(record * record, axis=1))
            factor = jnp.minimum(1.0, clip[0][...] / jnp.maximum(norm, 1e-30))
            steep = steep * jnp.where(norm < jnp.inf, factor, 0.0)
        steep = (steep * load(weights.at[:], mask=row)).astype(point.dtype)
        triton.store(out.at[:], jnp.sum(steep[:, None] * record, axis=0), mask=column)

    held = pl.BlockSpec((None, c), lambda i: (i, 0))
    each = pl.BlockSpec((None, r), lambda i: (i, 0))
    block = pl.BlockSpec((None, r, c), lambda i: (i, 0, 0))
    given = [x, features, targets, weights]
    specs = [held, block, each, each if weights.ndim == 2 else pl.BlockSpec((r,), lambda i: (0,))]
    if clip is not None:
        given, specs = [*given, clip.astype(x.dtype)], [*specs, pl.BlockSpec((None,), lambda i: (i,))]
    return pl.pallas_call(
        party, grid=(parties,), in_specs=specs, out_specs=held, interpret=interpret,
        out_shape=jax.ShapeDtypeStruct((parties, columns), x.dtype),
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
    )(*given)  # fmt: skip


def _padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _known(slope: Slope, rows: int, dtype: jnp.dtype) -> bool:
    """Whether a slope is made of known operations, and of no numbers but those that are given."""
    shape = jax.ShapeDtypeStruct((rows,), dtype)
    traced = jax.make_jaxpr(slope)(shape, shape)
    if any(jnp.ndim(c) for c in traced.consts):
        return False
    return _made_of_known(dce_jaxpr(traced.jaxpr, [True])[0])


def _made_of_known(jaxpr: Jaxpr) -> bool:
    for step in jaxpr.eqns:
        inner = [v.jaxpr if isinstance(v, ClosedJaxpr) else v for v in step.params.values()
                 if isinstance(v, ClosedJaxpr | Jaxpr)]  # fmt: skip
        if not (all(map(_made_of_known, inner)) if inner else step.primitive.name in KNOWN):
            return False
    return True
