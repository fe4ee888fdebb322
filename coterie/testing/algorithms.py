"""Does an algorithm keep its promises? Its protocol, its randomness, its price, and an audit of what it tells."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.algorithms.base import Algorithm, Law, Needs, find
from coterie.algorithms.batches import rows
from coterie.audit import examine, gather, make_setting
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.dry_run import undeclared
from coterie.drivers.layout import Arrays, Group, Layout, make_layout
from coterie.drivers.program import Program
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.base import find_loss
from coterie.privacy.accountants import account
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import HeldShard, Problem
from coterie.testing.claims import need, need_settings

__all__ = ["ALGORITHM_CHECKS", "check_algorithm"]

SIZES = (6, 9, 12, 7, 10)  # records of five unlike agents
ROUNDS, DIM, EPSILON, DELTA = 6, 4, 2.0, 1e-4
SIGNATURES = {
    "init": ["cfg", "place"],
    "draws": ["cfg", "place"],
    "emit": ["cfg", "place", "t", "state", "shard", "draw"],
    "absorb": ["cfg", "place", "t", "state", "inbox"],
    "estimate": ["cfg", "place", "state"],
    "cost": ["cfg", "place", "t", "message"],
    "needs": ["cfg"],
}


def check_algorithm(name: str) -> None:
    """Check the algorithm of a plan's `algorithm.name`: a name, or package.module."""
    for check in ALGORITHM_CHECKS.values():
        check(find(name))


@cache
def _layout(algorithm: Algorithm, garbage: float = 0.0) -> Layout:
    """Five agents with labelled records on the first kind of graph it runs on; `garbage`: what their padding holds."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((sum(SIZES), DIM))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(rng.uniform(size=len(x)) < 1 / (1 + np.exp(-3 * x @ rng.standard_normal(DIM))), 1.0, -1.0)
    parts = np.split(np.arange(len(x)), np.cumsum(SIZES)[:-1])
    graph = make_graph((algorithm.graphs or ("ring",))[0], len(SIZES))
    with jax.enable_x64(True):
        layout = make_layout(
            _problem(algorithm), x, y, parts, graph, mixing(graph, "metropolis"), rounds=ROUNDS, ridge=0.05
        )  # fmt: skip
        if not garbage:
            return layout

        def dirty(group: Group, features: Array) -> Array:
            padding = jnp.arange(features.shape[1]) >= group.shards.count[:, None]
            return jnp.where(padding[..., None], garbage, features)

        return Layout(_with_features(layout.arrays, dirty), layout.problem, layout.order)


def _problem(algorithm: Algorithm) -> Problem:
    """What it is tried on: a logistic model, or second moments where it releases sums."""
    loss = find_loss("moments" if algorithm.needs(algorithm.example).released else "logistic")
    return loss.make(loss.settings(), DIM, 2)


def _with_features(arrays: Arrays, change: Callable[[Group, Array], Array]) -> Arrays:
    """The same agents, their features changed group by group."""
    groups = []
    for group in arrays.groups:
        assert isinstance(group.shards, HeldShard)
        shards = replace(group.shards, features=change(group, group.shards.features))
        groups.append(replace(group, shards=shards))
    return replace(arrays, groups=type(arrays.groups)(groups))


@cache
def _noise(algorithm: Algorithm) -> np.ndarray:
    """Every agent's noise multiplier, calibrated to a budget."""
    layout = _layout(algorithm)
    if not algorithm.private:
        return np.zeros(len(SIZES))
    return layout.restore(calibrate_agents(algorithm, algorithm.example, layout.arrays.place, EPSILON, DELTA))


@cache
def _recorded(algorithm: Algorithm) -> Trace:
    """Two seeds in one batch, everything recorded."""
    return simulate(algorithm, _layout(algorithm), _runs(algorithm), rounds=ROUNDS, record=True)


def _runs(algorithm: Algorithm) -> list[Run]:
    return [Run(seed, algorithm.example, _noise(algorithm)) for seed in (0, 1)]


def check_protocol(algorithm: Algorithm) -> None:
    """Signatures, docstrings, settings that say what they are, an example that survives as a pytree, laws."""
    for name, expected in SIGNATURES.items():
        part = getattr(algorithm, name)
        got = list(inspect.signature(part).parameters)
        need(got == expected, f"{name} takes {got}, expected {expected}")
        need(bool(part.__doc__), f"{name} has no docstring")
    need(isinstance(algorithm.example, algorithm.config), "EXAMPLE is no Config")
    need(len(algorithm.text.strip()) > 20, "the module has no docstring")
    need(bool(algorithm.reference), "REFERENCE is missing")
    need_settings(algorithm.config)
    leaves, structure = jax.tree.flatten(algorithm.example)
    need(jax.tree.unflatten(structure, leaves) == algorithm.example, "EXAMPLE does not survive as a pytree")
    laws = algorithm.draws(algorithm.example, rows(_layout(algorithm).arrays.place, 0)).values()
    need(all(isinstance(law, Law) for law in laws), "draws returns something that is no Law")


def check_contract(algorithm: Algorithm) -> None:
    """What is asked of records is what `needs` says."""
    layout = _layout(algorithm)
    with jax.enable_x64(True):
        place, shard = rows(layout.arrays.place, 0), rows(layout.arrays.groups[0].shards, 0)
        found = undeclared(algorithm, algorithm.example, place, shard)
        need(found == [], f"needs does not say: {found}")
        careless = replace(algorithm, needs=lambda cfg: Needs())
        asks = algorithm.needs(algorithm.example)
        unsaid = undeclared(careless, algorithm.example, place, shard)
        need(bool(unsaid) == (asks.reads_often or asks.bounded), f"needs says more than it does: {asks}, {unsaid}")


def check_run(algorithm: Algorithm) -> None:
    """A run in double precision is finite and stays double."""
    trace = _recorded(algorithm)
    for leaf in jax.tree.leaves((trace.points, trace.messages, trace.curves)):
        need(bool(np.isfinite(leaf).all()), "a message, point or curve is not finite")
        need(leaf.dtype != np.float32, "something is computed in single precision")
    need(trace.completed == ROUNDS, f"{trace.completed} of {ROUNDS} rounds")
    dim = _problem(algorithm).dim
    need(trace.points.shape == (2, len(SIZES), dim), f"points have shape {trace.points.shape}")
    if algorithm.any_length:
        again = simulate(algorithm, _layout(algorithm), _runs(algorithm), rounds=ROUNDS)
        words = "a program of any length leads elsewhere: ANY_LENGTH, but `place.rounds` is read"
        np.testing.assert_allclose(again.points, trace.points, rtol=1e-9, atol=1e-12, err_msg=words)


def check_replay(algorithm: Algorithm) -> None:
    """The same draws give the same messages alone, with rubbish in the padding: nothing else enters them."""
    trace, dirty = _recorded(algorithm), _layout(algorithm, 77.0)
    again = _replayed(algorithm, dirty, 1, trace)
    words = "other messages from the same draws: hidden randomness, or padding that counts"
    for a, b in zip(jax.tree.leaves(trace.messages), jax.tree.leaves(again.messages), strict=True):
        np.testing.assert_allclose(a[1], b[0], rtol=1e-6, atol=1e-8, err_msg=words)
    np.testing.assert_allclose(trace.points[1], again.points[0], rtol=1e-6, atol=1e-8, err_msg=words)


def check_single(algorithm: Algorithm) -> None:
    """A run in single precision stays single."""
    layout = _layout(algorithm)
    small = lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x  # noqa: E731
    layout = Layout(jax.tree.map(small, layout.arrays), layout.problem, layout.order)
    program = Program(algorithm, layout, ROUNDS, 1, True, None)
    cfg = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), algorithm.example)

    def whole(key: jax.Array) -> object:
        carry = program.begin(cfg, layout.arrays)
        return program.advance(carry, cfg, layout.arrays, key, None, jnp.int32(0), jnp.int32(ROUNDS + 1))

    out = jax.eval_shape(whole, jax.random.key(0))
    need(all(leaf.dtype != jnp.float64 for leaf in jax.tree.leaves(out)), "of single precision it makes double")


def check_cost(algorithm: Algorithm) -> None:
    """Without noise it says so; with noise it spends its budget and not more, and more noise costs less."""
    cfg, layout = algorithm.example, _layout(algorithm)
    if not algorithm.private:
        events = run_events(algorithm, cfg, rows(layout.arrays.place, 0))
        need(all(isinstance(e, NonPrivate) for e in events), "without sensitivity, cost must be NonPrivate")
        return
    spent = []
    for scale in (1.0, 2.0):
        with jax.enable_x64(True):
            noise = jnp.asarray(scale * layout.arrange(_noise(algorithm))[0])
            here = eqx.tree_at(lambda p: p.noise, rows(layout.arrays.place, 0), noise)
        events = run_events(algorithm, cfg, here)
        private = all(isinstance(e, Event) and not isinstance(e, NonPrivate) for e in events)
        need(private, "cost must be private events, as it has a sensitivity")
        spent.append(account(events, DELTA, fast=True).epsilon)
    fits = EPSILON * 0.99 <= spent[0] <= EPSILON * (1 + 1e-9)
    need(bool(fits), f"calibrated to ε = {EPSILON} it spends {spent[0]:.6g}")
    need(bool(spent[1] < spent[0]), "twice the noise does not cost less")


def check_first_round(algorithm: Algorithm) -> None:
    """In the first round nobody has heard of anybody: one agent's records cannot move another's message."""
    trace, layout = _recorded(algorithm), _layout(algorithm)
    with jax.enable_x64(True):
        at, arrays = int(np.flatnonzero(layout.order == 0)[0]), layout.arrays

        def flipped(group: Group, features: Array) -> Array:
            return features.at[at - group.low].multiply(-1.0) if group.low <= at < group.high else features

        other = Layout(_with_features(arrays, flipped), layout.problem, layout.order)
    again = _replayed(algorithm, other, 0, trace)
    words = "another agent's first message depends on agent 0's records"
    for a, b in zip(jax.tree.leaves(trace.messages), jax.tree.leaves(again.messages), strict=True):
        np.testing.assert_allclose(a[0, 0][1:], b[0, 0][1:], rtol=1e-9, atol=1e-12, err_msg=words)


def _replayed(algorithm: Algorithm, layout: Layout, seed: int, trace: Trace) -> Trace:
    """One seed again with the draws that were recorded of it: one compiled program, whatever the records."""
    runs = [Run(seed, algorithm.example, _noise(algorithm))]
    draws = {name: draw[seed] for name, draw in (trace.draws or {}).items()}
    return simulate(algorithm, layout, runs, rounds=ROUNDS, record=True, replay=draws or None)


def check_audit(algorithm: Algorithm) -> None:
    """Two worlds that differ in one record, played among hostile neighbours, tell no more than `cost` declares."""
    if not algorithm.private:
        return
    for finding in examine(gather(make_setting(algorithm, epsilon=1.0))):
        need(finding.passed, f"{finding.check}: {finding.detail}")


ALGORITHM_CHECKS: MappingProxyType[str, Callable[[Algorithm], None]] = MappingProxyType(
    {
        "protocol": check_protocol,
        "contract": check_contract,
        "run": check_run,
        "replay": check_replay,
        "single": check_single,
        "cost": check_cost,
        "first round": check_first_round,
        "audit": check_audit,
    }
)
