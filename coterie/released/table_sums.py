r"""Statistics of a table as a problem: counts of every column's public bins or levels, and moments of its numbers.

A record is one number a column: of a numeric column its place in the public range, u in [0, 1]; of a category the
number of its level; −1 where it is missing, in columns that may have gaps. With v = 2u − 1 (0 where missing) for the d
numeric columns its vector has

    h · one at its bin or level, for each of C columns,   m v,   q (v_a², √2 v_a v_b for a < b).

**How far one record moves it.** Counts of a column: h√2. With ‖v‖² = r², ‖v'‖² = s² and t = ⟨v, v'⟩ the rest moves by
q² (r⁴ + s⁴ − 2t²) + m² (r² + s² − 2t), largest at r² = s² = d, and then at t = −min(d, m²/2q²). So

    Δ² = 2Ch² + 2d²q² + 2dm² + m⁴/2q²   if m² ≤ 2dq²,   else 2Ch² + 4dm².

Half of Δ² is for counts, the rest for moments, of which means have a quarter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field, field_validator

from coterie.errors import InputError
from coterie.losses.settings import LossSettings
from coterie.problems.labels import NOTHING, Labels
from coterie.problems.records import Rows, namespace
from coterie.problems.released import Released

if TYPE_CHECKING:
    from coterie.released.table_statistics import TableStatistics

__all__ = ["EXAMPLE", "MODEL", "MOST", "Settings", "TableSums", "make"]

MODEL = "statistics of a table"
MOST = 20_000  # numbers in one release


class Settings(LossSettings):
    """What a plan may say for it."""

    radius: None = Field(None, description="has no use here: nothing is minimised")
    levels: list[int] | None = Field(None, description="of every column: how many levels a category has, 0 for numbers")
    gaps: list[bool] | None = Field(None, description="whether a column may have missing values; default: none has")
    cells: int = Field(20, ge=2, le=1000, description="bins of a numeric column over its public range")
    moments: bool = Field(True, description="also means, variances and correlations of numeric columns")

    @field_validator("levels")
    @classmethod
    def _possible(cls, levels: list[int] | None) -> list[int] | None:
        if levels is not None and (not levels or min(levels) < 0 or 1 in levels):
            raise ValueError(f"levels must be 0 (numbers) or at least 2 for every column, got {levels}")
        return levels


class TableSums(Released):
    """Counts and moments of columns whose public shape is stated."""

    levels: tuple[int, ...] = eqx.field(static=True)  # of each column; 0: numbers
    gaps: tuple[bool, ...] = eqx.field(static=True)
    bins: int = eqx.field(static=True, default=20)
    moments: bool = eqx.field(static=True, default=True)
    labels: ClassVar[Labels] = NOTHING  # type: ignore[misc]
    metric: ClassVar[str] = "no score"  # type: ignore[misc]
    convex: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    smoothness: ClassVar[float] = 1.0  # it is 0; solvers divide by it

    def __check_init__(self) -> None:
        if len(self.gaps) != len(self.levels):
            raise InputError(f"gaps must have an entry for each of {len(self.levels)} columns, got {len(self.gaps)}")
        if self.size > MOST:
            raise InputError(
                f"statistics would be {self.size} numbers, more than {MOST}: ask for fewer columns or bins"
            )

    @property
    def name(self) -> str:
        return "statistics"

    @property
    def columns(self) -> int:
        return len(self.levels)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numeric columns, where their moments are wanted."""
        return tuple(k for k, many in enumerate(self.levels) if not many) if self.moments else ()

    @property
    def cells(self) -> tuple[int, ...]:
        """How many counts each column has: its bins or levels, and one of what is missing."""
        return tuple((many or self.bins) + gap for many, gap in zip(self.levels, self.gaps, strict=True))

    @property
    def size(self) -> int:
        d = len(self.numbers)
        return sum(self.cells) + d + d * (d + 1) // 2

    @property
    def weights(self) -> tuple[float, float, float]:
        """h, m and q, such that Δ² is about 1: half of it for counts, a quarter of the rest for means."""
        d, half = len(self.numbers), 0.5 if self.numbers else 1.0
        m, q = ((0.25 * 0.5 / (2 * d)) ** 0.5, (0.75 * 0.5 / (2 * d**2)) ** 0.5) if d else (0.0, 0.0)
        return (half / (2 * self.columns)) ** 0.5, m, q

    @property
    def half_gap(self) -> float:
        """Δ/2."""
        (h, m, q), d = self.weights, len(self.numbers)
        rest = 0.0
        if d:
            rest = 2 * d**2 * q**2 + 2 * d * m**2 + m**4 / (2 * q**2) if m**2 <= 2 * d * q**2 else 4 * d * m**2
        return 0.5 * (2 * self.columns * h**2 + rest) ** 0.5

    @property
    def lipschitz(self) -> float:
        """Bound on a record's vector."""
        (h, m, q), d = self.weights, len(self.numbers)
        return (self.columns * h**2 + d * m**2 + d**2 * q**2) ** 0.5

    def each(self, features: Array, targets: Array) -> Float[Array, "rows size"]:
        (h, m, q), kind, blocks = self.weights, features.dtype, []
        for k, (many, cells) in enumerate(zip(self.levels, self.cells, strict=True)):
            column = features[:, k]
            place = jnp.minimum(jnp.floor(column * self.bins), self.bins - 1) if not many else column
            at = jnp.where(column < 0, cells - 1, place).astype(jnp.int32)
            blocks.append(h * jax.nn.one_hot(at, cells, dtype=kind))
        if self.numbers:
            u = features[:, list(self.numbers)]
            v = jnp.where(u < 0, 0.0, 2 * u - 1)
            one, other = np.triu_indices(len(self.numbers), 1)
            blocks += [m * v, q * v**2, q * 2**0.5 * v[:, one] * v[:, other]]
        return jnp.concatenate(blocks, axis=1).astype(kind)

    def admit(self, features: Rows, targets: Rows) -> tuple[Rows, Rows]:
        xp, out = namespace(features), []
        for k, (many, gap) in enumerate(zip(self.levels, self.gaps, strict=True)):
            column = features[..., k]
            known = xp.isfinite(column) & (column >= 0)
            kept = xp.where(known, column, 0.0)
            inside = xp.clip(kept, 0, 1) if not many else xp.clip(xp.floor(kept), 0, many - 1)
            without = -1.0 if gap else 0.0 if many else 0.5  # what is not there has to be something
            out.append(xp.where(known, inside, without))
        return xp.stack(out, axis=-1).astype(features.dtype), 0 * self.labels.admit(targets)

    @property
    def premise(self) -> str:
        return "every record has a number in its public range or a level, for each column"

    def outside(self, features: np.ndarray) -> str | None:
        kept, _ = self.admit(features, np.zeros(len(features)))
        return None if np.array_equal(kept, features) else "are not coded as the public ranges and levels say"

    def predict(self, x: Float[Array, " dim"], features: Array) -> Array:
        """Nothing is predicted: zeros."""
        return jnp.zeros(len(features), features.dtype)

    def score(self, x: Float[Array, " dim"], features: Array, targets: Array) -> Float[Array, ""]:
        return jnp.zeros((), x.dtype)

    def shaped(self, point: np.ndarray) -> TableStatistics:
        """The statistics with their errors, of columns that are numbered; `TableStatistics` knows names and ranges."""
        from coterie.released.table_statistics import TableStatistics

        return TableStatistics.of(self, np.asarray(point, float))


def make(settings: Settings, features: int, classes: int) -> TableSums:
    """The problem on records with this many columns."""
    levels = settings.levels or [0] * features
    if len(levels) != features:
        raise InputError(f"problem.levels is of {len(levels)} columns, but the records have {features}")
    gaps = settings.gaps or [False] * features
    return TableSums(tuple(levels), tuple(gaps), settings.cells, settings.moments)


EXAMPLE = TableSums((0, 3), (True, False), 4)
