"""Holders are agents like any other: every driver runs them, and an audit finds what they declare and no less."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from coterie.algorithms.laws import Grid
from coterie.audit import examine, gather, make_setting
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.drivers.together import play_together
from coterie.errors import InputError
from coterie.fair import decentralised as dec
from coterie.fair import holders
from coterie.fair import mechanisms as mech
from coterie.fair.moments import FairMoments, SummedShard
from coterie.fair.noise import GridNoise, Noise, Seeded
from coterie.fair.polynomial import Statistics
from coterie.graphs import make_graph, mixing
from coterie.testing.losses import check_problem
from tests.fair.cases import records


class Kept(Noise):
    """Another's noise, with notes of what was drawn."""

    def __init__(self, source: Noise) -> None:
        self.source, self.secure, self.drawn = source, source.secure, []

    def draw(self, shape, law):
        self.drawn.append(self.source.draw(shape, law))
        return self.drawn[-1]

    def event(self, *args, **options):
        return self.source.event(*args, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "law", "source"),
    [
        pytest.param(2, "adfc", Seeded(np.random.default_rng(5)), marks=pytest.mark.slow),
        (3, "pdfc", Seeded(np.random.default_rng(6))),
        pytest.param(3, "adfc", GridNoise(), marks=pytest.mark.slow),  # on grids every day: tests/deploy/test_fair.py
    ],
)
def test_a_simulation_of_the_records_with_the_same_draws_gives_the_same_models(groups, law, source):
    x, y, z = records(300, 3, groups=groups)
    parts, ring, walk = np.array_split(np.arange(300), 5), mixing(make_graph("ring", 5)), 4
    note = Kept(source)
    own = [Statistics.of(x[r], y[r], z[r], groups) for r in parts]
    fitted = dec.fit_by_consensus(own, ring, law, epsilon=2.0, delta=1e-3, noise=note, rounds=walk, penalty=0.5)

    method = mech.private_method(law)[1]
    cfg = holders.Config(groups=groups, records=300.0, law=method, walk=walk)
    levels = mech.levels_for(method, 3, groups, epsilon=2.0, delta=1e-3, shares=cfg.shares, noise=source)
    order = [(0, i) for i in range(5)] + [(stage, i) for i in range(5) for stage in (1, 2)]
    first = note.drawn[0]
    noise = np.zeros((cfg.rounds, 5, FairMoments(3, groups).dim), np.int64 if isinstance(first, Grid) else float)
    for (stage, i), drawn in zip(order, note.drawn, strict=True):
        noise[stage * walk, i, : mech.sizes_of(3, groups)[stage]] = drawn.steps if isinstance(first, Grid) else drawn
    draws = {"noise": Grid(noise, first.unit) if isinstance(first, Grid) else noise}

    problem = FairMoments(3, groups, penalty=0.5)
    with jax.enable_x64(True):
        layout = make_layout(problem, x, (y + 2 * z).astype(np.int32), parts, ring.graph, ring, rounds=cfg.rounds)
        trace = simulate(
            dec.FAIR_RELEASE, layout, [Run(0, cfg, levels.noise)], rounds=cfg.rounds, replay=draws, every=cfg.rounds
        )
    for point, weights in zip(trace.points[0], fitted.weights, strict=True):
        assert np.allclose(problem.weights(point), weights, rtol=1e-7)
    assert np.ptp(fitted.weights, axis=0).max() > 1e-6  # four rounds are not enough to agree: each holder has its own


def _found(cfg, algorithm=dec.FAIR_RELEASE):
    setting = make_setting(
        algorithm, cfg, epsilon=1.0, delta=1e-5, rounds=cfg.rounds, problem=FairMoments(2, cfg.groups)
    )
    return {finding.check: finding for finding in examine(gather(setting, drawn=6))}


@pytest.mark.parametrize("law", ["gaussian", pytest.param("laplace", marks=pytest.mark.slow)])
def test_an_audit_finds_what_is_declared(law):
    found = _found(holders.Config(groups=2, records=12.0, walk=2, law=law))
    for finding in found.values():
        assert finding.passed, finding
    assert found["replay"].share >= 0.99  # one record can tell what is declared


@pytest.mark.slow
def test_an_audit_sees_noise_that_is_five_percent_short():
    def short(cfg, place, t, state, shard, draw):
        less = {"noise": 0.95 * draw["noise"]}
        return holders.emit(cfg, place, t, state, shard, less)

    found = _found(holders.Config(groups=2, records=12.0, walk=1), replace(dec.FAIR_RELEASE, emit=short))
    assert not found["replay"].passed


def test_sums_made_before_are_those_of_the_records():
    x, y, z = records(50, 3, groups=3)
    problem = FairMoments(3, 3)
    with jax.enable_x64(True):
        of_records = np.asarray(
            problem.weighted_gradient(np.zeros(problem.dim), jax.numpy.asarray(x), y + 2 * z, np.ones(50))
        )
    made = problem.flat(Statistics.of(x, y, z, 3))
    assert np.allclose(of_records, made)
    back = problem.parts(made)
    assert np.allclose(back.quadratic, x.T @ x / 8)
    assert np.allclose(back.sums[2], x[z == 2].sum(0))


def test_the_facts_of_the_problem_hold():
    check_problem(FairMoments(2, 3))


def test_sums_answer_nothing_else():
    shard = SummedShard(FairMoments(1), np.zeros(5), np.array(3), np.array(1.0), np.array(0.0))
    for ask in (
        lambda: shard.gradient(np.zeros(5), clip=1.0),
        lambda: shard.losses(np.zeros(5)),
        lambda: shard.argmin(np.zeros(5), 1.0, None, 1e-9),
    ):
        with pytest.raises(InputError, match="sums"):
            ask()
    needy = replace(dec.FAIR_RELEASE, reads="individuals")
    with pytest.raises(InputError, match="needs individual messages"):
        play_together(needy, holders.EXAMPLE, None, shard, draw=dict, deliver=None)
