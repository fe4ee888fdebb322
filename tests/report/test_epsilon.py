"""The numbers of docs/how-to-read-epsilon.md against an independent computation at 40 digits."""

from __future__ import annotations

import re
from pathlib import Path

import mpmath
import numpy as np
import pytest

from coterie.report.epsilon import best_guess, detection, posterior

ROOT = Path(__file__).parents[2]


def mu_of(epsilon: float, delta: float) -> mpmath.mpf:
    """μ with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ, by bisection at 40 digits."""
    with mpmath.workdps(40):
        eps, low, high = mpmath.mpf(epsilon), mpmath.mpf("1e-6"), mpmath.mpf(40)
        for _ in range(120):
            mu = (low + high) / 2
            value = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
            low, high = (mu, high) if value < delta else (low, mu)
        return low


def numbers(name: str) -> dict[float, list[float]]:
    """A generated table of the page: first column → the numbers after it."""
    text = (ROOT / "docs" / "how-to-read-epsilon.md").read_text("utf-8")
    body = text.split(f"<!-- generated: {name} -->\n")[1].split("<!-- end -->")[0]
    rows = [line.strip("|").split("|") for line in body.splitlines()[2:]]
    read = lambda cell: float(re.sub(r"[^\d.e-]", "", cell))  # noqa: E731
    return {read(row[0]): [read(cell) for cell in row[1:]] for row in rows}


def test_odds_on_the_page() -> None:
    for eps, (factor, *beliefs) in numbers("epsilon-odds").items():
        assert factor == pytest.approx(np.exp(eps), rel=5e-3)
        for prior, belief in zip((0.01, 0.1, 0.5), beliefs, strict=True):
            odds = prior / (1 - prior) * np.exp(eps)
            assert belief == pytest.approx(100 * odds / (1 + odds), rel=5e-3)
    assert posterior(1.0, 0.1) == pytest.approx(0.2320, abs=5e-5)  # "a suspicion of 10 % becomes at most 23 %"


def test_detection_rates_on_the_page() -> None:
    for eps, (mu, guess, any_guess, *found) in numbers("epsilon-tests").items():
        exact = mu_of(eps, 1e-5)
        assert mu == pytest.approx(float(exact), abs=5.1e-5)
        assert guess == pytest.approx(float(100 * mpmath.ncdf(exact / 2)), rel=5e-3)
        assert any_guess == pytest.approx(100 * (np.exp(eps) + 1e-5) / (np.exp(eps) + 1), rel=5e-3)
        for alarm, rate in zip((0.05, 0.01, 0.001), found, strict=True):
            quantile = mpmath.findroot(lambda x, a=alarm: mpmath.ncdf(x) - a, -2)
            assert rate == pytest.approx(float(100 * mpmath.ncdf(quantile + exact)), rel=5.1e-3)
            assert rate / 100 <= (np.exp(eps) * alarm + 1e-5) * 1.005  # the worst case of (ε, δ)


def test_repeats_and_noise_on_the_page() -> None:
    mu = mu_of(1.0, 1e-5)
    for k, (runs, added, group) in numbers("epsilon-repeats").items():
        assert added == k
        for eps, scale in ((runs, mpmath.sqrt(k)), (group, mpmath.mpf(k))):
            assert float(mu_of(eps, 1e-5)) == pytest.approx(float(scale * mu), rel=5e-4)
    for n, points in numbers("epsilon-noise").items():
        for eps, sigma in zip((0.1, 0.5, 1.0, 2.0, 4.0, 8.0), points, strict=True):
            assert sigma == pytest.approx(100 / (n * float(mu_of(eps, 1e-5))), rel=0.05)


def test_people_parties_and_a_lifetime_on_the_page() -> None:
    """ε = 1 per record is 2.15, 6.2, 14.4 and 102 for people with 2, 5, 10 and 40 records."""
    mu, people = mu_of(1.0, 1e-5), numbers("epsilon-people")
    assert {k: round(people[k][0], 2) for k in (2, 10, 40)} == {2: 2.15, 10: 14.4, 40: 102}
    assert people[5][0] == pytest.approx(6.2, abs=0.05)
    for k, (person, record) in people.items():
        assert float(mu_of(person, 1e-5)) == pytest.approx(float(k * mu), rel=5e-3)
        assert float(mu_of(record, 1e-5)) == pytest.approx(float(mu / k), rel=5e-3)
    for k, (messages, sums) in numbers("epsilon-parties").items():
        assert float(mu_of(messages, 1e-5)) == pytest.approx(float(mpmath.sqrt(k) * mu), rel=5e-3)
        assert float(mu_of(sums, 1e-5)) == pytest.approx(float(k * mu), rel=5e-3)
        assert sums >= messages
    whole = mu_of(3.0, 0.99e-5) ** 2
    for epsilon, (fit, added) in numbers("epsilon-lifetime").items():
        assert fit == int(mpmath.floor(whole / mu_of(epsilon, 1e-5) ** 2))
        assert added == round(3 / epsilon - 0.4999)
        assert fit >= added


def test_a_wrong_conversion_would_be_noticed() -> None:
    """The classic μ = ε/√(2 ln 1.25/δ), off by 30 % here, would fail the checks above."""
    classic = 1.0 / np.sqrt(2 * np.log(1.25e5))
    assert abs(classic - float(mu_of(1.0, 1e-5))) > 100 * 5.1e-5
    assert detection(1.0, 1e-5, 0.05) != pytest.approx(float(mpmath.ncdf(mpmath.mpf(-1.6449) + classic)), rel=5e-3)
    gaussian, worst = best_guess(1.0, 1e-5)
    assert 0.5 < gaussian < worst < 1
