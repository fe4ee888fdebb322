"""A trained model as an ONNX file: bounds, bins and labels inside, so that it takes records as they come.

Inputs: `X` (records, columns) of doubles; of an additive model, and where a plan reads a table, one input for each
column, (records, 1): numbers (NaN: missing) or texts as the code book writes them (empty: missing). Outputs: `label` (a
class as it is called, or a number) and, where the loss states chances, `probabilities`, corrected for clipped gradients
as `predict_proba` is. All in double precision. Where a plan reads the table there is `taken` too: false for a record
that `predict` refuses, since the plan has no place for a gap or a level of it; its label is then empty, NaN, or the
smallest whole number, and its probabilities are NaN.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from coterie.api.coding import Coding
from coterie.api.onnx_records import OnnxGraph, records_in
from coterie.api.trackers import needed
from coterie.errors import InputError
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.problems import Linear, Problem
from coterie.problems.additive import AdditiveModel, bare
from coterie.problems.labels import SIGNS

if TYPE_CHECKING:
    from coterie.api.model import Model

__all__ = ["write_onnx"]

OPSET, IR = 19, 9  # of ONNX 1.15, which runtimes of the last years read
ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def write_onnx(model: Model, path: str | Path) -> Path:
    """Write the model; refused where a part of it cannot be said in ONNX here."""
    onnx = needed("onnx", "onnx", "an ONNX file")
    problem, coding = bare(model.coding.problem), model.coding
    if not isinstance(problem, Linear | Softmax | Perceptron):
        raise InputError(f"{problem.name} cannot be written as ONNX: linear, additive and mlp models can")
    graph = OnnxGraph(onnx)
    rows, taken = records_in(graph, coding)
    with jax.enable_x64(True):
        point = np.asarray(model.point, float)
        if isinstance(coding.problem, AdditiveModel):
            point = np.asarray(coding.problem.curved(jax.numpy.asarray(point)), float)
    evidence = _evidence(graph, problem, point, rows)
    if taken is not None:
        evidence = graph.add("Where", taken, evidence, graph.fixed(np.nan))
    outputs = [_label(graph, problem, coding, evidence, taken)]
    if problem.labels.classes is not None and problem.likely:
        _chances(graph, problem, evidence, rows, model.clip)
        outputs.append(
            onnx.helper.make_tensor_value_info("probabilities", onnx.TensorProto.DOUBLE, [None, problem.labels.classes])
        )
    if taken is not None:
        graph.add("Squeeze", taken, graph.constant(np.array([1])), out="taken")
        outputs.append(onnx.helper.make_tensor_value_info("taken", onnx.TensorProto.BOOL, [None]))
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


def _evidence(graph: OnnxGraph, problem: Linear | Softmax | Perceptron, point: np.ndarray, rows: str) -> str:
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


def _label(graph: OnnxGraph, problem: Problem, coding: Coding, evidence: str, taken: str | None) -> object:
    """The output `label`; of records that are not taken, one that cannot be."""
    kinds, one = graph.onnx.TensorProto, graph.constant(np.array([1]))
    if problem.labels.classes is None:
        if coding.ends is not None:
            low, high = coding.ends
            evidence = graph.add("Add", graph.add("Mul", evidence, graph.fixed(high - low)), graph.fixed(low))
        graph.add("Squeeze", evidence, one, out="label")
        return graph.onnx.helper.make_tensor_value_info("label", kinds.DOUBLE, [None])
    if problem.labels == SIGNS:
        code = graph.whole(graph.add("Greater", evidence, graph.fixed(0)))
        words: tuple[object, ...] = (-1.0, 1.0)
    else:
        code = graph.add("ArgMax", evidence, axis=1, keepdims=1)
        words = tuple(range(problem.labels.classes))
    words = words if coding.labels is None else coding.labels
    alike = len({type(word) for word in words}) == 1
    table = np.array(words if alike else list(map(str, words)))
    nothing = {"U": "", "i": np.iinfo(np.int64).min, "f": np.nan}[table.dtype.kind]
    if taken is not None:
        code = graph.add("Where", taken, code, graph.constant(np.array(len(table))))
        table = np.append(table, np.array([nothing], table.dtype))
    graph.add("Gather", graph.constant(table), graph.add("Squeeze", code, one), axis=0, out="label")
    kind = {"U": kinds.STRING, "i": kinds.INT64, "f": kinds.DOUBLE}[table.dtype.kind]
    return graph.onnx.helper.make_tensor_value_info("label", kind, [None])


def _chances(graph: OnnxGraph, problem: Problem, evidence: str, rows: str, clip: float | None) -> None:
    """The output `probabilities`: softmax of the scores, corrected as `coterie.problems.clipped` says."""
    if problem.labels == SIGNS:
        nothing = graph.add("Mul", evidence, graph.fixed(0))
        evidence = graph.add("Concat", nothing, evidence, axis=1)
    if isinstance(problem, Perceptron) or clip is None:
        graph.add("Softmax", evidence, axis=1, out="probabilities")
        return
    one, unit = graph.constant(np.array([1])), graph.fixed(1)
    p = graph.add("Softmax", evidence, axis=1)
    gap = graph.add("Sub", unit, p)
    if problem.labels != SIGNS:
        square = graph.add("ReduceSumSquare", p, one, keepdims=1)
        apart = graph.add("Sub", graph.add("Add", square, unit), graph.add("Mul", p, graph.fixed(2)))
        gap = graph.add("Sqrt", graph.add("Max", apart, graph.fixed(0)))
    norms = graph.norms(rows)
    times = graph.add("Div", graph.add("Mul", gap, norms), graph.fixed(clip))
    q = graph.add("Mul", p, graph.add("Max", times, unit))
    graph.add("Div", q, graph.add("ReduceSum", q, one, keepdims=1), out="probabilities")
