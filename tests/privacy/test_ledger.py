"""The ledger never passes its budget, records only what it allowed, and says why it stopped."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.privacy import gdp
from coterie.privacy.accountants import account
from coterie.privacy.events import (
    DiscreteGaussian,
    Event,
    Free,
    Gaussian,
    LaplaceUniform,
    MaskedGaussian,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    SampledGaussian,
)
from coterie.privacy.filter import Filter, best_order
from coterie.privacy.ledger import Budget, BudgetExceeded, Ledger, MemoryLedger

BUDGET = Budget(1.0, 1e-5)


def test_charges_add_up_and_the_stop_comes_before_the_record() -> None:
    ledger: Ledger = MemoryLedger(BUDGET)
    event = Gaussian(1.0, 20.0)
    rounds = int(gdp.mu_for(*BUDGET) ** 2 * 400)
    for t in range(rounds):
        ledger.charge(t, event)
    with pytest.raises(BudgetExceeded, match=r"round 28: Gaussian would raise epsilon from .* to .*, budget 1 at"):
        ledger.charge(rounds, event)
    assert len(ledger.entries) == rounds == 28
    assert ledger.spent() == pytest.approx(account([event] * rounds, 1e-5, fast=True).epsilon)
    assert [entry.total for entry in ledger.entries] == pytest.approx(np.arange(1, rounds + 1) / 400)
    assert [entry.round for entry in ledger.entries] == list(range(rounds))


def test_the_stop_is_final_but_free_messages_pass() -> None:
    ledger = MemoryLedger(BUDGET)
    ledger.charge(0, Gaussian(1.0, 5.0))
    with pytest.raises(BudgetExceeded):
        ledger.charge(1, Gaussian(1.0, 1.0))
    with pytest.raises(BudgetExceeded, match="closed by an earlier stop"):
        ledger.charge(2, Gaussian(1e-9, 1.0))
    ledger.charge(3, Free())
    assert len(ledger.entries) == 2


def test_entries_cannot_be_edited() -> None:
    ledger = MemoryLedger(BUDGET)
    ledger.charge(0, Gaussian(1.0, 10.0))
    assert isinstance(ledger.entries, tuple)
    with pytest.raises(AttributeError):
        ledger.entries[0].total = 0.0  # type: ignore[misc]


def charge_at_random(count: int, seed: int) -> None:
    """Random sequences of Gaussian charges; after every refusal a new ledger with a random budget."""
    rng = np.random.default_rng(seed)
    done = 0
    while done < count:
        budget = Budget(float(np.exp(rng.uniform(-3, 2))), float(10.0 ** rng.uniform(-9, -3)))
        limit = float(gdp.mu_for(*budget)) ** 2
        ledger = MemoryLedger(budget)
        scale = np.exp(rng.uniform(-1, 4))
        with contextlib.suppress(BudgetExceeded):
            for t in range(200):
                done += 1
                ledger.charge(t, Gaussian(float(rng.exponential()), scale, times=int(rng.integers(0, 3))))
        charged = [entry.event for entry in ledger.entries]
        totals = [entry.total for entry in ledger.entries]
        assert np.all(np.diff(totals) >= 0)
        independent = sum(event.times * (event.sensitivity / event.sigma) ** 2 for event in charged)
        assert independent <= limit * (1 + 1e-9)
        if charged:
            assert totals[-1] == pytest.approx(independent, rel=1e-9)
            assert ledger.spent() <= budget.epsilon * (1 + 1e-9)


def test_random_charges_never_exceed_the_budget() -> None:
    charge_at_random(5_000, 1)


@pytest.mark.slow
def test_a_hundred_thousand_random_charges() -> None:
    charge_at_random(100_000, 2)


kinds = st.one_of(
    st.builds(Gaussian, st.floats(0, 1), st.floats(1, 30)),
    st.builds(MaskedGaussian, st.floats(0, 1), st.floats(1, 30), st.floats(0, 1)),
    st.builds(DiscreteGaussian, st.floats(0, 1), st.floats(1, 30)),
    st.builds(Pure, st.floats(0, 0.1)),
    st.builds(LaplaceUniform, st.floats(0, 1), st.floats(0, 2), st.floats(0, 0.1)),
    st.builds(SampledGaussian, st.floats(2, 10), st.floats(0, 0.3)),
    st.just(Free()),
)


@settings(max_examples=15, deadline=None)
@given(events=st.lists(kinds, max_size=12), epsilon=st.floats(0.3, 3))
def test_renyi_ledger_stays_within_what_the_accountant_says(events: list[Event], epsilon: float) -> None:
    ledger = MemoryLedger(Budget(epsilon, 1e-5), rule="renyi")
    with contextlib.suppress(BudgetExceeded):
        for t, event in enumerate(events):
            ledger.charge(t, event)
    charged = [entry.event for entry in ledger.entries]
    assert ledger.spent() <= epsilon * (1 + 1e-9)
    # one fixed order is never better than the best accountant for the same events
    assert account(charged, 1e-5, fast=True).epsilon <= ledger.spent() * (1 + 1e-6) + 1e-9


def test_the_first_charge_fixes_the_rule() -> None:
    gaussian = MemoryLedger(BUDGET)
    gaussian.charge(0, Gaussian(1.0, 10.0))
    gaussian.charge(1, Pure(0.01))  # by the μ that dominates it
    with pytest.raises(BudgetExceeded, match="no finite cost under the gaussian rule"):
        gaussian.charge(2, ObjectivePerturbation(1.0, 10.0, 0.1))
    renyi = MemoryLedger(BUDGET)
    renyi.charge(0, Pure(0.01))
    renyi.charge(1, Gaussian(1.0, 20.0))
    pure = MemoryLedger(Budget(0.5, 0.0))
    pure.charge(0, Pure(0.5))
    assert pure.spent() == 0.5
    with pytest.raises(BudgetExceeded):
        pure.charge(1, Pure(1e-6))
    with pytest.raises(BudgetExceeded):
        MemoryLedger(BUDGET).charge(0, NonPrivate())


def test_plan_allows_what_the_tightest_accountant_proved() -> None:
    """Sampled rounds that fit by their loss distribution, but not by any single Rényi order."""
    plan = [SampledGaussian(6.2, 0.02, times=1000)]
    budget = Budget(0.375, 1e-5)
    ledger = MemoryLedger(budget, plan=plan)
    for t in range(0, 1000, 100):
        ledger.charge(t, SampledGaussian(6.2, 0.02, times=100))
    assert 0.373 < ledger.spent() <= 0.375
    with pytest.raises(BudgetExceeded, match="not in the plan, or is used up"):
        ledger.charge(1000, SampledGaussian(6.2, 0.02))
    with pytest.raises(BudgetExceeded):
        MemoryLedger(budget, rule="renyi").charge(0, plan[0])


def test_plan_in_any_order_with_gaps_and_rounding() -> None:
    sigma = np.array([3.0, 4.0, 5.0, 6.0])
    ledger = MemoryLedger(Budget(5.0, 1e-5), plan=[Gaussian(1.0, sigma), Free()])
    ledger.charge(0, Gaussian(1.0, 6.0 * (1 + 1e-12)))
    ledger.charge(1, Gaussian(1.0, 3.0))
    ledger.charge(2, Free())
    with pytest.raises(BudgetExceeded, match=r"Gaussian \(.*sigma 2.9.*\) is not in the plan"):
        ledger.charge(3, Gaussian(1.0, 2.9))
    assert len(ledger.entries) == 3


def test_plan_that_does_not_fit() -> None:
    with pytest.raises(BudgetExceeded, match="the plan costs epsilon"):
        MemoryLedger(BUDGET, plan=[Gaussian(1.0, 1.0)])
    with pytest.raises(InputError, match="not both"):
        MemoryLedger(BUDGET, plan=[Gaussian(1.0, 20.0)], rule="renyi")


# ---- filters -------------------------------------------------------------------------------------------------------


def test_renyi_filter_limit_converts_back() -> None:
    order = best_order(1.0, 1e-5)
    budget = Filter(1.0, 1e-5)
    assert budget.meter.order == order == int(order)
    budget.spent = budget.limit
    assert budget.epsilon() == pytest.approx(1.0)


def test_widths_that_depend_on_the_transcript() -> None:
    """A narrow announced width costs more; the filter charges what is announced and stops in time."""
    rng = np.random.default_rng(0)
    budget, width, rounds = Filter(1.0, 1e-5), 1.0, 0
    while not budget.would_exceed(LaplaceUniform(1.0, width, 0.05)):
        budget.spend(LaplaceUniform(1.0, width, 0.05))
        width, rounds = float(rng.exponential()), rounds + 1
    wide, narrow = (budget.meter.cost(LaplaceUniform(1.0, w, 0.05)) for w in (10.0, 0.0))
    assert wide < narrow
    assert budget.limit / narrow - 1 <= rounds <= budget.limit / wide
    assert budget.epsilon() <= 1.0


def test_reserve_pays_for_slack() -> None:
    event = Gaussian(1.0, 30.0, slack=1e-7)
    with pytest.raises(BudgetExceeded, match="left in reserve"):
        Filter(1.0, 1e-5).spend(event)
    budget = Filter(1.0, 1e-5, "gaussian", reserve=2.5e-7)
    budget.spend(event)
    budget.spend(event)
    assert budget.would_exceed(event)
    assert not budget.would_exceed(Gaussian(1.0, 30.0))
    priced = Filter(1.0, 1e-5, "gaussian", reserve=1e-7)
    assert priced.would_exceed(Gaussian(1.0, 30.0, tv=1e-7 / (1 + np.e) * 1.001))
    assert not priced.would_exceed(Gaussian(1.0, 30.0, tv=1e-7 / (1 + np.e) * 0.999))


def test_filter_refusals() -> None:
    budget = Filter(1.0, 1e-5, "gaussian")
    budget.spend(Gaussian(1.0, 30.0))
    with pytest.raises(InputError, match="different adjacency"):
        budget.spend(Gaussian(1.0, 30.0, adjacency="zero-out"))
    with pytest.raises(InputError, match="sigma must be"):
        budget.spend(Gaussian(1.0, -1.0))
    with pytest.raises(InputError, match="rule must be"):
        Filter(1.0, 1e-5, "best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="epsilon must be"):
        Filter(-1.0, 1e-5)
    with pytest.raises(InputError, match="delta must be"):
        Filter(1.0, 0.0)
    with pytest.raises(InputError, match="leaves nothing"):
        Filter(0.1, 1e-9, order=2.0)
    with pytest.raises(InputError, match="order must be"):
        Filter(1.0, 1e-5, order=1.0)
    assert Filter(5.0, 1e-5, order=7.5).would_exceed(SampledGaussian(100.0, 0.01, discrete=True))


@pytest.mark.parametrize("budget", [Budget(0.0, 1e-5), Budget(1.0, 1.0)])
def test_bad_budgets(budget: Budget) -> None:
    with pytest.raises(InputError, match="must be"):
        MemoryLedger(budget)
