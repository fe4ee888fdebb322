"""Totals: golden values of the specifications, dp-accounting on its own ground, and the laws of composition."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from coterie.errors import InputError
from coterie.privacy import gdp
from coterie.privacy.accountants import account, delta_of, total_mu
from coterie.privacy.events import (
    DiscreteGaussian,
    Event,
    Free,
    Gaussian,
    L2Laplace,
    Laplace,
    LaplaceUniform,
    MaskedGaussian,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    SampledGaussian,
    SparseVector,
)
from coterie.privacy.rdp import zcdp_rho
from tests.printed import printed_sigma

# ---- golden values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "rho", "exact", "ratio"),
    [
        (0.1, 2.6997e-4, 0.0524, 1.756),
        (0.5, 6.6077e-3, 0.3228, 1.476),
        (1, 0.0257628, 0.6937, 1.383),
        (5, 0.53994, 3.9823, 1.209),
        (10, 1.81739, 8.3569, 1.152),
    ],
)
def test_waste_of_the_printed_conversion(target: float, rho: float, exact: float, ratio: float) -> None:
    assert zcdp_rho(target, 1e-4) == pytest.approx(rho, rel=3e-5)
    printed = Gaussian(1.0, 1 / np.sqrt(2 * rho))
    total = account([printed], 1e-4, fast=True)
    assert total.accountant == "gdp"
    assert total.epsilon == pytest.approx(exact, abs=6e-5)
    assert printed.sigma * gdp.mu_for(target, 1e-4) == pytest.approx(ratio, abs=6e-4)
    assert exact < account([printed], 1e-4).all["zcdp"] < target


def test_l2_laplace_golden() -> None:
    total = account([L2Laplace(0.3, 1.0, 14, times=100)], 1e-5)
    assert total.accountant == "pld"
    assert round(total.epsilon, 2) == 3.39
    assert total.all["basic"] == pytest.approx(30)
    assert round(account([Pure(0.3, times=100)], 1e-5).epsilon, 1) == 16.1
    assert delta_of([L2Laplace(0.3, 1.0, 14)], 0.15) == pytest.approx(7.448e-4, rel=1e-3)


def test_mixture_golden() -> None:
    assert delta_of([LaplaceUniform(5.0, 0.5, 0.2)], 0.3) == pytest.approx(0.18389097, rel=1e-4)


def test_sampled_golden_by_three_rules() -> None:
    rules = {
        0.354: SampledGaussian(6.2, 0.02, scheme="poisson", times=1000),
        0.374: SampledGaussian(6.2, 0.02, times=1000),
        0.832: SampledGaussian(6.2, 0.02, discrete=True, times=1000),
    }
    for printed, event in rules.items():
        assert round(account([event], 1e-5).epsilon, 3) == printed


@pytest.mark.parametrize(
    ("claimed", "rounds", "fixed", "spread"),
    [
        pytest.param(1.0, 99, (0.42, 0.46), (5.22, 5.23), marks=pytest.mark.slow),
        pytest.param(1.0, 495, (0.36, 0.39), (0.41, 0.44), marks=pytest.mark.slow),
        pytest.param(1.5, 99, (0.78, 0.86), (13.25, 13.29), marks=pytest.mark.slow),
    ],
)
def test_deadline_batches(claimed: float, rounds: int, fixed: tuple[float, float], spread: tuple[float, float]) -> None:
    """m = 1000 records, printed noise: batches of 20, and each b in 4…36 equally often [lower, upper bound]."""
    sigma = printed_sigma(claimed, 1000, rounds, 1e-5)
    one = account([SampledGaussian(sigma * 20 / 2, 0.02, times=rounds)], 1e-5).epsilon
    b = np.arange(4, 37)
    many = account([SampledGaussian(sigma * b / 2, b / 1000, times=rounds // 33)], 1e-5).epsilon
    assert fixed[0] <= round(one, 2) == fixed[1]
    assert spread[0] <= many == pytest.approx(spread[1], abs=0.02)


def test_objective_perturbation_golden() -> None:
    n, strong, rounds = 7000, 2.001, 30
    kappa = 0.25 / (n * strong)
    assert np.log1p(kappa) == pytest.approx(1.784806e-5, rel=1e-6)
    parameters = (2 / n, 5.01545e-3, kappa, 2e-6 / strong, 1.74574e-4)
    total = account([ObjectivePerturbation(*parameters, monotone=True, times=rounds)], 1e-4)
    assert total.accountant == "objective-perturbation-A"
    assert total.epsilon == pytest.approx(1.0, abs=2e-6)
    # without the monotone loss only the Rényi bounds are left
    general = account([ObjectivePerturbation(*parameters, times=rounds)], 1e-4)
    assert list(general.all) == ["rdp"]
    assert general.epsilon > total.epsilon


def test_objective_perturbation_formula_with_gaussian_tests() -> None:
    """μ² = T(Δ_q/σ_q)² + c[…], δ = e^{cJ} δ_G(μ; ε − 2cJ); no Jacobian and no test reduce it to the Gaussian."""
    kappa, jac = 0.02, 15 * np.log1p(0.02)
    events = [Gaussian(1.0, 20.0, times=30), ObjectivePerturbation(0.5, 10.0, kappa, monotone=True, times=15)]
    mu = np.sqrt(30 / 400 + 15 / 400)
    eps = account(events, 1e-5, fast=True).all["objective-perturbation-A"]
    assert np.exp(jac) * gdp.delta_of(mu, eps - 2 * jac) == pytest.approx(1e-5, rel=1e-9)
    plain = account([ObjectivePerturbation(0.5, 10.0, 0.0, monotone=True, times=15)], 1e-5, fast=True)
    assert plain.epsilon == pytest.approx(account([Gaussian(0.5, 10.0, times=15)], 1e-5, fast=True).epsilon, rel=1e-9)
    zero_out = ObjectivePerturbation(0.5, 10.0, kappa, monotone=True, times=15, adjacency="zero-out")
    eps = account([zero_out], 1e-5).all["objective-perturbation-A"]
    assert gdp.delta_of(np.sqrt(15) / 20, eps - jac) == pytest.approx(1e-5, rel=1e-9)


@pytest.mark.parametrize("tilt", [0.0, -2.0, -8.0])
def test_objective_perturbation_against_exact_densities(tilt: float) -> None:
    """One dimension, logistic loss, one record changed: no exact δ(ε) exceeds the bounds, a weak claim fails."""
    n, strong, sigma = 2, 0.5, 1.0
    theta = np.linspace(-60, 60, 100_001)
    step = theta[1] - theta[0]

    def density(sign: float, strength: float) -> np.ndarray:
        """Law of argmin ℓ(sign·x)/n + strong x²/2 − tilt x + b x, by the change of variables x → b."""
        p = 1 / (1 + np.exp(np.clip(sign * theta, -700, 700)))
        gradient = -strength * sign * p / n + strong * theta - tilt
        curvature = strong + strength * p * (1 - p) / n
        return np.exp(-(gradient**2) / (2 * sigma**2)) / np.sqrt(2 * np.pi) / sigma * curvature

    def exact(p: np.ndarray, q: np.ndarray, eps: float) -> float:
        return max(float(np.maximum(a - np.exp(eps) * b, 0).sum() * step) for a, b in ((p, q), (q, p)))

    kappa = 0.25 / (n * strong)
    replace = [ObjectivePerturbation(2 / n, sigma, kappa, monotone=True)]
    drop = [ObjectivePerturbation(1 / n, sigma, kappa, monotone=True, adjacency="zero-out")]
    weak = [ObjectivePerturbation(1 / n / 4, sigma, 0.0, monotone=True, adjacency="zero-out")]
    worst = 0.0
    for eps in (0.0, 0.1, 0.3, 0.8):
        assert exact(density(1.0, 1.0), density(-1.0, 1.0), eps) <= delta_of(replace, eps) * (1 + 1e-6)
        dropped = exact(density(1.0, 1.0), density(1.0, 0.0), eps)
        assert dropped <= delta_of(drop, eps) * (1 + 1e-6)
        worst = max(worst, dropped - delta_of(weak, eps))
    assert worst > 0


def test_masked_beats_the_plain_gaussian() -> None:
    one = account([MaskedGaussian(0.1, 1.0, 0.3, times=100)], 1e-5)
    assert one.accountant == "rdp"
    assert one.epsilon < one.all["gdp"] == pytest.approx(account([Gaussian(0.1, 1.0, times=100)], 1e-5).epsilon)


def test_xiao_experiment() -> None:
    """1400 Laplace releases of βs = .001·1.02^k (14 coordinates, 100 rounds): printed .663, true .477, pure 4.459."""
    losses = 0.001 * 1.02 ** np.arange(1, 101)
    total = account([Laplace(losses, 1.0, times=14)], 1e-5)
    assert total.epsilon == pytest.approx(0.477, abs=1.5e-3)
    assert round(total.all["basic"], 3) == 4.459
    each = np.repeat(losses, 14)  # the paper's footnote 1: Σ ε tanh(ε/2) + √(2 ln(1/δ) Σ ε²)
    assert round(np.sum(each * np.tanh(each / 2)) + np.sqrt(2 * np.log(1e5) * np.sum(each**2)), 3) == 0.663


# ---- against dp-accounting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 100, 10_000])
def test_gaussian_against_library(rounds: int) -> None:
    sigma = 1.5 * np.sqrt(rounds)
    ours = account([Gaussian(1.0, sigma, times=rounds)], 1e-6)
    law = library.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3 / np.sqrt(rounds))
    theirs = law.self_compose(rounds).get_epsilon_for_delta(1e-6)
    assert ours.epsilon <= theirs
    for value in (ours.epsilon, ours.all["pld"]):
        assert value == pytest.approx(theirs, rel=5e-3)
    assert ours.all["pld"] >= ours.epsilon * (1 - 1e-9)


@pytest.mark.parametrize("rounds", [1, 100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_laplace_against_library(rounds: int) -> None:
    scale = 2.0 * np.sqrt(rounds)
    ours = account([Laplace(1.0, 1 / scale, times=rounds)], 1e-6).epsilon
    step = 1e-2 / rounds**0.75
    high, low = (
        library.from_laplace_mechanism(
            scale, value_discretization_interval=step, pessimistic_estimate=above, use_connect_dots=above
        )
        .self_compose(rounds)
        .get_epsilon_for_delta(1e-6)
        for above in (True, False)
    )
    assert low * (1 - 1e-9) <= ours
    assert ours == pytest.approx(high, rel=5e-3)


@pytest.mark.parametrize(
    ("rounds", "nu", "q", "step"), [(1, 0.8, 0.1, 1e-3), (100, 1.0, 0.02, 2e-4), (10_000, 4.0, 0.02, 2e-5)]
)
def test_poisson_against_library(rounds: int, nu: float, q: float, step: float) -> None:
    ours = account([SampledGaussian(nu, q, scheme="poisson", times=rounds)], 1e-6)
    high, low = (
        library.from_gaussian_mechanism(
            nu, sampling_prob=q, value_discretization_interval=step, pessimistic_estimate=above, use_connect_dots=above
        )
        .self_compose(rounds)
        .get_epsilon_for_delta(1e-6)
        for above in (True, False)
    )
    assert ours.accountant == "pld"
    assert low * (1 - 1e-9) <= ours.epsilon
    assert ours.epsilon == pytest.approx(high, rel=5e-3)


def test_discrete_gaussian_in_one_dimension() -> None:
    total = account([DiscreteGaussian(1.0, 3.0, 1, times=10)], 1e-5)
    assert total.accountant == "pld"
    assert total.epsilon == pytest.approx(account([Gaussian(1.0, 3.0, times=10)], 1e-5).epsilon, rel=1e-2)
    assert list(account([DiscreteGaussian(1.0, 3.0, times=10)], 1e-5).all) == ["rdp", "zcdp"]


# ---- laws ----------------------------------------------------------------------------------------------------------

scales = st.floats(0.5, 20)
EVENTS = st.one_of(
    st.builds(Gaussian, st.floats(0.1, 2), scales),
    st.builds(MaskedGaussian, st.floats(0.1, 2), scales, st.floats(0, 1)),
    st.builds(Pure, st.floats(0, 1)),
    st.builds(SparseVector, st.floats(0, 1), scales, scales, st.integers(1, 3)),
    st.builds(Laplace, st.floats(0.1, 1), st.floats(0.1, 1), st.integers(1, 5), linf=st.floats(0.1, 1)),
    st.builds(ObjectivePerturbation, st.floats(0.1, 1), scales, st.floats(0, 0.1), monotone=st.booleans()),
    st.builds(DiscreteGaussian, st.floats(0.1, 2), scales),
    st.just(Free()),
)
few = settings(max_examples=15, deadline=None)


@few
@given(events=st.lists(EVENTS, min_size=1, max_size=5), seed=st.integers(0, 100))
def test_order_does_not_matter(events: list[Event], seed: int) -> None:
    shuffled = [events[i] for i in np.random.default_rng(seed).permutation(len(events))]
    first, second = account(events, 1e-5), account(shuffled, 1e-5)
    assert first.all.keys() == second.all.keys()
    assert list(first.all.values()) == pytest.approx(list(second.all.values()), rel=1e-9)


@few
@given(event=EVENTS, rounds=st.integers(2, 9))
def test_times_is_a_list_of_copies_and_an_array_of_rounds(event: Event, rounds: int) -> None:
    copies = account([event] * rounds, 1e-5).all
    fields = {name: value for name, value in vars(event).items() if name != "times"}
    counted = account([type(event)(**fields, times=rounds)], 1e-5).all
    mapped = account([type(event)(**fields, times=np.ones(rounds, int))], 1e-5).all
    assert copies == pytest.approx(counted, rel=1e-9)
    assert copies == pytest.approx(mapped, rel=1e-9)


@few
@given(events=st.lists(EVENTS, min_size=1, max_size=3), extra=EVENTS, delta=st.sampled_from([1e-3, 1e-6]))
def test_monotone_in_rounds_and_delta(events: list[Event], extra: Event, delta: float) -> None:
    less, more = account(events, delta), account([*events, extra], delta)
    # the tightest accountant may stop applying when an event joins, never start; grids differ by less than 0.2 %
    assert less.epsilon <= more.epsilon * (1 + 2e-3) + 1e-9
    assert less.epsilon <= account(events, delta / 10).epsilon * (1 + 1e-9)
    assert less.epsilon == min(less.all.values())
    assert delta_of(events, less.epsilon) <= delta * (1 + 1e-3)


@settings(max_examples=4, deadline=None)
@given(scale=scales, factor=st.floats(1.05, 3), rate=st.floats(0.01, 0.9))
def test_monotone_in_noise(scale: float, factor: float, rate: float) -> None:
    makers = [
        lambda s: Gaussian(1.0, s, times=7),
        lambda s: L2Laplace(1.0, 1 / s, 4, times=7),
        lambda s: SampledGaussian(s, rate, times=7),
        lambda s: ObjectivePerturbation(1.0, s, 0.01, times=7),
        lambda s: LaplaceUniform(1 / s, 0.5, 1.0, times=7),
    ]
    for make in makers:
        assert account([make(scale * factor)], 1e-5).epsilon <= account([make(scale)], 1e-5).epsilon * (1 + 1e-9)


def test_heterogeneous_batches_are_the_sum_of_single_events() -> None:
    b = np.array([4, 9, 20, 0])
    together = account([SampledGaussian(3.0, b / 100, times=5)], 1e-5).epsilon
    apart = account([SampledGaussian(3.0, size / 100, times=5) for size in b[:3]], 1e-5).epsilon
    assert together == pytest.approx(apart, rel=1e-9)


@pytest.mark.parametrize("scheme", ["poisson", "without-replacement"])
def test_full_batches_are_the_plain_gaussian(scheme: str) -> None:
    total = account([SampledGaussian(5.0, 1.0, scheme=scheme, times=20)], 1e-5)
    assert total.accountant == "gdp"
    assert total.epsilon == pytest.approx(float(gdp.epsilon_of(np.sqrt(20) / 5, 1e-5)), rel=1e-9)


# ---- δ that is paid elsewhere, and refusals ------------------------------------------------------------------------


def test_slack_and_sampler_distance_are_paid_from_delta() -> None:
    base = [Gaussian(1.0, 10.0, times=50)]
    half = account([Gaussian(1.0, 10.0, times=50, slack=1e-7)], 1e-5).epsilon
    assert half == pytest.approx(account(base, 5e-6).epsilon, rel=1e-9)
    rough = [Gaussian(1.0, 10.0, times=50, tv=1e-9)]
    found = account(rough, 1e-5, fast=True).epsilon
    exact = brentq(lambda eps: delta_of(base, eps, fast=True) + (1 + np.exp(eps)) * 5e-8 - 1e-5, 1, 4)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-6)
    assert delta_of(rough, found, fast=True) <= 1e-5 * (1 + 1e-9)
    assert account([Gaussian(1.0, 10.0, times=50, slack=1e-6)], 1e-5).epsilon == np.inf
    assert account([Pure(0.1, slack=1e-6)], 1e-5).all["basic"] == pytest.approx(0.1)


def test_edges() -> None:
    assert account([], 1e-5).epsilon == 0
    assert account([Free(times=9)], 1e-5).epsilon == 0
    assert account([Gaussian(1.0, 0.1, times=0)], 1e-5).epsilon == 0
    gone = account([Gaussian(1.0, 1.0), NonPrivate()], 1e-5)
    assert (gone.epsilon, gone.accountant) == (np.inf, "non-private")
    assert account([NonPrivate(times=0), Pure(0.5)], 1e-5).epsilon == pytest.approx(0.5, abs=1e-3)
    assert delta_of([NonPrivate()], 1.0) == 1
    assert account([Gaussian(1.0, 0.0)], 1e-5).epsilon == np.inf
    assert account([Pure(0.25, times=4)], 0).epsilon == 1.0
    assert total_mu([Gaussian(3.0, 1.0), Gaussian(4.0, 1.0)]) == pytest.approx(5)
    assert total_mu([Gaussian(3.0, 1.0), Pure(0.1)]) is None


def test_adjacencies_do_not_mix() -> None:
    with pytest.raises(InputError, match="different adjacency: add-remove, replace-one"):
        account([Gaussian(1.0, 1.0), SampledGaussian(1.0, 0.1, scheme="poisson")], 1e-5)
    assert account([Free(), Gaussian(1.0, 1.0, adjacency="zero-out")], 1e-5).adjacency == "zero-out"


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0, np.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(InputError, match="delta must be in"):
        account([Gaussian(1.0, 1.0)], delta)


def test_refusals() -> None:
    with pytest.raises(InputError, match="without a pure guarantee"):
        account([Gaussian(1.0, 1.0)], 0.0)
    with pytest.raises(InputError, match="expected a privacy event"):
        account([object()], 1e-5)  # type: ignore[list-item]
    with pytest.raises(InputError, match="epsilon must be"):
        delta_of([], -1.0)
