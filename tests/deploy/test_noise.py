"""What a grid costs: the claims behind `on_grid`, by exact sums, by search, and on the integers that travel."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import root

import coterie.deploy
from coterie.algorithms.base import Grid, Inside, L2LaplaceLaw, LaplaceLaw, Normal, Uniform, all_algorithms, find
from coterie.deploy.noise import (
    FINER,
    GAUSSIAN_UNIT,
    LAPLACE_UNIT,
    SMOOTHING,
    Steps,
    SystemSource,
    check_deployable,
    noise_scales,
    on_grid,
)
from coterie.deploy.party import Party, Records, Terms
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy import events, gdp, secure
from tests.support import mostly_slow, network

PARTIES = [{"name": n, "address": f"{n}.example:443"} for n in ("ada", "ben", "cleo")]


def plan(name: str, rounds: int = 3, graph: str = "ring", dim: int = 3, **settings: object) -> Plan:
    return validate(
        {
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [12, 12, 12]},
            "graph": {"kind": graph},
            "problem": {"loss": "logistic", "dim": dim, "ridge": 0.1},
            "algorithm": {"name": name, **settings},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {"parties": PARTIES},
        }
    )


# ---- the law ---------------------------------------------------------------------------------------------------------


def discrete_delta(sigma: float, shift: np.ndarray, epsilon: float) -> float:
    """The hockey stick of the discrete Gaussian on Z^d against its shifted copy, summed."""
    reach = np.arange(-int(12 * sigma), int(12 * sigma) + 1)
    z = np.stack(np.meshgrid(*[reach] * len(shift), indexing="ij"), -1).reshape(-1, len(shift)).astype(float)
    log_p, log_q = -((z**2).sum(1)) / (2 * sigma**2), -((z - shift) ** 2).sum(1) / (2 * sigma**2)
    total = np.exp(log_p).sum()
    return float(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0).sum() / total)


@pytest.mark.parametrize(("sigma", "shift"), [(9.0, [1]), (9.0, [9]), (7.0, [3, 4]), (7.0, [7, 7]), (20.0, [5])])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7, 2.0])
def test_a_discrete_gaussian_is_covered_by_a_thinner_continuous_one(
    sigma: float, shift: list[int], epsilon: float
) -> None:
    """δ of the discrete law ≤ δ of N(0, σ² − 16): the theorem that lets Gaussian accountants charge it."""
    at = np.array(shift, float)
    found = discrete_delta(sigma, at, epsilon)
    covered = float(gdp.delta_of(np.linalg.norm(at) / np.sqrt(sigma**2 - SMOOTHING), epsilon))
    assert found <= covered * (1 + 1e-9) + 1e-15


def test_the_cover_is_not_vacuous() -> None:
    """A continuous law 5 % too wide does not cover the discrete one."""
    found = discrete_delta(9.0, np.array([9.0]), 0.5)
    assert found > float(gdp.delta_of(9 / (1.05 * 9.0), 0.5))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    st.lists(st.floats(-1e3, 1e3), min_size=8, max_size=8),
    st.floats(1e-6, 1e2),
)
def test_rounding_moves_a_difference_by_at_most_a_step_per_root(a: list[float], move: list[float], step: float) -> None:
    x = np.array(a)
    y = x + np.array(move[: len(a)])
    apart = step * np.linalg.norm(np.rint(x / step) - np.rint(y / step))
    assert apart <= np.linalg.norm(x - y) + 2 * step * np.sqrt(len(a))


def test_what_is_charged_is_more_than_declared_by_the_grid_and_no_more() -> None:
    algorithm, terms = find("dp-dsgd"), Terms.of(plan("dp-dsgd", mixing=1))
    place = terms.place(0)
    (declared,) = run_events(algorithm, terms.priced.cfg, place)
    (charged,) = run_events(on_grid(algorithm), terms.priced.cfg, place)
    ratio = (charged.sensitivity / charged.sigma) / (declared.sensitivity / declared.sigma)
    nu = declared.sigma / declared.sensitivity
    expected = (1 + 2 * np.sqrt(3) * nu / GAUSSIAN_UNIT) / np.sqrt(1 - 16 / secure.GRID_VARIANCE)
    assert np.allclose(ratio, expected, rtol=1e-12)
    assert (ratio > 1).all()
    assert (charged.tv > 0).all()
    assert terms.priced.spending is not None
    assert terms.priced.spending.worst.epsilon <= 2.0


def test_laplace_noise_is_charged_as_pure() -> None:
    terms = Terms.of(plan("hmv-dgd"))
    charged = run_events(terms.priced.algorithm, terms.priced.cfg, terms.place(0))
    (declared,) = run_events(find("hmv-dgd"), terms.priced.cfg, terms.place(0))
    assert [type(e) for e in charged] == [events.Pure]
    assert np.allclose(charged[0].epsilon, declared.l1 * declared.rate + 2 * 3 / LAPLACE_UNIT)


# ---- noise inside a solve --------------------------------------------------------------------------------------------


def small_gaussian(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    at = np.arange(-int(12 * sigma), int(12 * sigma) + 1)
    weight = np.exp(-(at**2) / (2 * sigma**2))
    return at, weight / weight.sum()


@pytest.mark.parametrize("finer", [2, 4])
def test_a_sum_of_coarse_and_fine_parts_is_a_discrete_gaussian(finer: int) -> None:
    """Lemma 2 with a table of parameter 16: so with steps of a quarter of it, as deployed; not with steps of 48."""
    at, weight = small_gaussian(16.0)

    def convolved(m: int) -> float:
        """Largest difference of m·Z₁ + Z₂ from the discrete Gaussian of the same variance."""
        spread = np.zeros(m * (at.size - 1) + 1)
        spread[::m] = weight
        law = np.convolve(spread, weight)
        x = np.arange(law.size) - law.size // 2
        sigma = 16.0 * np.sqrt(m**2 + 1)
        exact = np.exp(-(x**2) / (2 * sigma**2))
        return float(np.abs(law - exact / exact.sum()).sum() / 2)

    assert convolved(finer) < 1e-12
    assert convolved(48) > 1e-3


def test_noise_inside_a_solve_has_its_scale_and_many_values() -> None:
    """The scale within 5 standard errors, a scale 5 % off not; and steps that no coarser grid has."""
    drawn = SystemSource().draw(0, {"a": Inside(40_000)})["a"]
    standard = drawn.steps / drawn.unit
    error = 1 / np.sqrt(2 * standard.size)
    scale = np.sqrt(np.mean(standard**2))
    assert abs(scale - 1) < 5 * error
    assert abs(scale / 1.05 - 1) > 5 * error
    assert len(np.unique(drawn.steps)) == drawn.steps.size
    assert len(np.unique(drawn.steps % FINER)) > 0.5 * FINER


@pytest.mark.parametrize("slug", mostly_slow(["dvp", "pp-admm", "m-admm"], "pp-admm"))
def test_what_a_solve_sends_is_as_near_to_the_minimiser_as_is_charged(slug: str) -> None:
    """Without noise on the answer: within half of the charged shift of the exact minimiser with this tilt."""
    terms = Terms.of(plan(slug, rounds=2))
    cfg, place = terms.priced.cfg, terms.place(0)
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(12, 3)) / 6, rng.integers(0, 2, 12)
    party = Party.of(terms, 0, Records(x, y, ("no", "yes"), ()))
    draw = SystemSource().draw(0, terms.draws(0))
    draw["output"] = Grid(np.zeros(3, np.int64), draw["output"].unit)
    _, numbers, _ = party.turn(0, party.begin(), draw)
    sent = numbers * terms.steps.size[0, 0]
    (charged,) = run_events(terms.priced.algorithm, cfg, place)
    (ideal,) = run_events(find(slug), cfg, place)
    assert np.all(charged.output > ideal.output)
    assert np.all(charged.output < 1.25 * ideal.output)
    tilt = next(g for name, g in draw.items() if name != "output")
    b = ideal.sigma[0] * tilt.steps / tilt.unit
    eta, degree = float(cfg.penalty), float(place.degree)
    signs = 2.0 * y - 1

    def slope(v: np.ndarray) -> np.ndarray:
        margins = signs * (x @ v)
        data = -(signs / (1 + np.exp(margins))) @ x / 12
        return data + (0.1 + 2 * eta * degree) * v + b  # everybody starts at 0

    solution = root(slope, sent, tol=1e-15).x
    assert np.linalg.norm(slope(solution)) < 1e-12
    assert np.linalg.norm(sent - solution) <= charged.output[0] / 2


# ---- tests against a threshold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "low", "high"), mostly_slow([(1.0, 2.0, 8.0), (0.37, 1.3, 2.9), (2.0, 1.0, 1.0)], (0.37, 1.3, 2.9))
)
def test_a_sparse_vector_test_on_grids_is_as_pure_as_is_charged(gap: float, low: float, high: float) -> None:
    """Lemma 3, summed exactly, with grids of a sixteenth of the scales: two queries, at most one pass."""
    unit, reach = 16, 40 * 16
    k = np.arange(-reach, reach + 1)
    law = np.exp(-np.abs(k) / unit)
    law /= law.sum()
    g1, g2 = low / unit, high / unit

    def answers(queries: tuple[float, float]) -> np.ndarray:
        """Chances of: nothing passes, the first passes, the second passes."""
        bar = 0.4 + g1 * k[:, None]
        passes = [((g2 * np.rint(q / g2) + g2 * k[None] >= bar) * law).sum(1) for q in queries]
        return np.array(
            [law @ ((1 - passes[0]) * (1 - passes[1])), law @ passes[0], law @ ((1 - passes[0]) * passes[1])]
        )

    charged = gap / low + 2 * gap / high + (2 + high / low + 4 + 2 * low / high) / unit
    worst = 0.0
    for first in np.linspace(-2, 2, 9):
        for moves in ((gap, gap), (gap, -gap), (-gap, gap), (-gap, -gap)):
            a, b = answers((first, 0.3)), answers((first + moves[0], 0.3 + moves[1]))
            worst = max(worst, float(np.abs(np.log(a / b)).max()))
    assert worst <= charged
    assert worst > 0.25 * (gap / low + 2 * gap / high)


# ---- which algorithms ------------------------------------------------------------------------------------------------


def test_every_private_algorithm_is_deployable_and_others_are_refused_with_an_alternative() -> None:
    for slug, algorithm in all_algorithms().items():
        agreed = plan(slug, graph=(algorithm.graphs or ("ring",))[0])
        if algorithm.private:
            check_deployable(agreed)
            continue
        with pytest.raises(InputError, match="cannot be deployed") as refusal:
            check_deployable(agreed)
        assert "\n" not in str(refusal.value)
        assert find(str(refusal.value).rsplit(" ", 1)[1]).private  # what to use instead


@pytest.mark.parametrize("slug", ["dvp", "pvp", "m-admm", "r-admm", "mr-admm"])
def test_noise_that_has_no_grid_is_refused_and_what_has_one_is_named(slug: str) -> None:
    with pytest.raises(InputError, match=r"no exact form on a grid: use noise = 'gaussian'"):
        check_deployable(plan(slug, noise="gamma"))


def test_what_sends_data_without_noise_is_refused() -> None:
    with pytest.raises(InputError, match="without noise"):
        check_deployable(plan("dgd"))


def test_as_printed_is_refused() -> None:
    with pytest.raises(InputError, match="as_printed"):
        check_deployable(plan("pr-admm", as_printed=True))


def test_a_sum_that_could_not_hold_a_message_is_refused() -> None:
    """Else a number between the two bounds would stop a party in the middle of a run."""
    summed = plan("dp-dsgd", graph="complete").model_dump()
    summed["exchange"] |= {"kind": "secret-sum", "bound": 1e3}
    check_deployable(validate(summed))
    summed["exchange"]["bound"] = 999.0
    with pytest.raises(InputError, match=r"deploy.bound = 1000 exceeds .* exchange.bound = 999"):
        check_deployable(validate(summed))


def test_every_private_law_has_a_grid_or_is_refused() -> None:
    source = SystemSource()
    draw = source.draw(0, {"a": Normal(4), "b": LaplaceLaw(2), "c": Uniform(3)})
    assert draw["a"].steps.dtype == draw["b"].steps.dtype == np.int64
    assert ((draw["c"] > 0) & (draw["c"] < 1)).all()
    with pytest.raises(InputError, match="grid"):
        source.draw(0, {"a": L2LaplaceLaw(3)})


def test_a_bound_that_does_not_fit_the_grid_is_refused() -> None:
    with pytest.raises(InputError, match="bound"):
        Steps.of(np.full((2, 3), 1e-12), 1e3)
    with pytest.raises(InputError, match="bound"):
        Steps.of(np.full((2, 3), 10.0), 1.0)
    assert Steps.of(np.full((2, 3), 1e-3), 1e3).width == 4
    assert Steps.of(np.full((2, 3), 1e-8), 1e3).width == 8


# ---- the integers that travel ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", ["dp-dsgd", "pr-admm", "dp-admm"])
@pytest.mark.parametrize("far", [False, True])
def test_one_record_moves_the_integers_by_no_more_than_is_charged(slug: str, far: bool) -> None:
    """Same draws, neighbouring records, hostile history: N5 and A2 on what leaves.

    `far`: neighbours as far away as any plan admits, some 2³⁹ steps of the grid, where float64 is at its coarsest.
    """
    settings = {"mixing": 1, "step": 2.0, "clip": 1.0, "momentum": 0.5} if slug == "dp-dsgd" else {}
    if slug == "pr-admm" and far:
        settings = {"steps": 1000, "penalty": 0.02}
    agreed = plan(slug, rounds=3, **settings)
    if far:
        step, tree = Terms.of(agreed).steps.size.min(), agreed.model_dump()
        tree["deploy"]["bound"] = 2.0**38.9 * step
        agreed = validate(tree)
    terms = Terms.of(agreed)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(12, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = rng.integers(0, 2, 12)
    near = np.concatenate([-x[:1], x[1:]])  # the label's sign with the record's: the gradients point apart
    worlds = [Party.of(terms, 1, Records(f, y, ("no", "yes"), ())) for f in (x, near)]
    charged = run_events(terms.priced.algorithm, terms.priced.cfg, terms.place(1))[0]
    carries, source, largest = [w.begin() for w in worlds], SystemSource(), 0.0
    for t in range(3):
        draw = source.draw(t, terms.draws(1))
        turns = [w.turn(t, c, draw) for w, c in zip(worlds, carries, strict=True)]
        apart = np.linalg.norm(turns[0][1] - turns[1][1]) * terms.steps.size[1, t]
        largest = max(largest, apart / charged.sensitivity[t])
        assert apart <= charged.sensitivity[t]
        assert turns[0][1].shape == turns[1][1].shape
        # both worlds go on from the history of the first, with the wildest neighbours that are admitted
        wild = rng.choice([-1, 1], (2, worlds[0].count)) * terms.steps.limit[[0, 2], t][:, None]
        carries = [turns[0][0]] * 2
        for slot in range(2):
            carries = [worlds[0].heard(c, slot, t, wild[slot]) for c in carries]
    assert largest > 0.2  # the pair is a real one (the first round is where records matter most)


def test_noise_on_the_wire_has_the_declared_scale_and_is_fresh() -> None:
    """The variance of 24,000 numbers is within 5 standard errors of the declared one, and 5 % off is beyond them.

    Both fail by chance less often than once in a million runs: 1.05² − 1 is 11 standard errors.
    """
    d, times = 120, 200
    terms = Terms.of(plan("pr-admm", rounds=1, dim=d))
    x = np.eye(d)[np.arange(12) * 10]
    party = Party.of(terms, 0, Records(x, np.array([0, 1] * 6), ("no", "yes"), ()))
    source = SystemSource()
    sent = np.array([party.turn(0, party.begin(), source.draw(0, terms.draws(0)))[1] for _ in range(times)], float)
    residual = (sent - sent.mean(0)) / GAUSSIAN_UNIT
    count = (times - 1) * d
    statistic, error = (residual**2).sum() / count, np.sqrt(2 / count)
    assert abs(statistic - 1) < 5 * error
    for off in (0.95, 1.05):
        assert abs(statistic / off**2 - 1) > 5 * error
    assert len(np.unique(sent)) > 0.9 * sent.size


def test_the_deployed_path_has_no_pseudorandom_numbers() -> None:
    """N4: nothing in coterie.deploy imports or names a seeded generator."""
    for path in Path(coterie.deploy.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
            elif isinstance(node, ast.Attribute):
                names = [ast.unparse(node)]
            for name in names:
                banned = name == "random" or name.startswith(("random.", "numpy.random", "np.random", "jax.random"))
                assert not banned, f"{path.name}: {name}"


@pytest.mark.parametrize("penalty", [0.1, 0.0025])
def test_no_records_make_a_party_stop(penalty: float) -> None:
    """However the labels fall, and however weakly the penalty bends: it speaks. A stop would be a free message."""
    tree = plan("pr-admm", rounds=1, dim=2, penalty=penalty).model_dump()
    tree["problem"] |= {"loss": "hinge", "width": 0.05}
    terms, draw = Terms.of(validate(tree)), None
    for positive in range(13):
        labels = (np.arange(12) < positive).astype(int)
        party = Party.of(terms, 0, Records(np.tile([1.0, 0.0], (12, 1)), labels, ("no", "yes"), ()))
        draw = draw or SystemSource().draw(0, terms.draws(0))
        _, numbers, sent = party.turn(0, party.begin(), draw)
        assert sent
        assert np.abs(numbers).max() < terms.steps.limit[0, 0]


@cache
def complete(slug: str) -> Terms:
    return Terms.of(plan(slug, rounds=2, graph="complete"))


@pytest.mark.parametrize("slug", ["dp-dsgd", "pr-admm", "priv-rcd"])
@pytest.mark.parametrize("worst", [5.0, 1e300, np.inf, np.nan])
def test_no_record_makes_a_party_stay_away(slug: str, worst: float, caplog: pytest.LogCaptureFixture) -> None:
    """A record beyond the bounds is pulled back, and only the owner's log says so: the others see a party like any."""
    terms, rng = complete(slug), np.random.default_rng(0)
    features, labels = rng.normal(size=(12, 3)) / 6, rng.integers(0, 2, 12)
    near = np.concatenate([np.full((1, 3), worst), features[1:]])
    draws = [SystemSource().draw(t, terms.draws(0)) for t in range(2)]
    said = []
    for records in (features, near):
        party = Party.of(terms, 0, Records(records, labels, ("no", "yes"), ()))
        carry = party.begin()
        for t in range(2):
            carry, numbers, sent = party.turn(t, carry, draws[t])
            assert sent
        said.append(numbers)
        assert np.linalg.norm(np.asarray(party.shard.features), axis=1).max() <= 1 + 1e-9
    assert "1 of 12 records" in caplog.text
    charged = run_events(terms.priced.algorithm, terms.priced.cfg, terms.place(0))[0]
    assert np.linalg.norm(said[0] - said[1]) * terms.steps.size[0, 1] <= 2 * charged.sensitivity[0]


@pytest.mark.parametrize("slug", ["dp-dsgd", "pr-admm"])
def test_a_message_that_is_not_finite_is_zeros(slug: str) -> None:
    """It can only come of released numbers that overflowed: neither a stop nor an integer tells anything of records."""
    terms, rng = Terms.of(plan(slug, rounds=2)), np.random.default_rng(0)
    party = Party.of(terms, 0, Records(rng.normal(size=(12, 3)) / 6, rng.integers(0, 2, 12), ("no", "yes"), ()))
    draw = SystemSource().draw(0, terms.draws(0))
    carry, numbers, sent = party.turn(0, party.begin(), draw)
    assert sent
    assert len(set(numbers.tolist())) == 3
    broken = carry._replace(kept=jax.tree.map(lambda x: np.full_like(x, np.nan) if x.dtype == float else x, carry.kept))
    _, numbers, sent = party.turn(1, broken, draw)
    assert sent
    assert (numbers == 0).all()


def test_noise_on_a_coarser_grid_than_a_sensitivity_was_worked_out_for_is_refused() -> None:
    with pytest.raises(InputError, match=r"qdpsgd2: its grid has steps of 1e-09, and that of its noise is coarser"):
        Terms.of(plan("qdpsgd2", grid=1e-9, range=8.0))


def test_a_scale_and_a_price_of_ones_own_may_use_numpy() -> None:
    """Settings that are numbers are arguments of a program; where that cannot be they are constants of it."""
    own, places = find("dp-dsgd"), network(3, 10, rounds=4, ridge=0.1).arrays.place
    numpy = replace(own, wire=lambda cfg, place, t: np.sqrt(cfg.clip) * place.noise_at(t))
    plain = replace(own, wire=lambda cfg, place, t: cfg.clip**0.5 * place.noise_at(t))
    cfg = own.example.replace(clip=0.3)
    np.testing.assert_allclose(noise_scales(numpy, cfg, places), noise_scales(plain, cfg, places), rtol=1e-15)
    by = lambda f: replace(own, cost=lambda cfg, place, t, message: events.Gaussian(f(cfg.clip), 1.0))  # noqa: E731
    place = jax.tree.map(lambda x: x[0] if np.ndim(x) and np.shape(x)[0] == 3 else x, places)
    (one,), (two,) = (run_events(by(f), cfg, place) for f in (np.sqrt, lambda c: c**0.5))
    np.testing.assert_allclose(one.sensitivity, two.sensitivity, rtol=1e-15)
