"""A trained model as an ONNX file: bounds, bins and labels inside, so that it takes records as they come.

Inputs: `X` (records, columns) of doubles; of an additive model one input for each attribute, numbers (NaN: missing) or
texts (empty: missing). Outputs: `label` (a class as it is called, or a number) and, where the loss states chances,
`probabilities`, corrected for clipped gradients as `predict_proba` is. All in double precision.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from coterie.api.bounds import default_radius
from coterie.api.coding import Coding
from coterie.api.trackers import needed
from coterie.data.bins import OTHER, NumberBins
from coterie.errors import InputError
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.problems import Linear
from coterie.problems.additive import AdditiveModel, bare
from coterie.problems.labels import SIGNS

if TYPE_CHECKING:
    from coterie.api.model import Model

__all__ = ["write_onnx"]

OPSET, IR = 19, 9  # of ONNX 1.15, which runtimes of the last years read
ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


class _Graph:
    """Nodes and constants as they are added."""

    def __init__(self, onnx: Any):
        self.onnx, self.nodes, self.constants, self.inputs = onnx, list[Any](), list[Any](), list[Any]()

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(value)
        text = array.dtype.kind in "UO"
        made = self.onnx.numpy_helper.from_array(array.astype(object) if text else array, name)
        self.constants.append(made)
        return name

    def add(self, kind: str, *ins: str, out: str | None = None, **options: Any) -> str:
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(ins), [name], **options))
        return name

    def input(self, name: str, kind: int, shape: list[Any]) -> str:
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return name


def write_onnx(model: Model, path: str | Path) -> Path:
    """Write the model; refused where a part of it cannot be said in ONNX here."""
    onnx = needed("onnx", "onnx", "an ONNX file")
    problem, coding = bare(model.coding.problem), model.coding
    if not isinstance(problem, Linear | Softmax | Perceptron):
        raise InputError(f"{problem.name} cannot be written as ONNX: linear, additive and mlp models can")
    if type(coding) is not Coding and not isinstance(coding.problem, AdditiveModel):
        raise InputError("records of this model are encoded by its plan, which ONNX files here cannot do: use predict")
    graph = _Graph(onnx)
    rows = _bins(graph, coding.problem) if isinstance(coding.problem, AdditiveModel) else _numbers(graph, coding)
    with jax.enable_x64(True):
        point = np.asarray(model.point, float)
        if isinstance(coding.problem, AdditiveModel):
            point = np.asarray(coding.problem.curved(jax.numpy.asarray(point)), float)
    evidence = _evidence(graph, problem, point, rows)
    outputs = [_label(graph, problem, coding, evidence)]
    if problem.labels.classes is not None and problem.likely:
        _chances(graph, problem, evidence, rows, model.clip)
        outputs.append(
            onnx.helper.make_tensor_value_info("probabilities", onnx.TensorProto.DOUBLE, [None, problem.labels.classes])
        )
    whole = onnx.helper.make_graph(graph.nodes, "coterie", graph.inputs, outputs, graph.constants)
    made = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR)
    made.producer_name = "coterie"
    onnx.checker.check_model(made)
    place = Path(path)
    try:
        onnx.save(made, str(place))
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None
    return place


def _numbers(graph: _Graph, coding: Coding) -> str:
    """Rows of numbers, cut to the public box, and into the ball with a constant where that is the coding."""
    double = graph.onnx.TensorProto.DOUBLE
    wide = coding.problem.columns if coding.box is None else coding.box.low.size
    x = graph.input("X", double, [None, wide])
    if coding.box is None:
        return x
    x = graph.add("Div", graph.add("Sub", x, graph.constant(coding.box.middle)), graph.constant(coding.box.half))
    x = graph.add("Clip", x, graph.constant(np.array(-1.0)), graph.constant(np.array(1.0)))
    if not coding.constant:
        return x
    radius = default_radius(wide) if coding.radius is None else coding.radius
    norms = graph.add("Sqrt", graph.add("ReduceSumSquare", x, graph.constant(np.array([1])), keepdims=1))
    x = graph.add("Div", x, graph.add("Max", norms, graph.constant(np.array([[radius]]))))
    ones = graph.add("Add", graph.add("Mul", norms, graph.constant(np.array(0.0))), graph.constant(np.array(1.0)))
    return graph.add("Div", graph.add("Concat", x, ones, axis=1), graph.constant(np.sqrt(2.0)))


def _bins(graph: _Graph, problem: AdditiveModel) -> str:
    """One input for each attribute; the bins that a record falls into, as ones over √A."""
    kinds, bins, codes = graph.onnx.TensorProto, problem.bins, []
    for attribute in bins.attributes:
        if isinstance(attribute, NumberBins):
            x = graph.input(attribute.name, kinds.DOUBLE, [None, 1])
            above = graph.add("GreaterOrEqual", x, graph.constant(np.array([attribute.edges])))
            many = graph.add("Cast", above, to=kinds.INT64)
            code = graph.add("ReduceSum", many, graph.constant(np.array([1])), keepdims=0)
            gone = graph.add("Squeeze", graph.add("IsNaN", x), graph.constant(np.array([1])))
        else:
            x = graph.input(attribute.name, kinds.STRING, [None, 1])
            same = graph.add("Cast", graph.add("Equal", x, graph.constant([list(attribute.levels)])), to=kinds.INT64)
            found = graph.add("ReduceSum", same, graph.constant(np.array([1])), keepdims=0)
            unknown = attribute.levels.index(OTHER) if OTHER in attribute.levels else attribute.count
            code = graph.add(
                "Where", graph.add("Cast", found, to=kinds.BOOL), graph.add("ArgMax", same, axis=1, keepdims=0),
                graph.constant(np.array(unknown)),
            )  # fmt: skip
            empty = graph.add("Equal", x, graph.constant([[""]]))
            gone = graph.add("Squeeze", empty, graph.constant(np.array([1])))
        codes.append(graph.add("Where", gone, graph.constant(np.array(attribute.count)), code))
    one, every = graph.constant(np.array([1])), graph.constant(np.arange(bins.width)[None])
    share, total = graph.constant(np.array(1 / np.sqrt(bins.ones))), None
    for block in bins.blocks:
        place = codes[block.of[0]]
        for other, size in zip(block.of[1:], block.shape[1:], strict=True):
            place = graph.add("Add", graph.add("Mul", place, graph.constant(np.array(size))), codes[other])
        place = graph.add("Add", place, graph.constant(np.array(block.start)))
        here = graph.add("Equal", graph.add("Unsqueeze", place, one), every)
        own = graph.add("Mul", graph.add("Cast", here, to=kinds.DOUBLE), share)
        total = own if total is None else graph.add("Add", total, own)
    assert total is not None
    return total


def _evidence(graph: _Graph, problem: Linear | Softmax | Perceptron, point: np.ndarray, rows: str) -> str:
    """Scores: (records, classes), or (records, 1) of a linear model."""
    if isinstance(problem, Perceptron):
        layers = problem.shaped(point)
        for k, (w, b) in enumerate(layers):
            rows = graph.add(
                "Add",
                graph.add("MatMul", rows, graph.constant(np.asarray(w, float))),
                graph.constant(np.asarray(b, float)),
            )
            rows = rows if k == len(layers) - 1 else graph.add(ACTIVATIONS[problem.activation], rows)
        return rows
    wide = problem.classes if isinstance(problem, Softmax) else 1
    return graph.add("MatMul", rows, graph.constant(point.reshape(-1, wide)))


def _label(graph: _Graph, problem: Any, coding: Coding, evidence: str) -> Any:
    """The output `label`."""
    kinds, one = graph.onnx.TensorProto, graph.constant(np.array([1]))
    if problem.labels.classes is None:
        graph.add("Squeeze", evidence, one, out="label")
        return graph.onnx.helper.make_tensor_value_info("label", kinds.DOUBLE, [None])
    if problem.labels == SIGNS:
        above = graph.add("Greater", evidence, graph.constant(np.array(0.0)))
        code = graph.add("Squeeze", graph.add("Cast", above, to=kinds.INT64), one)
        words: tuple[Any, ...] = (-1.0, 1.0)
    else:
        code = graph.add("ArgMax", evidence, axis=1, keepdims=0)
        words = tuple(range(problem.labels.classes))
    words = words if coding.labels is None else coding.labels
    alike = len({type(word) for word in words}) == 1
    table = np.array(words if alike else list(map(str, words)))
    graph.add("Gather", graph.constant(table), code, axis=0, out="label")
    kind = {"U": kinds.STRING, "i": kinds.INT64, "f": kinds.DOUBLE}[table.dtype.kind]
    return graph.onnx.helper.make_tensor_value_info("label", kind, [None])


def _chances(graph: _Graph, problem: Any, evidence: str, rows: str, clip: float | None) -> None:
    """The output `probabilities`: softmax of the scores, corrected as `coterie.problems.clipped` says."""
    one, unit = graph.constant(np.array([1])), graph.constant(np.array(1.0))
    if problem.labels == SIGNS:
        nothing = graph.add("Mul", evidence, graph.constant(np.array(0.0)))
        evidence = graph.add("Concat", nothing, evidence, axis=1)
    if isinstance(problem, Perceptron) or clip is None:
        graph.add("Softmax", evidence, axis=1, out="probabilities")
        return
    p = graph.add("Softmax", evidence, axis=1)
    gap = graph.add("Sub", unit, p)
    if problem.labels != SIGNS:
        square = graph.add("ReduceSumSquare", p, one, keepdims=1)
        apart = graph.add("Sub", graph.add("Add", square, unit), graph.add("Mul", p, graph.constant(np.array(2.0))))
        gap = graph.add("Sqrt", graph.add("Max", apart, graph.constant(np.array(0.0))))
    norms = graph.add("Sqrt", graph.add("ReduceSumSquare", rows, one, keepdims=1))
    times = graph.add("Div", graph.add("Mul", gap, norms), graph.constant(np.array(float(clip))))
    q = graph.add("Mul", p, graph.add("Max", times, unit))
    graph.add("Div", q, graph.add("ReduceSum", q, one, keepdims=1), out="probabilities")
