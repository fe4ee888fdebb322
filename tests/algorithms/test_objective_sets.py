"""Noise inside an objective over a set: what docs/theory/sets.md proves, against exact laws and the product's own runs.

In one dimension the law of a minimiser over an interval is known exactly: a density inside and an atom at each end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.stats import gamma, norm

import coterie as ct
from coterie.algorithms import dvp
from coterie.algorithms.base import find
from coterie.audit.audit import audit
from coterie.audit.checks import examine, gather
from coterie.audit.matrix import cases
from coterie.audit.transcripts import explainable
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.privacy.accountants import delta_of
from coterie.privacy.events import ObjectivePerturbation
from coterie.problems import Ball, Box, Constraint, HeldShard, Simplex, SolverSettings
from tests.support import agent, network

SLUGS = ("dvp", "pvp", "m-admm", "r-admm", "mr-admm", "pp-admm", "ipp-admm")

# ---- the law, exactly ------------------------------------------------------------------------------------------------

LOW, UNIT = 0.25, 0.5  # strong convexity, weight of a record
EPSILONS = (0.0, 0.3, 1.0, 2.0, 4.0)


def slope(v: np.ndarray, records: list[float], tilt: float) -> np.ndarray:
    """F'(v) of the objective without its noise."""
    return LOW * v + tilt - UNIT * sum(z / (1 + np.exp(z * v)) for z in records)


def bend(v: np.ndarray, records: list[float]) -> np.ndarray:
    return LOW + UNIT * sum(z**2 / ((1 + np.exp(z * v)) * (1 + np.exp(-z * v))) for z in records)


def masses(records: list[float], tilt: float, ends: tuple[float, float], law: Any) -> np.ndarray:
    """Probabilities of the minimiser: at the lower end, in 20,000 cells between, at the upper end. b has this law."""
    edges = np.linspace(*ends, 20_001)
    below = law.sf(-slope(edges, records, tilt))  # x ≤ v iff F'(v) + b ≥ 0
    return np.concatenate([[below[0]], np.diff(below), [1 - below[-1]]])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0)))


def worst(sigma: float, ends: tuple[float, float], tries: int = 60) -> dict[float, float]:
    """The largest δ(ε) over random records and tilts that put mass on the boundary."""
    rng = np.random.default_rng(0)
    found = dict.fromkeys(EPSILONS, 0.0)
    for _ in range(tries):
        first, second = (1.0, -1.0) if rng.random() < 0.5 else rng.uniform(-1, 1, 2)
        rest = list(rng.uniform(-1, 1, rng.integers(0, 3)))
        tilt = rng.normal() * 3 * sigma
        p, q = (masses([own, *rest], tilt, ends, norm(scale=sigma)) for own in (first, second))
        for e in EPSILONS:
            found[e] = max(found[e], hockey_stick(p, q, e), hockey_stick(q, p, e))
    return found


@pytest.mark.parametrize("ends", [(-0.3, 0.2), (0.0, 5.0), (-40.0, 40.0)])
@pytest.mark.parametrize("sigma", [0.4, 1.0])
def test_no_output_in_an_interval_tells_more_than_is_charged(ends: tuple[float, float], sigma: float) -> None:
    event = ObjectivePerturbation(2 * UNIT, sigma, 0.25 * UNIT / LOW, monotone=True)
    for epsilon, delta in worst(sigma, ends).items():
        assert delta <= min(1.0, delta_of([event], epsilon)) + 1e-9, epsilon


def test_what_is_charged_is_not_far_from_what_is_told() -> None:
    """A flipped label moves the slope by half of what is charged for; the atoms tell nearly all of that."""
    told = worst(1.0, (-0.3, 0.2))
    half, short = (ObjectivePerturbation(UNIT, s, 0.0, monotone=True) for s in (1.0, 1.2))
    assert told[0.0] > 0.9 * delta_of([half], 0.0)
    assert told[0.0] > delta_of([short], 0.0)


@pytest.mark.parametrize("ends", [(-0.3, 0.2), (-40.0, 40.0)])
def test_a_pure_level_in_an_interval(ends: tuple[float, float]) -> None:
    """Density ∝ exp(−|b|/s), s = G/(α − ln(1 + κ)): no event is e^α times as likely; with a quarter of s one is."""
    level, lost = 1.0, np.log1p(0.25 * UNIT / LOW)
    for shorter, holds in ((1.0, True), (0.25, False)):
        s = shorter * 2 * UNIT / (level - lost)
        worst_ratio = 0.0
        for tilt in np.linspace(-4, 4, 17):
            p, q = (masses([z], tilt, ends, _symmetric(s)) for z in (1.0, -1.0))
            seen = (p > 1e-12) & (q > 1e-12)
            worst_ratio = max(worst_ratio, float(np.max(np.abs(np.log(p[seen]) - np.log(q[seen])))))
        assert (worst_ratio <= level + 1e-6) is holds


class _symmetric:
    """Laplace noise: gamma noise in one dimension."""

    def __init__(self, s: float) -> None:
        self.s = s

    def sf(self, x: np.ndarray) -> np.ndarray:
        tail = gamma(1, scale=self.s).sf(np.abs(x)) / 2
        return np.where(x > 0, tail, 1 - tail)


def test_the_product_draws_from_that_law() -> None:
    """`argmin` with a linear term: the same minimiser as the formula's, over an interval and with many terms."""
    records, ends, tilts = [1.0, -0.4], (-0.3, 0.2), np.linspace(-2, 2, 41)
    with jax.enable_x64(True):
        part = HeldShard(
            Logistic(1, constraint=Box(*ends)), jnp.asarray(records)[:, None], jnp.ones(2), jnp.asarray(2),
            jnp.asarray(UNIT), jnp.asarray(0.05), SolverSettings(),
        )  # fmt: skip
        solve = jax.jit(lambda t: part.argmin(t[None], LOW - 0.05, part.solver(jnp.zeros(1)), 1e-10)[0][0])
        got = np.array([float(solve(jnp.asarray(t))) for t in tilts])
    fine = np.linspace(*ends, 200_001)
    expected = [fine[np.argmax(slope(fine, records, t) >= 0)] if slope(fine[-1:], records, t)[0] >= 0 else ends[1]
                for t in tilts]  # fmt: skip
    np.testing.assert_allclose(got, expected, atol=5e-6)
    assert np.sum(np.isin(got, ends)) > 10


# ---- the determinant -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", [Ball(0.7), Box(-0.2, 0.5), Simplex(1.0)])
def test_a_set_only_shrinks_what_one_record_does_to_the_volume(constraint: Constraint) -> None:
    """ln det(H Q + m(I − Q)) changes by 0 to ln(1 + c/m) with H ← H + c zzᵀ, ‖z‖ ≤ 1, Q the projection's derivative."""
    rng, low = np.random.default_rng(1), 0.3
    derivative = jax.jit(jax.jacfwd(constraint.project))
    shrunk = []
    with jax.enable_x64(True):
        for _ in range(200):
            q = np.asarray(derivative(jnp.asarray(rng.standard_normal(4) * rng.choice([0.1, 1.0, 10.0]))))
            np.testing.assert_allclose(q, q.T, atol=1e-12)
            root = rng.standard_normal((4, 4)) * rng.choice([0.0, 1.0])
            h = low * np.eye(4) + root @ root.T
            z, c = rng.standard_normal(4), rng.uniform(0, 2)
            z /= np.linalg.norm(z)
            before, after = (np.linalg.slogdet(m @ q + low * (np.eye(4) - q)) for m in (h, h + c * np.outer(z, z)))
            assert before[0] == after[0] == 1.0
            assert -1e-12 <= after[1] - before[1] <= np.log1p(c / low) + 1e-12
            shrunk.append(after[1] - before[1] < 0.99 * np.log1p(c / low))
    assert any(shrunk)


# ---- the product's own messages --------------------------------------------------------------------------------------


def case(slug: str, loss: str) -> Any:
    (found,) = [c for c in cases(find(slug)) if c.loss == loss and c.way == "whole"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("where", ["box", "ball", "simplex"])
def test_both_worlds_agree_on_a_message_and_what_the_set_cut_off(slug: str, where: str) -> None:
    for found in examine(gather(case(slug, f"logistic, in a {where}").setting(1.0), drawn=2)):
        assert found.passed, found


@pytest.mark.slow
def test_a_third_of_the_noise_is_found_in_a_set() -> None:
    """In a box margins are short, so that one record moves slopes by about half of what is charged for."""

    def short(cfg: Any, place: Any, t: Array, state: Any, shard: Any, draw: dict) -> Any:
        return dvp.emit(cfg, place, t, state, shard, {**draw, "tilt": 0.33 * draw["tilt"]})

    setting = case("dvp", "logistic, in a box").setting(1.0)
    broken = dataclasses.replace(setting, algorithm=dataclasses.replace(setting.algorithm, emit=short))
    found = {f.check: f for f in examine(gather(broken, drawn=2))}
    assert found["replay"].verdict == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["dvp", "pp-admm"])
def test_an_attack_on_messages_alone_proves_no_more_than_is_claimed(slug: str) -> None:
    """Thresholds on the messages: on the boundary they have no density, so the attack knows no likelihood.

    It sees little: a sixteenth of the noise, and not a quarter.
    """
    setting = case(slug, "logistic, in a box").setting(1.0)
    with jax.enable_x64(True):
        shard = HeldShard(
            Logistic(2, constraint=Box(-0.5, 1.0)), jnp.zeros((1, 2)), jnp.ones(1), jnp.asarray(1), jnp.asarray(1.0),
            jnp.asarray(0.0), SolverSettings(),
        )  # fmt: skip
        assert not explainable(setting.algorithm, setting.cfg, setting.place, shard)
    found = audit(setting, 4000)
    assert not found.violated
    with jax.enable_x64(True):
        loud = eqx.tree_at(lambda p: p.noise, setting.place, setting.place.noise / 64)
    assert audit(dataclasses.replace(setting, place=loud), 4000).violated


# ---- plans -----------------------------------------------------------------------------------------------------------


class Unrounded(Constraint):
    """A set of somebody's that says nothing of floating point."""

    def project(self, x: Array) -> Array:
        return jnp.clip(x, -1.0, 1.0)


@pytest.mark.parametrize("slug", ["dvp", "pp-admm"])
def test_a_set_that_states_no_rounding_is_refused_by_name(slug: str) -> None:
    sites = [(np.eye(2), np.array([-1.0, 1.0]))] * 3
    with pytest.raises(InputError, match=f"{slug} charges a solver's error, and Unrounded does not state how far"):
        ct.train(Logistic(2, constraint=Unrounded()), ct.ring(sites), getattr(ct, slug.replace("-", "_"))(),
                 ct.Budget(1.0, 1e-5), rounds=2)  # fmt: skip


def test_a_model_in_a_box_by_noise_in_its_objective() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows @ [3.0, -1.0, 0.0] > 0, 1.0, -1.0)
    task = ct.logistic().within("box", low=0.0, high=2.0)
    run = ct.train(task, ct.ring([(rows[k::4], labels[k::4]) for k in range(4)]), ct.dvp(), ct.Budget(5.0, 1e-5),
                   rounds=6, seed=0)  # fmt: skip
    assert run.epsilon <= 5.0 + 1e-9
    assert np.all((run.point >= 0) & (run.point <= 2))
    assert run.point[0] > run.point[1] + 0.05


class Asked(HeldShard):
    """A shard that answers with the linear term."""

    def argmin(self, linear: Any, curvature: Any, solver: Any, tolerance: Any) -> Any:
        return linear, eqx.tree_at(lambda s: s.x, solver, linear)


@pytest.mark.parametrize("slug", ["dvp", "m-admm", "r-admm", "mr-admm", "pp-admm"])
def test_in_a_set_too_the_objective_gets_all_the_noise_that_is_charged(slug: str) -> None:
    """The linear term moves by the draw times the scale of the event: no more and no less."""
    algorithm = find(slug)
    cfg = algorithm.example
    cfg = cfg.replace(noise="gaussian") if hasattr(cfg, "noise") else cfg
    with jax.enable_x64(True):
        place, shard = agent(network(rounds=4), 0, noise=2.0)
        place = dataclasses.replace(place, within=Ball(0.5))
        shard = Asked(*(getattr(shard, f.name) for f in dataclasses.fields(HeldShard) if f.init))
        t, state = jnp.asarray(0), algorithm.init(cfg, place)
        still = {name: jnp.zeros(law.shape) for name, law in algorithm.draws(cfg, place).items()}
        name = next(name for name in still if name not in ("output", "hide"))
        z = jnp.arange(1.0, 1 + still[name].size).reshape(still[name].shape)
        x = [algorithm.emit(cfg, place, t, state, shard, {**still, name: draw})[1].x for draw in (still[name], z)]
        event = algorithm.cost(cfg, place, t, None)
    assert isinstance(event, ObjectivePerturbation)
    np.testing.assert_allclose(np.asarray(x[1]) - np.asarray(x[0]), float(event.sigma) * np.asarray(z), rtol=1e-9)
