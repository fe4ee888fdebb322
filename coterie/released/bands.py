"""How far the noise of a release moves the curves that are made of it: the fit again, on releases that are drawn.

The law of the noise on released means is public. So is the fit: from the distribution of records that was fitted come
the means that such records have; with fresh noise on them they are a release of the same kind, and its curves are found
as the first ones were. The deviation of a bin over these draws is what the noise alone does to it (a parametric
bootstrap). All of it is a function of what was released, so it costs nothing, and needs no record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coterie.api.curves import Curves, ToldCurves
from coterie.problems import Problem
from coterie.released.additive_moments import AdditiveMoments, consistent
from coterie.released.log_odds import fitted_means
from coterie.released.moments import Moments

__all__ = ["DRAWS", "ReleasedCurves", "banded", "drawn_again", "released_curves"]

Floats = NDArray[np.float64]
DRAWS = 16  # a deviation is known to 18 %; each draw takes as long as the model itself
STREAM = 0xBA4D


def drawn_again(seen: AdditiveMoments, penalty: float | None, count: int) -> list[AdditiveMoments]:
    """Releases of the records that the model stands for, each with noise of its own."""
    many, root = seen.bins.ones, seen.bins.ones**0.5
    matrix, cross = consistent(seen.matrix, seen.cross, seen.bins)
    if not seen.numbers:
        theta = seen.weights(penalty) / root
        tables, labelled = fitted_means(many * matrix, many * seen.noise / 2**0.5, theta, seen.bins)
        matrix, cross = tables / many, labelled / root
    rng = np.random.default_rng(STREAM)
    found = []
    for _ in range(count):
        upper = np.triu(rng.normal(0, seen.noise / 2**0.5, matrix.shape), 1)
        noise = upper + upper.T + np.diag(rng.normal(0, seen.noise, len(cross)))
        moved = cross + rng.normal(0, seen.cross_noise, len(cross))
        found.append(replace(seen, matrix=matrix + noise, cross=moved))
    return found


def banded(seen: AdditiveMoments, curves: Curves, penalty: float | None = None, draws: int = DRAWS) -> Curves:
    """The curves of a release with the deviation that its noise gives to every bin; as they are where there is none."""
    if not seen.noise > 0:
        return curves
    classes = (0, 1) if curves.classes is None else curves.classes
    again = [one.readable(classes, penalty).values for one in drawn_again(seen, penalty, draws)]
    return replace(curves, bands=tuple(np.std(values, axis=0, ddof=1)[:, 0] for values in zip(*again, strict=True)))


@dataclass(frozen=True, eq=False)
class ReleasedCurves:
    """A release of records in bins as people read it."""

    curves: Curves
    shares: list[float]  # of the records in every bin, as released

    def as_json(self) -> ToldCurves:
        """What a report draws: the shares have been paid for, too."""
        return {**self.curves.as_json(), "released": {"shares": self.shares}}


def released_curves(
    problem: Problem, point: Floats, classes: tuple[object, ...] | None = None
) -> ReleasedCurves | None:
    """The curves of a release of records in bins; None of any other problem."""
    if not isinstance(problem, Moments) or not isinstance(seen := problem.shaped(point), AdditiveMoments):
        return None
    curves = banded(seen, seen.readable(classes or (0, 1), problem.penalty), problem.penalty)
    return ReleasedCurves(curves, np.concatenate(list(seen.shares().values())).clip(0).tolist())
