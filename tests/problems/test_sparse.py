"""Sums over records that are mostly zero: what an array's would be, however points and agents are batched."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import dp_dsgd, pr_admm
from coterie.algorithms.base import find
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.squared import Squared
from coterie.problems import HeldShard, Problem, SolverSettings
from coterie.problems.sparse import CHUNK, FEW, Sparse, gradients, sparse
from tests.support import mostly_slow

AGENTS, ROWS, WIDTH, RUNS = 3, 1400, 48, 6
LOSSES: dict[str, Problem] = {
    "logistic": Logistic(WIDTH), "hinge": Hinge(WIDTH, width=0.3), "squared": Squared(WIDTH),
}  # fmt: skip


def categories(agents: int = AGENTS, rows: int = ROWS) -> np.ndarray:
    """Records like coded tables: a number, some attributes with one 1 each, one of them rare; rows of norm 1 or 0."""
    rng = np.random.default_rng(3)
    features = np.zeros((agents, rows, WIDTH))
    features[..., 0] = rng.uniform(0, 1, (agents, rows))
    at = np.indices((agents, rows))
    for low, size in ((1, 5), (6, 2), (8, 39)):
        features[at[0], at[1], low + rng.geometric(0.4, (agents, rows)) % size] = 1
    features[..., WIDTH - 1] = 0  # a column that nobody has
    features[0, 5] = 0  # a record without a number
    return features / np.maximum(np.linalg.norm(features, axis=-1, keepdims=True), 1e-9)


@cache
def records() -> tuple[jax.Array, Sparse, jax.Array, jax.Array]:
    """Array and lists of the same records, labels, and weights that leave some out."""
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        dense = jnp.asarray(categories())
        listed = sparse(dense)
        assert isinstance(listed, Sparse)
        labels = jnp.asarray(rng.choice([-1.0, 1.0], (AGENTS, ROWS)))
        return dense, listed, labels, jnp.asarray(rng.integers(0, 3, (AGENTS, ROWS)) / 2)


def points(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(5).standard_normal((*shape, WIDTH)))


Ask = Callable[..., jax.Array]
ASKED: dict[str, Callable[[Problem], Ask]] = {
    "gradient": lambda p: lambda f, x, y, w, c: p.weighted_gradient(x, f, y, w),
    "clipped": lambda p: lambda f, x, y, w, c: p.weighted_gradient(x, f, y, w, c),
    "clipped one by one": lambda p: lambda f, x, y, w, c: p.weighted_gradient(x, f, y, w, c * (1 + y) / 2 + 0.1),
    "value": lambda p: lambda f, x, y, w, c: p.weighted_value(x, f, y, w),
}


# each question and each loss every day
DAILY = [("gradient", "logistic"), ("clipped", "hinge"), ("clipped one by one", "squared"), ("value", "logistic")]


@pytest.mark.parametrize(("asked", "loss"), mostly_slow(itertools.product(ASKED, LOSSES), *DAILY))
def test_sums_are_those_of_the_array_however_they_are_batched(asked: str, loss: str) -> None:
    """Runs around agents around judges, agents around runs, one after the other, alone, and weights for each run."""
    ask = ASKED[asked](LOSSES[loss])
    with jax.enable_x64(True):
        dense, listed, labels, weights = records()
        clips = jnp.linspace(0.2, 0.6, RUNS)
        at = lambda f, i: jax.tree.map(lambda x: x[i], f)  # noqa: E731
        each = jax.vmap(ask, (0, 0, 0, 0, None))
        runs_of_agents = jax.vmap(each, (None, 0, None, None, 0))
        judges = jax.vmap(jax.vmap(ask, (None, 0, None, None, None)), (0, None, 0, 0, None))
        in_turn = lambda f, x, c: jax.lax.map(  # noqa: E731
            lambda i: ask(at(f, i), x[i], labels[i], weights[i], c), jnp.arange(AGENTS)
        )
        own = jnp.asarray(np.random.default_rng(6).uniform(0, 1, (RUNS, ROWS)))
        ways: dict[str, Callable[[jax.Array | Sparse], jax.Array]] = {
            "alone": lambda f: ask(at(f, 0), points(), labels[0], weights[0], clips[0]),
            "agents": lambda f: each(f, points(AGENTS), labels, weights, clips[0]),
            "runs of agents": lambda f: runs_of_agents(f, points(RUNS, AGENTS), labels, weights, clips),
            "agents' runs": lambda f: jax.vmap(jax.vmap(ask, (None, 0, None, None, 0)), (0, 0, 0, 0, None))(
                f, points(AGENTS, RUNS), labels, weights, clips
            ),
            "runs of agents in turn": lambda f: jax.vmap(in_turn, (None, 0, 0))(f, points(RUNS, AGENTS), clips),
            "runs of agents of judges": lambda f: jax.vmap(judges, (None, 0, None, None, 0))(
                f, points(RUNS, 2), labels, weights, clips
            ),
            "weights for each": lambda f: jax.vmap(ask, (None, 0, None, 0, 0))(
                at(f, 1), points(RUNS), labels[1], own, clips
            ),
        }
        for name, way in ways.items():
            want = eqx.filter_jit(way)(dense)
            np.testing.assert_allclose(eqx.filter_jit(way)(listed), want, rtol=1e-10, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_are_those_of_the_array(loss: str) -> None:
    problem = LOSSES[loss]
    with jax.enable_x64(True):
        dense, listed, labels, weights = records()
        of = lambda f: jax.tree.map(lambda x: x[0], f)  # noqa: E731
        value = lambda f: lambda x: problem.weighted_value(x, of(f), labels[0], weights[0])  # noqa: E731
        steep = lambda f: lambda x: problem.weighted_gradient(x, of(f), labels[0], weights[0], 0.3)  # noqa: E731
        for derive in (
            lambda f: jax.vmap(jax.grad(value(f)))(points(RUNS)),
            lambda f: jax.jacfwd(steep(f))(points()),
            lambda f: jax.jacrev(steep(f))(points()),
        ):
            got, want = eqx.filter_jit(derive)(listed), eqx.filter_jit(derive)(dense)
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_a_loss_sees_one_axis_of_records() -> None:
    """It may be written for one record, and made one of many by `vmap`."""
    slope = jax.vmap(jax.grad(lambda score, y: jnp.logaddexp(0.0, -y * score)))
    with jax.enable_x64(True):
        dense, listed, labels, weights = records()
        first = jax.tree.map(lambda x: x[0], listed)
        of_lists = lambda x: gradients(lambda s, y, *_: slope(s, y), x, first, labels[0], weights[0], None)  # noqa: E731
        of_array = lambda x: LOSSES["logistic"].weighted_gradient(x, dense[0], labels[0], weights[0])  # noqa: E731
        np.testing.assert_allclose(
            jax.vmap(of_lists)(points(RUNS)), jax.vmap(of_array)(points(RUNS)), rtol=1e-9, atol=1e-9
        )


def test_records_of_zeros_alone_stay_an_array() -> None:
    assert not isinstance(sparse(jnp.zeros((2, ROWS, WIDTH))), Sparse)


def test_lists_say_what_the_array_does() -> None:
    dense, listed, *_ = records()
    built = np.zeros(dense.shape)
    for i in range(AGENTS):
        np.add.at(built[i], (np.arange(ROWS)[:, None], np.asarray(listed.column[i])), np.asarray(listed.value[i]))
    np.testing.assert_array_equal(built, dense)
    assert listed.row.shape[-1] == listed.chunk.shape[-1] == CHUNK
    assert listed.value.shape[-1] == 4  # as many as the longest record has
    assert (np.asarray(listed.whole).sum(axis=1) <= 1).all()  # a chunk of chunks is of one column, or of none


def test_few_points_and_other_records_are_left_to_the_array() -> None:
    """A full array, a small one and a loss with a gradient of its own have no lists; fewer points than FEW no loop."""

    class Own(Logistic):
        def losses(self, x: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
            return self.at(x, features, targets).value

    with jax.enable_x64(True):
        dense, listed, labels, weights = records()
        for given in (dense[:, :100], jnp.ones_like(dense)):
            assert sparse(given) is given
        assert isinstance(Logistic(WIDTH).listed(dense), Sparse)
        assert Own(WIDTH).listed(dense) is dense
        one = jax.tree.map(lambda x: x[0], listed)

        def program(runs: int) -> str:
            ask = lambda x: Logistic(WIDTH).weighted_gradient(x, one, labels[0], weights[0])  # noqa: E731
            return str(jax.make_jaxpr(jax.vmap(ask))(points(runs)))

        assert "scan" not in program(FEW - 1)
        assert "scan" in program(FEW)


@cache
def layouts() -> tuple[Layout, Layout]:
    """The same agents with lists and without."""
    features = categories().reshape(-1, WIDTH)
    targets = np.where(np.random.default_rng(0).uniform(size=len(features)) < 0.3 + 0.5 * features[:, 1], 1.0, -1.0)
    counts = [ROWS, ROWS - 150, ROWS - 1]  # two are padded
    parts = [i * ROWS + np.arange(count) for i, count in enumerate(counts)]
    graph = make_graph("ring", AGENTS)
    with jax.enable_x64(True):
        made = make_layout(
            Logistic(WIDTH), features, targets, parts, graph, mixing(graph, "metropolis"), rounds=4, ridge=1e-3
        )
        (group,) = made.arrays.groups
        assert isinstance(group.shards, HeldShard)
        assert isinstance(group.shards.features, Sparse)
        plain = eqx.tree_at(lambda a: a.groups[0].shards.features, made.arrays, group.shards.features.dense)
    return made, Layout(plain, made.problem, made.order)


@pytest.mark.parametrize("slug", mostly_slow(["pp-admm", "dp-dsgd", "pr-admm", "ipp-admm"], "dp-dsgd", "pr-admm"))
def test_runs_are_what_they_are_without_lists(slug: str) -> None:
    """A solver, clipped gradients, gradient steps and a test of losses, on padded agents; points and curves."""
    cfg = {
        "dp-dsgd": dp_dsgd.Config(step=2.0, momentum=0.5, clip=0.5, mixing=2), "pr-admm": pr_admm.EXAMPLE,
    }.get(slug, find(slug).example)  # fmt: skip
    runs = [Run(seed, cfg, 0.5) for seed in range(FEW + 1)]
    listed, plain = (simulate(find(slug), layout, runs, rounds=4) for layout in layouts())
    np.testing.assert_allclose(listed.points, plain.points, atol=1e-7)
    for name, curve in plain.curves.items():
        np.testing.assert_allclose(listed.curves[name], curve, atol=1e-7, err_msg=name)
    assert np.abs(plain.points[0] - plain.points[1]).max() > 1e-3


def test_a_solver_reaches_its_tolerance_with_lists() -> None:
    dense, listed, labels, _ = records()
    with jax.enable_x64(True):
        own = lambda f: jax.tree.map(lambda x: x[0], f)  # noqa: E731
        shards = [
            HeldShard(Logistic(WIDTH), own(f), labels[0], jnp.array(ROWS), jnp.array(1 / ROWS), jnp.array(1e-3), how)
            for f, how in ((listed, SolverSettings()), (dense, SolverSettings()))
        ]
        tilts = 0.1 * points(RUNS)
        solve = lambda b: shards[0].argmin(b, 0.05, shards[0].solver(jnp.zeros(WIDTH)), 1e-10)[1]  # noqa: E731
        solved = jax.jit(jax.vmap(solve))(tilts)
        left = jax.jit(jax.vmap(lambda x, b: jnp.linalg.norm(shards[1].slope(x) + b + 0.05 * x)))(solved.x, tilts)
    assert np.asarray(left).max() <= 1.01e-10
    np.testing.assert_allclose(solved.residual, left, atol=1e-13)
