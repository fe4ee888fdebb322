"""Figures of Zhang and Zhu: the settings behind them, against the closed forms of the paper and of the audit."""

from math import log1p
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from coterie.algorithms import pvp
from coterie.algorithms.batches import rows
from coterie.experiment import public_network
from reproduction import _zhang_zhu_runs as zz
from reproduction._admm_runs import settled, with_shape
from reproduction._zhang_zhu_range import Tried, lower_final, most
from reproduction.base import all_figures
from reproduction.pricing import cost_of
from reproduction.runner import reproduce
from reproduction.verdicts import Outcome


def public(world, ridge):
    """What `settled` reads of an experiment, without any data."""
    plan = world.plan("admm", 1, ridge)
    return SimpleNamespace(plan=plan, network=public_network(plan))


@pytest.mark.parametrize(
    ("method", "right", "printed"), [((0.2, 25.0), 0.1422, 0.1458), ((20.0, 20.0), 0.4533, 0.4648)]
)
def test_the_optimal_level_and_its_misprint(method, right, printed):
    assert zz.best_level(*method) == pytest.approx(right, abs=5e-5)
    assert zz.best_level(*method, sign=-1.0) == pytest.approx(printed, abs=5e-5)
    assert zz.best_level(*method) != pytest.approx(printed, abs=5e-4)


def test_the_fit_finds_its_own_constants():
    levels = np.array([0.1, 0.2, 0.3, 0.5, 1.0])
    assert zz.fit(levels, 3 * np.exp(-7 * levels) + 0.4) == pytest.approx((3, 7, 0.4), rel=1e-4)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_a_printed_dual_round_costs_twice_its_noise_and_the_determinant(alpha):
    """In the paper's symbols: α̂ = α − 2 ln(1 + κ), density exp(−α̂‖ε‖), and one record moves ε by 2."""
    world, c, b = zz.world(4000), zz.WEIGHT["dual"], 4000
    priced = settled(world, public(world, zz.RHO["dual"] / c), "dvp", zz.ROUNDS, penalty=zz.ETA / c, noise="gamma",
                     as_printed=True)  # fmt: skip
    kappa = 0.25 * c / (b * (zz.RHO["dual"] + 2 * zz.ETA * world.degree))
    once = 2 * (alpha - 2 * log1p(kappa)) + log1p(kappa) + 0.01 * alpha  # 1 %: noise that hides the solver's error
    assert cost_of(priced.algorithm, priced.cfg, priced.places, 1 / alpha, 0.0) == pytest.approx(100 * once, rel=1e-6)
    assert once > 1.5 * alpha  # one round alone exceeds the claim


def test_printed_primal_noise_is_constant_and_of_the_papers_size():
    alpha, b = 0.3, 4000
    world, rho, c = zz.world(b), zz.RHO["primal"], zz.WEIGHT["primal"]
    priced = settled(world, public(world, rho / c), "pvp", 102, penalty=zz.ETA / c, noise="gamma",
                     centre="literal", tolerance=zz.TOLERANCE)  # fmt: skip
    pull = 2 * zz.ETA * world.degree
    shape = 1 / (1 - (pull / (rho + pull)) ** np.arange(1.0, 103))
    with jax.enable_x64(True):
        place = rows(with_shape(priced, shape).places, 0)
        move = jax.jit(lambda t: pvp.sensitivity(priced.cfg, place, t))
        moves = np.array([float(move(t)) for t in range(100)])
    np.testing.assert_allclose(moves * shape[:100] / alpha, 2 * c / (rho * b * alpha), rtol=1e-5)  # 1/ζ
    assert moves[0] < 0.05 * moves[-1]  # without the correction early rounds would have a fraction of it


def test_what_is_said_of_most_levels_needs_more_than_half_of_them():
    yes, no, silent = Outcome(1.0), Outcome(-1.0), Outcome(0.0)
    words = [most(tries, P="5").bears for tries in ([yes, yes, no], [yes, no], [no, no, yes], [yes, silent, silent])]
    assert words == [True, False, False, None]
    assert most([yes], P="5").at == {"P": "5"}


def test_a_scale_of_the_loss_can_turn_a_comparison_of_methods():
    """C^R is 1,750 for one method and 146 for the other."""
    runs = {m: {1.0: {"final": np.array([x, x + 1e-3])}} for m, x in (("dual", 0.36), ("primal", 0.69))}
    mean, weighted = lower_final([Tried({"P": "5"}, [1.0], runs)])
    assert (mean.bears, weighted.bears) == (False, True)
    assert {mean.at["scale"], weighted.at["scale"]} == {"mean", "times C^R"}


@pytest.mark.slow
@pytest.mark.data
def test_a_quick_figure(tmp_path):
    found = reproduce(all_figures()["zhang-zhu-fig8"], tmp_path, quick=True)
    assert {c["claim"][:15]: c["outcomes"][0]["margin"] > 0 for c in found["claims"]}["the dual method"]
    printed = [b for b in found["budgets"] if b["version"] == "as printed"]
    assert all(b["true"] > 1.9 * b["claimed"] for b in printed if b["label"] == "dual")
    assert (tmp_path / "zhang-zhu-fig8.png").stat().st_size > 10_000
