"""An additive model as people read it: a curve for each attribute, in a form that any program can read.

A record's score is the intercept plus the value of every bin that it falls into; a positive score speaks for the second
class (or for a class of its own, where there are several; or is the target itself). Curves are centred: their mean over
an attribute's bins is 0, `missing` left aside. Which bin holds more records is private and has no part in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from coterie.data.bins import Bins, LevelBins, NumberBins
from coterie.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from coterie.problems.additive import AdditiveModel

__all__ = ["SCHEMA", "Curves", "ToldCurves"]

SCHEMA = 1
Outputs = float | list[float]  # of a score, or of each of many classes


class ToldAttribute(TypedDict):
    """The curve of one attribute: over `edges` between `low` and `high`, or over `levels`."""

    name: str
    kind: Literal["number", "category"]
    levels: NotRequired[list[str]]
    edges: NotRequired[list[float]]
    low: NotRequired[float]
    high: NotRequired[float]
    values: list[Outputs]
    missing: Outputs
    noise: NotRequired[list[float]]


class ToldPair(TypedDict):
    """The table of two attributes."""

    of: list[str]
    values: list[list[Outputs]]


class HeldShares(TypedDict):
    """The share of records in each bin."""

    shares: list[float] | None


class ToldCurves(TypedDict):
    """curves.json; result.json adds what the holder of the records may see, or what was released with them."""

    schema: int
    model: str
    classes: list[object] | None
    target: list[float] | None
    clip: float | None
    noise: float | None
    intercept: Outputs
    attributes: list[ToldAttribute]
    pairs: list[ToldPair]
    pair_noise: NotRequired[list[list[float]]]
    at_home: NotRequired[HeldShares]
    released: NotRequired[HeldShares]


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves over public bins.

    `values` has one table for each block of `bins` (attributes, then pairs): bins × outputs, outputs being 1, or the
    classes where there are more than two. `noise` is the standard deviation of the noise in a bin that no record moves:
    other bins have less. Curves of a release have the deviation of every bin instead, in `bands`.
    """

    bins: Bins
    values: tuple[NDArray[np.float64], ...]
    intercept: NDArray[np.float64]
    classes: tuple[object, ...] | None = None  # None: the score is a number
    target: tuple[float, float] | None = None  # the public range that a number was scaled from
    clip: float | None = None  # the norm to which gradients were clipped, for which probabilities are corrected
    noise: float | None = None
    bands: tuple[NDArray[np.float64], ...] | None = None  # of every bin, block by block, where they differ

    @classmethod
    def of(
        cls, problem: AdditiveModel, point: NDArray, *, classes: tuple[object, ...] | None = None,
        target: tuple[float, float] | None = None, clip: float | None = None, noise: float | None = None,
    ) -> Curves:  # fmt: skip
        """The curves of a released point; `noise` is that of the point's coordinates."""
        scaled = None if noise is None else float(noise / np.sqrt(problem.bins.ones))
        values, intercept = _centred(problem.bins, list(problem.shaped(point).values()), problem.outputs)
        return cls(problem.bins, values, intercept, classes, target, clip, scaled)

    @classmethod
    def of_tables(cls, bins: Bins, tables: Sequence[NDArray], *, classes: tuple[object, ...] | None = None) -> Curves:
        """Curves of one score from what each bin adds to it, block by block."""
        values, intercept = _centred(bins, tables, 1)
        return cls(bins, values, intercept, classes)

    def scores(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """(records, outputs): the intercept and what each attribute adds."""
        codes = self.bins.codes(table)
        out = np.tile(self.intercept, (len(codes), 1))
        for k, (block, values) in enumerate(zip(self.bins.blocks, self.values, strict=True)):
            out += values[codes[:, k] - block.start]
        return out

    # -- as plain data -------------------------------------------------------------------------------------------------

    def as_json(self) -> ToldCurves:
        """Plain data, from which `read` makes the same curves."""
        alone = len(self.bins.attributes)
        attributes = [
            _described(a, self._plain(v[:-1]), self._plain(v[-1:])[0])
            for a, v in zip(self.bins.attributes, self.values, strict=False)
        ]
        for one, band in zip(attributes, self.bands or (), strict=False):
            one["noise"] = band.tolist()
        pairs: list[ToldPair] = [
            {"of": [self.bins.attributes[k].name for k in block.of],
             "values": [self._plain(row) for row in v.reshape(*block.shape, -1)]}
            for block, v in zip(self.bins.blocks[alone:], self.values[alone:], strict=True)
        ]  # fmt: skip
        told: ToldCurves = {
            "schema": SCHEMA, "model": "additive", "classes": None if self.classes is None else list(self.classes),
            "target": None if self.target is None else list(self.target), "clip": self.clip, "noise": self.noise,
            "intercept": self._plain(self.intercept[None])[0], "attributes": attributes, "pairs": pairs,
        }  # fmt: skip
        if self.bands is not None:
            told["pair_noise"] = [band.tolist() for band in self.bands[alone:]]
        return told

    def save(self, path: str | Path) -> None:
        """Write the curves as JSON."""
        Path(path).write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def read(cls, content: Mapping[str, object] | str | Path) -> Curves:
        """Curves from what `as_json` gives, or from the file that `save` wrote."""
        try:
            read = isinstance(content, Mapping)
            told: Any = content if read else json.loads(Path(content).read_text("utf-8"))  # type: ignore[arg-type]
            if told["model"] != "additive" or told["schema"] != SCHEMA:
                raise InputError(f"these are no curves of schema {SCHEMA}: got {told['model']!r}")
            attributes = tuple(_attribute(one) for one in told["attributes"])
            places = {attribute.name: k for k, attribute in enumerate(attributes)}
            pairs = tuple((places[one], places[two]) for one, two in (pair["of"] for pair in told["pairs"]))
            bins, intercept = Bins(attributes, pairs), np.array(told["intercept"], float).reshape(-1)
            stored = [[*one["values"], one["missing"]] for one in told["attributes"]]
            stored += [pair["values"] for pair in told["pairs"]]
            values = tuple(
                np.array(table, float).reshape(block.count, len(intercept))
                for block, table in zip(bins.blocks, stored, strict=True)
            )
            classes, target = (None if told[key] is None else tuple(told[key]) for key in ("classes", "target"))
            clip, noise, bands = told["clip"], told["noise"], None
            if "pair_noise" in told:
                stated = [*(one["noise"] for one in told["attributes"]), *told["pair_noise"]]
                bands = tuple(
                    np.array(band, float).reshape(block.count) for block, band in zip(bins.blocks, stated, strict=True)
                )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"these are no curves of an additive model: {error!r}") from None
        return cls(bins, values, intercept, classes, target, clip, noise, bands)  # type: ignore[arg-type]

    def _plain(self, values: NDArray) -> list[Outputs]:
        """One number a bin, or a list of as many as there are classes."""
        return values[:, 0].tolist() if values.shape[1] == 1 else values.tolist()


def _centred(
    bins: Bins, tables: Sequence[NDArray], outputs: int
) -> tuple[tuple[NDArray[np.float64], ...], NDArray[np.float64]]:
    """Tables whose mean over an attribute's bins is 0, and the intercept, which has their means."""
    values, intercept = [], np.zeros(outputs)
    for block, table in zip(bins.blocks, (np.reshape(table, (-1, outputs)) for table in tables), strict=True):
        middle = table[: block.count - 1 if len(block.of) == 1 else None].mean(axis=0)
        values.append(table - middle)
        intercept += middle
    return tuple(values), intercept


def _described(attribute: NumberBins | LevelBins, values: list[Outputs], missing: Outputs) -> ToldAttribute:
    if isinstance(attribute, LevelBins):
        levels = list(attribute.levels)
        return {"name": attribute.name, "kind": "category", "levels": levels, "values": values, "missing": missing}
    return {
        "name": attribute.name, "kind": "number", "edges": list(attribute.edges), "low": attribute.low,
        "high": attribute.high, "values": values, "missing": missing,
    }  # fmt: skip


def _attribute(one: ToldAttribute) -> NumberBins | LevelBins:
    if one["kind"] == "category":
        return LevelBins(str(one["name"]), tuple(map(str, one["levels"])))
    return NumberBins(str(one["name"]), tuple(map(float, one["edges"])), float(one["low"]), float(one["high"]))
