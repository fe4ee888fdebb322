"""The rules of an account: closed forms, any order of draws, units, and what may not be added."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.privacy import gdp, rdp
from coterie.privacy.accountants import account
from coterie.privacy.events import (
    DiscreteGaussian,
    Event,
    Free,
    Gaussian,
    Laplace,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    SampledGaussian,
)
from coterie.privacy.filter import BudgetExceeded, best_order
from coterie.privacy.ledger import Budget
from coterie.privacy.lifetime import DrawCost, Lifetime

BUDGET = Budget(2.0, 1e-5)
ROOM = 0.99  # of δ: the rest is kept for events that have a δ of their own


def spend(rules: Lifetime, events: list[Event]) -> tuple[DrawCost, int]:
    """Draw one by one what fits: the total, and how many did."""
    spent, drawn = DrawCost(), 0
    for event in events:
        cost = rules.price([event])
        try:
            rules.need(spent, cost, rules.limit)
        except BudgetExceeded:
            continue
        spent, drawn = spent + cost, drawn + 1
    return spent, drawn


def test_equal_gaussian_draws_cost_what_the_closed_form_says() -> None:
    """k draws of μ are one of √k μ; as many fit as μ² goes into the limit, by an independent 40-digit formula."""
    rules, mu = Lifetime(BUDGET), 0.07
    with mpmath.workdps(40):
        eps, low, high = mpmath.mpf(2), mpmath.mpf("1e-6"), mpmath.mpf(10)
        for _ in range(120):
            m = (low + high) / 2
            delta = mpmath.ncdf(m / 2 - eps / m) - mpmath.exp(eps) * mpmath.ncdf(-m / 2 - eps / m)
            low, high = (m, high) if delta < mpmath.mpf(1e-5) * ROOM else (low, m)
        fit = int(mpmath.floor(low**2 / mpmath.mpf(mu) ** 2))
    spent, drawn = spend(rules, [Gaussian(mu, 1.0)] * (fit + 20))
    assert drawn == fit
    assert rules.epsilon(spent) == pytest.approx(float(gdp.epsilon_of(mu * fit**0.5, 1e-5)), rel=1e-12)
    assert rules.epsilon(spent) <= 2.0


def test_what_is_left_is_what_fits() -> None:
    """A draw of exactly that ε at the same δ is accepted, and one a thousandth larger is not."""
    rules = Lifetime(BUDGET)
    spent, _ = spend(rules, [Gaussian(1.0, 9.0)] * 3)
    left = rules.left(spent)
    assert left > rules.budget.epsilon - rules.epsilon(spent)  # μ² adds, and not ε
    for factor, fits in ((1 - 1e-9, True), (1.001, False)):
        cost = rules.price([Gaussian(float(gdp.mu_for(left * factor, 1e-5)), 1.0)])
        if fits:
            rules.need(spent, cost, rules.limit)
        else:
            with pytest.raises(BudgetExceeded, match="out of budget: the draw costs"):
                rules.need(spent, cost, rules.limit)
    assert rules.left(rules.limit) == 0.0


gaussians = st.lists(st.floats(0.001, 0.9), min_size=1, max_size=30)


@settings(deadline=None, max_examples=30)
@given(gaussians, st.randoms(use_true_random=False))
def test_any_sequence_of_draws_stays_within_the_budget(sizes: list[float], random: object) -> None:
    rules, events = Lifetime(BUDGET), [Gaussian(mu, 1.0) for mu in sizes]
    exact = Fraction(float(gdp.mu_for(2.0, ROOM * 1e-5))) ** 2
    total, taken = Fraction(0), []
    spent = DrawCost()
    for event in events:
        cost = rules.price([event])
        fits = total + Fraction(rules._filter.meter.cost(event)) <= exact * (1 - Fraction(1, 10**12))
        try:
            rules.need(spent, cost, rules.limit)
        except BudgetExceeded:
            assert not fits
            continue
        spent, total = spent + cost, total + Fraction(rules._filter.meter.cost(event))
        taken.append(event)
        assert spent.units >= total * 2**96  # rounded up, never down
    if taken:
        assert account(taken, 1e-5, fast=True).epsilon <= 2.0  # the tightest accountant agrees that it fits
        assert rules.epsilon(spent) == pytest.approx(account(taken, 1e-5, fast=True).epsilon, rel=1e-9)
        other = list(taken)
        random.shuffle(other)  # type: ignore[attr-defined]
        assert spend(rules, other) == (spent, len(taken))


@settings(deadline=None, max_examples=8)
@given(st.lists(st.sampled_from([
    Gaussian(1.0, 30.0), Pure(0.01), Laplace(1.0, 0.02), SampledGaussian(4.0, 0.01, times=5),
    DiscreteGaussian(1.0, 20.0), ObjectivePerturbation(0.001, 0.05, 0.01),
]), max_size=60))  # fmt: skip
def test_of_any_kind_in_the_renyi_measure(events: list[Event]) -> None:
    """All of them add at the one order that the budget fixed; the tightest accountant of the whole is never more."""
    rules = Lifetime(BUDGET, "renyi")
    spent, drawn = spend(rules, events)
    if drawn == len(events):
        assert account(events, 1e-5, fast=True).epsilon <= 2.0
        order = best_order(2.0, ROOM * 1e-5)
        exact = sum(rules._filter.meter.cost(event) for event in events)
        assert spent.units / 2**96 == pytest.approx(exact, rel=1e-12)
        if events:
            assert rules.epsilon(spent) == pytest.approx(float(rdp.epsilon_from([order], [exact], 1e-5)[0]), abs=1e-12)


def test_one_gaussian_in_the_renyi_measure_by_hand() -> None:
    """D_α = αμ²/2 at the order of the budget, and the limit is what converts to (ε, δ) there."""
    rules = Lifetime(BUDGET, "renyi")
    order, delta = best_order(2.0, ROOM * 1e-5), ROOM * 1e-5
    assert rules.price([Gaussian(1.0, 10.0)]).units / 2**96 == pytest.approx(order * 0.01 / 2, rel=1e-12)
    by_hand = 2.0 - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
    assert rules.limit.units / 2**96 == pytest.approx(by_hand, rel=1e-12)


def test_pure_draws_add_their_epsilon() -> None:
    rules = Lifetime(Budget(1.0, 0.0), "pure")
    spent, drawn = spend(rules, [Pure(0.125)] * 20)
    assert drawn == 8
    assert rules.epsilon(spent) == 1.0
    assert rules.left(spent) == 0.0
    with pytest.raises(InputError, match="Gaussian has no finite cost in the pure measure"):
        rules.price([Gaussian(1.0, 10.0)])


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 1.0, 3.0, 12.0])
def test_a_gaussian_dominates_every_pure_release_of_that_mu_and_of_none_smaller(epsilon: float) -> None:
    """δ of randomised response at every ε′ is at most the Gaussian's; the twin with a μ 0.1 % smaller is caught."""
    mu = float(gdp.mu_of_pure(epsilon))
    at = np.linspace(0.0, epsilon, 400, endpoint=False)
    worst = -np.expm1(at - epsilon) / (1 + np.exp(-epsilon))  # δ(ε′) of the pair (p, 1 − p), p = e^ε/(1 + e^ε)
    assert np.all(gdp.delta_of(mu, at) >= worst * (1 - 1e-9))
    # at ε′ = 0, the total variation, the two touch
    assert gdp.delta_of(mu, 0.0) == pytest.approx(worst[0], rel=1e-9)
    assert gdp.delta_of(0.999 * mu, 0.0) < worst[0] * (1 - 1e-7)
    assert np.isinf(gdp.mu_of_pure(np.inf))
    with pytest.raises(InputError, match="must be >= 0"):
        gdp.mu_of_pure(-1.0)


# ---- units -----------------------------------------------------------------------------------------------------------


def test_a_person_with_k_records_pays_k_times_mu() -> None:
    """ε = 1 per record at δ = 1e-5 is 2.15, 6.17, 14.4 and 102 for people with 2, 5, 10 and 40 records."""
    one = [Gaussian(float(gdp.mu_for(1.0, 1e-5)), 1.0)]
    for k, epsilon in ((2, 2.15), (5, 6.17), (10, 14.4), (40, 102)):
        people = Lifetime(Budget(200.0, 1e-5), unit="person", most=k).check()
        assert people.epsilon(people.price(one, "record")) == pytest.approx(epsilon, rel=4e-3)
        assert people.epsilon(people.price(one, "person")) == pytest.approx(1.0)
    pure = Lifetime(Budget(200.0, 0.0), "pure", "person", 7).check()
    assert pure.epsilon(pure.price([Pure(0.5)], "record")) == 3.5


def test_the_group_bound_is_not_smaller_than_any_worlds_distance() -> None:
    """k changed records move a sum of clipped numbers by k times one's sensitivity: the Gaussian of that is the price.

    The twin that charges √k, as if the records were draws, is below it.
    """
    k, noise = 6, 10.0
    moved = k * 2.0  # each of k records from −1 to 1
    exact = (moved / noise) ** 2
    rules = Lifetime(BUDGET._replace(epsilon=100.0), unit="person", most=k)
    assert rules.price([Gaussian(2.0, noise)]).units / 2**96 >= exact * (1 - 1e-12)
    assert k * (2.0 / noise) ** 2 < exact


@pytest.mark.parametrize(
    ("rules", "events", "unit", "reason"),
    [
        (Lifetime(BUDGET, unit="person"), [Gaussian(1.0, 9.0)], "record", "per record, and the account is for people"),
        (Lifetime(BUDGET), [Gaussian(1.0, 9.0)], "person", "per person, and the account is for records"),
        (Lifetime(BUDGET), [Gaussian(1.0, 9.0, adjacency="zero-out")], "record", "zero-out, and the account is for"),
        (Lifetime(BUDGET), [NonPrivate()], "record", "without noise: no account can pay"),
        (Lifetime(BUDGET), [DiscreteGaussian(1.0, 9.0)], "record", "no finite cost in the gaussian measure"),
        (Lifetime(BUDGET), [Gaussian(1.0, 0.0)], "record", "no finite cost"),
        (
            Lifetime(BUDGET, unit="person", most=3), [Gaussian(1.0, 9.0, slack=1e-9)], "record",
            "adds to δ by record: for a person with 3 records",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_added_is_refused(rules: Lifetime, events: list[Event], unit: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        rules.price(events, unit)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unit": "patient"}, "unit must be one of record, person, got 'patient'"),
        ({"measure": "pld"}, "measure must be one of renyi, gaussian, pure"),
        ({"against": "nobody"}, "against must be one of agreed, everybody"),
        ({"adjacency": "swap"}, "adjacency must be one of replace-one"),
        ({"budget": Budget(-1.0, 1e-5)}, "epsilon must be > 0"),
        ({"budget": Budget(1.0, 0.0)}, "delta = 0 goes with the pure measure"),
        ({"measure": "pure"}, "delta = 0 goes with the pure measure"),
        ({"most": 3}, "most is the largest number of records of a person"),
        ({"unit": "person", "most": 0}, "from 1 up, got 0"),
        ({"unit": "person", "most": 3, "measure": "renyi"}, "under a Rényi curve"),
        ({"reserve": 1e-5}, "above the reserve"),
    ],
)  # fmt: skip
def test_rules_that_make_no_sense(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        Lifetime(BUDGET)._replace(**changes).check()
    assert "\n" not in str(error.value)


def test_a_delta_of_its_own_comes_out_of_the_reserve() -> None:
    """(ε, δ) by other means: at worst all with chance δ, else pure ε."""
    rules = Lifetime(Budget(4.0, 1e-5), "renyi", reserve=5e-6)
    spent, drawn = spend(rules, [Pure(0.1, slack=2e-6)] * 4)
    assert drawn == 2
    assert spent.slack / 2**256 == pytest.approx(4e-6, rel=1e-12)
    with pytest.raises(BudgetExceeded, match="adds 2e-06 to δ by itself, and 1e-06 is left"):
        rules.need(spent, rules.price([Pure(0.1, slack=2e-6)]), rules.limit)
    deployed = [Gaussian(1.0, 100.0, times=40, tv=1e-30)]  # samplers' tables
    assert 0 < Lifetime(BUDGET).price(deployed).slack < Lifetime(BUDGET).limit.slack
    assert Lifetime(BUDGET).price([Free()]) == DrawCost()


def test_the_dearest_party_pays_for_all() -> None:
    rules, cheap, dear = Lifetime(BUDGET), [Gaussian(1.0, 30.0)], [Gaussian(1.0, 20.0), Free()]
    assert rules.dearest([cheap, dear, cheap]) is dear
