r"""Clipped gradients of any loss, record by record, without one gradient for each record where that can be helped.

Of a loss that was taken apart (`coterie.problems.steps`), with kernel W, what goes in a and what comes back δ, all for
one record:
    dense layer, met once     the gradient is a ⊗ δ, of norm ‖a‖ ‖δ‖: it is not formed;
    look-up                   rows that are asked for more than once are added up first; the norm is that of the sums;
    convolution, dense layer at several places    Σ_t a_t ⊗ δ_t is formed: one product of patches and δ a record;
    anything else             the record's own copy of the parameters has it.
A norm from products of all pairs of places (‖Σ_t a_t ⊗ δ_t‖² = Σ_st ⟨a_s, a_t⟩⟨δ_s, δ_t⟩) would save memory where
kernels are large, and is not used: where the parts cancel, rounding makes it too small, and then a record moves the
sum by more than the clip. Here the norm is that of the very numbers that are added.

Records are taken in pieces, as many as fit in `ROOM` numbers: a public choice, made from shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from coterie.problems.patches import Convolution, kernel_gradient
from coterie.problems.records import clip_factor, sound
from coterie.problems.steps import Parted, Tap, parted, rewritten

__all__ = ["clipped_gradients", "each_gradient", "in_pieces", "once_if_alike", "room", "several_points"]

Loss = Callable[[list[Array], Array, Array], Array]
ROOM = {"cpu": 1 << 21, "gpu": 1 << 30}  # numbers that are held at once: on a core, what a cache takes


def room() -> int:
    """Numbers that the device should hold at once."""
    return ROOM.get(jax.default_backend(), ROOM["gpu"])


# ---- one layer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Met:
    """What some records say of one value of parameters: squared norms, and the gradients or their parts."""

    squares: Float[Array, " rows"]
    total: Callable[[Float[Array, " rows"]], Array]  # Σ_r factor_r · gradient_r, of finite numbers
    formed: Callable[[], Array]  # (rows, *shape of the value)


def _formed(each: Array) -> Met:
    rows = each.reshape(each.shape[0], -1)
    total = lambda factor: (factor @ sound(rows)).reshape(each.shape[1:])  # noqa: E731
    return Met(jnp.sum(rows**2, axis=1), total, lambda: each)


def _back(tap: Tap, kernel: Array, others: Sequence[Array], delta: Array) -> Array:
    """The gradient of the kernel for one record."""
    return jax.linear_transpose(lambda w: tap.apply(w, others), kernel)(delta)[0]


def _dense(tap: Tap, kernel: Array, others: Sequence[Array], delta: Array) -> Met:
    (a,) = others
    contracted, batched = tap.step.equation.params["dimension_numbers"]
    one = jax.vmap(partial(_back, tap, kernel))
    if a.ndim - 1 > len(contracted[0]) or batched[0]:  # at several places
        return _formed(one(others, delta))
    squares = (_length(a) * _length(delta)) ** 2

    def total(factor: Array) -> Array:
        all_of = lambda w: jax.vmap(lambda a: tap.apply(w, [a]))(sound(a))  # noqa: E731
        return jax.linear_transpose(all_of, kernel)(_times(factor, sound(delta)))[0]

    return Met(squares, total, lambda: one(others, delta))


def _length(x: Array) -> Float[Array, " rows"]:
    """The norm of every row, in units of its largest number: a square would vanish where what it meets is large."""
    flat = x.reshape(x.shape[0], -1)
    largest = jnp.max(jnp.abs(flat), axis=1, initial=0.0)
    return largest * jnp.linalg.norm(flat / jnp.where(largest > 0, largest, 1.0)[:, None], axis=1)


def _convolution(tap: Tap, kernel: Array, others: Sequence[Array], delta: Array) -> Met:
    one = lambda a, d: kernel_gradient(a, kernel, d, cast(Convolution, tap.step.equation.params))  # noqa: E731
    return _formed(jax.vmap(one)(others[0], delta))


def _look_up(tap: Tap, kernel: Array, others: Sequence[Array], delta: Array) -> Met:
    """Rows of a table: what comes back for a row that was asked for several times is added up where it was first."""
    (asked,), given = others, tap.step.equation.params
    numbers, sizes = given["dimension_numbers"], given["slice_sizes"]
    count, places = asked.shape[0], prod(asked.shape[1:-1])
    found = jnp.moveaxis(delta, [1 + d for d in numbers.offset_dims], range(-len(numbers.offset_dims), 0))
    parts = found.reshape(count, places, -1)
    which, here = _rows(asked.reshape(count, places, -1), kernel.shape, sizes, numbers.start_index_map, given["mode"])
    same = (which[:, :, None] == which[:, None]) & here[:, :, None] & here[:, None]
    first = here & ~jnp.any(same & (jnp.arange(places)[:, None] > jnp.arange(places)), axis=2)
    sums = jnp.where(first[..., None], jnp.einsum("rst,rtd->rsd", same.astype(parts.dtype), sound(parts)), 0.0)
    good = jnp.all(jnp.isfinite(parts), axis=(1, 2))
    squares = jnp.where(good, jnp.sum(sums**2, axis=(1, 2)), jnp.inf)
    back = jnp.moveaxis(
        sums.reshape(found.shape), range(-len(numbers.offset_dims), 0), [1 + d for d in numbers.offset_dims]
    )

    def total(factor: Array) -> Array:
        all_of = lambda w: jax.vmap(lambda i: tap.apply(w, [i]))(asked)  # noqa: E731
        return jax.linear_transpose(all_of, kernel)(_times(factor, back))[0]

    return Met(squares, total, lambda: jax.vmap(partial(_back, tap, kernel))(others, delta))


def _rows(
    asked: Int[Array, "rows places dims"], shape: Sequence[int], sizes: Sequence[int], dims: Sequence[int], mode: object
) -> tuple[Int[Array, "rows places"], Bool[Array, "rows places"]]:
    """The number of the slice that is read at every place, and whether there is one."""
    which = jnp.zeros(asked.shape[:2], asked.dtype)
    here = jnp.ones(asked.shape[:2], bool)
    for k, d in enumerate(dims):
        most = shape[d] - sizes[d]
        here &= (asked[..., k] >= 0) & (asked[..., k] <= most)
        which = which * (most + 1) + jnp.clip(asked[..., k], 0, most)
    dropped = mode == jax.lax.GatherScatterMode.FILL_OR_DROP
    return which, here if dropped else jnp.ones_like(here)


def _slice(tap: Tap, kernel: Array, others: Sequence[Array], delta: Array) -> Met:
    """One part of a table: what comes back is the gradient, elsewhere zero."""
    squares = jnp.sum(delta.reshape(delta.shape[0], -1) ** 2, axis=1)

    def total(factor: Array) -> Array:
        all_of = lambda w: jax.vmap(lambda at: tap.apply(w, at))(others)  # noqa: E731
        return jax.linear_transpose(all_of, kernel)(_times(factor, sound(delta)))[0]

    return Met(squares, total, lambda: jax.vmap(partial(_back, tap, kernel))(others, delta))


def _times(factor: Array, x: Array) -> Array:
    return factor.reshape(-1, *[1] * (x.ndim - 1)) * x


LAYERS = {"dot_general": _dense, "conv_general_dilated": _convolution, "gather": _look_up, "dynamic_slice": _slice}


# ---- all of a loss ---------------------------------------------------------------------------------------------------


def _read(loss: Loss, leaves: Sequence[Array], features: Array, targets: Array) -> Parted:
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)  # noqa: E731
    row = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)  # noqa: E731
    return parted(loss, [shape(x) for x in leaves], row(features), row(targets))


def _watch(read: Parted, leaves: Sequence[Array], features: Array, targets: Array) -> tuple[list[Met], Callable]:
    """What these records say of every value that meets them; and what brings a gradient of those to the leaves."""
    values, pull = jax.vjp(read.before, list(leaves))
    kernels, shared = values[: len(read.taps)], values[len(read.taps) :]
    rows = features.shape[0]
    copies = [jnp.broadcast_to(x, (rows, *x.shape)) for x in shared]
    zeros = [jnp.zeros((rows, *tap.out.shape), tap.out.dtype) for tap in read.taps]

    def total(copies: list[Array], watched: list[Array]) -> tuple[Array, list[list[ArrayLike]]]:
        each, beside = jax.vmap(read.after, (None, 0, 0, 0, 0))(kernels, copies, watched, features, targets)
        return jnp.sum(each), beside

    (own, deltas), beside = jax.grad(total, (0, 1), has_aux=True)(copies, zeros)
    layers = zip(read.taps, kernels, beside, deltas, strict=True)
    return [*(LAYERS[tap.name](tap, w, a, d) for tap, w, a, d in layers), *map(_formed, own)], pull


def _tangled(read: Parted, leaves: Sequence[Array], met: Sequence[Met]) -> list[Array]:
    """The gradients, record by record, of leaves that are met more than once or changed before."""
    at = [k for k, value in enumerate(read.met) if value not in read.clean]
    mine = [leaf for leaf in range(read.leaves) if leaf not in read.clean.values()]
    if not at:
        return []

    def part(some: list[Array]) -> list[Array]:
        found = read.before([some[mine.index(k)] if k in mine else x for k, x in enumerate(leaves)])
        return [found[k] for k in at]

    _, pull = jax.vjp(part, [leaves[k] for k in mine])
    return jax.vmap(lambda *parts: pull(list(parts))[0])(*(met[k].formed() for k in at))


def _piece(
    read: Parted, leaves: Sequence[Array], features: Array, targets: Array, weights: Array, limit: Array
) -> list[Array]:
    met, pull = _watch(read, leaves, features, targets)
    squares = sum(
        (m.squares for value, m in zip(read.met, met, strict=True) if value in read.clean), jnp.zeros((), weights.dtype)
    )
    for own in _tangled(read, leaves, met):
        squares = squares + jnp.sum(own.reshape(own.shape[0], -1) ** 2, axis=1)
    factor = weights * clip_factor(jnp.broadcast_to(jnp.sqrt(squares), weights.shape), limit)
    return pull([m.total(factor.astype(weights.dtype)) for m in met])[0]


def clipped_gradients(
    loss: Loss, leaves: Sequence[Array], features: Array, targets: Array, weights: Array, limit: Array
) -> list[Array]:
    """Σ_r weights_r · clip(∇loss_r) by leaves, clipped to `limit` (one, or one for each record)."""
    read = _read(loss, leaves, features, targets)
    limits = jnp.broadcast_to(limit, weights.shape)
    size = piece_of(features.shape[0], _numbers(read))
    return in_pieces(partial(_piece, read, leaves), (features, targets, weights, limits), size)


def each_gradient(loss: Loss, leaves: Sequence[Array], features: Array, targets: Array) -> Float[Array, "rows d"]:
    """Every record's gradient, one flat row each."""
    read = _read(loss, leaves, features, targets)
    met, _ = _watch(read, leaves, features, targets)
    found = {leaf: met[read.met.index(value)].formed() for value, leaf in read.clean.items()}
    rest = [leaf for leaf in range(read.leaves) if leaf not in found]
    found |= zip(rest, _tangled(read, leaves, met), strict=False)
    rows = features.shape[0]
    each = [found.get(k, jnp.zeros((rows, *leaf.shape), leaf.dtype)) for k, leaf in enumerate(leaves)]
    return jnp.concatenate([x.reshape(rows, -1) for x in each], axis=1)


def summed(loss: Loss, leaves: Sequence[Array], features: Array, targets: Array, weights: Array) -> list[Array]:
    """Σ_r weights_r ∇loss_r by leaves, as it is."""

    def piece(features: Array, targets: Array, weights: Array) -> list[Array]:
        each = jax.vmap(partial(rewritten, loss), (None, 0, 0))
        return jax.grad(lambda leaves: jnp.sum(weights * each(leaves, features, targets)))(list(leaves))

    size = piece_of(features.shape[0], numbers_of(loss, leaves, features, targets))
    return in_pieces(piece, (features, targets, weights), size)


def numbers_of(loss: Loss, leaves: Sequence[Array], features: Array, targets: Array) -> int:
    """Numbers that one record needs: what its pass holds, patches, and gradients that are formed."""
    return _numbers(_read(loss, leaves, features, targets))


def _numbers(read: Parted) -> int:
    """Numbers that one record needs: what its pass holds, patches, and gradients that are formed."""
    more = 0
    for tap in read.taps:
        if tap.name == "conv_general_dilated":
            numbers = tap.step.equation.params["dimension_numbers"]
            shape, out = read.shapes[tap.kernel], read.shapes[tap.step.outs[0]]
            window = prod(shape[d] for d in numbers.rhs_spec[1:]) * tap.step.equation.params["feature_group_count"]
            more += window * read.size(tap.step.outs[0]) // out[numbers.out_spec[1]]
        more += read.size(tap.kernel) * (tap.name == "conv_general_dilated" or tap.kernel not in read.clean)
    return read.numbers + more


def crowd_of(loss: Loss, leaves: Sequence[Array], features: Array, targets: Array) -> int:
    """Numbers that all these records need at one point; with convolutions, as many as keep points one by one."""
    read = _read(loss, leaves, features, targets)
    needed = features.shape[0] * _numbers(read)
    return max(needed, room()) if read.convolves else needed


def piece_of(rows: int, numbers: int) -> int:
    """Records at a time: pieces of about equal size."""
    most = max(1, room() // max(1, numbers))
    return -(-rows // -(-rows // most)) if rows else 1


def in_pieces(add: Callable[..., list[Array]], of: tuple[Array, ...], size: int) -> list[Array]:
    """Σ over pieces of `size` records of add(features, targets, weights, …)."""
    rows = of[0].shape[0]
    if size >= rows:
        return add(*of)
    shapes = jax.eval_shape(add, *jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), of))

    def step(k: Array, total: list[Array]) -> list[Array]:
        at = k * size + jnp.arange(size)
        features, targets, weights, *more = (x[jnp.minimum(at, rows - 1)] for x in of)
        return jax.tree.map(jnp.add, total, add(features, targets, jnp.where(at < rows, weights, 0), *more))

    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.fori_loop(0, -(-rows // size), step, start)


# ---- many points at once ---------------------------------------------------------------------------------------------


def several_points(f: Callable[..., Array], numbers: Callable[..., int]) -> Callable[..., Array]:
    """f(x, …); where it is batched over points x, only as many are computed at once as there is room for.

    `numbers(x, …)` says how many numbers one call holds. Parties, seeds and settings are such batches: a convolution
    with several kernels at once is slow and needs memory that grows with their square.
    """
    g = jax.custom_batching.custom_vmap(f)

    @g.def_vmap
    def rule(size: int, batched: Sequence[bool], *args: Array) -> tuple[Array, bool]:
        def with_own(own: Sequence[Array]) -> Array:
            mine = iter(own)
            return g(*(next(mine) if b else x for x, b in zip(args, batched, strict=True)))

        own = [x for x, b in zip(args, batched, strict=True) if b]
        at_once = max(1, room() // max(1, numbers(*(x[0] if b else x for x, b in zip(args, batched, strict=True)))))
        if not batched[0] or at_once >= size:
            return jax.vmap(f, [0 if b else None for b in batched])(*args), True
        return jax.lax.map(with_own, own, batch_size=None if at_once == 1 else at_once), True

    return g


def once_if_alike(f: Callable[..., Array]) -> Callable[..., Array]:
    """f(x, …); where it is batched over points x alone and they are all the same, it is computed once for all.

    So they are before the first round of a batch of runs, and a Hessian costs as much as sixty gradients.
    """
    g = jax.custom_batching.custom_vmap(f)

    @g.def_vmap
    def rule(size: int, batched: Sequence[bool], x: Array, *args: Array) -> tuple[Array, bool]:
        if not any(batched):  # only what they are differentiated along is
            return f(x, *args), False
        each = jax.vmap(f, [0 if b else None for b in batched])
        if not batched[0] or any(batched[1:]) or not size:
            return once_if_alike(each)(x, *args), True  # of many parties, whose runs may be batched around this

        def once(x: Array, *args: Array) -> Array:
            found = f(x[0], *args)
            return jnp.broadcast_to(found, (size, *found.shape))

        return jax.lax.cond(jnp.all(x == x[0]), once, each, x, *args), True

    return g
