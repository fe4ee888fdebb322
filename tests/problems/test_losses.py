"""Losses against their formulas, gradients against automatic and numerical ones, clipping record by record."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from coterie.errors import InputError
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic, sigmoid, softplus
from coterie.losses.mean import Mean
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Ball, Box, Custom, Shard
from coterie.problems.glm import Linear, Pointwise
from coterie.problems.records import clip_factor
from tests.problems.cases import (
    CLASSES,
    FEATURES,
    PROBLEMS,
    Case,
    case,
    finite_difference,
    gradient,
    losses,
    per_record,
    shard,
)

ALL = [name for name in PROBLEMS if PROBLEMS[name].constraint is None or name == "mean"]
BOUNDED = ["hinge", "logistic", "softmax"]


def clipped_sum(c: Case, weights: np.ndarray, clip: float | None) -> np.ndarray:
    """Σ_r weights_r min(1, clip/‖g_r‖) g_r, the long way."""
    total = np.zeros(c.problem.dim)
    for w, g in zip(weights, per_record(c), strict=True):
        norm = np.linalg.norm(g)
        total += w * g * (1.0 if clip is None or norm == 0 else min(1.0, clip / norm))
    return total


# -- values ------------------------------------------------------------------------------------------------------------


def test_softplus_is_right_to_the_last_digits_near_and_far_from_zero() -> None:
    """Against NumPy's, where that is exact; of what is infinite or no number, as it should be."""
    x = np.concatenate([np.linspace(-700, 700, 4001), np.linspace(-1, 1, 501), [0.0, 1e-300, -1e-9]])
    for kind, slack in ((np.float64, 1e-15), (np.float32, 5e-7)):
        with jax.enable_x64(kind == np.float64):
            found = np.asarray(softplus(jnp.asarray(x, kind)))
            ends = np.asarray(softplus(jnp.asarray([np.inf, -np.inf, np.nan], kind)))
        assert found.dtype == kind
        given = x.astype(kind).astype(float)
        want = np.maximum(given, 0) + np.log1p(np.exp(-np.abs(given)))
        seen = want > np.finfo(kind).tiny * 1e3  # smaller ones vanish
        np.testing.assert_allclose(found[seen], want[seen], rtol=slack)
        np.testing.assert_array_equal(ends, [np.inf, 0, np.nan])


def test_sigmoid_is_right_to_the_last_digits_and_never_outside_0_and_1() -> None:
    """Against SciPy's; its derivative is p (1 − p); of what is infinite or no number, as it should be."""
    x = np.concatenate([np.linspace(-700, 700, 4001), np.linspace(-1, 1, 501), [0.0, 1e-300, -1e-9]])
    for kind, slack in ((np.float64, 2e-15), (np.float32, 5e-7)):
        with jax.enable_x64(kind == np.float64):
            both = jax.jvp(sigmoid, (jnp.asarray(x, kind),), (jnp.ones(len(x), kind),))
            found, derived = map(np.asarray, both)
            ends = np.asarray(sigmoid(jnp.asarray([np.inf, 1e30, -np.inf, np.nan], kind)))
        want = expit(x.astype(kind).astype(float))
        seen = want > np.finfo(kind).tiny * 1e3
        assert found.dtype == kind
        np.testing.assert_allclose(found[seen], want[seen], rtol=slack)
        np.testing.assert_allclose(derived, want * (1 - want), rtol=1e-6, atol=1e-7)
        assert found.min() >= 0
        assert found.max() <= 1
        np.testing.assert_allclose(ends, [1, 1, 0, np.nan], atol=1e-300)


@pytest.mark.parametrize("loss", [Logistic(2), Hinge(2, width=0.3)])
def test_a_loss_of_the_margin_is_one_of_target_times_score(loss: Linear) -> None:
    """To the last bit: lists of records may take the targets in. Who writes a loss anew has to say so anew."""

    class Tilted(type(loss)):  # type: ignore[misc]
        def of_score(self, score: jax.Array, targets: jax.Array) -> Pointwise:
            return super().of_score(score + 0.5, targets)

    assert loss._by_margin
    assert not Tilted(2)._by_margin
    assert not Squared(2)._by_margin
    score = jnp.asarray(np.random.default_rng(0).normal(0, 3, 200))
    for sign in (-1.0, 1.0):
        plain, folded = loss.of_score(score, jnp.full(200, sign)), loss.of_score(sign * score, jnp.ones(()))
        np.testing.assert_array_equal(plain.value, folded.value)
        np.testing.assert_array_equal(plain.slope, sign * folded.slope)


def test_logistic_squared_and_softmax_values() -> None:
    c = case("logistic")
    np.testing.assert_allclose(losses(c)[0], np.log1p(np.exp(-c.targets * (c.features @ c.point))), rtol=1e-12)
    c = case("squared")
    np.testing.assert_allclose(losses(c)[0], (c.features @ c.point - c.targets) ** 2 / 2, rtol=1e-12)
    c = case("softmax")
    scores = np.exp(c.features @ c.point.reshape(FEATURES, CLASSES))
    chosen = (scores / scores.sum(1, keepdims=True))[np.arange(len(c.targets)), c.targets]
    np.testing.assert_allclose(losses(c)[0], -np.log(chosen), rtol=1e-12)


def test_logistic_neither_overflows_nor_loses_its_tail() -> None:
    with jax.enable_x64(True):
        got = Logistic(1).losses(jnp.array([1.0]), jnp.array([[800.0], [-800.0], [40.0]]), jnp.ones(3))
    np.testing.assert_allclose(got, [0.0, 800.0, np.exp(-40.0)], rtol=1e-12)


def test_the_hinge_is_the_hinge_smoothed_over_its_width() -> None:
    """The Huber hinge is the average of (1 − margin + u)₊ over u uniform on [−width, width]: C¹, and exact outside."""
    width, margins = 0.3, np.linspace(-0.5, 2.0, 41)
    u = (np.arange(20000) + 0.5) / 20000 * 2 * width - width
    average = np.maximum(0, 1 - margins[:, None] + u).mean(1)
    with jax.enable_x64(True):
        got = Hinge(1, width=width).losses(jnp.ones(1), jnp.asarray(margins[:, None]), jnp.ones(41))
    np.testing.assert_allclose(got, average, atol=1e-8)


def test_mean_and_network_values() -> None:
    c = case("mean")
    np.testing.assert_allclose(losses(c)[0], ((c.point - c.features) ** 2).sum(1) / 2, rtol=1e-12)
    c = case("tanh-net")
    w1, b1, w2, b2 = np.split(c.point, np.cumsum([FEATURES * 5, 5, 5 * CLASSES]))
    hidden = np.tanh(c.features @ w1.reshape(FEATURES, 5) + b1)
    scores = np.exp(hidden @ w2.reshape(5, CLASSES) + b2)
    chosen = (scores / scores.sum(1, keepdims=True))[np.arange(len(c.targets)), c.targets]
    np.testing.assert_allclose(losses(c)[0], -np.log(chosen), rtol=1e-12)


# -- derivatives and clipping: more of both in tests/conformance/test_losses.py ---------------------------------------


@pytest.mark.parametrize("name", ["logistic", "custom"])
def test_hessian_of_a_padded_shard_is_the_derivative_of_its_slope(name: str) -> None:
    """unit Σ ∇²loss + ridge I."""
    c = case(name)
    ones = np.ones(len(c.targets))
    with jax.enable_x64(True):
        padded = shard(c, unit=0.4, ridge=0.3, padding=5)
        got = np.asarray(eqx.filter_jit(padded.hessian)(jnp.asarray(c.point)))
    numeric = 0.4 * finite_difference(lambda x: gradient(c, ones, points=x), c.point) + 0.3 * np.eye(len(c.point))
    np.testing.assert_allclose(got, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_clipping_bites_where_it_should_and_only_there(name: str) -> None:
    """At the median norm about half the records shrink: a per-batch clip or none at all would give another sum."""
    c = case(name)
    ones, norms = np.ones(len(c.targets)), np.linalg.norm(per_record(c), axis=1)
    clip = float(np.median(norms))
    got = gradient(c, ones, clip)[0]
    np.testing.assert_allclose(got, clipped_sum(c, ones, clip), rtol=1e-9)
    whole = gradient(c, ones)[0]
    assert not np.allclose(got, whole, rtol=1e-3)
    assert not np.allclose(got, whole * min(1, clip / np.linalg.norm(whole)), rtol=1e-3)
    np.testing.assert_allclose(gradient(c, ones, float(norms.max()) * (1 + 1e-9))[0], whole, rtol=1e-9)


@pytest.mark.parametrize("name", ["custom", "deep-relu-net", "logistic", "softmax"])
@pytest.mark.parametrize("scale", [1e-12, 1e8])
def test_clipping_of_tiny_and_huge_records(name: str, scale: float) -> None:
    c = case(name)
    c = c._replace(features=scale * c.features)
    ones = np.ones(len(c.targets))
    got = gradient(c, ones, 0.3)[0]
    assert np.isfinite(got).all()
    assert np.linalg.norm(got) <= 0.3 * len(ones) * (1 + 1e-12)
    np.testing.assert_allclose(got, clipped_sum(c, ones, 0.3), rtol=1e-7, atol=1e-13)


@given(st.lists(st.floats(0, 1e300), min_size=4, max_size=4), st.floats(0, 1e300))
@settings(max_examples=50, deadline=None)
def test_no_norm_survives_above_the_clip(norms: list[float], clip: float) -> None:
    with jax.enable_x64(True):
        factor = np.asarray(clip_factor(jnp.asarray(norms), clip))
    assert (factor >= 0).all()
    assert (factor <= 1).all()
    assert (factor * norms <= clip * (1 + 1e-12)).all()
    assert (factor[np.asarray(norms) <= clip] == 1).all() or clip == 0 or min(norms) < 1e-30


# -- public bounds: what sensitivities and step sizes rest on ----------------------------------------------------------


@pytest.mark.parametrize("name", BOUNDED)
def test_lipschitz_bounds_every_gradient_and_is_reached(name: str) -> None:
    problem, largest = PROBLEMS[name], 0.0
    for seed in range(20):
        c = case(name, seed=seed)
        c = c._replace(point=30.0 * c.point)
        largest = max(largest, float(np.linalg.norm(per_record(c), axis=1).max()))
    assert largest <= problem.lipschitz * (1 + 1e-12)
    # reached by a unit record on the wrong side of a steep model
    if name == "softmax":
        point = np.zeros((FEATURES, CLASSES))
        point[0, 1] = 50.0
        worst = Case(problem, np.eye(FEATURES)[:1], np.array([0], np.int32), point.ravel())
    else:
        worst = Case(problem, np.eye(FEATURES)[:1], np.array([-1.0]), 50 * np.eye(FEATURES)[0])
    assert np.linalg.norm(per_record(worst)) == pytest.approx(problem.lipschitz, rel=1e-9)


@pytest.mark.parametrize("name", [*BOUNDED, "squared", "mean"])
def test_smoothness_bounds_every_curvature_and_is_reached(name: str) -> None:
    problem, largest, one = PROBLEMS[name], 0.0, np.ones(1)
    curvature = jax.jit(problem.weighted_hessian)
    for seed in range(10):
        c = case(name, seed=seed)
        # a record of norm 1 at a point where the model is undecided, where curvature is largest
        features = c.features[:1] / np.linalg.norm(c.features[:1])
        point = np.zeros(problem.dim)
        if name == "hinge":
            point = c.targets[0] * features[0]  # margin 1: in the middle of the bend
        if name == "softmax":
            point = np.outer(features[0], [0.0, 0.0, -60.0]).ravel()  # undecided between two of the classes
        with jax.enable_x64(True):
            h = curvature(*map(jnp.asarray, (point, features, c.targets[:1], one)))
        largest = max(largest, float(np.linalg.eigvalsh(h).max()))
    assert largest == pytest.approx(problem.smoothness, rel=1e-9)


def test_replacing_a_record_moves_the_mean_gradient_by_twice_the_half_gap_at_most() -> None:
    problem = Mean(FEATURES, radius=0.7)
    corners = 0.7 * np.array([np.ones(FEATURES), -np.ones(FEATURES)])
    moved = per_record(Case(problem, corners, np.zeros(2), np.zeros(FEATURES)))
    assert np.linalg.norm(moved[0] - moved[1]) == pytest.approx(2 * problem.half_gap)
    assert problem.lipschitz == np.inf  # outside the box the gradient itself has no bound


@pytest.mark.parametrize("name", ["squared", "sigmoid-net", "custom"])
def test_losses_without_a_bound_say_so(name: str) -> None:
    assert PROBLEMS[name].lipschitz == np.inf


@pytest.mark.parametrize("bound", [0.5, 3.0])
def test_bounds_scale_with_the_records(bound: float) -> None:
    assert Logistic(2, bound=bound).lipschitz == bound
    assert Logistic(2, bound=bound).smoothness == pytest.approx(bound**2 / 4)
    assert Softmax(2, 3, bound=bound).lipschitz == pytest.approx(2**0.5 * bound)


# -- shards: padding, rows, masks, weights -----------------------------------------------------------------------------


@eqx.filter_jit
def everything(s: Shard, x: jax.Array) -> dict[str, jax.Array]:
    """All that a shard can say about a point."""
    out = {name: getattr(s, name)(x) for name in ("value", "slope", "gradient", "losses")}
    return {**out, "clipped": s.gradient(x, clip=0.2)}


@pytest.mark.parametrize("name", ALL)
def test_a_shard_is_one_function_whatever_its_padding(name: str) -> None:
    """Value, slope and Hessian of unit Σ loss + ridge/2 ‖x‖² from the problem's own parts; rubbish rows don't count."""
    c, ones = case(name), np.ones(len(case(name).targets))
    with jax.enable_x64(True):
        padded = shard(c, unit=0.4, ridge=0.3, padding=5)
        got = everything(padded, jnp.asarray(c.point))
        mask = np.asarray(padded.mask)
    want = {
        "value": 0.4 * losses(c)[0].sum() + 0.15 * c.point @ c.point,
        "slope": 0.4 * per_record(c).sum(0) + 0.3 * c.point,
        "gradient": per_record(c).sum(0),
        "losses": np.append(losses(c)[0], np.zeros(5)),
        "clipped": clipped_sum(c, ones, 0.2),
    }
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-12, err_msg=key)
    assert mask.tolist() == [True] * len(ones) + [False] * 5


@pytest.mark.parametrize("name", ["custom", "logistic", "tanh-net"])
def test_rows_and_mask_pick_records(name: str) -> None:
    c = case(name)
    each = per_record(c)
    norms = np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-300)
    small = each * np.minimum(1, 0.2 / norms)
    with jax.enable_x64(True):
        s, x = shard(c, padding=3), jnp.asarray(c.point)
        rows = jnp.array([2, 2, 0, 10, 5])  # a record twice, and 10 is padding
        pick = eqx.filter_jit(s.gradient)
        got = pick(x, clip=0.2, rows=rows)
        np.testing.assert_allclose(got, 2 * small[2] + small[0] + small[5], rtol=1e-9, atol=1e-13)
        mask = jnp.array([True, False, True, True, False])
        got = pick(x, clip=0.2, rows=rows, mask=mask)
        np.testing.assert_allclose(got, small[2] + small[0], rtol=1e-9, atol=1e-13)
        everyone = jnp.arange(len(c.targets) + 3) % 2 == 0
        got = pick(x, mask=everyone)
        np.testing.assert_allclose(got, each[::2].sum(0), rtol=1e-9, atol=1e-13)


# -- labels, predictions, scores, starting points ----------------------------------------------------------------------


def test_labels_that_do_not_fit_are_refused_by_name() -> None:
    indices = np.array([0, 1, 1])
    assert Logistic(2).encode(indices, ("no", "yes")).tolist() == [-1.0, 1.0, 1.0]
    assert Softmax(2, 2).encode(indices, ("no", "yes")).tolist() == [0, 1, 1]
    assert Squared(2).encode(np.array([0.5, 2.0]), None).tolist() == [0.5, 2.0]
    for problem, classes, words in (
        (Logistic(2), ("a", "b", "c"), "logistic.*two classes.*3 classes"),
        (Hinge(2), None, "hinge.*two classes.*continuous"),
        (Squared(2), ("a", "b"), "squared.*numeric.*'a'"),
        (Softmax(2, 3), ("a", "b"), "3 classes.*2 classes"),
        (Perceptron((2, 3)), ("a", "b"), "neural network was set up for 3 classes.*2 classes"),
        (Perceptron((2, 3)), None, "3 classes.*continuous"),
    ):
        with pytest.raises(InputError, match=words):
            problem.encode(indices, classes)


def test_scores() -> None:
    features, point = jnp.eye(2), jnp.array([1.0, -1.0])
    assert float(Logistic(2).score(point, features, jnp.array([1.0, 1.0]))) == 0.5
    line = Squared(2)
    assert float(line.score(point, features, jnp.array([1.0, -1.0]))) == pytest.approx(1.0)
    assert float(line.score(0 * point, features, jnp.array([1.0, -1.0]))) == pytest.approx(0.0)  # R² of the mean
    soft = Softmax(2, 2)
    weights = jnp.array([[1.0, 0.0], [0.0, 1.0]]).ravel()
    assert soft.predict(weights, features).tolist() == [0, 1]
    assert float(soft.score(weights, features, jnp.array([0, 0]))) == 0.5
    assert float(Mean(2).score(jnp.array([0.5, 0.5]), features, jnp.zeros(2))) == pytest.approx(0.0)
    net = Perceptron((2, 2))
    assert net.predict(jnp.concatenate([weights, jnp.zeros(2)]), features).tolist() == [0, 1]


def test_custom_problems_predict_only_with_a_forecast() -> None:
    blind = PROBLEMS["custom"]
    with pytest.raises(InputError, match="forecast"):
        blind.predict(jnp.zeros(blind.dim), jnp.ones((1, FEATURES)))
    c = case("custom")
    with jax.enable_x64(True):
        score = float(blind.score(*map(jnp.asarray, (c.point, c.features, c.targets))))
    assert score == pytest.approx(-losses(c)[0].mean())
    sign = Custom.make(
        lambda p, f, y: (p @ f - y) ** 2,
        np.zeros(2),
        forecast=lambda p, f: (p @ f > 0).astype(int),
        integer_targets=True,
    )
    assert float(sign.score(jnp.array([1.0, -1.0]), jnp.eye(2), jnp.array([1, 1]))) == 0.5


def test_custom_parameters_survive_the_round_trip_in_double() -> None:
    params = {"b": np.array(0.1), "w": np.array([[1 / 3, 2.0], [3.0, 4.0]])}
    problem = Custom.make(lambda p, f, y: jnp.sum(p["w"]) * p["b"] + 0 * y, params)
    assert problem.dim == 5
    np.testing.assert_array_equal(problem.start(0), [0.1, 1 / 3, 2.0, 3.0, 4.0])
    back = problem.template.unravel(jnp.arange(5.0))
    assert back["w"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert float(back["b"]) == 0.0


def test_starting_points_are_public_and_break_symmetry_in_networks() -> None:
    net = Perceptron((6, 5, 3))
    np.testing.assert_array_equal(net.start(3), net.start(3))
    assert not np.array_equal(net.start(3), net.start(4))
    weights, bias = net.layers(jnp.asarray(net.start(3), jnp.float32))[0]
    assert weights.shape == (6, 5)
    assert np.unique(weights).size == 30
    assert np.abs(weights).max() <= (6 / 11) ** 0.5
    assert (np.asarray(bias) == 0).all()
    assert (Logistic(3).start(0) == 0).all()


def test_projections_are_nearest_points() -> None:
    x = jnp.array([3.0, -4.0])
    np.testing.assert_allclose(Ball(2.0).project(x), [1.2, -1.6], rtol=1e-6)
    np.testing.assert_allclose(Ball(9.0).project(x), x)
    np.testing.assert_allclose(Ball(2.0).project(0 * x), [0, 0])
    np.testing.assert_allclose(Box(-1.0, 2.0).project(x), [2.0, -1.0])
    assert (Ball(2.0).reach(2), Box(-1.0, 2.0).reach(2)) == (2.0, pytest.approx(8**0.5))
