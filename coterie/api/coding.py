"""From a user's rows and labels to records of a problem, and from predictions to labels again: by public rules only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.api.bounds import PublicBox, default_radius, rows_of
from coterie.api.parties import table_of
from coterie.data.dataset import Dataset
from coterie.errors import InputError
from coterie.problems import Custom, Problem
from coterie.problems.labels import NOTHING, SIGNS

if TYPE_CHECKING:
    from coterie.api.parties import Site

__all__ = ["Coding", "columns_of", "misfit"]


@dataclass(frozen=True, eq=False)
class Coding:
    """How records and labels are written for a problem: public, one record at a time, nothing learned from data."""

    problem: Problem
    labels: tuple[Any, ...] | None = None  # of the classes; None: targets are in the problem's own coding
    box: PublicBox | None = None  # public range of each feature; None: rows are taken as they are
    radius: float | None = None
    constant: bool = False  # whether scaled rows are pulled into a ball, and get a constant feature

    def options(self) -> dict[str, Any]:
        """What a plan has to say of it, in its [data] options."""
        said: dict[str, Any] = {} if self.labels is None else {"classes": list(self.labels)}
        if self.box is not None:
            said["bounds"] = [[float(low), float(high)] for low, high in zip(self.box.low, self.box.high, strict=True)]
            if self.constant:
                said["radius"] = default_radius(self.box.low.size) if self.radius is None else float(self.radius)
        return said

    # -- records in ------------------------------------------------------------------------------------------------

    def records(self, site: Site, where: str) -> tuple[NDArray, NDArray]:
        """Features and targets of a site; refused where the bounds that the problem's price rests on do not hold."""
        if isinstance(site, Dataset):
            return self._checked(self.rows(site, where), self.problem.encode(site.targets, site.classes), where)
        if self.problem.labels == NOTHING:
            x = self.rows(table_of(site), where)
            return self._checked(x, np.zeros(len(x)), where)
        if not (isinstance(site, tuple) and len(site) == 2):
            raise InputError(f"{where}: expected (features, targets), got {type(site).__name__}")
        x = self.rows(site[0], where)
        return self._checked(x, self.targets(site[1], len(x), where), where)

    def rows(self, features: Any, where: str = "X") -> NDArray[np.float64]:
        """Features as the problem takes them."""
        if isinstance(features, Dataset):
            features = features.features
        try:
            x = np.asarray(features, float)
        except (TypeError, ValueError):
            raise InputError(f"{where}: features must be numbers, encode categories by a public list first") from None
        if x.ndim != 2:
            raise InputError(f"{where}: expected features (records, columns), got shape {x.shape}")
        if bad := int((~np.isfinite(x)).any(axis=1).sum()):
            raise InputError(f"{where}: features are not finite in {bad} of {len(x)} records")
        width = columns_of(self.problem) if self.box is None else self.box.low.size
        if width not in (None, x.shape[1]):
            raise InputError(f"{where}: expected {width} features, got {x.shape[1]}")
        if self.box is None:
            return x
        return rows_of(x, self.box, self.radius) if self.constant else self.box.scale(x)

    def targets(self, targets: Any, count: int, where: str = "y") -> NDArray:
        """Targets in the problem's coding."""
        y = np.asarray(targets)
        if y.shape != (count,):
            raise InputError(f"{where}: expected one target for each of {count} records, got shape {y.shape}")
        if self.labels is None:
            return y
        same = y[:, None] == np.array(self.labels, object)[None]
        if not same.any(axis=1).all():
            stray = y[~same.any(axis=1)][:1].tolist()[0]
            raise InputError(
                f"{where}: label {stray!r} is not one of the classes {list(self.labels)}: state them in the task, as "
                "classes=[…]"
            )
        codes = same.argmax(axis=1)
        return np.where(codes == 1, 1.0, -1.0) if self.problem.labels == SIGNS else codes.astype(np.int32)

    def _checked(self, x: NDArray, y: NDArray, where: str) -> tuple[NDArray, NDArray]:
        """The records, if they are such as the problem's price rests on."""
        if wrong := self.problem.outside(x):
            raise InputError(f"{where}: records {wrong}, such as bounds=(low, high)")
        try:
            return self.problem.admit(x, self.problem.labels.taken(y))
        except InputError as error:
            raise InputError(f"{where}: {error} for {self.problem.name}") from None

    # -- predictions out -------------------------------------------------------------------------------------------

    def words(self, predicted: NDArray) -> NDArray:
        """Predictions in the user's labels."""
        if self.labels is None:
            return predicted
        codes = (predicted > 0).astype(int) if self.problem.labels == SIGNS else predicted.astype(int)
        alike = len({type(label) for label in self.labels}) == 1
        return np.array(self.labels, None if alike else object)[codes]

    def centre(self, point: NDArray) -> NDArray:
        """A mean in the user's units."""
        if self.box is None:
            return point
        return self.box.middle + self.box.half * np.clip(point, -1.0, 1.0)


def misfit(problem: Custom, features: int) -> str | None:
    """Why a loss of one's own cannot be computed on records of so many features, if it cannot."""
    kind = jnp.int32 if problem.integer_targets else jnp.float32
    shapes = ((problem.dim,), jnp.float32), ((1, features), jnp.float32), ((1,), kind)
    try:
        found = jax.eval_shape(problem.losses, *(jax.ShapeDtypeStruct(*shape) for shape in shapes))
    except Exception as error:  # a stranger's function may fail in any way
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None if found.shape == (1,) else f"it gives {found.shape[1:]} numbers for a record, not one"


def columns_of(problem: Problem) -> int | None:
    """Features of a record; None where the loss alone knows."""
    return None if isinstance(problem, Custom) else problem.columns
