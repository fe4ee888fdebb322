"""Exchanges in the simulator: same iterates, same integers as the parties, honest refusals, stated prices."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.drivers import agent
from coterie.errors import InputError
from coterie.exchange.additive import SumsHere
from coterie.exchange.choice import Broadcast, Quantized, SecretSum, check_fits
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.planned import statement_of
from coterie.exchange.sums import SumTerms, bytes_per_round
from coterie.experiment import Experiment, prepare
from coterie.graphs import make_graph, mixing
from coterie.plan import validate
from coterie.pricing import Priced, price
from coterie.privacy import gdp
from tests.support import network, run

SUMS = [slug for slug, a in all_algorithms().items() if a.reads != "individuals"]
EVERYDAY = ["dp-dsgd"]
SIZES = [6, 9, 12, 7, 10]


# ---- the simulator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_simulator_opens_the_same_integers_as_the_parties(seed: int) -> None:
    """Shares cancel: the compiled sum and that of the parties agree in every bit."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (7, 40)) * 10.0 ** rng.integers(-9, 6, (7, 40))
    got = SumsHere(SumTerms(FixedPoint(7)), 40).open(list(values))
    with jax.enable_x64(True):
        words = np.asarray(jax.jit(SecretSum(7).opened)(jnp.asarray(values)))
    np.testing.assert_array_equal(words, got.words)


def same_iterates(slug: str) -> None:
    algorithm, rounds = find(slug), 5
    layout = network(5, SIZES, 4, graph="complete", rounds=rounds)
    noise = 0.5 if algorithm.private else 0.0
    plain = run(slug, algorithm.example, layout, noise=noise)
    errors = []
    for bits in (24, 34):
        summed = run(slug, algorithm.example, layout, noise=noise, exchange=SecretSum(5, bits))
        errors.append(np.abs(summed.points - plain.points).max())
        limit = 3 * rounds * 5 * 2.0 ** -(bits + 1)  # a round adds N 2^(−f−1), times how much it stretches
        assert errors[-1] <= limit
        assert summed.extras["cut"] == 0
    assert errors[0] > 100 * errors[1]  # and it is the grid's error, nothing else's


@pytest.mark.parametrize("slug", EVERYDAY)
def test_same_iterates_as_over_broadcast(slug: str) -> None:
    same_iterates(slug)


@pytest.mark.slow
@pytest.mark.parametrize("slug", [s for s in SUMS if s not in EVERYDAY])
def test_same_iterates_of_every_other_algorithm_that_says_it_reads_sums(slug: str) -> None:
    same_iterates(slug)


def test_messages_on_the_wire() -> None:
    layout = network(5, SIZES, 4, graph="complete", rounds=3)
    cfg = find("dgd").example
    sums = SecretSum(5)
    np.testing.assert_allclose(run("dgd", cfg, layout, exchange=sums).bytes, 3 * bytes_per_round(sums.terms, 4) / 4)
    quantized = run("dgd", cfg, layout, exchange=Quantized(8, 4.0))
    assert (quantized.bytes == 3 * (40 + 8 * 4) / 8).all()


@pytest.mark.parametrize("rounding", ["stochastic", pytest.param("nearest", marks=pytest.mark.slow)])
def test_quantized_messages_lie_on_the_grid(rounding: str) -> None:
    """Within one step (nearest: half), counted where cut; more bits bring the run back to the plain one."""
    layout = network(5, SIZES, 4, graph="ring", rounds=8)
    cfg = find("dgd").example
    plain = run("dgd", cfg, layout)
    exchange = Quantized(8, 4.0, rounding)
    coarse = run("dgd", cfg, layout, exchange=exchange)
    steps = coarse.messages.x / exchange.step
    np.testing.assert_array_equal(steps, np.rint(steps))
    first = coarse.messages.x[0, 0] - plain.messages.x[0, 0]
    assert np.abs(first).max() <= exchange.step * (1.0 if rounding == "stochastic" else 0.5) * (1 + 1e-12)
    fine = run("dgd", cfg, layout, exchange=Quantized(30, 4.0, rounding))
    assert np.abs(fine.points - plain.points).max() < 1e-6 < np.abs(coarse.points - plain.points).max()
    assert run("dgd", cfg, layout, exchange=Quantized(8, 0.01, rounding)).extras["cut"] > 0
    assert fine.extras["cut"] == 0


@pytest.mark.slow
def test_stochastic_rounding_is_unbiased_and_nearest_is_not() -> None:
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 4000)
        value = jnp.full(3, 0.3)
        exchange = Quantized(4, 8.0)  # step 1
        laws = exchange.draws(value)
        sent = jax.vmap(lambda k: exchange.send(value, agent.draw(laws, k, value.dtype))[0])(keys)
        assert np.asarray(sent).mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 12_000))
        nearest = Quantized(4, 8.0, "nearest")
        assert nearest.draws(value) == {}
        assert np.asarray(nearest.send(value, {})[0]).tolist() == [0, 0, 0]


def test_numbers_beyond_the_bound_are_cut_and_counted() -> None:
    layout = network(5, SIZES, 4, graph="complete", rounds=4)
    trace = run("dgd", find("dgd").example, layout, exchange=SecretSum(5, bound=1e-3))
    assert trace.extras["cut"] > 0
    with pytest.raises(InputError, match=r"≥ 2\^63"):
        SecretSum(5, fraction_bits=62)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_who_needs_individual_messages_is_refused() -> None:
    graph = make_graph("complete", 5)
    refused = [s for s, a in all_algorithms().items() if a.reads == "individuals"]
    assert {"ldp-dgd", "ldp-dgd-range", "pr-admm"} <= set(refused)
    for slug in refused:
        with pytest.raises(InputError, match=f"{slug} needs individual messages"):
            check_fits(SecretSum(5), find(slug), graph, mixing(graph))
        check_fits(Broadcast(), find(slug), graph, mixing(graph))
    layout = network(5, SIZES, 4, graph="complete", rounds=2)
    for slug in ("ldp-dgd", "ldp-dgd-range"):  # and could not run if it were not refused
        with pytest.raises(InputError, match="opens sums only"):
            run(slug, find(slug).example, layout, exchange=SecretSum(5))


def plan_with(**exchange: object) -> dict:
    return {
        "graph": {"kind": "complete"}, "algorithm": {"name": "gauss-avg-gd"}, "privacy": {"epsilon": 1.0},
        "run": {"rounds": 20}, "exchange": {"kind": "secret-sum", "fraction_bits": 18, **exchange},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": {"kind": "ring", "mixing": "laplacian"}}, "graph.mixing = 'laplacian' is not obeyed by exchange"),
        ({"algorithm": {"name": "ldp-dgd"}}, "ldp-dgd needs individual messages"),
        ({"run": {"rounds": 5, "dtype": "float32"}}, "needs run.dtype = 'float64'"),
        ({"exchange": {"kind": "secret-sum", "fraction_bits": 55}}, "lower bound or fraction_bits"),
        ({"exchange": {"kind": "secret-sum", "honest": 4, "threshold": 3}}, "threshold must be in 4..5 for 5 parties"),
        ({"exchange": {"kind": "secret-sum", "honest": 6}}, "exchange.honest must be in 2..5"),
        ({"exchange": {"kind": "secret-sum", "honest": 4, "fraction_bits": 24}}, "lower exchange.fraction_bits to"),
        (
            {"exchange": {"kind": "secret-sum", "honest": 4, "bound": 1e9, "fraction_bits": 10}},
            "float64 would not keep",
        ),
    ],
)
def test_plans_that_cannot_be_are_refused_in_one_line(change: dict, message: str) -> None:
    plan = validate(plan_with() | change)
    with pytest.raises(InputError, match=message) as caught:
        price(plan, prepare(plan).network)
    assert "\n" not in str(caught.value)


def test_settings_of_another_kind_are_refused() -> None:
    for table, key in (
        ({"kind": "broadcast", "bits": 8}, "bits"),
        ({"kind": "quantized", "threshold": 4}, "threshold"),
        ({"bound": 2.0}, "bound"),
    ):
        with pytest.raises(InputError, match=f"exchange.{key} belongs to exchange.kind"):
            validate({"exchange": table})
    with pytest.raises(InputError, match=r"needs exchange\.honest"):
        validate({"exchange": {"kind": "secret-sum", "noise": "central"}})
    graph = make_graph("ring", 5)
    with pytest.raises(InputError, match="encodes its messages itself"):
        check_fits(Quantized(), find("qdpsgd1"), graph, mixing(graph))


# ---- prices ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def priced() -> dict[str, tuple[Experiment, Priced]]:
    out = {}
    for name, table in (
        ("local", plan_with(honest=3)), ("central", plan_with(honest=3, noise="central", fraction_bits=17)),
    ):  # fmt: skip
        experiment = prepare(validate(table))
        out[name] = experiment, price(experiment.plan, experiment.network)
    return out


def test_the_exchange_costs_nothing_and_says_what_the_sums_imply(priced: dict) -> None:
    experiment, p = priced["local"]
    told = statement_of(experiment.plan, experiment.network.graph, p.spending.worst.epsilon, p.central)
    assert (told.epsilon, told.colluders) == (0.0, 2)  # all but the three that are said to be honest
    assert "the sum of all the others'" in told.revealed
    assert "(1, 1e-05) per record" in told.sums
    assert "central, at least 3 honest parties" in told.text()
    plain = told.as_json()
    assert plain["claim"]["epsilon"] == p.central.account.epsilon
    exact = statement_of(validate({"exchange": {"kind": "secret-sum"}}), make_graph("complete", 5), None)
    assert "not private" in exact.sums
    assert statement_of(validate({}), make_graph("ring", 5), 1.0).colluders is None


def test_the_central_claim_is_the_gaussian_of_all_honest_noise(priced: dict) -> None:
    """By hand: Δ_i against its own noise and the two least of the others', through the closed form."""
    experiment, p = priced["local"]
    sizes, steps = experiment.network.sizes, 2.0**p.terms.code.fraction_bits
    reach = p.cfg.step * 2 * float(p.places.lipschitz) / sizes
    sigma = p.noise * reach
    mus = []
    for i in range(5):
        rest = np.sort(np.delete(sigma, i))[:2]
        total = sigma[i] ** 2 + (rest**2).sum()
        shift = steps * reach[i] + (1 + 1 / 16) * np.sqrt(experiment.network.problem.dim)
        mus.append(np.sqrt(20) * shift / np.sqrt(steps**2 * total - 9))
    assert p.central.account.epsilon == pytest.approx(float(gdp.epsilon_of(max(mus), 1e-5)), rel=1e-6)
    assert p.central.account.epsilon < p.spending.worst.epsilon  # sums hide more than messages


def test_noise_for_the_central_claim_meets_its_budget_and_the_local_price_is_told(priced: dict) -> None:
    _, p = priced["central"]
    assert 0.999 < p.central.account.epsilon <= 1.0
    assert p.spending.worst.epsilon > 1.0
    sigma = p.noise * np.asarray(p.places.unit)
    np.testing.assert_allclose(sigma, sigma[0])  # equal noise from everybody


def test_a_grid_that_costs_noise_is_told_with_one_that_does_not(priced: dict) -> None:
    _, fine = priced["central"]
    assert not any("grid" in warning for warning in fine.warnings)
    plan = validate(plan_with(honest=3, noise="central", fraction_bits=6))
    coarse = price(plan, prepare(plan).network)
    (warning,) = (w for w in coarse.warnings if "grid" in w)
    found = re.fullmatch(
        r"exchange.fraction_bits = 6 is a coarse grid: .* noise (\S+) times .*; (\d+) would do, and so does .*",
        warning,
    )
    assert found is not None
    assert float(found[1]) == pytest.approx(float(np.max(coarse.noise / fine.noise)), rel=0.1)
    advised = validate(plan_with(honest=3, noise="central", fraction_bits=int(found[2])))
    again = price(advised, prepare(advised).network)
    assert not any("grid" in w for w in again.warnings)
    np.testing.assert_allclose(again.noise, fine.noise, rtol=0.01)


def test_algorithms_that_keep_their_messages_have_no_central_claim() -> None:
    plan = validate(plan_with(honest=3) | {"algorithm": {"name": "ldp-admm"}})
    with pytest.raises(InputError, match="ldp-admm keeps its own messages"):
        price(plan, prepare(plan).network)


TOTAL = [s for s in SUMS if find(s).reads == "total"]


def spread(slug: str) -> float:
    """How far the agents' estimates are apart after four noisy rounds over a secret sum."""
    layout = network(5, SIZES, 4, graph="complete", rounds=4)
    noise = 1.0 if find(slug).private else 0.0
    return float(np.ptp(run(slug, find(slug).example, layout, noise=noise, exchange=SecretSum(5)).points, axis=1).max())


@pytest.mark.parametrize("slug", [TOTAL[0], *(pytest.param(s, marks=pytest.mark.slow) for s in TOTAL[1:])])
def test_reads_total_is_true(slug: str) -> None:
    """Who reads only the total ends a round with nothing of its own: all agree to rounding, whatever their noise."""
    assert spread(slug) < 1e-12


def test_the_agreement_check_finds_a_state_of_ones_own() -> None:
    assert spread("dgd") > 1e-3
