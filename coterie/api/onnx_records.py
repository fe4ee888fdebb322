"""Records into an ONNX graph as they come: numbers within public bounds, bins, or columns by a plan's code book.

Each gives the rows that a loss takes, and, where a plan reads the table, which records it takes at all: `predict`
refuses a gap or a level that the plan has no place for, and a graph can only say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from coterie.api.bounds import default_radius
from coterie.api.coding import Coding
from coterie.api.tabled import TableCoding
from coterie.data.bins import MISSING, OTHER, Bins, NumberBins
from coterie.data.encode import Category
from coterie.data.files import is_number
from coterie.data.stated import Stated
from coterie.data.tables import CONSTANT, encode_column
from coterie.errors import InputError
from coterie.problems.additive import AdditiveModel

__all__ = ["OnnxGraph", "records_in"]


class OnnxGraph:
    """Nodes, constants and inputs as they are added."""

    def __init__(self, onnx: ModuleType):
        self.onnx, self.nodes, self.constants, self.inputs = onnx, list[object](), list[object](), list[object]()

    def constant(self, value: object) -> str:
        """The name of a constant with this value."""
        name = f"c{len(self.constants)}"
        array = np.asarray(value)
        text = array.dtype.kind in "UO"
        made = self.onnx.numpy_helper.from_array(array.astype(object) if text else array, name)
        self.constants.append(made)
        return name

    def add(self, kind: str, *ins: str, out: str | None = None, **options: object) -> str:
        """The name of what an operation on these gives."""
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(ins), [name], **options))
        return name

    def input(self, name: str, kind: int, shape: list[object]) -> str:
        """The name of a new input of this kind of number and shape."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def fixed(self, number: float) -> str:
        """One number."""
        return self.constant(np.array(float(number)))

    def some(self, flags: str) -> str:
        """Whether any of a record's flags is set: (records, 1)."""
        most = self.add("ReduceMax", self.whole(flags), self.constant(np.array([1])), keepdims=1)
        return self.add("Cast", most, to=self.onnx.TensorProto.BOOL)

    def whole(self, flags: str) -> str:
        """Flags as 0 and 1."""
        return self.add("Cast", flags, to=self.onnx.TensorProto.INT64)

    def real(self, flags: str) -> str:
        """Flags as 0.0 and 1.0."""
        return self.add("Cast", flags, to=self.onnx.TensorProto.DOUBLE)

    def norms(self, rows: str) -> str:
        """The norm of every row: (records, 1)."""
        return self.add("Sqrt", self.add("ReduceSumSquare", rows, self.constant(np.array([1])), keepdims=1))


def records_in(graph: OnnxGraph, coding: Coding) -> tuple[str, str | None]:
    """The rows, and which records are taken, (records, 1) (None: all)."""
    if isinstance(coding, TableCoding):
        return _table(graph, coding)
    if isinstance(coding.problem, AdditiveModel):
        bins = coding.problem.bins
        return _bins(graph, bins, [_column(graph, one.name, one.ordered) for one in bins.attributes]), None
    return _numbers(graph, coding), None


def _numbers(graph: OnnxGraph, coding: Coding) -> str:
    """Rows of numbers, cut to the public box, and into the ball with a constant where that is the coding."""
    double = graph.onnx.TensorProto.DOUBLE
    wide = coding.problem.columns if coding.box is None else coding.box.low.size
    x = graph.input("X", double, [None, wide])
    if coding.box is None:
        return x
    x = graph.add("Div", graph.add("Sub", x, graph.constant(coding.box.middle)), graph.constant(coding.box.half))
    x = graph.add("Clip", x, graph.fixed(-1), graph.fixed(1))
    if not coding.constant:
        return x
    radius = default_radius(wide) if coding.radius is None else coding.radius
    norms = graph.norms(x)
    x = graph.add("Div", x, graph.add("Max", norms, graph.constant(np.array([[radius]]))))
    ones = _ones(graph, norms)
    return graph.add("Div", graph.add("Concat", x, ones, axis=1), graph.constant(np.sqrt(2.0)))


# ---- columns ---------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """An input: its values and where they are missing, (records, 1) each."""

    x: str
    gone: str


def _column(graph: OnnxGraph, name: str, number: bool, gaps: Sequence[object] = ()) -> _Column:
    """A column of numbers (NaN: missing) or of texts (empty: missing); so is each value in `gaps`."""
    kinds, words = graph.onnx.TensorProto, list(map(str, gaps))
    x = graph.input(name, kinds.DOUBLE if number else kinds.STRING, [None, 1])
    if not number:
        return _Column(x, graph.some(graph.add("Equal", x, graph.constant([["", *words]]))))
    gone, listed = graph.add("IsNaN", x), [float(w) for w in words if is_number(w)]
    if listed:
        gone = graph.add("Or", gone, graph.some(graph.add("Equal", x, graph.constant(np.array([listed])))))
    return _Column(x, gone)


def _level(graph: OnnxGraph, column: _Column, levels: Sequence[str], unknown: int, missing: int) -> tuple[str, str]:
    """The place of every value among the levels, and whether it is one of them."""
    same = graph.add("Equal", column.x, graph.constant([list(levels)]))
    known, place = graph.some(same), graph.add("ArgMax", graph.whole(same), axis=1, keepdims=1)
    code = graph.add("Where", known, place, graph.constant(np.array(unknown)))
    return graph.add("Where", column.gone, graph.constant(np.array(missing)), code), known


def _ones(graph: OnnxGraph, like: str) -> str:
    """A constant feature, one for each record of a (records, 1)."""
    return graph.add("Add", graph.add("Mul", like, graph.fixed(0)), graph.fixed(1))


def _bins(graph: OnnxGraph, bins: Bins, columns: Sequence[_Column]) -> str:
    """The vectors of the bins that a record falls into, as `Bins.spread` has them."""
    codes = []
    for attribute, column in zip(bins.attributes, columns, strict=True):
        if isinstance(attribute, NumberBins):
            above = graph.whole(graph.add("GreaterOrEqual", column.x, graph.constant(np.array([attribute.edges]))))
            code = graph.add("ReduceSum", above, graph.constant(np.array([1])), keepdims=1)
            codes.append(graph.add("Where", column.gone, graph.constant(np.array(attribute.count)), code))
            continue
        levels, count = attribute.levels, attribute.count
        codes.append(_level(graph, column, levels, levels.index(OTHER) if OTHER in levels else count, count)[0])
    parts, one = [], graph.constant(np.array([1]))
    for block in bins.blocks:
        place = codes[block.of[0]]
        for other, size in zip(block.of[1:], block.shape[1:], strict=True):
            place = graph.add("Add", graph.add("Mul", place, graph.constant(np.array(size))), codes[other])
        own = graph.constant(bins.basis(block) / np.sqrt(bins.ones))
        parts.append(graph.add("Gather", own, graph.add("Squeeze", place, one)))
    return graph.add("Concat", *parts, axis=1)


# ---- tables that a plan reads ----------------------------------------------------------------------------------------


def _table(graph: OnnxGraph, coding: TableCoding) -> tuple[str, str]:
    """Columns by the plan's code book; constants come from the encoder itself."""
    stated, problem = Stated.of(coding.reading), coding.problem
    bins = problem.bins if isinstance(problem, AdditiveModel) else None
    names = _features(coding, stated) if bins is None else bins.names
    found = {name: _column(graph, name, name not in stated.levels, stated.missing_values) for name in names}
    taken = [flag for name, column in found.items() for flag in _takes(graph, name, column, stated)]
    every = taken[0]
    for flag in taken[1:]:
        every = graph.add("And", every, flag)
    if bins is not None:
        return _bins(graph, bins, list(found.values())), every
    centre, constant = coding.reading.get("centre", True), coding.reading.get("constant", False)
    parts, square = [], float(constant)
    for name, column in found.items():
        part, largest = _encoded(graph, name, column, stated, centre)
        parts.append(part)
        square += largest**2
    if constant:
        parts.insert(0, _ones(graph, graph.real(every)))
    rows = graph.add("Concat", *parts, axis=1)
    return _normed(graph, rows, coding.reading.get("row_norm", "clip"), float(np.sqrt(square))), every


def _features(coding: TableCoding, stated: Stated) -> Sequence[str]:
    """The columns that features are made of, in the model's order."""
    if stated.features is not None:
        return stated.features
    if coding.columns is None:
        raise InputError("the plan does not state data.options.features, so the order of the columns is unknown")
    declared = [*stated.bounds, *stated.levels]
    made = [next((c for c in declared if f == c or f.startswith(f"{c}=")), f) for f in coding.columns]
    return list(dict.fromkeys(name.removesuffix(f"={MISSING}") for name in made if name != CONSTANT))


def _takes(graph: OnnxGraph, name: str, column: _Column, stated: Stated) -> list[str]:
    """Where the plan has a place for the value."""
    flags = [] if stated.may_miss(name) else [graph.add("Not", column.gone)]
    if name not in stated.levels:
        return [*flags, graph.add("Not", graph.add("IsInf", column.x))]
    if not stated.takes_others(name):
        levels = list(map(str, stated.levels[name]))
        known = graph.some(graph.add("Equal", column.x, graph.constant([levels])))
        flags.append(graph.add("Or", known, column.gone))
    return flags or [graph.add("Or", column.gone, graph.add("Not", column.gone))]


def _encoded(graph: OnnxGraph, name: str, column: _Column, stated: Stated, centre: bool) -> tuple[str, float]:
    """The features of one column, and the largest norm that they can have."""
    import pandas as pd

    rule, flagged = stated.category(name) or stated.range(name), stated.may_miss(name)
    levels = rule.levels if isinstance(rule, Category) else ()
    made, _, largest = encode_column(pd.Series([*levels, None], dtype="string"), name, rule, stated, centre)
    if isinstance(rule, Category):
        code, _ = _level(graph, column, levels, levels.index(OTHER) if OTHER in levels else len(levels), len(levels))
        return graph.add(
            "Gather", graph.constant(made), graph.add("Squeeze", code, graph.constant(np.array([1])))
        ), largest
    x = column.x
    if rule is not None:
        x = graph.add("Sub", graph.add("Clip", x, graph.fixed(rule.low), graph.fixed(rule.high)), graph.fixed(rule.low))
        width = rule.high - rule.low
        if rule.log:
            x, width = graph.add("Log", graph.add("Add", x, graph.fixed(1))), float(np.log1p(width))
        x = graph.add("Div", x, graph.fixed(width))
        if centre:
            x = graph.add("Sub", graph.add("Mul", x, graph.fixed(2)), graph.fixed(1))
    x = graph.add("Where", column.gone, graph.fixed(made[-1, 0]), x)
    return (graph.add("Concat", x, graph.real(column.gone), axis=1) if flagged else x), largest


def _normed(graph: OnnxGraph, rows: str, how: str, largest: float) -> str:
    """`normalise_rows`."""
    if how == "none":
        return rows
    if how == "max":
        return graph.add("Div", rows, graph.fixed(largest))
    least = 1.0 if how == "clip" else float(np.finfo(float).tiny)
    return graph.add("Div", rows, graph.add("Max", graph.norms(rows), graph.fixed(least)))
