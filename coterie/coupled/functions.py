r"""A coupled problem as a plan states it: everybody's box, matrix and ranges are public, the functions are records.

    minimise  Σ_i f_i(x_i)   subject to   Σ_i A_i x_i = total,   low_i ≤ x_i ≤ high_i

Party i's function is f_i(x) = Σ_l a_l x_l²/2 + b_l x_l. A record is one such function, the coefficients (a, b) in the
ranges that the plan has for its party, and f_i is the mean of the party's records: of a single one it is that function
itself. A record's target is the number of its party, which is public, so `admit` knows the ranges to pull it back to:
whatever a file says, what counts is in its class, and the class is what privacy is proved for.

A point is (x_1, …, x_N, price): what everybody knows of everybody in the end. Parties with fewer variables than others
have further ones that are 0.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, NamedTuple, NoReturn

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.data.sources.coefficients import columns_of
from coterie.errors import InputError
from coterie.losses.settings import LossSettings
from coterie.problems.base import Problem
from coterie.problems.coupled import Coupled, quadratic_agent
from coterie.problems.labels import WHOLE, Labels
from coterie.problems.records import Rows, clip_factor, namespace
from coterie.settings import Settings as Table

__all__ = ["EXAMPLE", "MODEL", "CoupledFunctions", "PublicPart", "Settings", "Variables", "make"]

MODEL = "shares of a resource, and its price"
Range = tuple[float, float]
Numbers = tuple[float, ...]


class Variables(Table):
    """What is public of one party: one number for all of its variables, or one for each."""

    low: float | list[float] = Field(description="lower bounds")
    high: float | list[float] = Field(description="upper bounds")
    curvature: Range | list[Range] = Field(description="range of the curvature, above 0; equal ends: it is public")
    slope: Range | list[Range] = Field(description="range of the slope; equal ends: it is public")
    matrix: list[list[float]] | None = Field(
        None, description="A_i, one row for each total; default: every variable counts once"
    )

    @property
    def count(self) -> int:
        """How many variables there are."""
        longest = [len(x) for x in (self.low, self.high) if isinstance(x, list)]
        longest += [len(x) for x in (self.curvature, self.slope) if isinstance(x, list)]
        longest += [len(row) for row in self.matrix or ()]
        return max(longest, default=1)


class Settings(LossSettings):
    """What a plan says of the problem."""

    radius: None = Field(None, description="has no use here: every party's box is stated")
    total: float | list[float] = Field(description="what the parties' parts have to add up to")
    variables: list[Variables] = Field(min_length=2, description="what is public of each party, in their order")

    @property
    def features(self) -> int:
        """Numbers in a record: a curvature and a slope for each variable."""
        return 2 * max(v.count for v in self.variables)


class PublicPart(NamedTuple):
    """What is public of a party; numbers that it has fewer of than others end with zeros."""

    variables: int
    matrix: tuple[Numbers, ...]
    low: Numbers
    high: Numbers
    least: Numbers  # of its curvatures, then of its slopes
    most: Numbers

    def reach(self, inverse: float) -> float:
        """The largest number that its box, and a gradient on it divided by `inverse`, may have."""
        far = np.maximum(np.abs(self.low), np.abs(self.high))
        bend, slope = np.split(np.maximum(np.abs(self.least), np.abs(self.most)), 2)
        return float(np.max([far, (bend * far + slope) / inverse])) or 1.0


class CoupledFunctions(Problem):
    """Functions of parties that share something; see the module."""

    total: Numbers = eqx.field(static=True)
    members: tuple[PublicPart, ...] = eqx.field(static=True)
    labels: ClassVar[Labels] = WHOLE
    metric: ClassVar[str] = "negative mean cost"  # type: ignore[misc]
    convex: ClassVar[bool] = True
    constraint: ClassVar[None] = None
    coupled: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "coupled problem"

    @property
    def premise(self) -> str:
        return "every record's coefficients lie in the ranges that problem.variables has for its party"

    @property
    def most(self) -> int:
        """Variables of the party that has most of them."""
        return len(self.members[0].low)

    @property
    def columns(self) -> int:
        return 2 * self.most

    @property
    def dim(self) -> int:
        """Everybody's variables, and the price."""
        return len(self.members) * self.most + len(self.total)

    @property
    def smoothness(self) -> float:
        """The largest curvature of a record."""
        return float(max(max(m.most[: self.most]) for m in self.members))

    @property
    def stated(self) -> Coupled:
        """The problem with the middle of every range in place of the functions, which nobody knows."""
        return _stated(self)

    def shares(self, point: Float[Array, " dim"]) -> Float[Array, "parties most"]:
        """Everybody's variables in a point."""
        return point[: len(self.members) * self.most].reshape(-1, self.most)

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        own, (bend, slope) = self.shares(x)[targets.astype(int)], jnp.split(features, 2, axis=-1)
        return jnp.sum((bend * own / 2 + slope) * own, axis=-1)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
    ) -> Float[Array, " d"]:
        own, (bend, slope) = self.shares(x)[targets.astype(int)], jnp.split(features, 2, axis=-1)
        each = bend * own + slope
        if clip is not None:
            weights = weights * clip_factor(jnp.linalg.norm(each, axis=-1), clip)
        nothing = jnp.zeros((len(self.members), self.most), x.dtype)
        total = nothing.at[targets.astype(int)].add(weights[:, None] * each)
        return jnp.concatenate([total.ravel(), jnp.zeros(len(self.total), x.dtype)])

    def predict(self, x: Float[Array, " d"], features: Array) -> NoReturn:
        raise InputError("a coupled problem shares something: there is nothing to predict")

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        return -jnp.mean(self.losses(x, features, targets))

    def outside(self, features: np.ndarray) -> str | None:
        """Only of a record whose party is known can this be said: `admit` pulls it back."""
        return None

    def admit(self, features: Rows, targets: Rows) -> tuple[Rows, Rows]:
        """Every coefficient in the range of its party; the middle of it for one that is not a number."""
        xp, party = namespace(features), self.admit_targets(targets)
        every = np.array([[m.least for m in self.members], [m.most for m in self.members]])
        least, most = xp.asarray(every)[:, party]
        known = xp.where(xp.isfinite(features), features, (least + most) / 2)
        return xp.clip(known, least, most).astype(features.dtype), party

    def admit_targets(self, targets: Rows) -> Rows:
        xp = namespace(targets)
        return xp.clip(WHOLE.admit(targets), 0, len(self.members) - 1).astype(xp.int32)

    def owned(self, features: np.ndarray, targets: np.ndarray, node: int) -> tuple[np.ndarray, np.ndarray]:
        """The party's own records, whatever they say of whom they belong to; of a missing column the plan knows all."""
        own, known = self.members[node], np.array(features, float)
        missing, least = np.all(np.isnan(known), axis=0), np.array(own.least)
        if np.any(lacks := missing & (least < np.array(own.most))):
            name = columns_of(self.most)[int(np.argmax(lacks))]
            raise InputError(f"there is no column {name!r}, and problem.variables[{node}] leaves it open")
        return np.where(missing, least, known), np.full(len(known), node, np.int32)

    def start(self, seed: int) -> np.ndarray:
        """The middle of every box."""
        middle = [(np.array(m.low) + np.array(m.high)) / 2 for m in self.members]
        return np.concatenate([*middle, np.zeros(len(self.total))])

    def shaped(self, point: np.ndarray) -> dict[str, list[list[float]] | list[float]]:
        """Everybody's share, and the price."""
        values = np.asarray(point, float)
        rows, price = np.split(values, [len(self.members) * self.most])
        rows = rows.reshape(-1, self.most)
        return {"shares": [r[: m.variables].tolist() for r, m in zip(rows, self.members, strict=True)],
                "price": price.tolist()}  # fmt: skip


@cache
def _stated(problem: CoupledFunctions) -> Coupled:
    agents, wide = [], problem.most
    for m in problem.members:
        own = slice(0, m.variables)
        bends, slopes = ((m.least[at][own], m.most[at][own]) for at in (slice(0, wide), slice(wide, None)))
        middle = [(np.array(low) + np.array(high)) / 2 for low, high in (bends, slopes)]
        agents.append(quadratic_agent(
            *middle, matrix=np.array(m.matrix)[:, own], low=m.low[own], high=m.high[own],
            curvature_range=bends, slope_range=slopes,
        ))  # fmt: skip
    return Coupled(agents, problem.total)


def _member(at: int, stated: Variables, total: Numbers, most: int) -> PublicPart:
    """One party's numbers, checked and filled up with zeros."""
    count = stated.count

    def spread(name: str, given: float | list[float]) -> np.ndarray:
        values = np.asarray(given, float)
        if values.ndim and values.shape != (count,):
            raise InputError(f"problem.variables[{at}].{name} has {values.size} numbers for {count} variables")
        return np.broadcast_to(values, (count,))

    def ends(name: str, given: Range | list[Range]) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.asarray(given, float).T.tolist()
        return spread(name, low), spread(name, high)

    low, high = spread("low", stated.low), spread("high", stated.high)
    bends, slopes = ends("curvature", stated.curvature), ends("slope", stated.slope)
    matrix = np.ones((len(total), count)) if stated.matrix is None else np.asarray(_even(at, stated.matrix), float)
    if stated.matrix is None and len(total) != 1:
        raise InputError(f"problem.variables[{at}] needs matrix: there are {len(total)} totals")
    if matrix.shape != (len(total), count):
        raise InputError(
            f"problem.variables[{at}].matrix is {matrix.shape[0]} × {matrix.shape[1]}, expected {len(total)} totals × "
            f"{count} variables"
        )
    for name, (least, largest) in {"curvature": bends, "slope": slopes}.items():
        if np.any(least > largest):
            raise InputError(f"problem.variables[{at}].{name} must be (low, high), got {[*map(float, least)]} above it")
    if not np.all(bends[0] > 0):
        raise InputError(f"problem.variables[{at}].curvature must lie above 0, got {float(bends[0].min()):g}")
    if np.any(low > high):
        raise InputError(f"problem.variables[{at}].low must be <= high, got {stated.low} and {stated.high}")
    if not np.any((bends[0] < bends[1]) | (slopes[0] < slopes[1])):
        raise InputError(f"problem.variables[{at}] leaves nothing to hide: give curvature or slope a range")
    fill = lambda x: (*map(float, x), *[0.0] * (most - count))  # noqa: E731
    return PublicPart(
        count, tuple(fill(row) for row in matrix), fill(low), fill(high),
        (*fill(bends[0]), *fill(slopes[0])), (*fill(bends[1]), *fill(slopes[1])),
    )  # fmt: skip


def _even(at: int, rows: list[list[float]]) -> list[list[float]]:
    if len({len(row) for row in rows}) > 1:
        raise InputError(f"problem.variables[{at}].matrix has rows of different lengths")
    return rows


def make(settings: Settings, features: int, classes: int) -> CoupledFunctions:
    """The problem; a plan need not say how many numbers a record has, and if it does, it has to be right."""
    if features not in (1, settings.features):  # 1: nothing was said
        raise InputError(f"problem.dim = {features}, but problem.variables has {settings.features} coefficients")
    total = tuple(map(float, np.atleast_1d(settings.total)))
    most = settings.features // 2
    made = CoupledFunctions(total, tuple(_member(i, v, total, most) for i, v in enumerate(settings.variables)))
    _ = made.stated  # refuses what cannot add up
    return made


EXAMPLE = make(
    Settings(total=1.0, variables=[Variables(low=0, high=1, curvature=(1, 2), slope=(-1, 1)) for _ in range(2)]), 2, 1
)
