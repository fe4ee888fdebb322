"""What is refused before data is read, and that no neighbour can make a solver's error larger than what is charged."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.losses.logistic import Logistic
from coterie.plan import Plan, validate
from coterie.pricing import price, settle
from coterie.problems import Ball, HeldShard
from tests.support import agent, mostly_slow, network

SOLVING = [s for s, a in all_algorithms().items() if a.private and a.needs(a.example).solver]


def plan(slug: str, settings: dict | None = None, epsilon: float = 1.0, ridge: float = 0.1, **run: Any) -> Plan:
    example = find(slug).example.model_dump(exclude_unset=True)
    return validate(
        {
            "data": {"source": "csv", "path": "none.csv", "label": "y", "options": {"classes": ["no", "yes"]}},
            "partition": {"kind": "iid", "sizes": [40, 40, 40]},
            "problem": {"loss": "logistic", "dim": 3, "ridge": ridge},
            "algorithm": {"name": slug, **example, **(settings or {})},
            "privacy": {"epsilon": epsilon, "delta": 1e-5},
            "run": {"rounds": 3, **run},
        }
    )


def test_the_solving_algorithms_are_known() -> None:
    assert set(SOLVING) == {"dvp", "ipp-admm", "m-admm", "mr-admm", "pp-admm", "pvp", "r-admm"}


# ---- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", SOLVING)
def test_what_rounding_could_spoil_is_refused(slug: str) -> None:
    for wrong, why in (
        (plan(slug, dtype="float32"), r"float32.* exceeds by rounding"),
        (plan(slug, {"tolerance": 1e-13}), r"tolerance = 1e-13 is out of reach"),
        (plan(slug, {"penalty": 1e-9}, ridge=1e-9), r"gradient steps to solve a subproblem"),
    ):
        with pytest.raises(InputError, match=why):
            settle(wrong, public_network(wrong))


@pytest.mark.parametrize("law", ["gamma", "gaussian"])
def test_noise_that_would_drown_the_tolerance_is_refused(law: str) -> None:
    """Small budgets are met with a tolerance that suits them, and refused with one that does not."""
    fine, fussy = (plan("dvp", {"tolerance": beta, "noise": law}, epsilon=1e-3) for beta in (1e-6, 1e-11))
    price(fine, public_network(fine))
    with pytest.raises(InputError, match=r"noise of length up to .* use a larger tolerance or budget"):
        price(fussy, public_network(fussy))


def test_no_set_is_left_aside_by_a_method_that_solves() -> None:
    """A problem may say that its set does not matter; the density of a minimiser inside one is another matter."""

    class Inside(Logistic):
        interior: ClassVar[bool] = True

    assert Inside(3).monotone
    here = plan("pp-admm")
    problem = Inside(3, constraint=Ball(5.0))
    bounded = dataclasses.replace(public_network(here), problem=problem)
    with pytest.raises(InputError, match="says that its own does not matter"):
        settle(here, bounded)


# ---- hostile neighbours ----------------------------------------------------------------------------------------------

SIZES = [0.0, 1.0, 1e3, 1e6, 1e9, 1e12, 1e15, 1e100, 1e300, np.inf, np.nan]
FIELDS = ("problem", "features", "targets", "count", "unit", "ridge", "how")


class Asked(HeldShard):
    """A shard that answers with the linear term, and with the curvature as its residual."""

    def argmin(self, linear: Any, curvature: Any, solver: Any, tolerance: Any) -> Any:
        return linear, eqx.tree_at(lambda s: (s.x, s.residual), solver, (linear, jnp.asarray(curvature, linear.dtype)))


def left(shard: Any, linear: np.ndarray, curvature: float, x: np.ndarray) -> float:
    """Norm of the subproblem's gradient at x, in extended precision."""
    features, targets, point = (np.asarray(a, np.longdouble) for a in (shard.features, shard.targets, x))
    margin = np.clip(targets * (features @ point), -1e4, 1e4)
    slopes = np.where(np.asarray(shard.mask), -targets / (1 + np.exp(margin)), 0)
    total = float(shard.unit) * (slopes @ features) + linear + (float(shard.ridge) + curvature) * point
    return float(np.linalg.norm(total.astype(float)))


@pytest.mark.parametrize("slug", mostly_slow(SOLVING, "dvp", "ipp-admm", "mr-admm"))
def test_no_neighbour_makes_a_residual_larger_than_what_is_charged(slug: str) -> None:
    algorithm = find(slug)
    cfg, (place, shard) = algorithm.example, agent(network(d=3))
    with jax.enable_x64(True):
        probe = Asked(*(getattr(shard, f) for f in FIELDS))
        draw = {n: jnp.zeros(law.shape) for n, law in algorithm.draws(cfg, place).items()}
        fresh, wild = algorithm.init(cfg, place), jnp.array([1.0, -0.7, 0.2])

        @jax.jit
        def solved(near: Any) -> Any:
            state = eqx.tree_at(lambda s: (s.near, s.dual), fresh, (near, -0.3 * near))
            told = [algorithm.emit(cfg, place, jnp.array(0), state, s, draw)[0].solver for s in (probe, shard)]
            return [(s.x, s.residual) for s in told]

        for size in SIZES:
            (linear, curvature), (x, residual) = solved(size * wild if size else 0 * wild)
            assert np.isfinite(x).all()
            assert float(residual) <= cfg.tolerance
            assert left(shard, np.asarray(linear), float(curvature), x) <= cfg.tolerance
