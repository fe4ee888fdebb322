"""What every graph kind, mixing rule, source, partition, schedule, adaptive rule, set and exchange must do."""

from __future__ import annotations

import json
from types import NoneType
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from coterie.algorithms import ALGORITHMS
from coterie.algorithms.base import find
from coterie.data import ALL_PUBLIC, PARTITIONS, SOURCES, Origins, find_source, load, make_clinics, partition
from coterie.data.partition import by_site
from coterie.drivers import agent
from coterie.errors import InputError
from coterie.exchange.choice import Exchange
from coterie.exchange.kinds import KINDS as EXCHANGES
from coterie.exchange.statement import Statement
from coterie.found import Kinds
from coterie.graphs import KINDS, RULES, build_graph, build_mixing, from_outside, make_graph
from coterie.plan import validate
from coterie.privacy import adaptive
from coterie.privacy.schedules import SCHEDULES
from coterie.privacy.schedules import make as make_schedule
from coterie.problems.sets import Constraint, try_set
from coterie.sets import SETS, make_set
from coterie.settings import Settings

MADE = [kind for kind in KINDS.names if not from_outside(kind)]
LOADED = [name for name in SOURCES.names if find_source(name).load is not None]
BOUND = 1 + 1e-9


def tree(table: str, key: str, name: str) -> dict[str, Any]:
    """A plan that chooses a kind, with the settings of its example if it has one."""
    tables = {"graph": KINDS, "exchange": EXCHANGES, "partition": PARTITIONS}
    example = getattr(tables[table].load(name), "EXAMPLE", None) if key == "kind" else None
    return {table: {key: name, **(example.model_dump(exclude_defaults=True) if example else {})}}


CHOSEN = [
    *(("graph", "kind", kind) for kind in MADE),
    *(("graph", "mixing", rule) for rule in RULES.names),
    *(("exchange", "kind", kind) for kind in EXCHANGES.names),
    *(("partition", "kind", kind) for kind in PARTITIONS.names),
]


@pytest.mark.parametrize(("table", "key", "name"), CHOSEN)
def test_a_plan_survives_being_written_out(table: str, key: str, name: str) -> None:
    """Every setting is stated then, so that a default which changes later changes no agreement."""
    plan = validate(tree(table, key, name))
    written = plan.as_json()
    again = validate(written, foreign=True)
    assert again.as_json() == written
    assert getattr(again, table).chosen(key) == getattr(plan, table).chosen(key)
    stated = getattr(plan, table).chosen(key).model_dump(exclude_none=True)
    assert stated.keys() <= written[table].keys()


def nullable(model: type[BaseModel]) -> list[str]:
    """Settings that may be None."""
    return [name for name, field in model.model_fields.items() if NoneType in get_args(field.annotation)]


def filled(name: str) -> dict[str, Any]:
    """What the algorithm's example says, as plain data."""
    return {k: v for k, v in find(name).example.model_dump().items() if v is not None}


@pytest.mark.parametrize("name", [name for name in ALGORITHMS.names if nullable(find(name).config)])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_none_that_is_no_default_survives_being_written_out(name: str, data: st.DataObject) -> None:
    """`ct.sdm(batch=None)` means all records, where nothing said means twenty."""
    model = find(name).config
    none = data.draw(st.sets(st.sampled_from(nullable(model))))
    given_ = {key: value for key, value in filled(name).items() if data.draw(st.booleans())} | dict.fromkeys(none)
    try:
        plan = validate({"algorithm": {"name": name, **given_}})
    except InputError:
        assume(False)
    again = validate(json.loads(json.dumps(plan.as_json())), foreign=True)
    assert again.algorithm.config() == plan.algorithm.config()
    assert again.as_json() == plan.as_json()


def test_some_algorithm_has_a_none_that_is_no_default() -> None:
    """Else the test before this could not fail."""
    every = [find(name).config for name in ALGORITHMS.names]
    assert any(model.model_fields[key].default is not None for model in every for key in nullable(model))


def test_a_plan_that_an_earlier_version_wrote_out_is_read() -> None:
    """It stated the defaults of all kinds, and an agreement outlives a version of the package."""
    stated = {"bits": 16, "rounding": "stochastic", "fraction_bits": 24, "noise": "local"}
    tree = {"graph": {"kind": "ring", "mixing": "metropolis", "seed": 0}, "exchange": {"kind": "broadcast", **stated}}
    plan = validate(tree, foreign=True)
    assert validate(plan.as_json()) == plan
    for name, other in (("bits", 8), ("noise", "central"), ("fraction_bits", 20)):
        with pytest.raises(InputError, match=f"exchange.{name} belongs to exchange.kind"):
            validate({**tree, "exchange": {**tree["exchange"], name: other}}, foreign=True)


@pytest.mark.parametrize(
    ("kinds", "name"), [(kinds, name) for kinds in (KINDS, RULES, EXCHANGES, PARTITIONS) for name in kinds.names]
)
def test_every_setting_is_described_and_checked(kinds: Kinds, name: str) -> None:
    module = kinds.load(name)
    assert (module.__doc__ or "").strip()
    assert issubclass(module.Settings, Settings)
    for key, field in module.Settings.model_fields.items():
        assert field.description, f"{name}: {key}"


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("size", [12])
def test_a_graph_is_connected_of_its_size_and_the_same_again(kind: str, size: int) -> None:
    settings = KINDS.load(kind).EXAMPLE
    graph, again = (build_graph(kind, size, settings) for _ in range(2))
    assert (graph.kind, graph.size) == (kind, size)
    assert graph.connected
    assert graph.edges.tolist() == again.edges.tolist() == sorted(graph.edges.tolist())
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert not graph.edges.flags.writeable


@pytest.mark.parametrize("rule", RULES.names)
def test_a_rule_averages(rule: str) -> None:
    """On a complete graph, which all of them accept: symmetric, rows that sum to 1, and a gap."""
    matrix = build_mixing(make_graph("complete", 6), rule, RULES.load(rule).Settings())
    np.testing.assert_allclose(matrix.dense().sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(matrix.dense(), matrix.dense().T, atol=1e-12)
    assert (matrix.spectrum().gap or 0) > 0


@pytest.mark.parametrize("name", LOADED)
def test_a_source_states_what_it_reads_before_it_reads(name: str) -> None:
    source = find_source(name)
    needed = {k: "y" for k, f in source.options.model_fields.items() if f.is_required()}
    assert source.origins is not None
    assert isinstance(source.origins(**needed), Origins)


@pytest.mark.parametrize("name", [name for name in LOADED if find_source(name).made])
def test_what_is_made_here_lies_in_the_unit_ball(name: str) -> None:
    data, again, other = (load(name, seed=seed) for seed in (1, 1, 2))
    assert np.linalg.norm(data.features, axis=1).max() <= BOUND
    np.testing.assert_array_equal(data.features, again.features)
    assert not np.array_equal(data.features, other.features)
    assert data.origins == ALL_PUBLIC
    assert (data.sites is not None) == find_source(name).sited


@pytest.mark.parametrize("kind", EXCHANGES.names)
def test_an_exchange_carries_numbers_and_says_what_it_promises(kind: str) -> None:
    module = EXCHANGES.load(kind)
    settings = module.Settings()
    with jax.enable_x64(True):
        exchange: Exchange = module.make(settings, 5)
        message = {"x": jnp.linspace(-0.5, 0.5, 7)}
        sent, cut = exchange.send(message, agent.draw(exchange.draws(message), jax.random.key(0), jnp.float64))
    assert int(cut) == 0
    np.testing.assert_allclose(sent["x"], message["x"], atol=1e-3)
    said: Statement = module.statement(settings, 5, None, None)
    assert said.exchange == kind
    assert (said.colluders is not None) == exchange.sums_only
    assert said.text()


@pytest.mark.parametrize("kind", PARTITIONS.names)
def test_a_partition_gives_every_agent_records_of_its_own_and_the_same_again(kind: str) -> None:
    data = make_clinics()
    agents = len(data.site_names) if by_site(kind) else 7
    parts, again = (partition(data, agents, kind, seed=3) for _ in range(2))
    assert len(parts) == agents
    assert all(len(rows) for rows in parts)
    every = np.concatenate(parts)
    assert len(set(every.tolist())) == len(every) <= len(data)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", SCHEDULES.names)
def test_a_schedule_is_positive_and_costs_what_all_cost(name: str) -> None:
    assert (SCHEDULES.load(name).__doc__ or "").strip()
    for rounds in (1, 2, 60):
        given = {"levels": list(range(1, rounds + 1))} if name == "listed" else {}  # the one that has no default
        shape = make_schedule(name, rounds, **given)
        assert shape.shape == (rounds,)
        assert np.all(shape > 0)
        assert np.sum(1 / shape**2) == pytest.approx(rounds)


@pytest.mark.parametrize("name", SETS.names)
@pytest.mark.parametrize("dim", [1, 5])
def test_a_set_is_convex_and_its_projection_is_one(name: str, dim: int) -> None:
    module = SETS.load(name, "make", "EXAMPLE")
    assert (module.__doc__ or "").strip()
    validate({"problem": {"within": name, "within_options": module.EXAMPLE}})
    try_set(make_set(name, dim, module.EXAMPLE), dim)


class Shrunk(Constraint):
    """A ball whose projection stops halfway."""

    def project(self, x: jax.Array) -> jax.Array:
        return x / jnp.maximum(1.0, jnp.linalg.norm(x) / 2) / 2


def test_what_is_no_projection_is_found() -> None:
    with pytest.raises(InputError, match="moves when it is projected again"):
        try_set(Shrunk(), 5)


@pytest.mark.parametrize("name", [name for name in adaptive.RULES.names if name != "own"])
def test_an_adaptive_rule_follows_what_was_released_and_nothing_else(name: str) -> None:
    """Whatever was sent: a positive multiple, the same for the same messages, which it may read only."""
    rule, again = adaptive.make(name, {}), adaptive.make(name, {})
    messages = np.random.default_rng(0).standard_normal((20, 3, 4))
    messages.flags.writeable = False
    noise: list[float] = []
    for t in range(20):
        seen = adaptive.History(messages[:t], tuple(noise), 1 - t / 20)
        assert rule(t, seen) == again(t, seen)
        assert 0 < rule(t, seen) < np.inf
        noise.append(rule(t, seen))
