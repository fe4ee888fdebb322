"""Additive models: facts of the loss they are made of, curves that are functions of the released point alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.isotonic import IsotonicRegression

from coterie.algorithms.base import find
from coterie.audit import examine, gather, make_setting
from coterie.data.bins import Finish, bins_of
from coterie.data.encode import Category, Number
from coterie.errors import InputError
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Problem
from coterie.problems.additive import AdditiveModel, bare
from coterie.testing import check_problem
from tests.support import mostly_slow

SMALL = bins_of({"a": Number(0, 3), "b": Category(("x", "y"))}, {"a": [1, 2]})
WIDE = bins_of({"a": Number(0, 100), "b": Category(("x", "y")), "c": Number(0, 1)}, pairs=[("a", "b")])
FINISH = Finish(0.7, (("a", "up"), ("c", "down")))
LOSSES = {
    "logistic": Logistic(SMALL.width), "hinge": Hinge(SMALL.width), "squared": Squared(SMALL.width),
    "softmax": Softmax(SMALL.width, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_slow(LOSSES, "softmax"))
def test_conforms_as_its_loss_does(name: str) -> None:
    finish = Finish(0.5, (("a", "up"),)) if name != "softmax" else Finish(0.5)
    check_problem(AdditiveModel(LOSSES[name], SMALL, finish))


def test_all_that_is_minimised_is_the_loss_s_own() -> None:
    """Every fact and every gradient, whatever the curves are made into."""
    problem, loss = AdditiveModel(LOSSES["logistic"], SMALL, Finish(3.0)), LOSSES["logistic"]
    facts = ("convex", "lipschitz", "smoothness", "half_gap", "directed", "scored", "monotone", "interior", "bound")
    assert {fact: getattr(problem, fact) for fact in facts} == {fact: getattr(loss, fact) for fact in facts}
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(-1, 4, 20), "b": rng.choice(["x", "y", "z"], 20)})
    rows, y, w = SMALL.rows(table), np.sign(rng.normal(size=20)), rng.uniform(size=20)
    x = rng.normal(size=SMALL.width)
    given = [jnp.asarray(a, jnp.float32) for a in (x, rows, y, w)]
    assert np.array_equal(problem.weighted_gradient(*given, 0.5), loss.weighted_gradient(*given, 0.5))
    assert bare(problem) is loss
    assert bare(loss) is loss


def test_the_gradient_of_a_record_has_the_length_of_its_slope() -> None:
    """‖x‖ = 1 exactly, so the bound is met, not only kept: a record that is surely wrong has a gradient of norm 1."""
    problem = AdditiveModel(LOSSES["logistic"], SMALL)
    with jax.enable_x64(True):
        row = jnp.asarray(SMALL.rows(pd.DataFrame({"a": [None], "b": ["nobody"]})))
        far = -60 * row[0]
        norm = float(jnp.linalg.norm(problem.weighted_gradient(far, row, jnp.ones(1), jnp.ones(1))))
    assert norm == pytest.approx(problem.lipschitz, rel=1e-12)


@pytest.mark.slow
def test_the_audit_finds_no_more_than_is_paid_for() -> None:
    setting = make_setting(find("dp-dsgd"), epsilon=1.0, problem=AdditiveModel(LOSSES["logistic"], SMALL, Finish(1.0)))
    for finding in examine(gather(setting)):
        assert finding.passed, f"{finding.check}: {finding.detail}"


# ---- curves ----------------------------------------------------------------------------------------------------------


def shaped(problem: AdditiveModel, point: np.ndarray) -> dict[str, np.ndarray]:
    return {name: table * np.sqrt(problem.bins.ones) for name, table in problem.shaped(point).items()}


def test_smoothing_solves_its_problem() -> None:
    """min ‖v − θ‖² + κ Σ (v_k − v_{k+1})² over neighbours, solved here as least squares; `missing` and levels stay."""
    point, kappa = np.random.default_rng(1).normal(size=WIDE.width), 0.7
    found = shaped(AdditiveModel(Logistic(WIDE.width), WIDE, Finish(kappa)), point)
    raw = shaped(AdditiveModel(Logistic(WIDE.width), WIDE), point)
    for name in ("a", "c"):
        theta = raw[name][:-1]
        steps = np.sqrt(kappa) * np.diff(np.eye(len(theta)), axis=0)
        wanted = np.linalg.lstsq(np.vstack([np.eye(len(theta)), steps]), np.append(theta, np.zeros(len(steps))))[0]
        assert found[name][:-1] == pytest.approx(wanted, abs=1e-9)
        assert found[name][-1] == raw[name][-1]
    assert np.array_equal(found["b"], raw["b"])
    pair, before = found["a × b"], raw["a × b"]
    assert np.array_equal(pair[-1], before[-1])  # missing age: no neighbour
    assert not np.allclose(pair[:-1], before[:-1])
    single = AdditiveModel(Logistic(WIDE.width), WIDE, Finish(kappa))
    one = np.zeros(WIDE.width)
    one[WIDE.blocks[3].start + 4 * 3 + 1] = 1.0  # a bin of the pair spreads along a, not to other levels of b
    spread = shaped(single, one)["a × b"]
    assert (spread[:-1, 1] > 0).all()
    assert not spread[:, [0, 2]].any()
    bare = shaped(AdditiveModel(Logistic(WIDE.width), WIDE), one)["a × b"]
    assert spread.sum() == pytest.approx(bare.sum())


def test_monotone_curves_are_the_nearest() -> None:
    """Those of scikit-learn's isotonic regression with equal weights; `missing` stays where it is."""
    rng = np.random.default_rng(2)
    problem = AdditiveModel(Logistic(WIDE.width), WIDE, Finish(0.0, (("a", "up"), ("c", "down"))))
    for _ in range(20):
        point = rng.normal(size=WIDE.width)
        found, raw = shaped(problem, point), shaped(AdditiveModel(Logistic(WIDE.width), WIDE), point)
        for name, up in (("a", True), ("c", False)):
            wanted = IsotonicRegression(increasing=up).fit_transform(np.arange(len(raw[name]) - 1), raw[name][:-1])
            assert found[name][:-1] == pytest.approx(wanted, abs=1e-9)
            assert found[name][-1] == raw[name][-1]


def test_curves_are_functions_of_the_point_and_the_plan() -> None:
    """No record is an argument: the same point gives the same curves, and predictions follow them record by record."""
    problem, rng = AdditiveModel(Logistic(WIDE.width), WIDE, FINISH), np.random.default_rng(3)
    point = rng.normal(size=WIDE.width)
    table = pd.DataFrame({"a": rng.uniform(-10, 110, 50), "b": rng.choice(["x", "y", "?"], 50), "c": rng.random(50)})
    rows = WIDE.rows(table)
    with jax.enable_x64(True):
        curved = problem.curved(jnp.asarray(point))
        score = np.asarray(problem.evidence(jnp.asarray(point), jnp.asarray(rows)))[:, 1]
        alone = [float(problem.evidence(jnp.asarray(point), jnp.asarray(rows[k : k + 1]))[0, 1]) for k in range(5)]
        assert np.array_equal(
            np.asarray(problem.predict(jnp.asarray(point), jnp.asarray(rows))), np.where(score > 0, 1, -1)
        )
    assert score == pytest.approx(rows @ np.asarray(curved))
    assert score[:5] == pytest.approx(alone)
    plain = AdditiveModel(Logistic(WIDE.width), WIDE)
    with jax.enable_x64(True):
        assert np.array_equal(plain.curved(jnp.asarray(point)), point)


@pytest.mark.parametrize(
    ("loss", "finish", "words"),
    [
        (Logistic(4), Finish(), "has 4 features, and there are 7 bins"),
        (Softmax(7, 3), Finish(0.0, (("a", "up"),)), "goes with one score"),
        (Logistic(7), Finish(0.0, (("b", "up"),)), "a category"),
    ],
)
def test_what_cannot_be(loss: Problem, finish: Finish, words: str) -> None:
    with pytest.raises(InputError, match=words):
        AdditiveModel(loss, SMALL, finish)
