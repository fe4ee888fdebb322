"""People as the unit: a person moves a sum by twice the clip at most, however many records it has."""

from __future__ import annotations

import pickle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.audit.losses import LOSSES as AUDITED
from coterie.losses.base import all_losses
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.squared import Squared
from coterie.problems import Custom, HeldShard, People, Problem, Solver, of_people
from coterie.problems import people as module
from coterie.problems.people import lay_out, numbered_people
from tests.support import mostly_slow

EXAMPLES = {n: loss.example for n, loss in all_losses().items() if not loss.example.released}
EXAMPLES |= {f"own, {n}": p for n, p in AUDITED.items() if isinstance(p, Custom)}
WILD = next(n for n, p in EXAMPLES.items() if isinstance(p, Custom) and not p.bounded)
CLIP = 0.3
CLIPS = (None, CLIP)
PIECES = [(n, at_once) for n in EXAMPLES for at_once in (1 << 20, 40)]  # whole, and in pieces


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(True):
        yield


def records(problem: Problem, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, problem.columns if not isinstance(problem, Custom) else 2)) * 3
    return problem.admit(features, rng.choice(np.asarray(problem.labels.samples), count))


def shard(
    problem: Problem, features: np.ndarray, targets: np.ndarray, owner: np.ndarray | None, *, spare: int = 0,
    most: int | None = None, rows: int | None = None, people: int | None = None,
) -> HeldShard:  # fmt: skip
    """Records of one agent; `owner` says whose they are (None: the unit is a record)."""
    count = len(features) if owner is None else len(np.unique(owner))
    facts = jnp.asarray(count), jnp.asarray(1 / count), jnp.asarray(0.1)
    if owner is None:
        return HeldShard(problem, jnp.asarray(features), jnp.asarray(targets), *facts)
    most = most or int(np.unique(owner, return_counts=True)[1].max())
    (take,), laid = lay_out([owner], (rows or len(features)) + spare, (people or count) + spare, most)
    whose = People(**{n: jnp.asarray(x[0]) for n, x in laid.items()}, most=most)
    made = jnp.asarray(features[take]), jnp.asarray(targets[take])
    return HeldShard(of_people(problem), *made, *facts, people=whose)


@eqx.filter_jit
def total(held: HeldShard, x: Any, clip: float | None = CLIP) -> Any:
    return held.gradient(x, clip)


def means(problem: Problem, x: Any, features: np.ndarray, targets: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The mean gradient of every person, one record at a time and by no code of the shard."""
    slope = jax.jit(jax.grad(lambda v, f, y: problem.losses(v, f[None], y[None])[0]))
    each = np.nan_to_num(np.array([slope(x, f, y) for f, y in zip(features, targets, strict=True)]), nan=0.0)
    if problem.bounded and np.isfinite(problem.lipschitz):
        length = np.linalg.norm(each, axis=1, keepdims=True)
        each = each * np.minimum(1, problem.lipschitz / np.maximum(length, 1e-300))
    number = numbered_people(owner)
    return np.array([each[number == q].mean(0) for q in range(number.max() + 1)])


def clipped(vectors: np.ndarray, clip: float | None) -> np.ndarray:
    if clip is None:
        return vectors
    return vectors * np.minimum(1, clip / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300))


@pytest.mark.parametrize(("name", "at_once"), mostly_slow(PIECES, ("logistic", 40), ("mlp", 1 << 20)))
def test_the_mean_gradient_of_every_person_is_clipped(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    problem, rng = EXAMPLES[name], np.random.default_rng(1)
    owner = np.concatenate([rng.integers(0, 9, 40), np.full(25, 4), [17, 18, 19]])
    features, targets = records(problem, len(owner))
    x = jnp.asarray(rng.normal(size=problem.dim))
    held, every = shard(problem, features, targets, owner, spare=3), means(problem, x, features, targets, owner)
    few, there = jnp.array([3, 0, 7, 1]), jnp.array([True, False, True, True])
    many = jnp.asarray(rng.permutation(len(every)))  # so many that all rows are read

    @eqx.filter_jit
    def ask(held: HeldShard) -> dict[str, Any]:
        found = [(held.gradient(x, c), held.gradient(x, c, few, there), held.gradient(x, c, many)) for c in CLIPS]
        return {"sums": found, "losses": held.losses(x), "value": held.value(x)}

    told = ask(held)
    for clip, sums in zip(CLIPS, told["sums"], strict=True):
        parts = clipped(every, clip)
        expected = parts.sum(0), parts[[3, 7, 1]].sum(0), parts.sum(0)
        for found, whole in zip(sums, expected, strict=True):
            assert np.allclose(found, whole, rtol=1e-9, atol=1e-10)
    losses = np.asarray(problem.losses(jnp.asarray(x), jnp.asarray(features), jnp.asarray(targets)))
    number = numbered_people(owner)
    own = np.array([losses[number == q].mean() for q in range(len(every))])
    assert np.allclose(told["losses"], np.concatenate([own, np.zeros(3)]))
    assert float(told["value"]) == pytest.approx(own.mean() + 0.05 * x @ x)


@pytest.mark.parametrize("name", mostly_slow(EXAMPLES, "logistic", "mlp"))
def test_a_person_with_one_record_is_that_record_to_the_last_bit(name: str) -> None:
    problem = EXAMPLES[name]
    features, targets = records(problem, 50)
    x = jnp.asarray(np.random.default_rng(2).normal(size=problem.dim))
    bare = shard(problem, features, targets, None)
    ids = np.random.default_rng(0).permutation(50)
    people = shard(problem, features, targets, np.array([f"patient {k}" for k in ids]))

    @eqx.filter_jit
    def ask(held: HeldShard) -> list[Any]:
        sums = [held.gradient(x, clip, rows) for clip in CLIPS for rows in (None, jnp.arange(7) * 3)]
        return [*sums, held.losses(x), held.hessian(x)]

    alone = ask(bare)
    assert all(np.array_equal(a, b) for a, b in zip(alone, ask(people), strict=True))
    twice = shard(problem, features, targets, np.minimum(ids, 48))  # broken twin: two records of one person
    assert not np.array_equal(alone[0], total(twice, x, None))


class Worlds:
    """How far replacing a person moves the clipped sum, as a function of its records in both worlds."""

    def __init__(self, problem: Problem, clip: float | None):
        self.problem = problem
        asked = eqx.filter_jit(lambda held, x: held.gradient(x, clip))
        self.ask = lambda held, x: np.asarray(asked(held, jnp.asarray(x)))

    def apart(self, counts: tuple[int, int], seed: int) -> float:
        rng = np.random.default_rng(seed)
        rest, labels = records(self.problem, 5, seed)
        x = rng.normal(size=self.problem.dim) * 10 ** rng.uniform(-2, 2)
        sums: list[np.ndarray] = []
        for count in counts:
            own, ys = records(self.problem, count, int(rng.integers(1 << 30)))
            if seed % 2:  # all of its records alike: the largest mean
                own, ys = np.repeat(own[:1], count, axis=0), np.repeat(ys[:1], count)
            if seed % 4 == 1 and not self.problem.start(0).any():  # opposite records with one label, at zero
                x, sign = 0 * x, 1 - 2 * len(sums)
                label = np.full_like(ys, self.problem.labels.samples[-1])
                own, ys = self.problem.admit(np.full_like(own, sign / own.shape[1] ** 0.5), label)
            owner = np.concatenate([np.arange(5), np.full(count, 99)])
            held = shard(
                self.problem,
                np.concatenate([rest, own]),
                np.concatenate([labels, ys]),
                owner,
                rows=45,
                people=6,
                most=40,
            )
            sums.append(self.ask(held, x))
        return float(np.linalg.norm(sums[0] - sums[1]))


@pytest.mark.parametrize("name", mostly_slow(["logistic", "softmax", "squared", "mlp", WILD], "softmax"))
def test_no_person_moves_a_clipped_sum_by_more_than_twice_the_clip(name: str) -> None:
    worlds = Worlds(EXAMPLES[name], CLIP)
    for counts in ((1, 1), (40, 1), (40, 40), (2, 7)):
        found = max(worlds.apart(counts, seed) for seed in range(25))
        assert found <= 2 * CLIP * (1 + 1e-9)
        assert found >= 0.9 * 2 * CLIP  # the search does find what is allowed


def test_a_build_that_clips_records_and_adds_them_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: Problem, x: Any, of: Any, clip: Any) -> Any:
        return problem.weighted_gradient(x, of.features, of.targets, of.weights[of.owner] * (of.share > 0), clip)

    monkeypatch.setattr("coterie.problems.shards.clipped_sum", broken)
    worlds = Worlds(EXAMPLES["logistic"], CLIP)
    assert max(worlds.apart((40, 1), seed) for seed in range(9)) > 20 * CLIP


@pytest.mark.parametrize("longest", [module.LONGEST, np.inf])
def test_a_person_whose_records_cancel_rounds_nobody_away(longest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of any length whose mean is zero; without the cut (the second case) they drown everybody else's."""
    monkeypatch.setattr(module, "LONGEST", longest)
    problem, rng = Squared(3), np.random.default_rng(0)
    features, labels = problem.admit(rng.normal(size=(400, 3)), rng.uniform(-1, 1, 400))
    owner, x, moved = np.repeat(np.arange(200), 2), jnp.array([0.1, 0.3, -0.2]), 0.0
    ask = eqx.filter_jit(lambda held: held.gradient(x, CLIP))
    before = ask(shard(problem, features, labels, owner))
    for length in (1e3, 1e15, 1e20, 1e100):
        for person in (0, 100, 199):
            rows, ys = features.copy(), labels.copy()
            rows[2 * person : 2 * person + 2], ys[2 * person : 2 * person + 2] = features[0], (length, -length)
            moved = max(moved, float(jnp.linalg.norm(ask(shard(problem, rows, ys, owner)) - before)))
    assert (moved <= 2 * CLIP * (1 + 1e-9)) == (longest < np.inf)


@pytest.mark.parametrize("name", mostly_slow(["logistic", "softmax", "mean", "hinge"], "hinge"))
def test_replacing_a_person_moves_an_unclipped_sum_by_no_more_than_a_record(name: str) -> None:
    problem = EXAMPLES[name]
    worlds = Worlds(problem, None)
    for counts in ((40, 1), (40, 40), (3, 2)):
        found = max(worlds.apart(counts, seed) for seed in range(20))
        assert found <= 2 * of_people(problem).half_gap * (1 + 1e-9)


def test_a_record_that_is_no_number_counts_as_nothing() -> None:
    def wild(p: Any, f: Any, y: Any) -> Any:
        return jnp.sqrt(p @ f)  # no number where the score is negative

    problem = Custom.make(wild, jnp.ones(2))
    features = np.array([[1.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]])
    held = shard(problem, features, np.zeros(3), np.array([0, 0, 1]))
    assert np.allclose(total(held, jnp.ones(2), 10.0), [0.25, 0.0])  # half of ½, and a person of nothing


def test_argmin_is_that_of_the_mean_loss_of_every_person() -> None:
    problem, rng = Logistic(3), np.random.default_rng(3)
    owner = np.concatenate([np.arange(20), np.full(30, 7)])
    features, targets = records(problem, 50)
    held = shard(problem, features, targets, owner, spare=2)
    linear = jnp.asarray(rng.normal(size=3))
    x, solver = eqx.filter_jit(HeldShard.argmin)(held, linear, 0.5, Solver.fresh(jnp.zeros(3), True), 1e-9)
    assert float(solver.residual) <= 1e-9
    slope = means(problem, np.asarray(x), features, targets, owner).mean(0) + 0.1 * x + linear + 0.5 * x
    assert float(jnp.linalg.norm(slope)) < 1e-8
    whole = np.linalg.eigvalsh(np.asarray(eqx.filter_jit(HeldShard.hessian)(held, x)) - 0.1 * np.eye(3))
    assert whole.min() >= -1e-12
    assert whole.max() <= problem.smoothness


@pytest.mark.parametrize("name", EXAMPLES)
def test_facts_of_people_are_those_that_a_mean_keeps(name: str) -> None:
    """Every fact that is kept is tried on means of records; those that are lost have a counterexample."""
    problem, people = EXAMPLES[name], of_people(EXAMPLES[name])
    assert (people.convex, people.lipschitz, people.smoothness, people.half_gap) == (
        problem.convex, problem.lipschitz, problem.smoothness, problem.half_gap,
    )  # fmt: skip
    assert people.per_person
    assert not problem.per_person
    assert of_people(people) is people
    assert isinstance(people, type(problem))
    back = pickle.loads(pickle.dumps(people)) if "own" not in name else people
    assert type(back) is type(people)
    assert back == people
    if problem.isotropic:
        assert people.directed == problem.directed
    else:
        assert [people.scored, people.monotone, people.directed] == [False] * 3


def test_a_mean_of_two_records_has_neither_one_score_nor_one_direction() -> None:
    problem = Logistic(2)
    rows, ys = jnp.eye(2), jnp.array([1.0, -1.0])
    points = [jnp.array([3.0, -3.0]), jnp.array([-3.0, 3.0]), jnp.array([3.0, 3.0])]
    slope, bend = (jax.jit(lambda x, f=f: f(x, rows, ys, jnp.ones(2) / 2)) for f in (
        problem.weighted_gradient, problem.weighted_hessian))  # fmt: skip
    assert np.linalg.matrix_rank(np.array([slope(x) for x in points]), tol=1e-3) == 2
    assert np.linalg.matrix_rank(bend(points[0]), tol=1e-3) == 2


def test_the_mean_of_people_weighs_everybody_alike() -> None:
    features = np.array([[1.0], [1.0], [1.0], [-1.0]])
    held = shard(Mean(1, boxed=False), features, np.zeros(4), np.array([0, 0, 0, 1]))
    assert float(total(held, jnp.zeros(1), None)[0]) == 0.0


def test_only_the_first_records_are_used_where_there_is_a_cap() -> None:
    features, targets = records(Logistic(2), 12)
    owner = np.repeat([5, 2, 9], [6, 1, 5])
    capped = shard(Logistic(2), features, targets, owner, most=2)
    first = np.array([0, 1, 6, 7, 8])
    whole = shard(Logistic(2), features[first], targets[first], owner[first])
    x = jnp.array([0.3, -0.2])
    assert np.allclose(total(capped, x), total(whole, x))
    assert capped.people is not None
    assert int(capped.people.many.max()) == 2
