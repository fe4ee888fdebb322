"""What every algorithm inherits by being found: no list to keep, no way to be left out."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from coterie.algorithms.base import Law, Needs, all_algorithms, find
from coterie.algorithms.batches import rows
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.dry_run import undeclared
from coterie.drivers.layout import Layout
from coterie.drivers.program import Program
from coterie.drivers.simulate import Run, simulate
from coterie.privacy.accountants import account
from coterie.privacy.events import Event, NonPrivate
from tests.support import logistic_data, network

SLUGS = sorted(all_algorithms())


def together(slugs: Iterable[str]) -> list[Any]:
    """All tests of an algorithm on one worker: they share its recorded run (`--dist loadgroup`)."""
    return [pytest.param(slug, marks=pytest.mark.xdist_group(slug)) for slug in slugs]


each = pytest.mark.parametrize("slug", together(SLUGS))
SIZES = [6, 9, 12, 7, 10]
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


def layout_for(slug: str, dtype: type = np.float64, garbage: float = 0.0) -> Layout:
    """Five unlike agents; `garbage` is written over the padding of their shards."""
    kind = (find(slug).graphs or ("ring",))[0]
    layout = network(5, SIZES, DIM, graph=kind, rounds=ROUNDS, data=logistic_data(sum(SIZES), DIM, 3))
    if garbage:
        with jax.enable_x64(True):
            for k, group in enumerate(layout.arrays.groups):
                shards = group.shards
                pad = jnp.arange(shards.features.shape[1]) >= shards.count[:, None]
                dirty = jnp.where(pad[..., None], garbage, shards.features)
                arrays = eqx.tree_at(lambda a, k=k: a.groups[k].shards.features, layout.arrays, dirty)
                layout = Layout(arrays, layout.problem, layout.order)
    if dtype is np.float32:
        small = lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x  # noqa: E731
        layout = Layout(jax.tree.map(small, layout.arrays), layout.problem, layout.order)
    return layout


def config_for(slug: str):
    """The example configuration, its automatic fields left as the module gives them."""
    return find(slug).example


@cache
def recorded(slug: str) -> SimpleNamespace:
    """Two seeds in one batch, calibrated to a budget, everything recorded."""
    algorithm, cfg, layout = find(slug), config_for(slug), layout_for(slug)
    noise = np.zeros(len(SIZES))
    if algorithm.private:
        noise = layout.restore(calibrate_agents(algorithm, cfg, layout.arrays.place, EPSILON, DELTA))
    trace = simulate(algorithm, layout, [Run(s, cfg, noise) for s in (0, 1)], rounds=ROUNDS, record=True)
    return SimpleNamespace(algorithm=algorithm, cfg=cfg, layout=layout, noise=noise, trace=trace)


@each
def test_protocol(slug: str) -> None:
    algorithm = find(slug)
    for name, expected in SIGNATURES.items():
        assert list(inspect.signature(getattr(algorithm, name)).parameters) == expected, name
        assert getattr(algorithm, name).__doc__, f"{name} has no docstring"
    assert isinstance(algorithm.example, algorithm.config)
    assert len(algorithm.summary) > 20
    assert algorithm.reference
    with pytest.raises(ValidationError):
        algorithm.config(no_such_setting=1)
    for name, field in algorithm.config.model_fields.items():
        assert field.description, f"setting {name} has no description"
    leaves, structure = jax.tree.flatten(algorithm.example)
    assert jax.tree.unflatten(structure, leaves) == algorithm.example
    place = rows(layout_for(slug).arrays.place, 0)
    assert all(isinstance(law, Law) for law in algorithm.draws(algorithm.example, place).values())


@each
def test_what_is_asked_of_records_is_what_the_contract_says(slug: str) -> None:
    algorithm = find(slug)
    layout = layout_for(slug)
    with jax.enable_x64(True):
        place, shard = rows(layout.arrays.place, 0), rows(layout.arrays.groups[0].shards, 0)
        assert undeclared(algorithm, config_for(slug), place, shard) == []
        careless = replace(algorithm, needs=lambda cfg: Needs())
        asks = algorithm.needs(config_for(slug))
        found = undeclared(careless, config_for(slug), place, shard)
        assert bool(found) == (asks.reads_often or asks.bounded)


@each
def test_run_is_finite_and_double(slug: str) -> None:
    trace = recorded(slug).trace
    for leaf in jax.tree.leaves((trace.points, trace.messages, trace.curves)):
        assert np.isfinite(leaf).all()
        assert leaf.dtype != np.float32
    assert trace.completed == ROUNDS
    assert trace.points.shape == (2, len(SIZES), DIM)


@each
def test_same_draws_same_messages_whatever_the_batch_and_the_padding(slug: str) -> None:
    """Replay seed 1 alone, with rubbish in the padding: a leak of padding, batch or hidden randomness would show."""
    r = recorded(slug)
    draws = {k: v[1] for k, v in r.trace.draws.items()}
    again = simulate(
        r.algorithm,
        layout_for(slug, garbage=77.0),
        [Run(1, r.cfg, r.noise)],
        rounds=ROUNDS,
        record=True,
        replay=draws or None,
    )
    for a, b in zip(jax.tree.leaves(r.trace.messages), jax.tree.leaves(again.messages), strict=True):
        np.testing.assert_allclose(a[1], b[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(r.trace.points[1], again.points[0], rtol=1e-6, atol=1e-8)


@each
def test_single_precision_stays_single(slug: str) -> None:
    algorithm, cfg, layout = find(slug), config_for(slug), layout_for(slug, np.float32)
    program = Program(algorithm, layout, ROUNDS, 1, True, None)
    cfg = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), cfg)

    def whole(key: jax.Array) -> object:
        carry = program.begin(cfg, layout.arrays)
        return program.advance(carry, cfg, layout.arrays, key, None, jnp.int32(0), jnp.int32(ROUNDS + 1))

    out = jax.eval_shape(whole, jax.random.key(0))
    assert all(leaf.dtype != jnp.float64 for leaf in jax.tree.leaves(out))


@each
def test_cost(slug: str) -> None:
    """An algorithm without noise says so; one with noise spends its budget and not more, and more noise costs less."""
    algorithm, cfg, layout = find(slug), config_for(slug), layout_for(slug)
    place = rows(layout.arrays.place, 0)
    if not algorithm.private:
        assert all(isinstance(e, NonPrivate) for e in run_events(algorithm, cfg, place))
        return
    r = recorded(slug)
    spent = []
    for scale in (1.0, 2.0):
        with jax.enable_x64(True):
            noise = jnp.asarray(scale * r.layout.arrange(r.noise)[0])
            here = eqx.tree_at(lambda p: p.noise, rows(r.layout.arrays.place, 0), noise)
        events = run_events(algorithm, cfg, here)
        assert all(isinstance(e, Event) and not isinstance(e, NonPrivate) for e in events)
        spent.append(account(events, DELTA, fast=True).epsilon)
    assert spent[0] <= EPSILON * (1 + 1e-9)
    assert spent[0] >= EPSILON * 0.99
    assert spent[1] < spent[0]


@each
def test_other_agents_first_messages_ignore_my_data(slug: str) -> None:
    """In the first round nobody has heard of anybody: agent 0's records cannot move another agent's message."""
    r = recorded(slug)
    layout = layout_for(slug)
    draws = {k: v[0] for k, v in r.trace.draws.items()}
    with jax.enable_x64(True):
        at = int(np.flatnonzero(layout.order == 0)[0])
        arrays = layout.arrays
        for k, g in enumerate(arrays.groups):
            if g.low <= at < g.high:
                flipped = g.shards.features.at[at - g.low].multiply(-1.0)
                arrays = eqx.tree_at(lambda a, k=k: a.groups[k].shards.features, arrays, flipped)
        place = arrays.place
        place = eqx.tree_at(lambda p: p.noise, place, jnp.asarray(layout.arrange(r.noise)))
        arrays = eqx.tree_at(lambda a: a.place, arrays, place)
        program = Program(r.algorithm, layout, ROUNDS, 1, False, None)
        state = program.begin(r.cfg, arrays).state
        draw = {k: jnp.asarray(layout.arrange(v[0])) for k, v in draws.items()}
        _, message, _ = jax.jit(lambda s, d: program.emit(r.cfg, arrays, jnp.int32(0), s, d))(state, draw)
    for a, b in zip(jax.tree.leaves(r.trace.messages), jax.tree.leaves(message), strict=True):
        np.testing.assert_allclose(a[0, 0][1:], layout.restore(np.asarray(b))[1:], rtol=1e-9, atol=1e-12)
