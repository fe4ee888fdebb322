r"""Records most of whose numbers are zero, such as coded categories: sums over them at many points skip the zeros.

`Sparse` stands where an array of features (rows, d) does. `gradients` and `values` are sums over records of a loss of
the score ⟨features, x⟩. At one point they take the array's way, which is as fast. At many points at once (the runs of a
comparison, the models that are judged) they look up what a record is made of, all points side by side: of Adult 12
numbers out of 104.

    scores   Σ_k value[r, k] · points[column[r, k]]                      one loop, of k look-ups
    sums     Σ_k part[c, k] · weights[row[c, k]] of chunk c, whose records have one column in common; then chunks of
             chunks; then those of a column by a product with a matrix of zeros and ones

How long these lists are depends on the records: for simulations only, where whoever runs one holds them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

__all__ = ["FEW", "Sparse", "as_array", "gradients", "sparse", "values"]

FEW = 4  # points below which an array's product is as fast
LEAST = 1 << 16  # numbers of an agent from which lists are worth their making
MOST = 24  # numbers that are not zero in a record: a look-up each, compiled one by one
CHUNK = 16  # look-ups of a chunk. With 8 the compiler computes every weight anew for each chunk that it is in
REGISTER = 64  # bytes: points side by side fill whole ones, or half of one, as what is left over takes as long as that
NEAR = 1000  # rows whose weights are added up together: those of 50 points stay in a core's own cache


class Sparse(eqx.Module):
    """Features of records as an array, and the lists of those that are not zero; in front, where batched, agents."""

    dense: Float[Array, "*agents rows d"]
    column: Int[Array, "*agents rows k"]
    value: Float[Array, "*agents rows k"]
    row: Int[Array, "*agents chunks c"]
    part: Float[Array, "*agents chunks c"]  # the value of that row in the chunk's column
    chunk: Int[Array, "*agents more c"]
    whole: Float[Array, "*agents d more"]  # 1 where chunks of chunks belong to a column

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array."""
        return self.dense.shape

    def __getitem__(self, rows: Array) -> Array:
        return self.dense[rows]

    def __matmul__(self, point: Float[Array, " d"]) -> Float[Array, " rows"]:
        return self.dense @ point

    def read(self, points: int) -> int:
        """How many numbers a sum at so many points goes through, for each of them."""
        return int((self.dense if points < FEW else self.value).size)

    @property
    def norms(self) -> Float[Array, "*agents rows"]:
        """Of the rows; a record is no variable, and the norm of zeros has no derivative."""
        return jax.lax.stop_gradient(jnp.linalg.norm(self.value, axis=-1))

    def times(self, signs: Float[Array, "agents rows"]) -> Sparse:
        """The lists of every agent's records, each times its sign; the array stays as it is."""
        at = lambda of, rows: of.at[rows].get(mode="promise_in_bounds")  # noqa: E731
        value, part = self.value * signs[..., None], self.part * jax.vmap(at)(signs, self.row)
        return replace(self, value=value, part=part)

    def scores(self, points: Float[Array, "agents d points"]) -> Float[Array, "agents rows points"]:
        """Of every agent's records at its points."""
        agents, d, many = points.shape
        if many < FEW:
            return _alike(jnp.matmul, self.dense, points)
        table = jnp.pad(points.reshape(agents * d, many), ((0, 1), (0, 0)))  # a copy, or they would be read across
        at = (self.column + d * _numbers(self.column)).reshape(-1, self.column.shape[-1])
        return _in_pieces(table, at, self.value.reshape(at.shape)).reshape(agents, -1, many)

    def sums(self, weights: Float[Array, "agents rows points"]) -> Float[Array, "agents d points"]:
        """Σ_r weights_r features_r of every agent's records."""
        agents, rows, many = weights.shape
        if many < FEW:
            return _alike(lambda records, w: w @ records, self.dense, weights)
        at = (self.row + rows * _numbers(self.row)).reshape(-1, CHUNK)
        up = (self.chunk + self.row.shape[1] * _numbers(self.chunk)).reshape(-1, CHUNK)
        chunks = _in_pieces(weights.reshape(agents * rows, many), at, self.part.reshape(at.shape))
        return self.whole @ _in_pieces(chunks, up).reshape(agents, -1, many)


Pointwise = Callable[[Array, Array, Array, Array], Array]
"""Of every record's score, target, norm and clip: one number."""


def gradients(
    slope: Pointwise, x: Array, records: Sparse, targets: Array, weights: Array, clip: Array | float | None,
    margins: bool = False,
) -> Float[Array, " d"]:  # fmt: skip
    """Σ_r weights_r · slope_r · features_r. `margins`: the loss is one of target · score, of targets −1 and 1."""

    def of(records: Sparse, points: Array, clips: Array, targets: Array, weights: Array) -> Array:
        records, targets = _signed(records, targets, points) if margins else (records, targets)
        steep = _of_each(slope, records, records.scores(points), targets, clips)
        return records.sums(weights[..., None] * steep)

    return _over_points(of, x, records, targets, weights, clip)


def values(
    value: Pointwise, x: Array, records: Sparse, targets: Array, weights: Array, margins: bool = False
) -> Float[Array, ""]:
    """Σ_r weights_r · value_r, of those that weigh something; `margins` as in `gradients`."""

    def of(records: Sparse, points: Array, clips: Array, targets: Array, weights: Array) -> Array:
        records, targets = _signed(records, targets, points) if margins else (records, targets)
        each = _of_each(value, records, records.scores(points), targets, clips)
        return weights[:, None] @ jnp.where(weights[..., None] > 0, each, 0.0)

    return _over_points(of, x, records, targets, weights, None)[0]


def _signed(records: Sparse, targets: Array, points: Array) -> tuple[Sparse, Array]:
    """Records times their targets, and 1 in the place of these, which a loss need not look up for every score."""
    if points.shape[-1] < FEW:  # these take the array's way
        return records, targets
    return records.times(targets), jnp.ones_like(targets, shape=(1, 1))


def _of_each(f: Pointwise, records: Sparse, scores: Array, targets: Array, clips: Array) -> Array:
    """f of everything in one long list, as a loss takes records; points stay beside one another in memory."""
    wide = lambda v: jnp.broadcast_to(v, scores.shape).ravel()  # noqa: E731
    each = f(scores.ravel(), wide(targets[..., None]), wide(records.norms[..., None]), wide(clips[:, None]))
    return each.reshape(scores.shape)


def _over_points(
    of: Callable[..., Array], x: Array, records: Sparse, targets: Array, weights: Array, clip: Array | float | None
) -> Array:
    """of(records, points, clips, targets, weights) for agents and points that are whatever this is batched over."""
    leaves, tree = jax.tree.flatten(records)

    def plain(points: Array, clips: Array, *held: Array) -> Array:
        targets, weights, *leaves = held
        many = points.shape[-1]
        wide = REGISTER // points.dtype.itemsize
        more = -many % (wide if 2 * many > wide else wide // 2) if many >= FEW else 0
        points, clips = (jnp.pad(v, [*[(0, 0)] * (v.ndim - 1), (0, more)]) for v in (points, clips))
        return of(jax.tree.unflatten(tree, leaves), points, clips, targets, weights)[..., :many]

    f = custom_vmap(plain)

    @f.def_vmap
    def rule(size: int, batched: list[bool], points: Array, clips: Array, *held: Array) -> tuple[Array, bool]:
        given = (points, clips, *held)
        if not any(batched[2:]):  # points alone join the points
            asked = [
                x if b else jnp.broadcast_to(x, (size, *x.shape)) for x, b in zip(given[:2], batched, strict=False)
            ]
            many = points.shape[-1]
            out = f(*(jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], size * many) for x in asked), *held)
            return jnp.moveaxis(out.reshape(*out.shape[:-1], size, many), -2, 0), True
        if not all(batched[2:]) and not any(batched[4:]):  # records of all, with weights or targets for each
            return jax.vmap(plain, [0 if b else None for b in batched])(*given), True
        own = [x if b else jnp.broadcast_to(x, (size, *x.shape)) for x, b in zip(given, batched, strict=True)]
        out = f(*(x.reshape(-1, *x.shape[2:]) for x in own))  # agents join the agents
        return out.reshape(size, -1, *out.shape[1:]), True

    # whoever differentiates takes the array's way, of one point: neither loops nor rules of batches can be transposed
    summed = jax.custom_jvp(lambda *given: f(*given))
    summed.defjvp(lambda given, moved: jax.jvp(plain, given, moved))
    clips = jnp.broadcast_to(jnp.asarray(jnp.inf if clip is None else clip, x.dtype), (1, 1))
    return summed(x[None, :, None], clips, *(v[None] for v in (targets, weights, *leaves)))[0, :, 0]


def _numbers(lists: Array) -> Array:
    """0, 1, … of the agents in front of their lists."""
    return jnp.arange(len(lists), dtype=lists.dtype)[:, None, None]


def _alike(product: Callable[[Array, Array], Array], dense: Array, asked: Array) -> Array:
    """The product of every agent's records with its few vectors (agents, ·, many), as an array has it."""
    each = [
        product(dense[0], asked[0, :, k])[None] if len(dense) == 1 else jax.vmap(product)(dense, asked[..., k])
        for k in range(asked.shape[-1])
    ]
    return jnp.stack(each, axis=-1)


def _looked_up(table: Array, at: Array, times: Array | None = None) -> Array:
    """Σ_k times[·, k] · table[at[·, k]]: written out, the compiler makes one loop of it and stores no look-up."""
    found = [table.at[at[:, k]].get(mode="promise_in_bounds") for k in range(at.shape[1])]
    return reduce(jnp.add, found if times is None else [times[:, k, None] * x for k, x in enumerate(found)])


@partial(jax.jit, inline=True)
def _in_pieces(table: Array, at: Array, times: Array | None = None) -> Array:
    """The same in a loop over pieces: what goes into it is computed before, and what comes out is stored.

    Else the compiler might compute the one and the other anew for each use.
    """
    rows, many = len(at), table.shape[-1]
    pieces = max(2, rows // NEAR)
    size = -(-rows // pieces)

    def piece(k: Array, out: Array) -> Array:
        low = jnp.minimum(k * size, rows - size)
        own = lambda x: jax.lax.dynamic_slice_in_dim(x, low, size)  # noqa: E731
        found = _looked_up(table, own(at), None if times is None else own(times))
        return jax.lax.dynamic_update_slice_in_dim(out, found, low, 0)

    return jax.lax.fori_loop(0, pieces, piece, jnp.zeros((rows, many), table.dtype))


def as_array(features: Array | Sparse) -> Array:
    """The features as an array."""
    return features.dense if isinstance(features, Sparse) else features


def sparse(held: Array) -> Array | Sparse:
    """The features (agents, rows, d) with lists, each as long as the longest; as they are where lists are no gain."""
    features, (agents, rows, d) = np.asarray(held), held.shape
    limit = min(MOST, d // 4)
    if rows * d < LEAST or np.count_nonzero(features[0, :64], axis=-1).max() > limit:  # nearly always seen at once
        return held
    counts = [np.count_nonzero(one, axis=-1) for one in features]
    most = int(max(np.max(count) for count in counts))
    if not 0 < most <= limit:
        return held
    found = [np.nonzero(one) for one in features]
    lists = [_lists(one, *at) for one, at in zip(features, found, strict=True)]
    column, value = np.zeros((agents, rows, most), np.int32), np.zeros((agents, rows, most), features.dtype)
    for i, ((r, c), count) in enumerate(zip(found, counts, strict=True)):
        k = np.arange(len(r)) - np.repeat(np.cumsum(count) - count, count)
        column[i, r, k], value[i, r, k] = c, features[i, r, c]
    chunks = max(len(row) for row, *_ in lists) + 1  # the last is empty in every agent: what is not there
    more = max(len(up) for *_, up, _ in lists)
    row, part = np.zeros((agents, chunks, CHUNK), np.int32), np.zeros((agents, chunks, CHUNK), features.dtype)
    chunk, whole = np.full((agents, more, CHUNK), chunks - 1, np.int32), np.zeros((agents, d, more), features.dtype)
    for i, (own_row, own_part, up, columns) in enumerate(lists):
        row[i, : len(own_row)], part[i, : len(own_part)] = own_row, own_part
        chunk[i, : len(up)] = np.where(up < 0, chunks - 1, up)
        whole[i, columns, np.arange(len(columns))] = 1
    return Sparse(held, *map(jax.device_put, (column, value, row, part, chunk, whole)))


def _lists(
    features: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One agent's chunks (rows, values), chunks of chunks (−1: none), and the columns of these."""
    d = features.shape[1]
    keys, (row, part) = _cut(rows // NEAR * d + columns, rows, features[rows, columns])
    columns, (chunk,) = _cut(keys % d, np.arange(len(keys)) + 1)
    return row, part, chunk - 1, columns


def _cut(key: np.ndarray, *of: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Entries of like key in pieces of at most CHUNK: the key of every piece, and its entries, 0 where there is none.

    >>> _cut(np.array([7, 5, 7]), np.array([1, 2, 3]))[1][0][:, :3]
    array([[2, 0, 0],
           [1, 3, 0]])
    """
    order = np.argsort(key, kind="stable")
    keys, counts = np.unique(key, return_counts=True)
    pieces = -(-counts // CHUNK)
    place = np.arange(len(key)) - np.repeat(np.cumsum(counts) - counts, counts)
    piece = np.repeat(np.cumsum(pieces) - pieces, counts) + place // CHUNK
    out = [np.zeros((pieces.sum(), CHUNK), x.dtype) for x in of]
    for room, x in zip(out, of, strict=True):
        room[piece, place % CHUNK] = x[order]
    return np.repeat(keys, pieces), out
