"""From a user's rows and labels to records of a problem, and from predictions to labels again: by public rules only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.api.bounds import PublicBox, default_radius, rows_of
from coterie.api.sites import named_columns, table_of
from coterie.data.bins import Bins
from coterie.data.dataset import Dataset
from coterie.errors import InputError
from coterie.problems import Custom, Problem
from coterie.problems.additive import AdditiveModel
from coterie.problems.labels import NOTHING, SIGNS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from coterie.api.sites import Site, Table

__all__ = ["Coding", "class_order", "columns_of", "columns_taken", "misfit"]

GAPS = "leave these out, or fill gaps by a public rule, such as the middle of the range"
MOST_COLUMNS = 100  # that are tried with a loss of somebody's own


@dataclass(frozen=True, eq=False)
class Coding:
    """How records and labels are written for a problem: public, one record at a time, nothing learned from data."""

    problem: Problem
    labels: tuple[object, ...] | None = None  # of the classes; None: targets are in the problem's own coding
    box: PublicBox | None = None  # public range of each feature; None: rows are taken as they are
    radius: float | None = None
    constant: bool = False  # whether scaled rows are pulled into a ball, and get a constant feature
    columns: tuple[str, ...] | None = None  # of the features, in the model's order; None: they have no names
    classes: tuple[str, ...] | None = None  # of data sets, in the order of the codes; None: none was seen

    def options(self) -> dict[str, object]:
        """What a plan has to say of it, in its [data] options."""
        said: dict[str, object] = {} if self.labels is None else {"classes": list(self.labels)}
        if self.classes is not None and self.classes != tuple(map(str, self.labels or ())):
            said["named"] = list(self.classes)
        if self.box is not None:
            said["bounds"] = [[float(low), float(high)] for low, high in zip(self.box.low, self.box.high, strict=True)]
            if self.constant:
                said["radius"] = default_radius(self.box.low.size) if self.radius is None else float(self.radius)
        return said

    @property
    def ends(self) -> tuple[float, float] | None:
        """The public range of a label that is a number and that the model knows as [0, 1]; None: it is as it is."""
        return None

    # -- records in ------------------------------------------------------------------------------------------------

    def records(self, site: Site, where: str) -> tuple[NDArray, NDArray]:
        """Features and targets of a site; refused where the bounds that the problem's price rests on do not hold."""
        if isinstance(site, Dataset):
            return self._checked(self.rows(site, where), self._encoded(site, where), where)
        if self.problem.labels == NOTHING:
            x = self.rows(table_of(site), where)
            return self._checked(x, np.zeros(len(x)), where)
        if not (isinstance(site, tuple) and len(site) == 2):
            how = "such as (frame, frame['…'])"
            if where.startswith("site"):  # there a column beside the features would be one of them
                how = "of one frame for all parties, label='…' names the column of targets"
            hint = f": {how}" if hasattr(site, "iloc") else ""
            raise InputError(f"{where}: expected (features, targets), got {type(site).__name__}{hint}")
        x = self.rows(site[0], where)
        return self._checked(x, self.targets(site[1], len(x), where), where)

    def rows(self, features: Table | Dataset, where: str = "X") -> NDArray[np.float64]:
        """Features as the problem takes them."""
        bins = self._bins(features)
        if bins is not None:
            return bins.rows(_columns_of_bins(features, bins, where))
        if self.columns is not None and hasattr(features, "iloc"):  # a frame
            features = _of_model(features, self.columns, where)  # type: ignore[arg-type]
        try:
            table = features.features if isinstance(features, Dataset) else features
            x = _array(table, "features", where).astype(float)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{where}: features must be numbers, encode categories by a public list first") from None
        if x.ndim != 2:
            flat = "; pictures go as x.reshape(len(x), -1)" if x.ndim > 2 else ""
            raise InputError(f"{where}: expected features (records, columns), got shape {x.shape}{flat}")
        x = self._in_order(x, named_columns(features, where), where)
        if bad := int((~np.isfinite(x)).any(axis=1).sum()):
            raise InputError(f"{where}: features are not finite in {bad} of {len(x)} records: {GAPS}")
        width = columns_of(self.problem) if self.box is None else self.box.low.size
        if width not in (None, x.shape[1]):
            raise InputError(f"{where}: expected {width} features, got {x.shape[1]}")
        if self.box is None:
            return x
        return rows_of(x, self.box, self.radius) if self.constant else self.box.scale(x)

    def _bins(self, features: Table | Dataset) -> Bins | None:
        """The bins of an additive model, where records are raw: those of a loader lie in bins already."""
        if not isinstance(self.problem, AdditiveModel) or isinstance(features, Dataset):
            return None
        ready = getattr(features, "columns", None) is None and np.shape(features)[1:] == (self.problem.columns,)
        return None if ready else self.problem.bins

    def _in_order(self, x: NDArray, names: tuple[str, ...] | None, where: str) -> NDArray:
        """Columns in the model's order, by their names where both have any."""
        if names is None or self.columns is None or names == self.columns:
            return x
        if sorted(names) != sorted(self.columns):
            raise InputError(f"{where}: its columns are {list(names)}, and the model's {list(self.columns)}")
        places = {name: k for k, name in enumerate(names)}
        return x[:, [places[name] for name in self.columns]]

    def _encoded(self, site: Dataset, where: str) -> NDArray:
        """Targets of a data set in the problem's coding; its classes may be in another order."""
        order, codes = self.classes or class_order(self.labels, site.classes, where), site.targets
        if order is not None and site.classes != order:
            if site.classes is None or sorted(site.classes) != sorted(order):
                raise InputError(f"{where}: its classes are {site.classes}, where {order} were expected")
            codes = np.array([order.index(name) for name in site.classes])[codes]
        return self.problem.encode(codes, order)

    def targets(self, targets: ArrayLike, count: int, where: str = "y") -> NDArray:
        """Targets in the problem's coding."""
        y = _array(targets, "targets", where)
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
            low, high = self.ends or (0.0, 1.0)
            return predicted if self.ends is None else low + (high - low) * predicted
        codes = (predicted > 0).astype(int) if self.problem.labels == SIGNS else predicted.astype(int)
        alike = len({type(label) for label in self.labels}) == 1
        return np.array(self.labels, None if alike else object)[codes]

    def centre(self, point: NDArray) -> NDArray:
        """A mean in the user's units."""
        if self.box is None:
            return point
        return self.box.middle + self.box.half * np.clip(point, -1.0, 1.0)


def class_order(
    labels: tuple[object, ...] | None, classes: tuple[str, ...] | None, where: str
) -> tuple[str, ...] | None:  # fmt: skip
    """The classes of a data set in the order of the task's labels: by name, or as they are where labels only count.

    Labels that only count are −1 and 1, or 0, 1, …: a task that states no names.
    """
    if labels is None or classes is None:
        return classes
    names = tuple(map(str, labels))
    if sorted(names) == sorted(classes):
        return names
    counts = labels in ((-1, 1), tuple(range(len(labels)))) and len(classes) == len(labels)
    if not counts or any(name in names and names.index(name) != k for k, name in enumerate(classes)):
        raise InputError(
            f"{where}: its classes are {list(classes)}, and the task's {list(labels)}: state them in the task, as "
            f"classes={list(classes)}"
        )
    return classes


def _columns_of_bins(features: Table | Dataset, bins: Bins, where: str) -> pd.DataFrame:
    """A raw table with one column for each attribute."""
    import pandas as pd

    named = features if isinstance(features, pd.DataFrame) else pd.DataFrame(_array(features, "features", where))
    table = named.set_axis(list(map(str, named.columns)), axis=1)
    named_columns(table, where)
    if absent := [name for name in bins.names if name not in table]:
        raise InputError(f"{where}: the attribute {absent[0]!r} is missing: its columns are {list(table.columns)}")
    return table


def _of_model(frame: pd.DataFrame, columns: tuple[str, ...], where: str) -> pd.DataFrame:
    """A frame's columns that a model takes, where it has all of them: site and label may stand beside them."""
    names = named_columns(frame, where)
    if frame.ndim == 2 and names is not None and set(columns) <= set(names):
        frame = frame.iloc[:, [names.index(name) for name in columns]]
    for name, gaps in frame.isna().sum().items() if frame.ndim == 2 else ():
        if gaps:
            raise InputError(f"{where}: column {str(name)!r} is missing in {gaps} of {len(frame)} records: {GAPS}")
    return frame


def _array(given: object, what: str, where: str) -> NDArray:
    """The array that something is; refused where NumPy would drop a part of what it says without a word."""
    if isinstance(given, np.ma.MaskedArray):
        raise InputError(f"{where}: the {what} are a masked array: leave out or fill what is masked by a public rule")
    if hasattr(given, "nnz") and hasattr(given, "toarray"):
        raise InputError(f"{where}: the {what} are a sparse matrix: give its toarray(), noise is added to every number")
    try:
        found = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise InputError(f"{where}: the {what} are no table") from None
    except (TypeError, RuntimeError) as error:  # such as a tensor on another device, or one that is differentiated
        raise InputError(f"{where}: the {what} are no array: {str(error).splitlines()[0]}") from None
    if found.dtype.kind == "c":
        raise InputError(f"{where}: the {what} are complex numbers, expected real ones")
    if found.dtype.kind in "mM":
        raise InputError(f"{where}: the {what} are dates or times: give numbers, such as days since a public day")
    return found


def misfit(problem: Custom, features: int) -> str | None:
    """Why a loss of one's own cannot be computed on records with this many features, if it cannot."""
    kind = jnp.int32 if problem.integer_targets else jnp.float32
    shapes = ((problem.dim,), jnp.float32), ((1, features), jnp.float32), ((1,), kind)
    try:
        found = jax.eval_shape(problem.losses, *(jax.ShapeDtypeStruct(*shape) for shape in shapes))
    except Exception as error:  # a stranger's function may fail in any way
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None if found.shape == (1,) else f"it gives {found.shape[1:]} numbers for a record, not one"


def columns_taken(problem: Problem) -> int:
    """Features of a record; of a loss of one's own, as many as it has parameters, or else the fewest that it takes."""
    if not isinstance(problem, Custom):
        return problem.columns
    fit = (n for n in (problem.dim, *range(1, MOST_COLUMNS + 1)) if misfit(problem, n) is None)
    if found := next(fit, None):
        return found
    raise InputError(f"{problem.name} takes no record of 1 to {MOST_COLUMNS} features: {misfit(problem, 1)}")


def columns_of(problem: Problem) -> int | None:
    """Features of a record; None where the loss alone knows."""
    return None if isinstance(problem, Custom) else problem.columns
