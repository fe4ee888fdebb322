r"""People: whose record is whose, and what a person adds to a sum, where the person is the unit of privacy.

Person q with records r₁ … r_k has the loss (1/k) Σ loss(x; r_j): a mean, so a person has the bounds of one record, on
slope, on curvature and on what a replacement changes, however many records it has, and no cap on them is needed. What
it adds to a clipped sum is clip((1/k) Σ ∇loss(x; r_j)): replacing a person, records and their number alike, moves the
sum by 2 · clip at most. A person with one record adds what that record alone would, to the last bit.

What does not carry over from records to people: a mean of several records' losses is a function of several scores, its
gradient changes its direction with the point, and its slope has no one sign (`of_people`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from coterie.problems.base import Problem
from coterie.problems.records import clip_factor
from coterie.problems.released import Released

__all__ = ["LOST", "Grouped", "People", "clipped_sum", "grouped", "lay_out", "numbered_people", "of_people"]

P = TypeVar("P", bound=Problem)
LOST = ("scored", "monotone", "directed")  # facts that a record has and a mean of several need not have
AT_ONCE = 1 << 20  # numbers of single gradients that are held at once
LONGEST = 2.0**10  # clips: a record's gradient is cut to that before a person's mean is taken


class People(eqx.Module):
    """Whose each row of a shard is. Rows of one person stand together; padding belongs to nobody."""

    owner: Int[Array, "*agents rows"]  # the person's number, in rising order; on padding the number of people
    share: Float[Array, "*agents rows"]  # 1 over the number of the person's records; 0 on padding
    first: Int[Array, "*agents people"]  # the person's first row
    many: Int[Array, "*agents people"]  # the person's records
    most: int = eqx.field(static=True)  # records that a person may have here at most

    @property
    def size(self) -> int:
        """People that there is room for."""
        return self.first.shape[-1]


class Grouped(eqx.Module):
    """Some rows of a shard, whose they are, and how often each of these people counts."""

    features: Array
    targets: Array
    owner: Int[Array, " rows"]
    share: Float[Array, " rows"]
    weights: Float[Array, " people"]


def grouped(
    people: People,
    features: Array,
    targets: Array,
    here: Array,
    rows: Array | None,
    mask: Array | None,
    dtype: DTypeLike,
) -> Grouped:
    """The records of the people `rows` (all by default, less those outside `mask`); `here`: who is no padding.

    Picked people are gathered one by one where that reads fewer rows than there are; else all rows are read.
    """
    if rows is None:
        chosen = here if mask is None else here & mask
        return Grouped(features, targets, people.owner, people.share, chosen.astype(dtype))
    chosen = here[rows] if mask is None else here[rows] & mask
    if rows.shape[0] * people.most > features.shape[0]:
        weights = jnp.zeros(people.size, dtype).at[rows].add(chosen.astype(dtype))
        return Grouped(features, targets, people.owner, people.share, weights)
    place = jnp.arange(people.most)
    real = place < people.many[rows][:, None]
    at = jnp.where(real, people.first[rows][:, None] + place, people.first[rows][:, None]).reshape(-1)
    share = jnp.where(real.reshape(-1), people.share[at], 0.0)
    owner = jnp.repeat(jnp.arange(rows.shape[0]), people.most, total_repeat_length=at.shape[0])
    return Grouped(features[at], targets[at], owner, share, chosen.astype(dtype))


def clipped_sum(
    problem: Problem, x: Float[Array, " d"], of: Grouped, clip: Array | float | None
) -> Float[Array, " d"]:  # fmt: skip
    """Σ_q weights_q · clip(mean over q's records of ∇loss(x)).

    A record whose gradient is not finite counts as one of gradient zero, as it does where records are the unit. Every
    record's is cut to `LONGEST` clips first: two of opposite sign and any length have a mean that is short, but added
    to everybody's they would round all else away, and so move the sum by more than two clips.
    """
    if clip is None:
        return problem.weighted_gradient(x, of.features, of.targets, of.weights[of.owner] * of.share, None)
    one = of.share == 1  # a person's only record: clipped as every record is
    factor = clip_factor(_lengths(problem, x, of, LONGEST * clip), clip)
    weights = (of.weights * factor)[of.owner] * of.share
    weights = jnp.where(one, of.weights[of.owner], weights)
    return problem.weighted_gradient(x, of.features, of.targets, weights, jnp.where(one, clip, LONGEST * clip))


def _lengths(
    problem: Problem, x: Float[Array, " d"], of: Grouped, longest: Array | float
) -> Float[Array, " people"]:  # fmt: skip
    """‖mean gradient‖ of every person, from as many single gradients at a time as fit in a cache, each cut first."""
    rows, count = of.features.shape[0], of.weights.shape[0]
    size = int(np.clip(AT_ONCE // problem.dim, 1, rows))

    def parts(features: Array, targets: Array, share: Array) -> Float[Array, "some d"]:
        return share[:, None] * problem.each_gradient(x, features, targets, longest)

    if size == rows:
        sums = jax.ops.segment_sum(parts(of.features, of.targets, of.share), of.owner, count, indices_are_sorted=True)
        return jnp.linalg.norm(sums, axis=1)

    def step(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """One piece; a person who began in the piece before has `sum` there, and is written once more."""
        lengths, sum, who = carry
        at = k * size + jnp.arange(size)
        real, at = at < rows, jnp.minimum(at, rows - 1)
        owner = jnp.where(real, of.owner[at], count)
        own = parts(of.features[at], of.targets[at], jnp.where(real, of.share[at], 0.0))
        sums = jax.ops.segment_sum(own, owner - owner[0], size, indices_are_sorted=True)
        sums = sums.at[0].add(jnp.where(owner[0] == who, sum, 0.0))
        lengths = lengths.at[owner[0] + jnp.arange(size)].set(jnp.linalg.norm(sums, axis=1), mode="drop")
        return lengths, sums.at[owner[-1] - owner[0]].get(mode="fill", fill_value=0.0), owner[-1]

    start = jnp.zeros(count, x.dtype), jnp.zeros_like(x), jnp.asarray(-1, of.owner.dtype)
    return jax.lax.fori_loop(0, -(-rows // size), step, start)[0]


def numbered_people(names: np.ndarray) -> np.ndarray:
    """People numbered 0, 1, … in the order in which their first records come."""
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    number = np.empty(len(first), int)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return number[which.reshape(-1)]


def lay_out(
    owners: Sequence[np.ndarray], rows: int, people: int, most: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """(which record of its agent stands in each row, the arrays of `People`) for agents whose records have `owners`.

    All agents get as many rows and places for people; padding repeats an agent's first record.
    """
    take = np.zeros((len(owners), rows), int)
    laid: dict[str, np.ndarray] = {
        "owner": np.full((len(owners), rows), people, np.int32),
        "share": np.zeros((len(owners), rows)),
        "first": np.zeros((len(owners), people), np.int32),
        "many": np.ones((len(owners), people), np.int32),
    }
    for k, owner in enumerate(owners):
        number = numbered_people(owner)
        order = np.argsort(number, kind="stable")
        many = np.bincount(number)
        place = np.arange(len(order)) - np.repeat(np.cumsum(many) - many, many)
        order, number = order[place < most], number[order][place < most]  # of whoever has more, the first ones
        many = np.minimum(many, most)
        used = slice(len(order))
        take[k, used] = order
        laid["owner"][k, used], laid["share"][k, used] = number, 1.0 / many[number]
        laid["first"][k, : len(many)], laid["many"][k, : len(many)] = np.cumsum(many) - many, many
    return take, laid


def of_people(problem: P) -> P:
    """The same loss where the unit is a person, whose loss is the mean of its records': with the facts that it keeps.

    Convexity and the bounds on slope and curvature are those of a record, and so is half of what a replacement changes:
    a mean of numbers within a bound is within it. Lost is what rests on a single record, unless a person is a record,
    the mean of its own: where every record's Hessian is the identity, and where means of vectors are released.
    """
    if problem.per_person:
        return problem
    lost = () if _is_record(problem) else LOST
    stated = {field.name: getattr(problem, field.name) for field in fields(problem)}
    return _made(type(problem), {name: False if name in lost else value for name, value in stated.items()})


def _is_record(problem: Problem) -> bool:
    """Whether the mean of several records is one that could have been a record."""
    return bool(problem.isotropic) or isinstance(problem, Released)


def _made(kind: type[P], stated: Mapping[str, object]) -> P:
    """A loss of this kind for people, from its fields."""
    made = object.__new__(_kind(kind))
    for name, value in stated.items():
        object.__setattr__(made, name, value)
    return made


@cache
def _kind(kind: type[P]) -> type[P]:
    """A subclass that states less; nothing that a loss depends on is touched."""
    stated = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    less = {name: property(_kept(kind, name)) for name in LOST if name not in stated}

    def reduced(self: P) -> tuple:  # a class that is made here is found by the one that it is made of
        return _made, (kind, {field.name: getattr(self, field.name) for field in fields(self)})

    body = {"per_person": True, "__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced, **less}
    meta: Any = type(kind)
    return meta(kind.__name__, (kind,), body)  # type: ignore[no-any-return]


def _kept(kind: type[Problem], name: str) -> Callable[[Problem], bool]:
    def fact(self: Problem) -> bool:
        return _is_record(self) and bool(getattr(super(_kind(kind), self), name))

    return fact
