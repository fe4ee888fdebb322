"""Layout: how agents are grouped, padded and summed must not show in any result."""

from __future__ import annotations

import dataclasses
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms.base import find
from coterie.algorithms.batches import rows
from coterie.drivers import layout as module
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.references import pooled
from coterie.errors import InputError
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from coterie.problems import Custom
from tests.support import logistic_data, network, run

SIZES = [40, 3, 3, 30, 3, 3, 3, 3, 30, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]


def star() -> Layout:
    return network(len(SIZES), SIZES, 4, graph="star", rounds=6)


def swap(layout: Layout, **changes: object) -> Layout:
    return dataclasses.replace(layout, arrays=dataclasses.replace(layout.arrays, **changes))


@cache
def plain(slug: str) -> np.ndarray:
    """Points of a run in which all agents are one group."""
    layout = star()
    assert len(layout.arrays.groups) == 1
    return run(slug, find(slug).example, layout, record=False).points


@pytest.mark.parametrize("slug", [pytest.param("admm", marks=pytest.mark.slow), "dgd"])
def test_groups_do_not_show(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A star with unlike shards, cut into groups by degree and by size: the same points, agent by agent."""
    want, optimum = plain(slug), pooled(star())
    monkeypatch.setattr(module, "SMALL", 0)
    layout = star()
    groups = layout.arrays.groups
    assert len(groups) > 2
    assert sorted(layout.order.tolist()) == list(range(len(SIZES)))
    assert layout.order.tolist() != list(range(len(SIZES)))
    padded = sum(g.shards.targets.size for g in groups)
    assert padded < 0.5 * len(SIZES) * max(SIZES)
    assert [g.low for g in groups[1:]] == [g.high for g in groups[:-1]]
    np.testing.assert_allclose(run(slug, find(slug).example, layout, record=False).points, want, atol=1e-9)
    np.testing.assert_allclose(pooled(layout), optimum, atol=1e-8)


def test_degrees_make_no_groups_where_sums_are_one_product() -> None:
    """Each group is compiled on its own; in a dense graph none goes through its neighbours."""
    graph = make_graph("star", 6)
    features, labels = np.zeros((6, 1 << 16)), np.ones(6)
    what = Logistic(1 << 16), features, labels, [np.array([k]) for k in range(6)], graph, mixing(graph)
    terrain = module.Terrain(*what, rounds=1)
    assert terrain.dense
    assert len(np.unique(terrain.key)) == 1
    assert len(np.unique(module._classes(np.asarray(graph.degrees), 1 << 16))) == 2


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub reads its 20 leaves a few at a time."""
    want = plain("dgd")
    monkeypatch.setattr(module, "CORE_SLOT_BUDGET", 3 * 4 * len(SIZES))
    layout = star()
    (group,) = layout.arrays.groups
    assert group.chunk == 3
    np.testing.assert_allclose(run("dgd", find("dgd").example, layout).points, want, atol=1e-10)


@pytest.mark.slow
def test_turns_do_not_show() -> None:
    """Agents that solve their subproblems one after the other answer as when all solve at once."""
    layout, cfg = network(5, 8, 3, rounds=4), find("admm").example
    (group,) = layout.arrays.groups
    turns = swap(layout, groups=[dataclasses.replace(group, one_by_one=True)])
    assert not group.one_by_one
    assert [find(slug).solves for slug in ("admm", "dgd")] == [True, False]
    together, apart = (run("admm", cfg, where).points for where in (layout, turns))
    np.testing.assert_allclose(apart, together, atol=1e-9)


def test_arrays_go_to_the_device_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU they are there; an accelerator gets them, as they are, once."""
    layout, cfg = network(5, 8, 3, rounds=4), find("dgd").example
    assert layout.placed is layout.arrays
    want = run("dgd", cfg, layout).points
    monkeypatch.setattr(jax, "default_backend", lambda: "elsewhere")
    other = dataclasses.replace(layout)
    assert other.placed is not other.arrays
    assert other.placed is other.placed
    assert eqx.tree_equal(other.placed, layout.arrays)
    assert other.placed.place.start.committed
    np.testing.assert_array_equal(run("dgd", cfg, other).points, want)


def test_one_matrix_product_equals_the_walk_over_edges() -> None:
    dense, cfg = network(9, 8, 3, graph="erdos-renyi", p=0.5, rounds=5), find("dgd").example
    other = network(9, 8, 3, graph="complete", rounds=5).arrays.adjacency
    assert dense.arrays.adjacency is not None
    a, b, wrong = (run("dgd", cfg, swap(dense, adjacency=m)).points for m in (dense.arrays.adjacency, None, other))
    np.testing.assert_allclose(a, b, atol=1e-11)
    assert not np.allclose(a, wrong, atol=1e-3)


def test_arrange_and_restore_undo_each_other() -> None:
    order = np.random.default_rng(0).permutation(7)
    layout = dataclasses.replace(network(7, 5, rounds=1), order=order)
    x = np.arange(21).reshape(3, 7)
    np.testing.assert_array_equal(layout.arrange(x, axis=1), x[:, order])
    np.testing.assert_array_equal(layout.restore(layout.arrange(x, axis=1), axis=1), x)
    assert layout.restore(np.asarray(order)).tolist() == list(range(7))


def test_places_hold_the_public_facts_in_the_plans_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 0)
    layout = star()
    place = layout.arrays.place
    assert layout.restore(np.asarray(place.count)).tolist() == SIZES
    assert layout.restore(np.asarray(place.degree)).tolist() == [20] + [1] * 20
    np.testing.assert_allclose(layout.restore(np.asarray(place.unit)), 1 / np.array(SIZES))
    assert np.asarray(layout.arrays.agent_ids).tolist() == layout.order.tolist()
    weighted = network(3, [1, 2, 5], 2, weighting="records", rounds=1).arrays.place
    np.testing.assert_allclose(weighted.unit, 3 / 8)
    one = rows(place, 4)
    assert one.count.shape == ()
    assert one.start.shape == (4,)


def test_a_loss_with_a_kink_at_nothing_is_not_touched_by_padding() -> None:
    """‖params − features‖ has no gradient where they meet; zero padding would meet the zero start, 0 · NaN = NaN."""
    geometric = Custom.make(lambda p, f, y: jnp.linalg.norm(p - f), np.zeros(3), smoothness=10.0)
    data = logistic_data(12, 3)
    layout = network(3, [2, 3, 7], 3, problem=geometric, data=data, rounds=2)
    trace = run("dgd", find("dgd").example, layout, record=False)
    assert np.isfinite(trace.points).all()
    assert np.isfinite(trace.curves["train_loss"]).all()


def test_no_copy_of_another_agents_records_pads_a_shard() -> None:
    x, y = logistic_data(10, 3)
    layout = network(2, [3, 7], 3, data=(x, y), rounds=1)
    first = np.asarray(layout.arrays.groups[0].shards.features[0])
    assert all(any(np.array_equal(row, own) for own in x[:3]) for row in first)


@pytest.mark.parametrize(
    ("parts", "size", "words"),
    [([2, 0], 2, "party 1 has no records"), ([1, 1, 1], 2, "2 nodes but the data is split over 3")],
)
def test_what_does_not_fit_is_refused(parts: list[int], size: int, words: str) -> None:
    graph = make_graph("path", size)
    with jax.enable_x64(True), pytest.raises(InputError, match=words):
        make_layout(
            Logistic(2), np.zeros((4, 2)), np.ones(4), np.split(np.arange(sum(parts)), np.cumsum(parts)[:-1]),
            graph, mixing(graph), rounds=1,
        )  # fmt: skip


def test_a_starting_point_of_another_size_is_refused() -> None:
    graph = make_graph("path", 2)
    with jax.enable_x64(True), pytest.raises(InputError, match="starting point"):
        make_layout(
            Logistic(2), np.zeros((2, 2)), np.ones(2), [np.array([0]), np.array([1])], graph, mixing(graph), rounds=1,
            start=np.zeros(3),
        )  # fmt: skip


def test_memory_grows_with_edges_and_data_not_with_agents_squared() -> None:
    n = 20_000
    layout = network(n, [2] * (n - 1) + [60], 2, graph="star", rounds=1)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(layout.arrays, eqx.is_array)))
    assert numbers < 60 * n
    assert len(layout.arrays.groups) == 2 or len(layout.arrays.groups) == 3


def test_arrays_are_sent_to_an_accelerator_at_their_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent while JAX is in float32, float64 arrives there as halves under its old name, and no program takes it."""
    widths, send = [], jax.device_put
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_put", lambda *what: widths.append(jax.config.jax_enable_x64) or send(*what))
    layout = star()
    widths.clear()
    with jax.enable_x64(False):
        assert layout.placed.place.start.dtype == np.float64
    assert widths == [True]
