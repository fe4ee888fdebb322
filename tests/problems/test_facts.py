"""What a problem states: nothing by default, nothing that a changed loss inherits, nothing that made-up records refute.

And what it does with records: every one becomes admissible on its own, and none makes a gradient other than finite.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq

import coterie as ct
from coterie.errors import InputError
from coterie.fair.penalised import CovariancePenalised
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Custom, Problem
from coterie.problems.base import FACTS
from coterie.problems.facts import try_facts
from coterie.problems.labels import NUMBERS, Labels
from coterie.problems.records import bounded_rows, lengths
from tests.problems.cases import FEATURES, PROBLEMS, Case, case, gradient, shard
from tests.support import mostly_slow

NOTHING = {"convex": False, "lipschitz": np.inf, "smoothness": np.inf, "half_gap": np.inf,
           "directed": False, "scored": False, "monotone": False, "isotropic": False, "interior": False}  # fmt: skip


class Bare(Problem):
    """A new loss that says nothing of itself."""

    dim: int = 3
    constraint: ClassVar[None] = None

    def losses(self, x: Any, features: Any, targets: Any) -> Any:
        return jnp.sin(features @ x)

    def weighted_gradient(self, x: Any, features: Any, targets: Any, weights: Any, clip: Any = None) -> Any:
        return jnp.zeros_like(x)

    def predict(self, x: Any, features: Any) -> Any:
        return features @ x

    labels: ClassVar[Labels] = NUMBERS


class Bent(Logistic):
    """A built-in loss, changed: what was proved of the old one is not known of the new one."""

    def losses(self, x: Any, features: Any, targets: Any) -> Any:
        return super().losses(x, features, targets) + jnp.sin(features @ x)


class Loose(Logistic):
    """The same loss on records that nobody bounds."""

    def admit(self, features: Any, targets: Any) -> Any:
        return features, targets


class Doubling:
    """Not a problem by itself: what is mixed in changes a loss as well as a method of its own does."""

    def weighted_gradient(self, x: Any, features: Any, targets: Any, weights: Any, clip: Any = None) -> Any:
        return 2 * super().weighted_gradient(x, features, targets, weights, clip)  # type: ignore[misc]


class Mixed(Doubling, Logistic):
    """A built-in loss with something mixed in."""


class Heir(Mixed):
    """A class that changes nothing, of one that does."""


class Steep(Softmax):
    """A built-in loss with another part of it changed."""

    def scores(self, x: Any, features: Any) -> Any:
        return 10 * super().scores(x, features)


class Renamed(Logistic):
    """The same loss under another name keeps its facts."""

    @property
    def name(self) -> str:
        return "ours"


def test_a_new_loss_is_nothing_until_it_says_so() -> None:
    assert {*FACTS, "half_gap"} == set(NOTHING)
    changed = (Bare(), Bent(3), Loose(3), Mixed(3), Heir(3), Steep(3, 2))
    for problem in (*changed, Custom.make(lambda p, f, y: p @ f, np.zeros(3)), Perceptron((3, 2))):
        assert {fact: getattr(problem, fact) for fact in NOTHING} == NOTHING, problem.name
    assert Renamed(3).monotone
    assert Renamed(3).half_gap == 1.0
    penalised = CovariancePenalised.make(Logistic(2), np.eye(2))
    assert (penalised.convex, penalised.scored, penalised.monotone) == (True, False, False)


# -- statements against made-up records --------------------------------------------------------------------------------

START = np.zeros(3)


def pseudo_huber(p: Any, f: Any, y: Any) -> Any:
    return jnp.sqrt(1 + (p @ f - y) ** 2) - 1


FALSE = {
    "too short a gradient": (pseudo_huber, {"lipschitz": 0.9, "bound": 1.0}, "lipschitz = 0.9 is stated"),
    "too little curvature": (pseudo_huber, {"smoothness": 0.8, "bound": 1.0}, "smoothness = 0.8 is stated"),
    "not convex": (lambda p, f, y: jnp.tanh(p @ f - y), {"convex": True, "bound": 1.0}, "convex is stated"),
    "no bound on records": (pseudo_huber, {"lipschitz": 1.0}, "lipschitz = 1 is stated"),
    "a corner": (lambda p, f, y: jnp.abs(p @ f - y), {"smoothness": 1.0, "bound": 1.0}, "smoothness = 1 is stated"),
    "no number at zero": (
        lambda p, f, y: jnp.sqrt((p @ f - y) ** 2), {"convex": True, "lipschitz": 1.0, "bound": 1.0}, "not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", FALSE)
def test_false_statements_are_refused(name: str) -> None:
    loss, facts, why = FALSE[name]
    with pytest.raises(InputError, match=why):
        try_facts(Custom.make(loss, START, **facts), 3)


def lonely(p: Any, f: Any, y: Any) -> Any:
    """Three times as steep where one feature is all there is."""
    return pseudo_huber(p, f, y) * jnp.where(jnp.sum(f != 0) == 1, 3.0, 1.0)


def picky(p: Any, f: Any, y: Any) -> Any:
    """Three times as steep for one label."""
    return pseudo_huber(p, f, y) * jnp.where(y == 7, 3.0, 1.0)


def late(p: Any, f: Any, y: Any) -> Any:
    """Three times as steep beyond a score of 3,000."""
    s = p @ f
    return pseudo_huber(p, f, y) + 2 * jnp.maximum(jnp.abs(s) - 3000, 0.0)


def narrow(p: Any, f: Any, y: Any) -> Any:
    """All three together."""
    odd = (jnp.sum(f != 0) == 1) & (y == 2) & (jnp.abs(p @ f) > 3000)
    return pseudo_huber(p, f, y) * jnp.where(odd, 3.0, 1.0)


CORNERS = [(loss, columns) for columns in (3, 40) for loss in (lonely, picky, late, narrow)]


@pytest.mark.parametrize(("loss", "columns"), mostly_slow(CORNERS, (narrow, 40)))
def test_a_loss_that_misbehaves_in_a_corner_is_refused(loss: Any, columns: int) -> None:
    facts = {"lipschitz": 1.0, "convex": True, "bound": 1.0}
    with pytest.raises(InputError, match="lipschitz = 1 is stated"):
        try_facts(Custom.make(loss, np.zeros(columns), **facts), columns)
    own = lambda p, f, y: loss(p["w"], f, y) + 0.0 * p["b"]  # noqa: E731
    with pytest.raises(InputError, match="lipschitz = 1 is stated"):
        try_facts(Custom.make(own, {"w": np.zeros(columns), "b": np.zeros(())}, **facts), columns)


def test_the_gradient_that_is_used_is_tried_too() -> None:
    class Flat(Logistic):
        lipschitz: ClassVar[float] = 1.0  # type: ignore[assignment]

        def losses(self, x, features, targets):
            return jnp.zeros(features.shape[0]) * jnp.sum(x)

        def weighted_gradient(self, x, features, targets, weights, clip=None):
            long = jnp.where((jnp.abs(features @ x) > 3000) & (clip is None), 3.0, 0.0)
            return (weights * long) @ features

    with pytest.raises(InputError, match="lipschitz = 1 is stated"):
        try_facts(Flat(3), 3)


class Stated(Bare):
    """A loss of one's own class, with whatever facts."""

    what: Any = eqx.field(static=True, default=None)
    convex: bool = False
    lipschitz: float = np.inf
    scored: bool = False
    directed: bool = False
    monotone: bool = False
    bound: float = 1.0
    half_gap: float = np.inf

    def losses(self, x: Any, features: Any, targets: Any) -> Any:
        return jax.vmap(lambda f, y: self.what(x, f, y))(features, targets)


def rotating(p: Any, f: Any, y: Any) -> Any:
    """Its gradient has norm 1 at most, and any direction."""
    return jnp.sqrt(1 + jnp.sum((p - f) ** 2))


OWN_CLASS = {
    "more than the gap": (pseudo_huber, {"half_gap": 0.6}, "a bound is stated, half_gap = 0.6"),
    "no direction": (rotating, {"directed": True, "half_gap": 0.5}, "directed is stated with half_gap = 0.5"),
    "two scores": (rotating, {"scored": True}, "scored is stated"),
    "either sign": (pseudo_huber, {"scored": True, "monotone": True}, "monotone is stated"),
}


@pytest.mark.parametrize("name", OWN_CLASS)
def test_false_statements_of_a_class_are_refused(name: str) -> None:
    loss, facts, why = OWN_CLASS[name]
    with pytest.raises(InputError, match=why):
        try_facts(Stated(what=loss, **facts), 3)


def test_true_statements_of_a_class_pass() -> None:
    try_facts(Stated(what=pseudo_huber, scored=True, directed=True, convex=True, lipschitz=1.0, half_gap=1.0), 3)
    try_facts(Stated(what=lambda p, f, y: jnp.logaddexp(0.0, p @ f), monotone=True, scored=True, half_gap=1.0), 3)


def test_true_statements_and_none_at_all_pass() -> None:
    try_facts(Custom.make(pseudo_huber, START, lipschitz=1.0, smoothness=1.0, convex=True, bound=1.0), 3)
    try_facts(Custom.make(lambda p, f, y: jnp.abs(p @ f - y), START, lipschitz=1.0, convex=True, bound=1.0), 3)
    try_facts(Custom.make(lambda p, f, y: jnp.sqrt((p @ f - y) ** 2), START), 3)
    try_facts(CovariancePenalised.make(Logistic(3), np.eye(3), corner=0.5), 3)


BUILT_IN = {
    "logistic": Logistic(3, bound=2.0), "hinge": Hinge(3), "squared": Squared(3),
    "softmax": Softmax(3, 4, bound=0.5), "mean": Mean(3, radius=0.7), "network": Perceptron((3, 4, 2)),
    "penalised": CovariancePenalised.make(Hinge(3), np.eye(3)[:2], alpha=2.0, corner=0.1),
}  # fmt: skip


@pytest.mark.parametrize("fact", ["lipschitz", "smoothness", "half_gap"])
@pytest.mark.parametrize("name", ["logistic", "hinge", "softmax", "mean"])
def test_the_search_refutes_a_built_in_bound_that_is_too_small(
    name: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = BUILT_IN[name]
    if np.isinf(getattr(problem, fact)):
        pytest.skip("no such bound")
    true = getattr(problem, fact)
    monkeypatch.setattr(type(problem), fact, property(lambda _: 0.6 * true))
    with pytest.raises(InputError, match="stated"):
        try_facts(problem, 3)


# -- records -----------------------------------------------------------------------------------------------------------

ANYTHING = st.one_of(st.floats(width=64), st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1e160, 1e-320, 0.0]))
ADMITTING = {
    "logistic": Logistic(FEATURES), "squared": Squared(FEATURES), "softmax": Softmax(FEATURES, 3),
    "mean": Mean(FEATURES, radius=0.5), "net": Perceptron((FEATURES, 3)),
    "custom": Custom.make(pseudo_huber, np.zeros(FEATURES), bound=2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ADMITTING)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_record_becomes_admissible_on_its_own(name: str, data: st.DataObject) -> None:
    problem = ADMITTING[name]
    features = data.draw(arrays(np.float64, (5, FEATURES), elements=ANYTHING))
    targets = data.draw(arrays(np.float64, 5, elements=ANYTHING))
    got, labels = problem.admit(features, targets)
    assert np.isfinite(got).all()
    assert np.isfinite(labels).all()
    if problem.bound is not None:
        assert np.linalg.norm(got, axis=1).max() <= problem.bound * (1 + 2e-9)
    if name == "mean":
        assert np.abs(got).max() <= 0.5
    if name == "logistic":
        assert np.isin(labels, (-1, 1)).all()
    if name in ("softmax", "net"):
        assert np.isin(labels, (0, 1, 2)).all()
    again, same = problem.admit(got, labels)
    np.testing.assert_array_equal(again, got)
    np.testing.assert_array_equal(same, labels)
    for row in range(5):  # what becomes of a record does not depend on the others
        one, label = problem.admit(features[row : row + 1], targets[row : row + 1])
        np.testing.assert_array_equal(one[0], got[row])
        assert label[0] == labels[row]


def test_good_records_stay_as_they_are_and_in_place() -> None:
    c = case("logistic")
    got, targets = c.problem.admit(c.features, c.targets)
    assert got is c.features
    np.testing.assert_array_equal(targets, c.targets)


# -- gradients that are not finite -------------------------------------------------------------------------------------

NASTY = {
    "square root at its corner": (lambda p, f, y: jnp.sqrt((p @ f - y) ** 2), np.zeros(FEATURES)),
    "overflow": (lambda p, f, y: jnp.exp(jnp.exp(p @ f)), np.full(FEATURES, 30.0)),
    "logarithm of nothing": (lambda p, f, y: jnp.log(jnp.maximum(p @ f, 0.0)), np.zeros(FEATURES)),
}


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("clip", [0.5, None])
def test_a_gradient_that_is_not_finite_counts_as_zero(name: str, clip: float | None) -> None:
    """One such record changes a sum by its own part only, at most `clip`: the others are as if it were absent."""
    loss, point = NASTY[name]
    stated = {} if clip else {"lipschitz": 0.5}  # without a clip, a stated bound does the same
    problem = Custom.make(loss, np.zeros(FEATURES), **stated)
    features = np.vstack([np.ones(FEATURES), 0.1 * np.eye(FEATURES)])
    c = Case(problem, features, np.zeros(len(features)), point)
    some = gradient(c, np.ones(len(features)), clip)[0]
    assert np.isfinite(some).all()
    others = gradient(c, np.array([0.0, 1, 1, 1, 1]), clip)[0]
    assert np.linalg.norm(some - others) <= 0.5 * (1 + 1e-12)


def test_a_deployed_shard_takes_steps_on_any_record() -> None:
    """What reaches a compiled round has been admitted: a row that is no number is a row of zeros there."""
    c = case("logistic", rows=6)
    wrong = c.features.copy()
    wrong[0], wrong[1] = np.nan, 1e200
    got, targets = c.problem.admit(wrong, c.targets)
    assert np.all(got[:2] == 0)
    with jax.enable_x64(True):
        s = shard(c._replace(features=got, targets=targets))
        assert np.isfinite(s.descend(jnp.zeros(FEATURES), jnp.zeros(FEATURES), 0.1, 5)).all()


def test_problems_know_their_names() -> None:
    assert {p.name for p in PROBLEMS.values()} >= {"logistic loss", "hinge loss", "mean", "loss 'robust'"}


def wild(p: Any, f: Any, y: Any) -> Any:
    """No number where the score is the target, and beyond all bounds elsewhere."""
    return jnp.sqrt((p @ f - y) ** 2) * jnp.exp((p @ f) ** 2)


GRADIENTS = {
    "logistic": Logistic(3), "hinge": Hinge(3, width=1e-3), "squared": Squared(3),
    "softmax": Softmax(3, 3), "mean": Mean(3), "custom": Custom.make(wild, np.zeros(3)),
    "custom with a bound": Custom.make(wild, np.zeros(3), lipschitz=0.5),
    "relu net": Perceptron((3, 4, 3), activation="relu"), "tanh net": Perceptron((3, 4, 3)),
    "penalised": CovariancePenalised.make(Logistic(3), np.array([[1.0, 2.0, 3.0]]), alpha=5.0),
}  # fmt: skip
POINT = st.one_of(st.floats(-10, 10), st.floats(allow_nan=False, allow_infinity=False), st.just(0.0))


@pytest.mark.parametrize("name", GRADIENTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_record_moves_a_clipped_sum_by_the_clip_at_most(name: str, data: st.DataObject) -> None:
    """Whatever the record says, whatever the others are, and wherever the point is: nothing else can come of it."""
    problem, clip = GRADIENTS[name], 0.5
    features = data.draw(arrays(np.float64, (4, 3), elements=ANYTHING))
    targets = data.draw(arrays(np.float64, 4, elements=ANYTHING))
    point = data.draw(arrays(np.float64, problem.dim, elements=POINT))
    admitted = problem.admit(features, targets)
    c = Case(problem, *admitted, point)
    asked = None if name == "custom with a bound" else clip
    every, others = (gradient(c, np.array(w), asked)[0] for w in ([1.0, 1, 1, 1], [0.0, 1, 1, 1]))
    assert np.isfinite(every).all()
    assert np.linalg.norm(every) <= 4 * clip * (1 + 2e-9)
    assert np.linalg.norm(every - others) <= clip * (1 + 2e-9)


def test_a_penalty_that_nearly_cancels_a_record_is_clipped_all_the_same() -> None:
    """Long vectors whose difference is short: the norm of the difference is what counts."""
    problem = CovariancePenalised.make(Logistic(3, bound=1e10), np.array([[1e9, 0.0, 0.0]]), alpha=1.0, corner=1e-12)
    near, norms = 1e-10, []  # where the pull is 1e9 already, and the slope still about −1/2
    first = brentq(lambda f: f / (1 + np.exp(f * near)) - 1e9, 1e9, 4e9, xtol=1e-6)
    for off in np.linspace(-50, 50, 41):
        features = np.array([[first + off * 1e-6, 1e3, 0.0]])
        c = Case(problem, features, np.array([1.0]), np.array([near, 0.0, 0.0]))
        norms.append(float(np.linalg.norm(gradient(c, np.ones(1), 0.5)[0])))
    assert max(norms) <= 0.5 * (1 + 1e-6)
    assert min(norms) >= 0.5 * (1 - 1e-6)  # they are all longer than the clip


class _Unclipped(Logistic):
    """A loss of one's own that forgets to clip."""

    def losses(self, x: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
        return 50 * jnp.sqrt(1 + (features @ x - targets) ** 2)

    def weighted_gradient(self, x, features, targets, weights, clip=None):
        return jax.grad(lambda v: jnp.sum(weights * self.losses(v, features, targets)))(x)


class _Mixed(Logistic):
    """One that centres its features by all records."""

    def weighted_gradient(self, x, features, targets, weights, clip=None):
        return Logistic.weighted_gradient(self, x, features - features.mean(0), targets, weights, clip)


@pytest.mark.parametrize(("kind", "words"), [(_Unclipped, "returns a longer gradient"), (_Mixed, "own parts")])
def test_clipped_sums_are_tried_though_nothing_is_stated(kind: type[Logistic], words: str) -> None:
    """dp-dsgd asks for nothing, as every gradient is clipped: by the problem, so somebody has to look."""
    with pytest.raises(InputError, match=words):
        try_facts(kind(2), 2)
    rng = np.random.default_rng(0)
    sites = [(rng.uniform(-0.5, 0.5, (20, 2)), np.ones(20)) for _ in range(3)]
    with pytest.raises(InputError, match=words):
        ct.train(kind(2), ct.ring(sites), ct.dp_dsgd(clip=0.1), ct.Budget(1.0, 1e-5), seed=0, rounds=4)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.float32, float])
def test_rows_of_any_kind_of_number_are_bounded(kind: type) -> None:
    """Squares of small whole numbers overflow: a row of 12s must not pass for a short one."""
    rows = np.full((3, 4), 12, kind)
    assert lengths(rows) == pytest.approx(24)
    assert np.all(np.linalg.norm(bounded_rows(rows, 1.0), axis=1) <= 1 + 1e-6)
