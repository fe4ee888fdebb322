"""Many holders: the same sums, the same noise where sums are shared, √N times as much where they are not."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.exchange.additive import SumsHere
from coterie.exchange.sums import Opened, SumTerms
from coterie.fair import decentralised as dec
from coterie.fair import mechanisms as mech
from coterie.fair.mechanisms import release
from coterie.fair.noise import GRID_SIGMA, Seeded
from coterie.fair.polynomial import Statistics
from coterie.graphs import make_graph, mixing
from tests.fair.cases import Recorder, records


def _holders(n=2000, d=4, parts=5, groups=2):
    x, y, z = records(n, d, groups=groups)
    return [Statistics.of(x[r], y[r], z[r], groups) for r in np.array_split(np.arange(n), parts)]


@pytest.mark.parametrize("groups", [2, 3])
def test_with_almost_no_noise_both_ways_give_the_pooled_model(groups):
    holders = _holders(groups=groups)
    pooled = release(reduce(add, holders), "adfc", epsilon=np.inf, noise=Seeded(np.random.default_rng(0))).weights(0.5)
    shared = dec.fit_by_secret_sum(holders, epsilon=1e6, delta=1e-3, penalty=0.5, random_state=0)
    assert np.allclose(shared.weights, pooled, atol=0.02 * np.linalg.norm(pooled))
    ring = mixing(make_graph("ring", 5))
    walked = dec.fit_by_consensus(
        holders, ring, epsilon=np.inf, delta=1e-3, penalty=0.5, rounds=80, noise=Seeded(np.random.default_rng(0))
    )
    assert np.allclose(walked.weights, pooled, atol=1e-6)
    assert walked.disagreement < 1e-6
    early = dec.fit_by_consensus(
        holders, ring, epsilon=np.inf, delta=1e-3, penalty=0.5, rounds=1, noise=Seeded(np.random.default_rng(0))
    )
    assert early.disagreement > 1e-4


def test_the_secret_sum_carries_the_noise_of_one_holder_and_local_noise_root_n_more():
    zero = [Statistics(100, np.zeros(2), np.zeros(60), np.zeros((60, 60)), np.zeros((2, 60))) for _ in range(5)]
    seen = {}

    def spy(name):
        class Spy(SumsHere):
            def open(self, values, noise=None):
                assert noise is None  # it is in the values: whole numbers of grid steps
                assert all(np.array_equal(v, np.rint(v)) for v in values)
                seen.setdefault(name, []).append([v.astype(int) for v in values])
                return super().open(values, noise)

        return Spy

    dec.fit_by_secret_sum(zero, epsilon=1.0, delta=1e-3, sums=spy("none"), random_state=1)
    dec.fit_by_secret_sum(zero, epsilon=1.0, delta=1e-3, sums=spy("two"), colluding=2, random_state=1)
    assert [len(v) for v in seen["none"]] == [5, 5, 5]  # one sum for each stage, five vectors in each
    numbers = mech.sizes_of(60, 2)[1]  # the rest of a message says nothing
    objective = np.stack(seen["none"][1])[:, :numbers]
    assert objective.dtype == np.int64
    # each holder's part has σ₀ grid steps; the step is σ/(√honest·σ₀), so the sum has σ
    assert objective.std() == pytest.approx(GRID_SIGMA, rel=0.02)
    assert objective.sum(0).std() == pytest.approx(np.sqrt(5) * GRID_SIGMA, rel=0.05)
    # what two colluders know is made up for: as many steps each, each of them larger
    loud = np.stack(seen["two"][1])[:, :numbers]
    assert loud.std() == pytest.approx(GRID_SIGMA, rel=0.02)
    held, wide = (
        dec._Holders(zero, mixing(make_graph("complete", 5)), "adfc", 1.0, 1e-3, dec._Shared(5, out, None), 1, True,
                     None, parts=5 - out)
        for out in (0, 2)
    )  # fmt: skip
    ratio = np.asarray(wide.places.noise) / np.asarray(held.places.noise)
    assert np.allclose(ratio * held.levels.noise / wide.levels.noise, np.sqrt(5 / 3))


def test_what_the_sum_costs():
    holders = _holders()
    net = dec.fit_by_secret_sum(holders, epsilon=1.0, delta=1e-3, random_state=0)
    assert net.claim.name == "secret-sum (one process)"
    assert "own vector" in net.claim.adversary
    assert 0.99 < net.claim.account.epsilon <= 1.0

    class Plain:
        """Adds the words up, with no shares at all."""

        def __init__(self, terms: SumTerms, size: int) -> None:
            self.code = terms.code

        def open(self, values, noise=None):
            words = sum(self.code.encode(v) for v in values)
            return Opened(self.code.decode(words), words)

    named = dec.fit_by_secret_sum(holders, epsilon=1.0, delta=1e-3, random_state=0, sums=Plain)
    assert named.claim.name == "secret-sum"
    assert np.array_equal(named.weights, net.weights)


class Told(Seeded):
    """Ones in one stage of one holder, and zeros everywhere else."""

    def __init__(self, holder, stage):
        super().__init__(np.random.default_rng(0))
        self.holder, self.stage, self.calls = holder, stage, 0

    def draw(self, shape, law):
        order = [(0, i) for i in range(5)] + [(k, i) for i in range(5) for k in (1, 2)]
        mine = order[self.calls] == (self.stage, self.holder)
        self.calls += 1
        return np.full(shape, 1.0 if mine else 0.0)


def test_local_noise_is_each_holders_own():
    """A unit of noise at one holder moves what all end with as much as the noise of a lone holder, once for each."""
    holders = _holders()
    complete = mixing(make_graph("complete", 5), "uniform")
    points = {}

    def answers(noise):
        run = dec._Holders(holders, complete, "adfc", 1.0, 1e-3, noise, 1, True, None)
        order = [(0, i) for i in range(5)] + [(k, i) for i in range(5) for k in (1, 2)]
        weights = complete.dense()
        apart = weights - np.diag(np.diag(weights))

        def deliver(t, state, message):
            return message, dec.agents.Message(apart @ np.asarray(message.values))

        return dec.play_together(
            dec.FAIR_RELEASE, run.cfg, run.places, run.shards, draw=run.draws(order), deliver=deliver
        )

    class Silent(Seeded):
        def draw(self, shape, law):
            return np.zeros(shape)

    points["none"] = answers(Silent(np.random.default_rng(0)))
    points["one"] = answers(note := Told(2, 1))
    assert note.calls == 15  # three stages at each of five holders
    one = Recorder(count=1)
    release(holders[0], "adfc", epsilon=1.0, delta=1e-3, noise=one)
    moved = dec.FairMoments(4).parts(points["one"][0] - points["none"][0])
    flat = np.concatenate([moved.linear, mech.poly.svec(moved.quadratic)])
    assert np.allclose(flat, one.seen[1][1])  # the full noise of a lone holder

    net = dec.fit_by_consensus(
        holders, complete, epsilon=1.0, delta=1e-3, noise=Seeded(np.random.default_rng(0)), rounds=1
    )
    assert net.claim.account.epsilon == pytest.approx(1.0)
    assert net.claim.name == "local noise"


def test_refusals():
    holders = _holders()
    with pytest.raises(InputError, match="use relaxed-fm or adfc"):
        dec.fit_by_secret_sum(holders, "pdfc", epsilon=1.0, delta=1e-3)
    with pytest.raises(InputError, match="finite epsilon"):
        dec.fit_by_secret_sum(holders, epsilon=np.inf, delta=1e-3)
    with pytest.raises(InputError, match="colluding"):
        dec.fit_by_secret_sum(holders, epsilon=1.0, delta=1e-3, colluding=5)
    with pytest.raises(InputError, match="5 parties on a graph of 4"):
        dec.fit_by_consensus(
            holders, mixing(make_graph("ring", 4)), epsilon=1.0, delta=1e-3, noise=Seeded(np.random.default_rng(0))
        )


def test_noise_from_the_operating_system():
    holders = _holders(d=3)
    one, two = (dec.fit_by_secret_sum(holders, epsilon=1.0, delta=1e-3).weights for _ in range(2))
    assert np.all(np.isfinite(one))
    assert not np.array_equal(one, two)


@pytest.mark.slow
@pytest.mark.data
def test_adult_meets_its_targets_and_five_holders_lose_nothing():
    """ε = 1: accuracy ≥ 0.80 with risk difference ≤ 0.05; ε = 0.1: accuracy ≥ 0.78; secret sums within 0.01."""
    from coterie.fair.study import prepare, run
    from coterie.fair.study_plan import read_fair_plan

    plan = read_fair_plan(None, ["epsilons=[0.1, 1.0]", "seeds=4"])
    keep = [r for r in plan.runs if r.panel == "Five holders"]
    cells = run(prepare(plan.model_copy(update={"runs": keep, "codings": {"ours": plan.codings["ours"]}})))
    at = {(c["over"], c["epsilon"]): c for c in cells}
    assert at["one", 1.0]["accuracy"]["mean"] >= 0.80
    assert at["one", 1.0]["risk_difference"]["mean"] <= 0.05
    assert at["one", 0.1]["accuracy"]["mean"] >= 0.78
    for epsilon in (0.1, 1.0):
        gap = at["secret-sum", epsilon]["accuracy"]["mean"] - at["one", epsilon]["accuracy"]["mean"]
        assert abs(gap) <= 0.01
