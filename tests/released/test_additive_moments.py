"""Second moments of records in bins: what is known is set, and the model is that of the records themselves."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from coterie.data.bins import Bins, LevelBins, NumberBins
from coterie.errors import InputError
from coterie.estimators import AdditiveClassifier
from coterie.experiment import prepare, public_network
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.released.additive_moments import AdditiveMoments, _kept, consistent
from coterie.released.moments import Moments

APART = Bins((NumberBins("age", (20.0, 40.0, 60.0), 0.0, 80.0), LevelBins("job", ("cook", "nurse"))), ((0, 1),))
BINS = Bins(APART.attributes, APART.pairs, 0.5)


def made(records: int = 3000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    age = np.where(rng.random(records) < 0.1, np.nan, rng.uniform(-5, 85, records))
    job = rng.choice(["cook", "nurse", "pilot"], records, p=[0.6, 0.3, 0.1])
    odds = 2 * np.cos(np.nan_to_num(age, nan=50.0) / 13) + (job == "nurse") - 1.5
    return pd.DataFrame({"age": age, "job": job}), np.where(rng.random(records) < expit(odds), 1.0, -1.0)


def moments(bins: Bins = APART, noise: float = 0.0, seed: int = 1) -> tuple[np.ndarray, np.ndarray, AdditiveMoments]:
    table, y = made()
    rows, rng = bins.rows(table), np.random.default_rng(seed)
    wide = np.triu(noise / 2**0.5 * rng.standard_normal((bins.width, bins.width)), 1)
    matrix = rows.T @ rows / len(y) + wide + wide.T + np.diag(noise * rng.standard_normal(bins.width))
    cross = y @ rows / len(y) + noise * rng.standard_normal(bins.width)
    full = Bins(bins.attributes, bins.pairs, 0.5)
    return rows, y, AdditiveMoments(matrix, cross, noise, noise, full)


def test_exact_moments_stay_and_noisy_ones_obey_all_that_is_known() -> None:
    _, _, exact = moments()
    matrix, cross = consistent(exact.matrix, exact.cross, BINS)
    assert matrix == pytest.approx(exact.matrix, abs=1e-12)
    assert cross == pytest.approx(exact.cross, abs=1e-12)
    _, _, noisy = moments(noise=0.02)
    known, labelled = consistent(noisy.matrix, noisy.cross, BINS)
    assert known == pytest.approx(known.T)
    tables, many = BINS.ones * known, BINS.ones
    for a in BINS.blocks:
        own = tables[a.where, a.where]
        assert own == pytest.approx(np.diag(np.diag(own)))
        assert np.trace(own) == pytest.approx(1)
        for b in BINS.blocks:
            if a.name != b.name:
                assert tables[a.where, b.where].sum(axis=1) == pytest.approx(np.diag(own))
        assert labelled[a.where].sum() == pytest.approx(labelled.sum() / many)
    gone = np.linalg.norm(known - exact.matrix) / np.linalg.norm(noisy.matrix - exact.matrix)
    assert gone < 0.85  # of 231 + 21 numbers those that are known have lost their noise
    assert np.linalg.norm(labelled - exact.cross) < np.linalg.norm(noisy.cross - exact.cross)


def test_a_model_of_numbers_is_ridge_regression_on_the_records() -> None:
    rows, y, exact = moments()
    lam = 0.01
    root = np.zeros((BINS.width, BINS.width))
    for block in BINS.blocks:
        root[block.where, block.where] = BINS.basis(block)
    alike = rows @ root
    theta = np.linalg.solve(alike.T @ alike / len(y) + lam * np.eye(BINS.width), alike.T @ y / len(y))
    assert rows @ replace(exact, numbers=True).weights(lam) == pytest.approx(alike @ theta, abs=1e-8)
    for name, curve in exact.curves(lam).items():
        assert curve.shape == next(b.shape for b in BINS.blocks if b.name == name)
    assert exact.shares()["job"] == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_any_attributes_are_as_if_they_alone_had_been_released() -> None:
    _, y, exact = moments()
    table, _ = made()
    alone = Bins(APART.attributes[:1])
    rows = alone.rows(table)
    own = AdditiveMoments(rows.T @ rows / len(y), y @ rows / len(y), 0.0, 0.0, Bins(APART.attributes[:1], (), 0.5))
    whole = APART.rows(table) @ exact.weights(0.02, ["age"])
    assert whole == pytest.approx(rows @ own.weights(0.02), abs=1e-8)
    for wrong, words in ((["height"], "unknown attribute"), ([], "one or more"), (["age", "age"], "different")):
        with pytest.raises(InputError, match=words):
            exact.weights(attributes=wrong)
    with pytest.raises(InputError, match="penalty must be > 0"):
        exact.weights(0.0)


@pytest.mark.parametrize("weight", [0.5, 1.0, 1.8])
@pytest.mark.parametrize("attributes", [2, 3])
def test_no_two_records_in_bins_are_farther_apart_than_is_charged(weight: float, attributes: int) -> None:
    """All pairs of records: of an even number of attributes, half alike, the bound is reached at w = 1."""
    bins = Bins(tuple(LevelBins(f"a{k}", ("x", "y")) for k in range(attributes)))
    problem = Moments(2, weight=weight).over(bins, None)
    codes = np.array([list(c) for c in product(range(3), repeat=attributes)]) + 3 * np.arange(attributes)
    rows = np.repeat(bins.spread(codes), 2, axis=0)
    with jax.enable_x64(True):
        own = np.asarray(problem.each(jnp.asarray(rows), jnp.tile(jnp.array([-1.0, 1.0]), len(codes))))
    far = np.linalg.norm(own[:, None] - own[None], axis=2).max()
    assert far <= 2 * problem.half_gap + 1e-9
    if attributes == 2 and weight == 1.0:
        assert far == pytest.approx(4.5**0.5)


# ---- plans -----------------------------------------------------------------------------------------------------------


def plan_of(path: Path | str, **more: object) -> Plan:
    return validate(
        {
            "data": {
                "source": "csv", "path": path, "label": "y",
                "options": {
                    "classes": ["-1.0", "1.0"], "bounds": {"age": [0, 80]}, "categories": {"job": ["cook", "nurse"]},
                },
            },
            "partition": {"kind": "iid", "agents": 4, "records": 600},
            "graph": {"kind": "complete"},
            "problem": {"loss": "moments", "model": "additive", "bins": {"age": 20}, **more},
            "algorithm": {"name": "release"},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"references": "none"},
        }
    )  # fmt: skip


def test_a_plan_releases_moments_of_bins_once(tmp_path: Path) -> None:
    nobody = plan_of(tmp_path / "nobody has this.csv")
    priced = price(nobody, public_network(nobody))
    assert (priced.rounds, nobody.problem.dim) == (1, 8)
    table, y = made(4000)
    table["job"] = table["job"].replace("pilot", np.nan)
    table.assign(y=y).to_csv(tmp_path / "a.csv", index=False)
    tree = plan_of(tmp_path / "a.csv").as_json()
    tree["partition"] = {"kind": "iid", "agents": 4}
    experiment = prepare(validate(tree))
    paid = price(experiment.plan, experiment.network)
    point = experiment.run(paid, [0]).points[0, 0]
    seen = experiment.network.problem.shaped(point)
    assert isinstance(seen, AdditiveMoments)
    test = experiment.test
    assert test is not None
    told = seen.predict(test.features)
    assert np.array_equal(told, np.asarray(experiment.network.problem.predict(jnp.asarray(point), test.features)))
    assert np.mean(told == test.targets) > max(np.mean(test.targets > 0), np.mean(test.targets < 0)) + 0.01
    seen.readable(("-1.0", "1.0")).save(tmp_path / "curves.json")
    glass = AdditiveClassifier(tmp_path / "curves.json").fit()
    assert np.array_equal(
        glass.predict(table.head(500)).astype(float), seen.predict(replace(seen.bins, alike=0.0).rows(table.head(500)))
    )
    (tmp_path / "a.csv").unlink()  # whoever has the plan and the release has the model: no record is read again
    elsewhere = public_network(plan_of(tmp_path / "a.csv")).problem.shaped(np.array(point))
    _kept.cache_clear()
    assert np.array_equal(elsewhere.weights(), seen.weights())
    assert np.array_equal(elsewhere.weights(attributes=["age"]), seen.weights(attributes=["age"]))


@pytest.mark.parametrize(
    ("more", "words"),
    [({"smooth": 1.0}, "problem.smooth is for curves that were trained"), ({"alike": 1.5}, "alike")],
)
def test_what_a_release_of_bins_does_not_take(more: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan_of("nobody.csv", **more)
