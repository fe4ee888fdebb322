"""Models kept in a set: who reaches its optimum, what one record tells, and what is refused, by name and early."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.optimize import minimize

import coterie as ct
from coterie.algorithms.base import Algorithm, all_algorithms, find
from coterie.audit.checks import examine, gather
from coterie.audit.matrix import audited, cases
from coterie.contracts import check_contract
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.losses.base import problem_of
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.plan import Plan, validate
from coterie.problems import Ball, Box, Constraint, Simplex
from coterie.report.others import other_code
from coterie.solvable import need_short
from tests.support import logistic_data, network

SETS: dict[str, Constraint] = {"ball": Ball(0.5), "box": Box(-0.2, 0.3), "simplex": Simplex(2.5)}
KEEPING = {slug: a for slug, a in all_algorithms().items() if a.needs(a.example).projects}
INSIDE = ("dvp", "m-admm", "mr-admm", "pp-admm", "pvp", "r-admm")  # noise in the objective
EXACT = ("admm", "dp-admm", "dp-dsgd", "gauss-avg-gd", "ldp-admm", "p-admm", "pr-admm", "priv-rcd", *INSIDE)
FALLING = ("dp-consensus-gd", "hmv-dgd", "ldp-dgd")  # steps that fall: near it after so many rounds
EVERYDAY = [("ldp-admm", "box"), ("r-admm", "ball")]
AGENTS, RECORDS, RIDGE, ROUNDS = 4, 30, 0.05, 400


def optimum(name: str) -> np.ndarray:
    """By SciPy, from the formula of the loss."""
    x, y = logistic_data(AGENTS * RECORDS, 4)
    u = x * y[:, None]

    def value(v: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0, -u @ v)) + RIDGE / 2 * v @ v)

    def slope(v: np.ndarray) -> np.ndarray:
        return -(u / (1 + np.exp(u @ v))[:, None]).mean(0) + RIDGE * v

    shape: dict[str, Any] = {
        "ball": {"constraints": {"type": "ineq", "fun": lambda v: 0.25 - v @ v}},
        "box": {"bounds": [(-0.2, 0.3)] * 4},
        "simplex": {"constraints": {"type": "eq", "fun": lambda v: v.sum() - 2.5}, "bounds": [(0, None)] * 4},
    }[name]
    found = minimize(
        value, np.full(4, 0.2), jac=slope, method="SLSQP", options={"ftol": 1e-16, "maxiter": 500}, **shape
    )
    return np.asarray(found.x)


def answers(slug: str, name: str, noise: float = 0.0, rounds: int = ROUNDS) -> np.ndarray:
    """Everybody's answer."""
    layout = network(
        AGENTS, RECORDS, 4, graph="complete", rounds=rounds, ridge=RIDGE, problem=Logistic(4, constraint=SETS[name])
    )
    run = Run(0, find(slug).example, noise=noise)
    return np.asarray(simulate(find(slug), layout, [run], rounds=rounds, every=rounds).points[0])


def fits(slug: str, name: str) -> bool:
    return SETS[name].separable or not KEEPING[slug].needs(KEEPING[slug].example).separable


def ways(slugs: tuple[str, ...]) -> list[Any]:
    slow = [(slug, name) for slug in slugs for name in SETS if fits(slug, name) and (slug, name) not in EVERYDAY]
    return [pytest.param(*way, marks=pytest.mark.slow) for way in slow]


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "name"), [*EVERYDAY, *ways(EXACT)])
def test_without_noise_the_optimum_of_the_set_is_reached(slug: str, name: str) -> None:
    np.testing.assert_allclose(answers(slug, name), np.tile(optimum(name), (AGENTS, 1)), atol=1e-5)


@pytest.mark.parametrize(("slug", "name"), ways(FALLING))
def test_with_steps_that_fall_it_is_come_near(slug: str, name: str) -> None:
    far, near = (np.abs(answers(slug, name, rounds=k) - optimum(name)).max() for k in (20, ROUNDS))
    assert near < max(far / 3, 1e-6)
    assert near < 0.01


def test_the_optimum_lies_on_the_boundary() -> None:
    """Else these tests would say nothing; and not in a corner of the simplex, which is found too easily."""
    assert np.linalg.norm(optimum("ball")) == pytest.approx(0.5, abs=1e-6)
    assert np.any(np.isclose(optimum("box"), (-0.2, 0.3)[1]) | np.isclose(optimum("box"), -0.2))
    assert 2 <= np.sum(optimum("simplex") > 1e-6) < 4


@pytest.mark.parametrize(
    "slug", [s if s in ("gauss-avg-gd", "ldp-admm") else pytest.param(s, marks=pytest.mark.slow) for s in KEEPING]
)
def test_a_noisy_answer_lies_in_the_set(slug: str) -> None:
    name = "box" if KEEPING[slug].needs(KEEPING[slug].example).separable else "simplex"
    got = answers(slug, name, noise=0.0 if not KEEPING[slug].private else 3.0, rounds=8)
    with jax.enable_x64(True):
        kept = np.stack([np.asarray(SETS[name].project(p)) for p in jax.numpy.asarray(got)])
    np.testing.assert_allclose(got, kept, atol=1e-12)


# ---- what one record tells -------------------------------------------------------------------------------------------


class Swelling(Constraint):
    """What a stranger may hand in: five times as far apart as they were."""

    def project(self, x: Array) -> Array:
        return 5 * x


def replayed(algorithm: Algorithm, loss: str) -> list[Any]:
    (case,) = [c for c in cases(algorithm) if c.loss == loss and c.way == "whole"]
    return examine(gather(case.setting(1.0), drawn=2))


@pytest.mark.slow
def test_one_record_tells_no_more_in_a_set() -> None:
    """`ldp-admm` projects before its noise: the audit plays it on the boundary and off it."""
    for found in replayed(find("ldp-admm"), "logistic, in a box"):
        assert found.passed, found


@pytest.mark.slow
def test_a_projection_that_expands_tells_more_and_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.audit import losses

    monkeypatch.setitem(losses.LOSSES, "logistic, in a box", Logistic(2, constraint=Swelling()))
    found = {f.check: f for f in replayed(find("ldp-admm"), "logistic, in a box")}
    assert found["replay"].verdict == "refuted"
    sites = [(np.eye(2), np.array([-1.0, 1.0]))] * 3
    with pytest.raises(InputError, match="Swelling: a projected point moves"):
        ct.train(Logistic(2, constraint=Swelling()), ct.ring(sites), ct.ldp_admm(), ct.Budget(1.0, 1e-5), rounds=2)


class Numbers(Constraint):
    """Holds an array, which no compiled program can be told apart by."""

    high: Array

    def project(self, x: Array) -> Array:
        return jax.numpy.minimum(x, self.high)


def test_a_set_that_holds_arrays_is_refused_early() -> None:
    sites = [(np.eye(2), np.array([-1.0, 1.0]))] * 3
    with pytest.raises(InputError, match="static fields"):
        ct.train(Logistic(2, constraint=Numbers(np.ones(2))), ct.ring(sites), ct.dp_dsgd(), ct.Budget(1.0, 1e-5))


def test_a_mean_need_not_lie_in_a_set_that_is_stated() -> None:
    inside = Mean(2)
    assert inside.interior
    kept = inside.kept_in(Ball(0.5))
    assert not kept.interior
    with pytest.raises(InputError, match="gossip-mean does not keep its answer in a set"):
        find("gossip-mean").check(find("gossip-mean").example, kept)


# ---- plans -----------------------------------------------------------------------------------------------------------


def plan_of(algorithm: str = "dp-dsgd", loss: str = "logistic", **problem: Any) -> Plan:
    graph = {"kind": (find(algorithm).graphs or ("ring",))[0]}
    return validate(
        {
            "data": {"source": "csv", "path": "no/such/file.csv", "label": "y"}, "graph": graph,
            "partition": {"kind": "iid", "agents": 4}, "problem": {"loss": loss, "dim": 3, **problem},
            "algorithm": {"name": algorithm}, "privacy": {"epsilon": 1.0}, "run": {"rounds": 4},
        }
    )  # fmt: skip


def test_a_plan_states_its_set() -> None:
    plan = plan_of(within="box", within_options={"low": [-1, 0, 0], "high": 2})
    assert problem_of(plan, "logistic").constraint == Box((-1.0, 0.0, 0.0), 2.0)
    check_contract(plan)
    assert validate(plan.as_json(), foreign=True) == plan
    assert problem_of(plan_of(within="simplex"), "logistic").constraint == Simplex(1.0)
    assert problem_of(plan_of(radius=2.0), "logistic").constraint == Ball(2.0)


WRONG = [
    ({"within": "blob"}, "unknown set 'blob'; there are ball, box, simplex"),
    ({"within": "ball"}, "'ball' takes radius in within_options, which has none"),
    ({"within": "ball", "within_options": {"low": 1}}, "takes radius in within_options, which has low"),
    ({"within": "ball", "within_options": {"radius": -1}}, "radius must be > 0"),
    ({"within": "ball", "within_options": {"radius": [1, 2]}}, "within_options of 'ball'"),
    ({"within": "box", "within_options": {"low": 1, "high": 0}}, "low must be <= high"),
    ({"within": "box", "within_options": {"low": [1, 2], "high": 5}}, "lists 2 numbers for a model of 3"),
    ({"within": "box", "within_options": {"low": [1] * 3, "high": 5}, "dim": None}, "state problem.dim too"),
    ({"within_options": {"radius": 1}}, "within_options.radius is for problem.within"),
    ({"within": "ball", "within_options": {"radius": 1}, "radius": 2.0}, "both state a set"),
]


@pytest.mark.parametrize(("problem", "why"), WRONG)
def test_mistakes_are_one_line_before_data_is_read(problem: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        check_contract(plan_of(**problem))
    assert "\n" not in str(caught.value)


REFUSED = [a.slug for a in audited() if a.slug not in KEEPING and a.slug not in ("release", "gossip-mean")]


@pytest.mark.parametrize("slug", REFUSED)
def test_who_has_no_proof_in_a_set_refuses_it_by_name(slug: str) -> None:
    with pytest.raises(InputError, match=f"{slug} does not keep its answer in a set"):
        check_contract(plan_of(slug, within="ball", within_options={"radius": 1}))


def test_coordinates_one_by_one_need_a_box() -> None:
    check_contract(plan_of("priv-rcd", within="box", within_options={"low": -1, "high": 1}))
    with pytest.raises(InputError, match="priv-rcd moves one coordinate at a time"):
        check_contract(plan_of("priv-rcd", within="ball", within_options={"radius": 1}))


def test_random_weights_save_nothing_known_in_a_set() -> None:
    from coterie.algorithms import ldp_admm
    from tests.support import agent

    place, _ = agent(network(problem=Logistic(4, constraint=Ball(0.5))), 0, noise=1.0)
    with pytest.raises(InputError, match="before its noise"), jax.enable_x64(True):
        ldp_admm.mixture(ldp_admm.EXAMPLE, place, jax.numpy.asarray(0), jax.numpy.ones(4))


def test_sums_have_no_point_to_keep() -> None:
    with pytest.raises(InputError, match="no point to keep in a set"):
        check_contract(plan_of("release", loss="moments", within="ball", within_options={"radius": 1}))


# ---- a stranger's ----------------------------------------------------------------------------------------------------

HALFSPACE = (Path(__file__).parent.parent / "examples" / "half_space.py").read_text("utf-8")


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "strangers_sets").mkdir()
    (tmp_path / "strangers_sets" / "__init__.py").write_text("")
    (tmp_path / "strangers_sets" / "half.py").write_text(HALFSPACE)
    (tmp_path / "strangers_sets" / "wrong.py").write_text(HALFSPACE.replace("/ x.shape[0]", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("strangers_sets")]:
        del sys.modules[name]


def test_a_strangers_set(strangers: None) -> None:
    stated = {"within": "strangers_sets.half", "within_options": {"most": 0.5}}
    plan = plan_of(**stated)
    check_contract(plan)
    (code,) = other_code(plan)
    assert (code["key"], code["name"], bool(code["sha256"])) == ("problem.within", "strangers_sets.half", True)
    with pytest.raises(InputError, match=r"strangers_sets\.half' is a module"):
        validate(plan.as_json(), foreign=True)
    with pytest.raises(InputError, match=r"HalfSpace: .*(expands|projected again)"):
        check_contract(plan_of(within="strangers_sets.wrong", within_options={"most": 0.5}))


def test_a_set_may_ask_for_what_only_arrays_of_jax_have() -> None:
    class Corner(Constraint):
        def project(self, x: Array) -> Array:
            return x.at[0].max(0.0)

        def rounding(self, dim: int) -> float:
            return 1.0

    sites = [logistic_data(200, 2, seed) for seed in range(3)]
    priced = ct.price(Logistic(2, constraint=Corner()), ct.ring(sites), ct.m_admm(), ct.Budget(5.0, 1e-5), rounds=2)
    assert priced.private


def test_a_task_in_a_set() -> None:
    sites = [(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([-1.0, 1.0, 1.0]))] * 3
    task = ct.logistic().within("box", low=-0.1, high=0.1)
    run = ct.train(task, ct.ring(sites), ct.dp_dsgd(), ct.Budget(5.0, 1e-5), rounds=3, seed=0)
    assert np.abs(run.point).max() <= 0.1 + 1e-12  # a mean of points of the set, rounded
    assert run.result["plan"]["problem"]["within"] == "box"


@pytest.mark.parametrize(("dim", "refused"), [(8000, False), (8001, True)])
def test_between_parties_a_simplex_is_short_enough_for_the_grid(dim: int, refused: bool) -> None:
    """Half a step of the grid is charged for arithmetic, and a simplex's level is a sum of all its numbers."""
    for within, deploy in ((Simplex(1.0), True), (Simplex(1.0), None), (Box(-1.0, 1.0), True)):
        plan, places = SimpleNamespace(deploy=deploy), SimpleNamespace(within=within, dim=dim)
        if refused and deploy and isinstance(within, Simplex):
            with pytest.raises(InputError, match=r"8,001 numbers: between parties up to 8,000"):
                need_short(plan, places)  # type: ignore[arg-type]
        else:
            need_short(plan, places)  # type: ignore[arg-type]


def test_a_simplex_of_that_length_rounds_by_less_than_half_a_step() -> None:
    """Against exact rational arithmetic, at the largest numbers that a message holds: 2³⁹ steps of 1."""
    rng = np.random.default_rng(0)
    x = 2.0**39 - rng.integers(0, 2**20, 8000).astype(float) * 2.0**-10  # all are in play, and need every bit
    total = 2.0**33
    level = (sum(map(Fraction, x.tolist())) - Fraction(total)) / len(x)
    assert min(map(Fraction, x.tolist())) > level
    with jax.enable_x64(True):
        found = np.asarray(Simplex(total).project(jnp.asarray(x)))
    worst = max(abs(Fraction(f) - (Fraction(v) - level)) for f, v in zip(found.tolist(), x.tolist(), strict=True))
    assert worst < Fraction(1, 2)
