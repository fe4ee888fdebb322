"""Bands of a release's curves, and what gradient methods take from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.api.curves import Curves
from coterie.cli import main
from coterie.data.bins import Bins, LevelBins, NumberBins
from coterie.released.additive_moments import AdditiveMoments, basis_of
from coterie.released.bands import banded, drawn_again
from coterie.report.shapes import shapes
from coterie.written import toml_of
from tests.released.test_additive_moments import made, plan_of

BINS = Bins((NumberBins("a", tuple(np.linspace(0.1, 0.9, 9)), 0.0, 1.0), LevelBins("b", ("x", "y", "z"))), (), 0.5)


def released(noise: float, seed: int, numbers: bool = False) -> tuple[np.ndarray, np.ndarray, AdditiveMoments]:
    """Ones and zeros of records, labels, and a release of their moments."""
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, 10, 20000), 11 + rng.choice(3, 20000, p=[0.8, 0.15, 0.05])], axis=1)
    rows = np.zeros((20000, BINS.width))
    for column in codes.T:
        rows[np.arange(20000), column] = 2**-0.5
    odds = 1.5 * np.sin(codes[:, 0]) + (codes[:, 1] - 12)
    labels = np.where(rng.uniform(size=20000) < 1 / (1 + np.exp(-odds)), 1.0, -1.0)
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.normal(0, noise / 2**0.5, (BINS.width, BINS.width)), 1)
    matrix = rows.T @ rows / 20000 + upper + upper.T + np.diag(draw.normal(0, noise, BINS.width))
    cross = rows.T @ labels / 20000 + draw.normal(0, noise, BINS.width)
    return rows, labels, AdditiveMoments(matrix, cross, noise, noise, BINS, 1.0, numbers)


@pytest.mark.parametrize(
    "numbers", [pytest.param(False, marks=pytest.mark.slow, id="classes"), pytest.param(True, id="numbers")]
)
def test_a_band_is_the_deviation_of_curves_over_releases_of_the_same_records(numbers: bool) -> None:
    noise = 1e-3
    many = [released(noise, seed, numbers)[2].readable().values for seed in range(1, 41)]
    true = np.concatenate([np.std(values, axis=0)[:, 0] for values in zip(*many, strict=True)])
    seen = released(noise, 0, numbers)[2]
    bands = banded(seen, seen.readable(), draws=40).bands
    assert bands is not None
    held = np.concatenate([np.arange(10), [11, 12, 13]])  # bins that hold records
    ratio = np.concatenate(bands)[held] / true[held]
    assert np.exp(np.mean(np.log(ratio))) == pytest.approx(1, abs=0.2)
    assert ratio.min() > 0.5
    assert ratio.max() < 2


def test_drawn_releases_have_the_noise_that_is_stated() -> None:
    seen = released(1e-3, 0)[2]
    drawn = drawn_again(seen, None, 400)
    off = np.triu_indices(BINS.width, 1)
    matrices = np.stack([one.matrix for one in drawn])
    assert matrices.std(axis=0).diagonal().mean() == pytest.approx(1e-3, rel=0.05)
    assert matrices.std(axis=0)[off].mean() == pytest.approx(1e-3 / 2**0.5, rel=0.05)
    assert np.stack([one.cross for one in drawn]).std(axis=0).mean() == pytest.approx(1e-3, rel=0.05)


def test_bands_are_in_the_file_and_without_noise_there_are_none(tmp_path: Path) -> None:
    seen = released(1e-3, 0)[2]
    curves = banded(seen, seen.readable(), draws=3)
    curves.save(tmp_path / "curves.json")
    read = Curves.read(tmp_path / "curves.json")
    assert curves.bands is not None
    assert read.bands is not None
    assert all(np.array_equal(one, two) for one, two in zip(read.bands, curves.bands, strict=True))
    exact = replace(seen, noise=0.0, cross_noise=0.0)
    bare = exact.readable()
    assert banded(exact, bare) is bare


@pytest.mark.slow
def test_a_run_draws_the_curves_of_its_release_and_what_it_shows_was_released(tmp_path: Path) -> None:
    records, y = made(4000)
    records["job"] = records["job"].replace("pilot", np.nan)
    records.assign(y=y).to_csv(tmp_path / "a.csv", index=False)
    tree = plan_of(str(tmp_path / "a.csv")).as_json() | {"partition": {"kind": "iid", "agents": 4}}
    (tmp_path / "plan.toml").write_text(toml_of(tree), "utf-8")
    assert main(["run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "run")]) == 0
    told = Curves.read(tmp_path / "run" / "curves.json")
    assert told.bands is not None
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "the fit was made again on drawn releases" in page
    assert "as it was released" in page
    drawn = shapes(told.as_json())
    assert drawn is not None
    heights = [step["low"] - step["top"] for chart in drawn["charts"] for step in chart["steps"]]
    assert len({round(height, 1) for height in heights}) > 3  # each bin has its own


def rounds_to(goal: float, rows: np.ndarray, labels: np.ndarray, root: np.ndarray, at: np.ndarray) -> int:
    """Rounds of gradient descent on the logistic loss, in coordinates P⁻¹θ, until it is within `goal` of its least."""
    moved = rows @ root
    loss = lambda u: float(np.mean(np.logaddexp(0, -labels * (moved @ u))))  # noqa: E731
    slope = lambda u: -moved.T @ (labels / (1 + np.exp(labels * (moved @ u)))) / len(labels)  # noqa: E731
    step = 4 / np.linalg.eigvalsh(moved.T @ moved / len(labels)).max()
    u = np.linalg.solve(root, at)
    for k in range(3000):
        if loss(u) < goal:
            return k
        u = u - step * slope(u)
    return 3000


def test_gradient_descent_takes_fewer_rounds_with_the_release_as_preconditioner_and_start() -> None:
    ones, labels, seen = released(1e-3, 0)
    rows = ones @ basis_of(BINS)  # the features of an additive model
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    used = rows[:, np.abs(rows).max(axis=0) > 0]
    best = fitted(used, labels)
    goal, plain, none = best + 1e-3, np.eye(BINS.width), np.zeros(BINS.width)
    slow = rounds_to(goal, rows, labels, plain, none)
    fast = rounds_to(goal, rows, labels, seen.preconditioner(), none)
    warm = rounds_to(goal, rows, labels, seen.preconditioner(), seen.start())
    assert fast < slow / 3
    assert warm <= fast
    assert np.allclose(rows @ seen.start(), ones @ seen.weights())


def fitted(rows: np.ndarray, labels: np.ndarray) -> float:
    """The least logistic loss, by Newton's method."""
    theta = np.zeros(rows.shape[1])
    for _ in range(20):
        odds = 1 / (1 + np.exp(-rows @ theta))
        bent = (rows * (odds * (1 - odds))[:, None]).T @ rows
        theta += np.linalg.lstsq(bent, rows.T @ ((labels + 1) / 2 - odds), rcond=1e-10)[0]
    return float(np.mean(np.logaddexp(0, -labels * (rows @ theta))))
