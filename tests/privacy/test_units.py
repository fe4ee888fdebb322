"""ε of people by noise that is not Gaussian: never less than what mechanisms of that price really cost, as by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import laplace, norm

from coterie.experiment import public_network
from coterie.explain import paying, unit_block
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy import gdp
from coterie.privacy.events import Gaussian, Laplace, Pure, SampledGaussian
from coterie.privacy.people import at_any_two, at_parties, of_group

DELTA = 1e-5
Cdf = Callable[[np.ndarray], np.ndarray]
EDGES = np.linspace(-40.0, 40.0, 801)


def really(*pairs: tuple[Cdf, Cdf]) -> float:
    """ε at δ of independent noisy numbers with these laws in the two worlds, each seen in bins: no more than the truth.

    δ(ε) = Σ (P − e^ε Q)⁺ over all bins, by its definition.
    """
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = (np.outer(x, np.diff(cdf(EDGES))).ravel() for x, cdf in ((p, one), (q, other)))
    return float(brentq(lambda eps: np.maximum(p - np.exp(eps) * q, 0).sum() - DELTA, 0.0, 60.0))


def laplaces(shift: float, scale: float) -> tuple[Cdf, Cdf]:
    return laplace(0, scale).cdf, laplace(shift, scale).cdf


def batches(nu: float, rate: float, k: int = 1) -> tuple[Cdf, Cdf]:
    """k records move from one end of the clip, where all others are, to the other: a batch has them or has not."""
    assert k == 1 or rate == 1
    return lambda x: (1 - rate) * norm(0, nu).cdf(x) + rate * norm(k, nu).cdf(x), norm(0, nu).cdf


def test_two_parties_with_laplace_noise() -> None:
    each = [[Laplace(1.0, 1 / 2, 1)], [Laplace(1.0, 1 / 3, 1)]]  # sensitivity, rate
    found, true = at_any_two(each, DELTA), really(laplaces(1, 2), laplaces(1, 3))
    assert true <= found <= 1 / 2 + 1 / 3 + 1e-9  # basic composition
    assert true == pytest.approx(5 / 6, rel=1e-3)


def test_two_parties_with_random_batches() -> None:
    each = [[SampledGaussian(1.0, 0.1)], [SampledGaussian(1.5, 0.2)]]
    found, true = at_any_two(each, DELTA), really(batches(1.0, 0.1), batches(1.5, 0.2))
    assert true <= found <= sum(at_parties([one], DELTA / 2) for one in each)
    assert found > max(at_parties([one], DELTA) for one in each)


@pytest.mark.parametrize("k", [2, 5])
def test_several_records_at_one_party(k: int) -> None:
    """k records move what is sent by k sensitivities: of Laplace noise exactly kε, less what δ forgives."""
    true = really(laplaces(k, 2.0))
    assert true == pytest.approx(k / 2 + 2 * np.log1p(-DELTA), rel=1e-3)
    assert true <= of_group([Laplace(1.0, 1 / 2, 1)], k, DELTA) <= k / 2 * (1 + 2e-4)
    assert really(batches(2.0, 1.0, k)) <= of_group([SampledGaussian(2.0, 1.0)], k, DELTA)
    # of a batch, no more than if it were known who is in it: exactly kμ
    sampled = of_group([SampledGaussian(2.0, 0.5)], k, DELTA)
    assert of_group([SampledGaussian(2.0, 0.5)], 1, DELTA) < sampled <= float(gdp.epsilon_of(k / 2, DELTA)) * (1 + 1e-9)


def test_the_two_that_cost_most_together_need_not_be_the_two_that_cost_most() -> None:
    """At this δ the pure one is the dearest and two of it cost less than two of the others."""
    mu = float(gdp.mu_for(0.99, DELTA))
    each = [[Pure(1.0)], [Gaussian(0.98 * mu, 1.0)], [Gaussian(mu, 1.0)]]
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert at_any_two(each, DELTA) == max(at_parties([each[i], each[j]], DELTA) for i, j in pairs)
    many = each * 3  # too many for all pairs: the sum of the two largest at δ/2
    assert at_any_two(many, DELTA) >= max(at_parties(two, DELTA) for two in ([many[0]] * 2, [many[2]] * 2))


def planned(unit: str, name: str, **settings: object) -> Plan:
    options = {"bounds": {"age": [0, 1]}, "classes": ["a", "b"]}
    return validate(
        {
            "data": {"source": "csv", "path": "x.csv", "label": "ill", "person": "p", "unit": unit, "options": options},
            "partition": {"kind": "iid", "agents": 3, "sizes": [40, 40, 60]}, "graph": {"kind": "complete"},
            "problem": {"loss": "logistic", "dim": 2}, "algorithm": {"name": name, **settings},
            "privacy": {"epsilon": [1.0, 0.4, 0.7], "delta": DELTA}, "run": {"rounds": 1},
        }
    )  # fmt: skip


def test_algorithms_of_other_laws_say_what_people_pay() -> None:
    """By hand: 1.7 of pure budgets 1 and 0.7; of batches, between the dearest party and the sum of two at δ/2."""
    plan = planned("person", "ldp-dgd")
    told = unit_block(plan, price(plan, public_network(plan)))
    two = told["person_at_two_parties"]
    assert two is not None
    assert 1.7 + 2 * 2 * np.log1p(-DELTA) - 1e-4 <= two <= 1.7 * (1 + 1e-3)
    plan = planned("person", "dp-dsgd", batch=8)
    priced = price(plan, public_network(plan))
    two = unit_block(plan, priced)["person_at_two_parties"]
    (a,), _, (c,) = sorted(paying(priced), key=lambda one: float(np.ravel(one[0].noise_multiplier)[0]))  # type: ignore[attr-defined]
    halves = sorted((at_parties([one], DELTA / 2) for one in paying(priced)), reverse=True)[:2]
    assert two is not None
    assert two <= sum(halves)
    nu = [float(np.ravel(e.noise_multiplier)[0]) for e in (a, c)]  # type: ignore[attr-defined]
    rate = [float(np.ravel(e.rate)[0]) for e in (a, c)]  # type: ignore[attr-defined]
    assert two >= really(batches(nu[0], rate[0]), batches(nu[1], rate[1]))
    plan = planned("record", "dvp")
    many = unit_block(plan, price(plan, public_network(plan)))["of_records"]
    assert all(float(many[str(k)] or 0) >= k * 0.999 for k in (2, 5, 10, 40))


def test_what_may_fail_does_so_more_often_for_a_group() -> None:
    """Noise that is left out with chance 1e-6 for one record is left out with k times that for k of them, at least."""
    flawed = [Gaussian(0.3, 1.0, slack=1e-6)]
    assert of_group(flawed, 10, DELTA) > of_group([Gaussian(0.3, 1.0)], 10, DELTA)
    assert of_group(flawed, 20, 1.5e-5) == np.inf
