"""The simulation driver against a plain NumPy loop, and its promises: batching, silence, curves, Ctrl-C, no leaks."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import dgd, dsgd
from coterie.algorithms.base import Algorithm, Config, Inbox, Maybe, Needs, Place, Uniform, find
from coterie.drivers import compiled
from coterie.drivers.judging import Judge
from coterie.drivers.layout import Layout
from coterie.drivers.program import Program
from coterie.drivers.references import pooled
from coterie.drivers.simulate import LONGEST, PIECE_SECONDS, Run, Test, Trace, in_pieces, simulate
from coterie.errors import InputError
from coterie.exchange.choice import SecretSum
from coterie.graphs import make_graph, mixing
from coterie.privacy.events import NonPrivate
from coterie.problems import Shard
from coterie.testing.algorithms import check_run
from tests.support import logistic_data, network, run

SIZES = [5, 9, 3, 7, 4, 6, 8, 2, 5, 3]
DIM, RIDGE, ROUNDS = 3, 0.05, 7


@cache
def small() -> Layout:
    """Ten unlike agents on a ring: too few edges for the matrix product, so messages walk over edges."""
    layout = network(len(SIZES), SIZES, DIM, rounds=ROUNDS, ridge=RIDGE)
    assert layout.arrays.adjacency is None
    return layout


@cache
def descent() -> Trace:
    held_out = Test(*logistic_data(30, DIM, seed=9))
    return run("dgd", dgd.Config(step=0.5, decay=0.3), small(), every=3, test=held_out)


@cache
def by_hand() -> np.ndarray:
    """(rounds + 1, agents, dim): decentralized gradient descent as a NumPy loop over a dense mixing matrix."""
    x, y = logistic_data(sum(SIZES), DIM)
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    weights = mixing(make_graph("ring", len(SIZES))).dense()
    points = [np.zeros((len(SIZES), DIM))]
    for t in range(ROUNDS):
        step = 0.5 / (1 + t) ** 0.3
        slopes = [
            -((y[p] / (1 + np.exp(y[p] * (x[p] @ v)))) @ x[p]) / len(p) + RIDGE * v
            for p, v in zip(parts, points[-1], strict=True)
        ]
        points.append(weights @ points[-1] - step * np.array(slopes))
    return np.array(points)


def objective(v: np.ndarray) -> float:
    x, y = logistic_data(sum(SIZES), DIM)
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    return float(np.mean([np.log1p(np.exp(-y[p] * (x[p] @ v))).mean() for p in parts]) + RIDGE / 2 * v @ v)


def test_a_run_is_what_the_formulas_say() -> None:
    trace, want = descent(), by_hand()
    np.testing.assert_allclose(trace.points[0], want[-1], atol=1e-12)
    np.testing.assert_allclose(trace.messages.x[0], want[:-1], atol=1e-12)  # round t sends x_t
    assert trace.completed == ROUNDS
    assert trace.sent.tolist() == [[ROUNDS] * len(SIZES)]
    assert trace.bytes.tolist() == [[ROUNDS * DIM * 8.0] * len(SIZES)]
    assert trace.draws == {}


def test_curves_are_measured_when_they_say() -> None:
    """every = 3 does not divide 7 rounds: the start, rounds 3 and 6, and the end."""
    trace, points = descent(), by_hand()
    assert trace.rounds.tolist() == [0, 3, 6, 7]
    losses = [np.mean([objective(v) for v in points[t]]) for t in trace.rounds]
    np.testing.assert_allclose(trace.curves["train_loss"][0], losses, atol=1e-12)
    spread = points - points.mean(1, keepdims=True)
    gaps = np.sqrt((spread**2).sum(2).mean(1))
    np.testing.assert_allclose(trace.curves["consensus_gap"][0], gaps[trace.rounds], atol=1e-12)
    x, y = logistic_data(30, DIM, seed=9)
    right = [np.mean([(np.where(x @ v > 0, 1, -1) == y).mean() for v in points[t]]) for t in trace.rounds]
    np.testing.assert_allclose(trace.curves["test_score"][0], right, atol=1e-12)


@pytest.mark.parametrize(("rounds", "every", "at"), [(1, 1, [0, 1]), (1, 5, [0, 1]), (6, 3, [0, 3, 6])])
def test_slots_of_short_and_divisible_runs(rounds: int, every: int, at: list[int]) -> None:
    trace = run("dgd", dgd.Config(step=0.5, decay=0.3), small(), rounds, every=every, record=False)
    assert trace.rounds.tolist() == at
    want = [np.mean([objective(v) for v in by_hand()[t]]) for t in at]
    np.testing.assert_allclose(trace.curves["train_loss"][0], want, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "value", "backend"), [("program.MANY", 1, "cpu"), ("groups.BLOCK", 3 * (9 * (DIM + 1) + 2), "gpu")]
)
def test_records_are_measured_alike_in_blocks_and_model_by_model(
    name: str, value: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of ten agents at once, as an accelerator takes them, and one left over; or one judged model at a time."""
    program = Program(find("dgd"), small(), ROUNDS, 1, False, None)
    cfg, points = dgd.Config(step=0.5), np.random.default_rng(0).standard_normal((len(SIZES), DIM))
    with jax.enable_x64(True):
        state = eqx.tree_at(lambda s: s.x, program.starts(cfg, small().arrays), jnp.asarray(points))
        monkeypatch.setattr("coterie.drivers." + name, value)
        monkeypatch.setattr(jax, "default_backend", lambda: backend)
        text = str(jax.make_jaxpr(lambda s: program.measure(cfg, small().arrays, s))(state))
        found = program.measure(cfg, small().arrays, state)
    assert "scan[" in text
    loss = np.mean([objective(v) for v in points])
    np.testing.assert_allclose(found["train_loss"], loss, atol=1e-12)


def test_what_is_measured_after_the_loop_is_what_the_loop_would_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models too large to wait are measured in the loop; one that watches hears of each when it is there."""
    cfg, heard = dgd.Config(step=0.5, decay=0.3), list[tuple[int, dict[str, float]]]()
    runs = [Run(0, cfg), Run(0, cfg.replace(step=0.2))]
    held_out = Test(*logistic_data(30, DIM, seed=9))
    note = lambda t, found: heard.append((t, found))  # noqa: E731
    after = simulate(find("dgd"), small(), runs, rounds=ROUNDS, every=3, test=held_out, watch=note)
    monkeypatch.setattr("coterie.drivers.program.ROOM", 0)
    assert not Program(find("dgd"), small(), ROUNDS, 3, False, None).later
    inside = simulate(find("dgd"), small(), runs, rounds=ROUNDS, every=3, test=held_out)
    assert after.curves.keys() == inside.curves.keys()
    for name, curve in inside.curves.items():
        np.testing.assert_allclose(after.curves[name], curve, atol=1e-14, err_msg=name)
    monkeypatch.setattr("coterie.drivers.program.ROOM", 1 << 18)
    for block, roomy in ((3, 1 << 22), (48, 1 << 22), (48, 0)):  # 8 models by three calls, by one, or two a call
        monkeypatch.setattr("coterie.drivers.judging.BLOCK", block)
        monkeypatch.setattr("coterie.drivers.judging.ROOMY", roomy)
        blocks = simulate(find("dgd"), small(), runs, rounds=ROUNDS, every=3, test=held_out)
        for name, curve in inside.curves.items():
            np.testing.assert_allclose(blocks.curves[name], curve, atol=1e-14, err_msg=name)
    assert [t for t, _ in heard] == [0, 3, 6, 7]
    for slot, (_, found) in enumerate(heard):
        assert found == {name: curve[0, slot] for name, curve in after.curves.items()}


# -- batches and seeds -------------------------------------------------------------------------------------------------


def test_a_batch_of_seeds_and_settings_equals_single_runs() -> None:
    slow, fast = dsgd.Config(step=0.1, batch=4), dsgd.Config(step=0.5, batch=4)
    algorithm, layout = find("dsgd"), small()
    runs = [Run(0, slow), Run(0, fast), Run(3, fast)]
    batch = simulate(algorithm, layout, runs, rounds=ROUNDS, record=True)
    for k in (1, 2):
        alone = simulate(algorithm, layout, [runs[k]], rounds=ROUNDS, record=True)
        np.testing.assert_array_equal(batch.draws["batch"][k], alone.draws["batch"][0])
        np.testing.assert_allclose(batch.points[k], alone.points[0], atol=1e-12)
        np.testing.assert_allclose(batch.curves["train_loss"][k], alone.curves["train_loss"][0], atol=1e-12)
    np.testing.assert_array_equal(batch.draws["batch"][0], batch.draws["batch"][1])
    assert not np.allclose(batch.points[0], batch.points[1])
    assert not np.array_equal(batch.draws["batch"][1], batch.draws["batch"][2])
    drawn = batch.draws["batch"][0].reshape(-1, 4)
    assert len(np.unique(drawn)) == drawn.size  # no two agents and no two rounds share a draw


def test_replayed_draws_give_the_same_run_under_another_seed() -> None:
    cfg, algorithm, layout = dsgd.Config(step=0.5, batch=4), find("dsgd"), small()
    first = simulate(algorithm, layout, [Run(5, cfg)], rounds=ROUNDS, record=True)
    same = simulate(algorithm, layout, [Run(5, cfg)], rounds=ROUNDS)
    np.testing.assert_array_equal(first.points, same.points)
    draws = {k: v[0] for k, v in first.draws.items()}
    again = simulate(algorithm, layout, [Run(6, cfg)], rounds=ROUNDS, replay=draws)
    np.testing.assert_allclose(again.points, first.points, atol=1e-12)


def test_noise_is_per_run_and_per_agent_in_the_plans_order() -> None:
    layout = small()
    noise = np.arange(10.0)
    seen = simulate(echo(), layout, [Run(0, Nothing(), 2.0), Run(0, Nothing(), noise)], rounds=1)
    np.testing.assert_array_equal(seen.points[0, :, 0], 2.0)
    np.testing.assert_array_equal(seen.points[1, :, 0], noise)


@pytest.mark.parametrize(
    ("runs", "options", "words"),
    [
        ([], {}, "seeds is empty"),
        ([Run(0, dgd.EXAMPLE)], {"rounds": 0}, "rounds must be at least 1, got 0"),
        ([Run(0, dgd.EXAMPLE)], {"every": 0}, "every must be at least 1, got 0"),
        ([Run(1 << 64, dgd.EXAMPLE)], {}, "seed must be from 0 to 18446744073709551615, got 18446744073709551616"),
        ([Run(-1, dgd.EXAMPLE)], {}, "seed must be .*got -1"),
        ([Run(0, dgd.EXAMPLE), Run(0, dgd.Config())], {}, "differ in numbers only"),
    ],
)
def test_what_cannot_run_is_refused(runs: list[Run], options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        simulate(find("dgd"), small(), runs, **{"rounds": 3, **options})


# -- silence and memory on edges: a small algorithm made here ----------------------------------------------------------


class Nothing(Config):
    """No settings."""


class Word(eqx.Module):
    """One number."""

    value: jax.Array


class Heard(eqx.Module):
    """What an agent has heard."""

    total: jax.Array
    account: jax.Array


def make(name: str, **functions: object) -> Algorithm:
    """An algorithm from bare functions, as if it were a module."""
    module = ModuleType(name, "A test algorithm.")
    parts = {
        "Config": Nothing,
        "EXAMPLE": Nothing(),
        "draws": lambda cfg, place: {},
        "cost": lambda cfg, place, t, message: NonPrivate(),
        "needs": lambda cfg: Needs(),
    }
    for key, value in {**parts, **functions}.items():
        setattr(module, key, value)
    return Algorithm.of(name, module)


@cache
def echo() -> Algorithm:
    """Says nothing of interest; its estimate is the noise multiplier of the agent's place."""
    return make(
        "echo",
        init=lambda cfg, place: place.noise,
        emit=lambda cfg, place, t, state, shard, draw: (state, Word(state)),
        absorb=lambda cfg, place, t, state, inbox: state,
        estimate=lambda cfg, place, state: state * jnp.ones(DIM),
    )


@cache
def whisper() -> Algorithm:
    """Agents with an odd number of records speak in every third round only; edges add up what passed over them."""

    def emit(cfg: Config, place: Place, t: jax.Array, state: Heard, shard: Shard, draw: dict) -> tuple[Heard, Maybe]:
        return state, Maybe(Word(10.0 * t + place.count), (place.count % 2 == 0) | (t % 3 == 1))

    def absorb(cfg: Config, place: Place, t: jax.Array, state: Heard, inbox: Inbox) -> tuple[Heard, jax.Array]:
        memory = inbox.map(lambda m, w, e: e + m.value)
        account = inbox.reduce(lambda m, w, e: e)  # before this round
        return Heard(inbox.total.value, account), memory

    return make(
        "whisper",
        init=lambda cfg, place: Heard(jnp.zeros_like(place.count), jnp.zeros_like(place.count)),
        draws=lambda cfg, place: {"coin": Uniform()},
        greeting=lambda cfg, place: Word(-place.count),
        edge=lambda cfg, place: jnp.full_like(place.count, 0.5),
        emit=emit,
        absorb=absorb,
        estimate=lambda cfg, place, state: jnp.stack([state.total, state.account, state.total]),
    )


def test_silence_keeps_the_last_message_and_edges_remember() -> None:
    trace = simulate(whisper(), small(), [Run(0, Nothing())], rounds=ROUNDS, record=True)
    count, n = np.array(SIZES, float), len(SIZES)
    near = (make_graph("ring", n).laplacian().toarray() < 0).astype(float)
    last, account = -count, np.full((n, n), 0.5)
    for t in range(ROUNDS):
        speaks = (count % 2 == 0) | (t % 3 == 1)
        np.testing.assert_array_equal(trace.extras["sent"][0, t], speaks)
        last = np.where(speaks, 10.0 * t + count, last)
        np.testing.assert_array_equal(trace.messages.value[0, t], last)
        before, account = account, account + last
    np.testing.assert_allclose(trace.points[0, :, 0], near @ last)
    np.testing.assert_allclose(trace.points[0, :, 1], (near * before).sum(1))
    spoken = np.where(count % 2 == 0, ROUNDS, 2)
    np.testing.assert_array_equal(trace.sent[0], spoken)
    np.testing.assert_array_equal(trace.bytes[0], 8 * spoken)
    np.testing.assert_allclose(trace.states.total[0], near @ last)


# -- stopping, and what a run must leave alone -------------------------------------------------------------------------


def test_ctrl_c_leaves_a_usable_partial_trace() -> None:
    """SIGINT from another thread while the compiled loop runs; a million rounds would take much longer."""
    rounds, before, seen = 1_000_000, signal.getsignal(signal.SIGINT), []

    def progress(done: int) -> None:
        if not seen:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        seen.append(done)

    trace = simulate(find("dgd"), small(), [Run(0, dgd.EXAMPLE)], rounds=rounds, every=2, progress=progress)
    assert 0 < trace.completed < rounds
    assert trace.completed == seen[-1]
    assert np.isfinite(trace.points).all()
    assert trace.points.any()
    assert len(trace.rounds) == trace.curves["train_loss"].shape[1] == trace.completed // 2 + 1  # 0, 2, 4 …
    assert trace.rounds[-1] == trace.completed - trace.completed % 2
    assert trace.curves["train_loss"][0, -1] < trace.curves["train_loss"][0, 0]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_models_are_measured_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds are done by then."""
    before, at, hits = signal.getsignal(signal.SIGINT), Judge.at, []

    def interrupted(self: Judge, slots: Sequence[int], models: np.ndarray) -> list[dict[str, np.ndarray]]:
        hits.append(os.kill(os.getpid(), signal.SIGINT))
        return at(self, slots, models)

    monkeypatch.setattr(Judge, "at", interrupted)
    trace = simulate(find("dgd"), small(), [Run(0, dgd.EXAMPLE)], rounds=20)
    assert hits
    assert trace.completed == 20
    assert np.isfinite(trace.curves["train_loss"]).all()
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_ends_at_the_last_round() -> None:
    seen: list[int] = []
    run("dgd", dgd.EXAMPLE, small(), 20, record=False, progress=seen.append)
    assert seen == sorted(set(seen))
    assert seen[-1] == 20


def test_double_precision_does_not_leak() -> None:
    before = jax.config.jax_enable_x64
    trace = descent()
    assert trace.points.dtype == np.float64
    assert jax.config.jax_enable_x64 == before
    assert jnp.ones(1).dtype == jnp.float32
    pooled(small())
    assert jnp.ones(1).dtype == jnp.float32


def test_an_equal_run_reuses_the_compiled_program_and_a_changed_algorithm_does_not() -> None:
    """Kept programs are keyed by all that tracing reads."""
    runs, rounds = [Run(0, dgd.EXAMPLE)], ROUNDS
    first = simulate(find("dgd"), small(), runs, rounds=rounds)
    again = simulate(find("dgd"), small(), runs, rounds=rounds)
    assert again.timing["compile_s"] < 0.1 * first.timing["compile_s"]
    np.testing.assert_array_equal(first.points, again.points)
    module = ModuleType("dgd_twice")  # the same functions but one: nothing compiled for the first may be used
    module.__dict__.update(vars(dgd))
    module.estimate = lambda cfg, place, state: 2 * dgd.estimate(cfg, place, state)
    twice = simulate(Algorithm.of("dgd", module), small(), runs, rounds=rounds)
    np.testing.assert_allclose(twice.points, 2 * first.points, rtol=1e-12)


@pytest.mark.parametrize("schedule", ["even", "falling"])
def test_one_program_serves_runs_of_every_length(schedule: str) -> None:
    """Rounds, when curves are measured, noise of each round, the tail's start: all as in a program for them alone."""
    cfg, runs = find("dp-dsgd").example, [Run(seed, find("dp-dsgd").example, 1.0) for seed in (0, 1)]
    before = None
    for rounds, every in ((7, 3), (12, 5)):
        shape = np.ones(rounds) if schedule == "even" else np.linspace(2.0, 0.5, rounds)
        layout = network(len(SIZES), SIZES, DIM, rounds=rounds, ridge=RIDGE, shape=shape)
        found = simulate(find("dp-dsgd"), layout, runs, rounds=rounds, every=every)
        alone = run("dp-dsgd", cfg, layout, rounds, noise=1.0, seeds=2, every=every)  # what is recorded has a length
        np.testing.assert_allclose(found.points, alone.points, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(found.rounds, alone.rounds)
        for name, curve in alone.curves.items():
            np.testing.assert_allclose(found.curves[name], curve, rtol=1e-9, atol=1e-12, err_msg=name)
        kept = {key for key in compiled._KEPT if key[1:4] == (find("dp-dsgd"), compiled.SLOTS, None)}
        assert kept
        assert before in (None, kept)
        before = kept


def test_who_says_any_length_and_reads_the_rounds_is_found_out() -> None:
    """By Python where rounds are calculated with, by the conformance tests where they are only compared with."""
    own = find("dp-dsgd")

    def calculates(cfg: Config, place: Place, t: Any, state: Any, inbox: Inbox) -> Any:
        return own.absorb(cfg, place, jnp.minimum(t, place.rounds - 1), state, inbox)

    def compares(cfg: Config, place: Place, t: Any, state: Any, inbox: Inbox) -> Any:
        return own.absorb(cfg, place, jnp.where(t + 1 == place.rounds, 0, t), state, inbox)

    with pytest.raises(TypeError, match="NoneType"):
        check_run(dataclasses.replace(own, absorb=calculates))
    with pytest.raises(AssertionError, match=r"place\.rounds"):
        check_run(dataclasses.replace(own, absorb=compares))
    check_run(own)


def test_a_lossy_sum_of_any_length_asks_for_prices_with_their_rounds() -> None:
    own = find("dp-dsgd")

    def dearer(cfg: Config, place: Place, t: Any, message: Any) -> Any:
        event = own.cost(cfg, place, t, message)
        return dataclasses.replace(event, times=event.times + 0 / place.rounds)

    layout, lossy = network(5, 20, rounds=6), SecretSum(5, away=0.3)
    found = [
        simulate(a, layout, [Run(0, own.example, 1.0)], rounds=6, exchange=lossy).points
        for a in (dataclasses.replace(own, cost=dearer), own, dataclasses.replace(own, any_length=False))
    ]
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize("seeds", [1, 3])
def test_models_that_are_shown_one_slot_at_a_time_are_measured_alone(seeds: int, monkeypatch: Any) -> None:
    """Where all slots come at once many models fill a call; a slot that is shown as it comes is not filled up."""
    asked: list[int] = []
    plain = Judge._judged

    def judged(self: Judge, arrays: Any, test: Any, models: Any) -> Any:
        asked.append(models.shape[0])
        return plain(self, arrays, test, models)

    monkeypatch.setattr(Judge, "_judged", judged)
    layout = network(3, 17, 5, rounds=11)  # of no other test's shapes: what is kept is not traced again
    runs = [Run(s, dgd.EXAMPLE) for s in range(seeds)]
    trace = simulate(find("dgd"), layout, runs, rounds=11, every=3, watch=lambda t, values: None)
    assert set(asked) == {seeds}
    assert trace.timing["compile_s"] > 0 < trace.timing["run_s"]


def test_a_reused_program_reads_the_new_records_and_the_new_test_set() -> None:
    points = []
    for seed in (1, 2):
        layout = network(len(SIZES), SIZES, DIM, rounds=ROUNDS, ridge=RIDGE, seed=seed)
        test = Test(*logistic_data(40, DIM, seed=10 + seed))
        trace = simulate(find("dgd"), layout, [Run(0, dgd.EXAMPLE)], rounds=ROUNDS, test=test)
        right = [np.mean(np.where(test.features @ x > 0, 1.0, -1.0) == test.targets) for x in trace.points[0]]
        assert trace.curves["test_score"][0, -1] == pytest.approx(np.mean(right))
        points.append(trace.points[0])
    assert not np.allclose(*points)


@pytest.mark.parametrize(("call", "step"), [(0.4, 0.08), (0.0, 0.08), (0.001, 0.0005), (8.0, 0.01)])
def test_what_a_call_costs_is_paid_seldom_and_progress_is_shown_often(call: float, step: float) -> None:
    """Pieces by a clock of our own: every call takes `call` seconds, and `step` for each of its steps."""
    pieces: list[int] = []

    def advance(low: int, high: int) -> None:
        assert low == sum(pieces)
        pieces.append(high - low)

    done = in_pieces(advance, 0, 2000, agree=lambda stop, _: (False, call + step * pieces[-1]))
    assert done == sum(pieces) == 2000
    spent = call * len(pieces) + step * done
    assert call * len(pieces) < 0.15 * spent or len(pieces) < 8  # those that find out what a call costs
    longest = max(call + step * k for k in pieces[1:])
    assert longest <= max(PIECE_SECONDS, LONGEST, 2 * call) + step
    assert call > 0.01 or longest <= PIECE_SECONDS + step  # where calls are cheap nobody waits longer than before
