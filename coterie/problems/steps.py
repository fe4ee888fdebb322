"""A loss of one record, taken apart: what is computed of parameters alone, and where parameters meet the record.

Gradients record by record need no gradient formed for a layer that is met once, such as a dense one: what comes back at
its output (`Tap`) and what went in say its length. So the loss is traced to a list of steps, calls inlined, and read:
    outer steps   of parameters alone (a reshape, a scaled kernel): computed once, not for every record;
    taps          a dense layer, a convolution or a look-up with a kernel of parameters: watched at the output;
    spread        parameters that meet the record anywhere else (biases, scales, what a loop uses): one copy for each
                  record, whose gradient then is that record's own.
All of it depends on shapes and code, never on a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import AbstractValue, ShapedArray
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var
from jax.typing import ArrayLike
from jaxtyping import Array

from coterie.problems.patches import Convolution, convolved
from coterie.problems.pooling import Pooling, greatest

__all__ = ["Parted", "Stage", "Tap", "parted", "rewritten"]

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "checkpoint": "jaxpr"}
MOVES = {"reshape", "transpose", "squeeze", "expand_dims", "copy", "copy_p"}  # the same numbers in another shape
TAPPED = {"dot_general": (0, 1), "conv_general_dilated": (1,), "gather": (0,), "dynamic_slice": (0,)}


@dataclass(frozen=True)
class Stage:
    """One operation: which numbered values go in and come out."""

    equation: JaxprEqn
    ins: tuple[int, ...]
    outs: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of its primitive."""
        return self.equation.primitive.name

    def run(self, values: Sequence[ArrayLike]) -> list[Array]:
        """Its results."""
        if self.name == "reduce_window_max" and set(self.equation.params["base_dilation"]) <= {1}:
            return [greatest(jnp.asarray(values[0]), cast(Pooling, self.equation.params))]
        if self.name == "conv_general_dilated" and jax.default_backend() == "cpu" and _plain(self):
            return [convolved(jnp.asarray(values[0]), jnp.asarray(values[1]), cast(Convolution, self.equation.params))]
        given = self.equation.primitive.get_bind_params(self.equation.params)
        functions, params = given if isinstance(given, tuple) else ((), given)  # JAX before 0.10.2, and from there on
        with self.equation.ctx.manager:
            found = self.equation.primitive.bind(*functions, *values, **params)
        return list(found) if self.equation.primitive.multiple_results else [found]


@dataclass(frozen=True)
class Tap:
    """A step that is linear in one value of parameters alone, the kernel; the other operand is the record's."""

    step: Stage
    place: int  # of the kernel among what goes in

    @property
    def out(self) -> ShapedArray:
        """Shape and type of what comes out."""
        return _shaped(self.step.equation.outvars[0].aval)

    @property
    def kernel(self) -> int:
        """The kernel's number."""
        return self.step.ins[self.place]

    @property
    def name(self) -> str:
        """Of its primitive."""
        return self.step.name

    def apply(self, kernel: Array, others: Sequence[ArrayLike]) -> Array:
        """The step with this kernel."""
        return self.step.run([*others[: self.place], kernel, *others[self.place :]])[0]


@dataclass(eq=False)
class Parted:
    """A loss taken apart. Values are numbered: parameters first, then features, then the target."""

    leaves: int
    answer: int
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    constants: dict[int, ArrayLike] = field(default_factory=dict)
    outer: list[Stage] = field(default_factory=list)
    inner: list[Stage] = field(default_factory=list)
    taps: list[Tap] = field(default_factory=list)
    spread: list[int] = field(default_factory=list)
    clean: dict[int, int] = field(default_factory=dict)  # met once and unchanged: number of the value -> its leaf

    @property
    def met(self) -> list[int]:
        """Values of parameters that meet the record: one for each tap, then the spread ones."""
        return [*(tap.kernel for tap in self.taps), *self.spread]

    def size(self, value: int) -> int:
        """How many numbers a value is."""
        return int(np.prod(self.shapes[value]))

    @property
    def numbers(self) -> int:
        """Numbers that one record's pass holds, about."""
        held = sum(self.size(v) for step in self.inner for v in step.outs)
        return 2 * held + sum(self.size(v) for v in self.spread)

    @property
    def convolves(self) -> bool:
        """Whether a kernel of parameters is a convolution's: several of them at once are slow, and large."""
        return any(tap.name == "conv_general_dilated" for tap in self.taps)

    def before(self, leaves: Sequence[Array]) -> list[Array]:
        """The values `met`, of these parameters."""
        values: dict[int, ArrayLike] = {**self.constants, **dict(enumerate(leaves))}
        for step in self.outer:
            values |= zip(step.outs, step.run([values[v] for v in step.ins]), strict=True)
        return [jnp.asarray(values[v]) for v in self.met]

    def after(
        self, kernels: Sequence[Array], own: Sequence[Array], watched: Sequence[Array], features: Array, target: Array
    ) -> tuple[Array, list[list[ArrayLike]]]:
        """The loss of one record, and what else went into each tap; `watched` is added to the taps' outputs."""
        values: dict[int, ArrayLike] = {**self.constants, **dict(zip(self.spread, own, strict=True))}
        values |= {self.leaves: features, self.leaves + 1: target}
        beside: list[list[ArrayLike]] = []
        at = {id(tap.step): k for k, tap in enumerate(self.taps)}
        for step in self.inner:
            k = at.get(id(step))
            if k is None:
                values |= zip(step.outs, step.run([values[v] for v in step.ins]), strict=True)
                continue
            others = [values[v] for i, v in enumerate(step.ins) if i != self.taps[k].place]
            beside.append(others)
            values[step.outs[0]] = self.taps[k].apply(kernels[k], others) + watched[k]
        return jnp.asarray(values[self.answer]), beside


def parted(loss: Callable[..., Array], leaves: Sequence[object], features: object, target: object) -> Parted:
    """Take `loss(leaves, features, target)` apart, from shapes and types."""
    traced = jax.make_jaxpr(loss)(list(leaves), features, target)
    out = Parted(len(leaves), -1)
    inputs = [_numbered(out, v.aval) for v in traced.jaxpr.invars]
    steps: list[Stage] = []
    (out.answer,) = _inlined(traced.jaxpr, traced.consts, inputs, steps, out)
    _sort(out, steps)
    return out


def rewritten(f: Callable[..., Array], *args: object) -> Array:
    """f(*args), step by step: as it is, but for what `Stage.run` computes in another way."""
    given, tree = jax.tree.flatten(args)
    traced = jax.make_jaxpr(lambda *given: f(*jax.tree.unflatten(tree, given)))(*given)
    out, steps = Parted(len(given), -1), list[Stage]()
    (answer,) = _inlined(traced.jaxpr, traced.consts, [_numbered(out, v.aval) for v in traced.jaxpr.invars], steps, out)
    values = {**out.constants, **dict(enumerate(given))}
    for step in steps:
        values |= zip(step.outs, step.run([values[v] for v in step.ins]), strict=True)
    return values[answer]


def _shaped(aval: AbstractValue) -> ShapedArray:
    """What is known of a value before it is computed; a loss computes arrays only."""
    if not isinstance(aval, ShapedArray):
        raise TypeError(f"expected an array in a loss, got {aval}")
    return aval


def _numbered(out: Parted, aval: AbstractValue) -> int:
    """A new value's number."""
    out.shapes.append(tuple(_shaped(aval).shape))
    return len(out.shapes) - 1


def _inlined(
    jaxpr: Jaxpr, consts: Sequence[ArrayLike], given: Sequence[int], steps: list[Stage], out: Parted
) -> list[int]:
    """The steps of a program, of the programs that it calls too; numbers of what it returns."""
    known: dict[Var, int] = dict(zip(jaxpr.invars, given, strict=True))

    def constant(value: ArrayLike, aval: AbstractValue) -> int:
        number = _numbered(out, aval)
        out.constants[number] = value
        return number

    def number(atom: Var | Literal) -> int:
        return constant(atom.val, atom.aval) if isinstance(atom, Literal) else known[atom]

    for var, value in zip(jaxpr.constvars, consts, strict=True):
        known[var] = constant(value, var.aval)
    for equation in jaxpr.eqns:
        ins = [number(atom) for atom in equation.invars]
        inside = equation.params.get(CALLS.get(equation.primitive.name, ""))
        if inside is not None:
            body, held = (inside.jaxpr, inside.consts) if hasattr(inside, "consts") else (inside, ())
            known |= zip(equation.outvars, _inlined(body, held, ins, steps, out), strict=True)
            continue
        outs = [_numbered(out, var.aval) for var in equation.outvars]
        known |= zip(equation.outvars, outs, strict=True)
        steps.append(Stage(equation, tuple(ins), tuple(outs)))
    return [number(atom) for atom in jaxpr.outvars]


def _sort(out: Parted, steps: list[Stage]) -> None:
    """Which steps are outer, which values meet the record, and how."""
    own, maker, copied = set(range(out.leaves)), dict[int, Stage](), set[int]()

    def meet(value: int) -> None:
        """Spread a value; where it is a smaller one repeated, that one, and repeat it for every record."""
        made = maker.get(value)
        if made is None or made.name != "broadcast_in_dim":
            if value not in out.spread:
                out.spread.append(value)
        elif value not in copied:
            copied.add(value)
            meet(made.ins[0])
            out.inner.append(made)

    for step in steps:
        mine = [i for i, v in enumerate(step.ins) if v in own]
        if not step.equation.effects and all(v in out.constants for v in step.ins):
            out.constants |= zip(step.outs, step.run([out.constants[v] for v in step.ins]), strict=True)
        elif all(v in out.constants or v in own for v in step.ins):
            own |= set(step.outs)
            maker |= dict.fromkeys(step.outs, step)
            out.outer.append(step)
        else:
            if len(mine) == 1 and mine[0] in TAPPED.get(step.name, ()) and _plain(step):
                out.taps.append(Tap(step, mine[0]))
            else:
                for i in mine:
                    meet(step.ins[i])
            out.inner.append(step)
    if out.answer in own:  # no record is looked at: all gradients are alike
        meet(out.answer)
    needed = set(out.met)
    for step in reversed(out.outer):
        needed |= set(step.ins) if needed & set(step.outs) else set()
    out.outer = [step for step in out.outer if needed & set(step.outs)]
    uses = Counter([v for step in out.outer for v in step.ins] + out.met)
    for leaf in range(out.leaves):
        value = leaf
        while uses[value] == 1 and value not in out.met:
            step = next(s for s in out.outer if value in s.ins)
            if step.name not in MOVES:
                break
            value = step.outs[0]
        if uses[value] == 1 and value in out.met:
            out.clean[value] = leaf


def _plain(step: Stage) -> bool:
    """Whether a step is watched at its output; what is not is spread."""
    params = step.equation.params
    if step.name == "conv_general_dilated":
        return bool(params["batch_group_count"] == 1)
    if step.name != "gather":
        return True
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    whole = _shaped(step.equation.invars[0].aval).shape
    rows = all(size in (1, full) for size, full in zip(sizes, whole, strict=True))
    return rows and not numbers.operand_batching_dims
