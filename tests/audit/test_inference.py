"""Attributes and records that are guessed: attacks that work where noise is missing, and never beat the bound."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.stats import norm

import coterie as ct
from coterie import cli
from coterie.algorithms.base import find
from coterie.audit.inference import CONFIDENCE, Inferred, candidates_of, infer, most_right, without_noise
from coterie.audit.setting import make_setting
from coterie.losses.base import find_loss
from coterie.privacy import gdp


def test_two_candidates_and_gaussian_noise_are_a_normal_integral() -> None:
    """½ + TV/2 = Φ(μ/2)."""
    for mu in (0.1, 1.0, 4.0):
        assert most_right(2, lambda e, mu=mu: float(gdp.delta_of(mu, e))) == pytest.approx(norm.cdf(mu / 2), abs=1e-9)


@pytest.mark.parametrize(("candidates", "epsilon"), [(2, 0.5), (3, 1.0), (8, 2.0)])
def test_the_pure_bound_is_reached_by_randomized_response(candidates: int, epsilon: float) -> None:
    """It tells the truth with chance e^ε/(e^ε + m − 1), which is pure ε: no bound can be smaller."""
    truth = np.exp(epsilon) / (np.exp(epsilon) + candidates - 1)
    assert most_right(candidates, lambda e: 0.0 if e >= epsilon else 1.0, epsilon) == pytest.approx(truth)


def test_no_best_guess_beats_the_bound() -> None:
    """Mechanisms with three outputs drawn at random: the best guess, and the least δ at every ε, by enumeration."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        law = rng.dirichlet(rng.uniform(0.2, 3, 4), 3)  # candidates × outputs
        best = law.max(axis=0).sum() / 3

        def curve(e: float, law: np.ndarray = law) -> float:
            gaps = law[:, None, :] - np.exp(e) * law[None, :, :]
            return float(np.maximum(gaps, 0).sum(axis=2).max())

        assert best <= most_right(3, curve) + 1e-12


def test_an_attribute_is_guessed_as_often_as_gaussian_noise_allows() -> None:
    setting = make_setting(find("gauss-avg-gd"), epsilon=2.0, rounds=2)
    found = infer(setting, "attribute", 250)
    assert setting.mu is not None
    assert found.bound == pytest.approx(norm.cdf(setting.mu / 2), abs=1e-9)
    assert found.share == pytest.approx(found.bound, abs=0.07)  # antipodal records: all that the claim allows
    assert not found.refuted
    assert found.bare == 1.0


def test_a_model_without_noise_is_inverted_and_one_with_noise_is_not() -> None:
    setting = make_setting(find("gauss-avg-gd"), epsilon=1.0, rounds=2)
    found = infer(setting, "record", 100)
    assert (found.candidates, found.bare) == (8, 1.0)
    assert found.share <= found.bound + 0.05
    assert found.bound < 0.3
    assert not found.refuted
    silent = infer(without_noise(setting), "record", 20)
    assert silent.share == 1.0
    assert silent.refuted  # the fault: the same claim, and no noise


def test_half_the_noise_is_found_by_the_attribute() -> None:
    setting = make_setting(find("gauss-avg-gd"), epsilon=4.0, rounds=2)
    with jax.enable_x64(True):
        place = eqx.tree_at(lambda p: p.noise, setting.place, setting.place.noise / 2)
    assert infer(dataclasses.replace(setting, place=place), "attribute", 500).refuted


def test_candidates_share_all_but_what_is_guessed() -> None:
    loss = find_loss("squared")
    setting = make_setting(find("dp-dsgd"), problem=loss.make(loss.settings(), 2, 1))
    first, second = candidates_of(setting, "attribute")
    apart = np.asarray(first.first[0]) != np.asarray(second.first[0])
    assert apart.tolist() == [True, False]
    assert first.first[1] == second.first[1]
    records = candidates_of(setting, "record")
    assert len({tuple(p.first[0]) for p in records}) == len(records) == 8
    assert len({p.first[1] for p in records}) == 1


def test_a_correlation_in_the_population_is_learned_all_the_same() -> None:
    """Of people whose records nobody has, an attribute is guessed far above what ε allows about a record."""
    rng = np.random.default_rng(1)

    def people(count: int) -> tuple[np.ndarray, np.ndarray]:
        attribute = rng.choice([-1.0, 1.0], count)
        rest = 0.5 * attribute[:, None] * [0.6, 0.6] + 0.2 * rng.standard_normal((count, 2))
        return np.clip(rest, -0.7, 0.7), attribute

    epsilon = 0.5
    sites = [people(2000) for _ in range(3)]
    trained = ct.train(
        ct.logistic(classes=(-1.0, 1.0)), ct.complete(sites), ct.dp_dsgd(mixing=1), ct.Budget(epsilon, 1e-6), rounds=20,
        seed=0,
    )  # fmt: skip
    rest, attribute = people(2000)
    right = float(np.mean(np.asarray(trained.predict(rest)) == attribute))
    assert right > 0.9
    assert right > most_right(2, lambda e: 1e-6 if e >= epsilon else 1.0, epsilon) + 0.2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["audit", "gauss-avg-gd", "--infer", "--epsilons", "1", "--trials", "50"]
    assert cli.main([*words, "--json", "--out", str(tmp_path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(row["what"], row["seen"]) for row in shown] == [("attribute", "every message"), ("record", "the model")]
    assert json.loads((tmp_path / "inference.json").read_text("utf-8")) == shown
    assert cli.main(["audit", "--infer"]) == 2
    assert cli.main([*words, "--wire"]) == 2
    assert cli.main(["audit", "dgd", "--infer"]) == 2


def test_the_limit_is_one_sided_and_exact() -> None:
    found = Inferred("a", "attribute", "every message", 1.0, 0.0, 2, 100, 100, 1.0, 0.7, 0.99)
    assert found.at_least == pytest.approx(0.01 ** (1 / 100))
    assert Inferred("a", "attribute", "every message", 1.0, 0.0, 2, 100, 0, 1.0, 0.7, 0.99).at_least == 0.0


def test_an_attack_that_could_not_refute_says_so(capsys: pytest.CaptureFixture) -> None:
    """By its failing where no noise is, or by too few trials: all of 4 right is a chance of at least 0.056."""
    held = Inferred("a", "attribute", "every message", 1.0, 0.0, 2, 100, 55, 1.0, 0.7, CONFIDENCE)
    assert held.verdict == "holds"
    assert dataclasses.replace(held, bare=0.6).verdict == "could not check"
    assert dataclasses.replace(held, trials=4, right=2).verdict == "could not check"
    assert dataclasses.replace(held, right=100, bare=0.6).verdict == "refuted"
    assert cli.main(["audit", "gauss-avg-gd", "--infer", "--epsilons", "1", "--trials", "2", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "could not check"


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["dp-dsgd", "hmv-dgd", "dvp", "pp-admm", "sdm", "qdpsgd1", "ldp-dgd", "ldp-admm"])
def test_no_algorithm_is_guessed_better_than_it_claims(slug: str) -> None:
    for epsilon in (1.0, 8.0):
        setting = make_setting(find(slug), epsilon=epsilon)
        for what in ("attribute", "record"):
            assert not infer(setting, what, 500).refuted  # type: ignore[arg-type]
