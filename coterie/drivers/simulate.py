"""Simulation: every agent in one compiled program, every seed and setting in one batch.

Runs (seeds, numeric hyper-parameters, noise levels) are a `vmap` over the loop of `coterie.drivers.program`. From which
round to which it goes is an argument of the compiled program (`coterie.drivers.compiled`), so the host can stop between
pieces to show progress, or for good on Ctrl-C, without compiling again.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

import coterie
from coterie.algorithms.base import Algorithm, Config
from coterie.algorithms.laws import Draw
from coterie.drivers.adaptive import Steering
from coterie.drivers.checkpoint import Checkpoint, fingerprint
from coterie.drivers.compiled import compiled, for_any_length
from coterie.drivers.judging import Judge
from coterie.drivers.layout import Arrays, Laid, Layout
from coterie.drivers.program import LoopCarry, Program, Test
from coterie.drivers.seeds import SEED_BITS, keys_of
from coterie.errors import InputError
from coterie.exchange.choice import Broadcast, Exchange

__all__ = ["Run", "Test", "Trace", "simulate"]

T = TypeVar("T")
A = TypeVar("A", bound=Arrays)
PIECE_SECONDS = 0.25  # how long the host lets the compiled loop run before it shows progress (or hears Ctrl-C: 1 s) …
WORTH, LONGEST = 10, 5.0  # … or so many times as long as a call costs without a round, but no longer than these seconds


@dataclass(frozen=True)
class Run:
    """One point of a batch: its seed, its hyper-parameters, its noise multiplier (per agent or one for all)."""

    seed: int
    cfg: Config
    noise: float | np.ndarray = 0.0


@dataclass
class Trace:
    """What a simulation leaves: leading axis = run, agents in the plan's order."""

    points: np.ndarray  # (runs, agents, dim): every agent's estimate
    rounds: np.ndarray  # (slots,): at which rounds the curves were measured
    curves: dict[str, np.ndarray]  # name -> (runs, slots)
    sent: np.ndarray  # (runs, agents): how many messages each agent sent
    bytes: np.ndarray  # (runs, agents): how much that was, to one neighbour
    completed: int  # rounds done; fewer than asked for after Ctrl-C
    timing: dict[str, float]
    messages: object = None  # leaves (runs, rounds, agents, ...), if recorded
    draws: dict[str, np.ndarray] | None = None  # name -> (runs, rounds, agents, ...), if recorded
    states: object = None  # final states, if recorded
    extras: dict[str, np.ndarray | int] = field(default_factory=dict)
    steered: list[dict[str, object]] = field(default_factory=list)  # per run, where noise followed releases


def simulate(
    algorithm: Algorithm,
    layout: Layout,
    runs: Sequence[Run],
    *,
    rounds: int,
    every: int = 1,
    test: Test | None = None,
    record: bool = False,
    replay: Draw | None = None,
    exchange: Exchange | None = None,
    progress: Callable[[int], None] | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[int, dict[str, float]], None] | None = None,
    steer: Steering | None = None,
) -> Trace:
    """Run `rounds` rounds of every run at once and return what happened.

    `every`: measure the curves every so many rounds. `record`: keep all messages, draws and final states. `replay`:
    use these draws (rounds, agents, ...), arrays or a deployment's `Grid`, instead of drawing. Ctrl-C ends the run
    early with what is done so far.
    `exchange`: how messages travel; broadcast by default. `checkpoint`: stores the state every so many rounds; where
    one of this run is stored, goes on from there. `watch(round, curves)` is told what was measured, of the first run.
    `steer`: says before every round of a single run how much noise it gets, from what was sent, and when to be silent.
    """
    check_runs(runs, rounds, every)
    dtype = layout.arrays.place.start.dtype
    # A GPU would multiply float32 matrices in TF32, whose error no sensitivity bound covers.
    with jax.enable_x64(dtype == jnp.float64), jax.default_matmul_precision("highest"):
        program = Program(algorithm, layout, rounds, every, record, test, exchange)
        keys = keys_of([r.seed for r in runs])
        cfg = stack([r.cfg for r in runs], dtype)
        n = layout.arrays.place.agents
        multipliers = [layout.arrange(np.broadcast_to(np.asarray(r.noise, float), (n,))) for r in runs]
        noise = jax.device_put(np.stack(multipliers).astype(dtype))
        again = None
        if replay is not None:
            again = jax.tree.map(lambda v: jax.device_put(layout.arrange(np.asarray(v), axis=1)), replay)

        place = layout.arrays.place
        lossy = exchange is not None and exchange.lossy  # then a run asks for prices, and they for the rounds
        if algorithm.any_length and place.present is None and place.shape.ndim == 1 and not (record or lossy):
            fit = for_any_length(program)
        else:
            fit = lambda arrays: arrays  # noqa: E731

        started = time.perf_counter()
        own = compiled(program, cfg, fit(layout.arrays), noise, keys, again)
        arrays = fit(layout.placed)
        carry = own.begin(cfg, arrays, noise, program.test)
        at = lambda *t: tuple(jnp.asarray(x, jnp.int32) for x in (*t, rounds, every))  # noqa: E731
        rest = (cfg, arrays, noise, keys, program.test, again)
        if jax.default_backend() != "cpu":  # no step, but the device loads its kernels, which is not part of any round
            carry = jax.block_until_ready(own.advance(carry, *rest, *at(0, 0)))
        first = 0
        if checkpoint is not None:
            names = (coterie.__version__, algorithm.slug, layout.problem.name, repr(exchange or Broadcast()))
            what = (*names, rounds, every, [(r.seed, repr(r.cfg)) for r in runs])
            found = checkpoint.load(fingerprint(what, (noise, layout.arrays, program.test)), carry)
            if found is not None:
                carry, first = cast(LoopCarry, found[0]), found[1]
        compile_s = time.perf_counter() - started
        due = [t for t in range(rounds + 1) if t % every == 0 or t == rounds]
        told = sum(t < first for t in due)

        def advance(low: int, high: int) -> None:
            nonlocal carry
            if steer is None:
                carry = jax.block_until_ready(own.advance(carry, *rest, *at(low, high)))
                return
            for t in range(low, high):
                factor = steer.before(t) if t < rounds else None
                now = (cfg, _silent_from(arrays, steer.stopped), noise * (factor or 1.0), keys, program.test, again)
                carry = jax.block_until_ready(own.advance(carry, *now, *at(t, t + 1)))
                if factor is not None:
                    (said,) = jax.tree.leaves(carry.message)
                    steer.heard(layout.restore(np.asarray(said), 1)[0])

        judge = Judge(program, arrays) if program.later else None

        def measured(slots: list[int]) -> list[dict[str, np.ndarray]]:
            """All curves at slots that the loop has passed, of every run. NumPy cuts: JAX would compile each shape."""
            here = {name: np.asarray(curve) for name, curve in carry.curves.items()}
            judged = [{}] * len(slots) if judge is None else judge.at(slots, here.pop("models"))
            return [
                {**found, **{name: curve[:, k] for name, curve in here.items()}}
                for k, found in zip(slots, judged, strict=True)
            ]

        def shown(step: int) -> None:
            nonlocal told
            if progress is not None:
                progress(step)
            while watch is not None and told < len(due) and due[told] <= step:
                watch(due[told], {name: float(values[0]) for name, values in measured([told])[0].items()})
                told += 1

        keep = None if checkpoint is None else lambda done: checkpoint.save(done, carry)
        often = 0 if checkpoint is None else checkpoint.every
        started = time.perf_counter()
        least = 1.0 if progress is watch is None else PIECE_SECONDS
        done = in_pieces(advance, first, rounds + 1, shown, keep=keep, every=often, least=least)
        with _interruptible():  # the first Ctrl-C does not lose what all rounds led to
            slots = measured([slot for slot, t in enumerate(due) if t < done])
        curves = {name: np.stack([values[name] for values in slots], axis=1) for name in slots[0]}
        run_s = time.perf_counter() - started
        if judge is not None:
            compile_s, run_s = compile_s + judge.compile_s, run_s - judge.compile_s

        points = own.estimates(cfg, arrays, noise, carry.state)
        trace = make_trace(program, layout, carry, points, done, {"compile_s": compile_s, "run_s": run_s}, curves)
        trace.extras["resumed"] = max(0, first - 1)
        return trace


def _silent_from(arrays: Arrays, stopped: int | None) -> Arrays:
    """The arrays of parties all of which are away from that round on."""
    if stopped is None:
        return arrays
    present = arrays.place.present
    assert present is not None, "a run that is steered has a list of who is there"
    return eqx.tree_at(lambda a: a.place.present, arrays, present.at[:, stopped:].set(0))


def check_runs(runs: Sequence[Run], rounds: int, every: int) -> None:
    """Refuse what cannot run."""
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    if every < 1:
        raise InputError(f"every must be at least 1, got {every}")
    if not runs:
        raise InputError("there is nothing to run: the list of seeds is empty")
    if bad := [r.seed for r in runs if not 0 <= r.seed < 1 << SEED_BITS]:
        raise InputError(f"seed must be from 0 to {(1 << SEED_BITS) - 1}, got {bad[0]}")


def in_pieces(
    advance: Callable[[int, int], None],
    start: int,
    end: int,
    progress: Callable[[int], None] | None = None,
    agree: Callable[[bool, float], tuple[bool, float]] = lambda stop, seconds: (stop, seconds),
    keep: Callable[[int], None] | None = None,
    every: int = 0,
    least: float = PIECE_SECONDS,
) -> int:
    """Call `advance(low, high)` over steps start … end − 1 in pieces of about `least` seconds; where it stopped.

    They are longer where every call costs much before its first step, for what the compiler moved out of the loop: of
    100,000 parties that can be as much as five rounds. The first Ctrl-C ends it after a piece. `agree` lets several
    processes settle on one answer to (stop?, seconds). `keep(done)` is called every `every` steps and at the end.
    """
    done, piece, stop, cost = start, 8, False, 0.0
    last: tuple[int, float] | None = None
    with _interruptible() as interrupted:
        while done < end and not stop:
            began = time.perf_counter()
            high = min(done + piece, end, (done // every + 1) * every if every else end)
            advance(done, high)
            seconds = time.perf_counter() - began
            if progress is not None:
                progress(high - 1)
            stop, seconds = agree(interrupted(), seconds)
            steps = high - done
            if last is not None and last[0] != steps:  # of two pieces, what a call costs and what a step does
                each = max(0.0, (seconds - last[1]) / (steps - last[0]))
                cost = min(max(0.0, seconds - each * steps), seconds)
            last = steps, seconds
            wanted = max(least, min(WORTH * cost, LONGEST), 2 * cost)
            piece = int(np.clip(steps * (wanted - cost) / max(seconds - cost, 1e-6), 1, 8 * piece))
            done = high
            if keep is not None and (stop or done == end or (every and done % every == 0)):
                keep(done)
    return done


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is noted and ends the loop between two pieces; a second one stops at once."""
    hits: list[int] = []

    def note(number: int, frame: object) -> None:
        hits.append(number)
        if len(hits) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(hits)
    finally:
        signal.signal(signal.SIGINT, before)


def make_trace(
    program: Program, layout: Laid, carry: LoopCarry | SimpleNamespace, points: ArrayLike, done: int,
    timing: dict[str, float], curves: dict[str, np.ndarray] | None = None,
) -> Trace:  # fmt: skip
    """The trace of a run that stopped after `done` steps, agents put back into the plan's order."""
    completed = max(0, done - 1)  # step t reads round t − 1: the last message sent may not have been heard yet
    due = [t for t in range(program.rounds + 1) if t % program.every == 0 or t == program.rounds]
    slots = [k for k, t in enumerate(due) if t < done]
    put = lambda x, axis: layout.restore(np.asarray(x), axis)  # noqa: E731
    trace = Trace(
        points=put(points, 1),
        rounds=np.array([due[k] for k in slots]),
        curves=curves or {k: np.asarray(v)[:, slots] for k, v in carry.curves.items()},
        sent=put(carry.sent, 1),
        bytes=put(carry.bits, 1) / 8,
        completed=completed,
        timing=timing,
        extras={"cut": np.asarray(carry.cut)},
    )
    if program.record and carry.recorded is not None:
        trace.messages = jax.tree.map(lambda x: put(x, 2), carry.recorded.messages)
        trace.draws = {k: put(v, 2) for k, v in carry.recorded.draws.items()}
        trace.states = jax.tree.map(lambda x: put(x, 1), carry.state)
        trace.extras["sent"] = put(carry.recorded.sent, 2)
    return trace


def stack(configs: Sequence[Config], dtype: DTypeLike) -> Config:
    """One config whose numbers carry a leading run axis."""
    structures = {jax.tree.structure(c) for c in configs}
    if len(structures) > 1:
        raise InputError("runs of one batch may differ in numbers only, not in options or in which numbers are set")
    return jax.tree.map(lambda *x: jax.device_put(np.asarray(x, dtype)), *configs)
