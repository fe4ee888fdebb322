"""Noise that neighbours share: cancels in the average, hides as declared, is refused where the proof does not hold."""

import dataclasses
import math

import jax
import numpy as np
import pytest

import coterie as ct
from coterie.algorithms.base import find
from coterie.algorithms.laws import Shared
from coterie.audit import examine, gather, make_setting
from coterie.audit.observers import Vantage, attack
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.graphs import make_graph, mixing
from coterie.losses.mean import Mean
from coterie.plan import validate
from coterie.pricing import price
from coterie.privacy.gdp import epsilon_of, mu_for
from coterie.privacy.observers import hidden_share, worst_hidden_share

DECOR = find("decor")
GRAPH = make_graph("regular", 10, degree=4)
WEIGHTS = mixing(GRAPH, "metropolis")
RATIO = 3.0
LEFT = worst_hidden_share(GRAPH.edges, 10, RATIO, 2)
CFG = DECOR.config(step=1.0, momentum=0.0, clip=1.0, mixing=1, tail=0.0, ratio=RATIO, curious=2, left=LEFT)


@pytest.mark.slow
def test_sensitivity() -> None:
    found = {f.check: f for f in examine(gather(make_setting(DECOR, epsilon=1.0)))}
    for finding in found.values():
        assert finding.passed, finding
    assert found["replay"].share >= 0.9  # of what is declared


def test_the_draws_of_a_network_have_the_declared_covariance() -> None:
    """Those of the driver, round by round: q (I + ratio² Laplacian); nothing of a secret is left in the sum."""
    with jax.enable_x64(True):
        parts = np.split(np.arange(10), 10)
        layout = make_layout(Mean(1), np.zeros((10, 1)), np.zeros(10), parts, GRAPH, WEIGHTS, rounds=2)
    trace = simulate(DECOR, layout, [Run(s, CFG, 1.0) for s in range(4000)], rounds=2, every=2, record=True)
    assert trace.draws is not None
    draws = trace.draws["noise"][..., 0]  # runs, rounds, agents
    declared = LEFT * (np.eye(10) + RATIO**2 * GRAPH.laplacian().toarray())
    for t in range(2):
        assert np.cov(draws[:, t].T) == pytest.approx(declared, abs=0.12 * declared.max())
        assert np.var(draws[:, t].mean(axis=1)) == pytest.approx(LEFT / 10, rel=0.1)
    assert np.abs(np.mean(draws[:, 0] * draws[:, 1], axis=0)).max() < 0.1 * declared.max()  # fresh secrets
    hidden = 1 / np.linalg.inv(declared).diagonal()
    assert hidden.min() >= 1.0  # what hides a message, nobody being curious: at least what `cost` declares


def seat(left: float) -> Vantage:
    """A reader of every message in league with two neighbours of the party that this costs most."""
    worst = max(
        ((i, j, int(v)) for v in range(10) for i, j in zip(*np.triu_indices(10, 1), strict=True) if v not in (i, j)),
        key=lambda q: _share(q[2], (int(q[0]), int(q[1]))),
    )
    return Vantage(
        DECOR, CFG.replace(left=left), Mean(1), GRAPH, WEIGHTS, records=4, rounds=1, noise=0.5,
        observers=(int(worst[0]), int(worst[1])), victim=worst[2], pair=((np.ones(1), 0.0), (-np.ones(1), 0.0)),
        everything=True,
    )  # fmt: skip


def _share(party: int, gone: tuple[int, int]) -> float:
    return float(hidden_share(GRAPH.edges, 10, RATIO, gone)[party])


@pytest.mark.slow
def test_the_worst_coalition_learns_what_is_charged_and_no_more() -> None:
    """μ = 2 is charged for one round; with half of the noise's variance it is exceeded."""
    found = attack(seat(LEFT), trials=10_000)
    assert 0.9 * 2.0 <= found.mu <= 2.0
    assert attack(seat(LEFT / 2), trials=4000).mu > 2.0


def tree(**changes: object) -> dict[str, object]:
    return {
        "problem": {"loss": "logistic", "dim": 2}, "partition": {"kind": "iid", "sizes": [50] * 8},
        "graph": {"kind": "ring"}, "privacy": {"epsilon": 2.0}, "algorithm": {"name": "decor"},
        "run": {"rounds": 6}, "data": {"source": "adult"},
    } | changes  # fmt: skip


def test_a_ring_whose_neighbours_are_curious_gains_nothing() -> None:
    plan = validate(tree(algorithm={"name": "decor", "curious": 2}))
    priced = price(plan, public_network(plan))
    assert priced.cfg.left == 1.0  # type: ignore[attr-defined]
    assert any("nothing gained" in w for w in priced.warnings)
    plan = validate(tree(algorithm={"name": "decor", "curious": 1, "missing": 1}))
    assert price(plan, public_network(plan)).cfg.left == 1.0  # type: ignore[attr-defined]  # charged in advance


def test_observers_where_parties_may_be_missing() -> None:
    """Whoever is away knows its secrets, as far as the others can tell."""
    network = {"graph": {"kind": "regular", "degree": 4}, "privacy": {"epsilon": 2.0, "observers": ["0"]}}
    plan = validate(tree(algorithm={"name": "decor", "curious": 1, "missing": 1}, **network))
    priced = price(plan, public_network(plan))
    edges, cfg = public_network(plan).graph.edges, priced.cfg
    worst = max(hidden_share(edges, 8, cfg.ratio, (0, away))[1] for away in range(2, 8))  # type: ignore[attr-defined]
    one = mu_for(2.0, 1e-5) * math.sqrt(worst / cfg.left)  # type: ignore[attr-defined]
    assert priced.seats[0].mu[1] == pytest.approx(one, rel=1e-6)
    leaky = dataclasses.replace(public_network(plan), leaks=("ranges were read from the records",))
    assert price(plan, leaky).seats == ()  # nothing is claimed against anybody then


def test_claims_name_their_adversaries() -> None:
    plan = validate(tree())
    priced = price(plan, public_network(plan))
    first, alone = priced.claims
    assert "no secret that two others share" in first.adversary
    assert not first.local
    assert first.account.epsilon == pytest.approx(2.0)
    assert mu_for(alone.account.epsilon, 1e-5) == pytest.approx(mu_for(2.0, 1e-5) / priced.cfg.left**0.5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algorithm": {"name": "decor", "heaviest": 0.001}}, "is worked out from the sizes"),
        ({"privacy": {"epsilon": [1.0] * 7 + [2.0]}}, "privacy.epsilon must be one number"),
        ({"exchange": {"kind": "secret-sum"}}, "decor needs individual messages"),
        ({"algorithm": {"name": "decor", "left": 0.01}}, "is worked out from the graph"),
        ({"algorithm": {"name": "decor", "curious": 8}}, "at most 7 can be curious or missing, got 8"),
    ],
)
def test_refused_where_the_proof_does_not_hold(changes: dict[str, object], told: str) -> None:
    plan = validate(tree(**changes))
    with pytest.raises(InputError, match=told):
        price(plan, public_network(plan))


@pytest.mark.parametrize("weighting", ["agents", "records"])
def test_unequal_parties_add_the_same_noise(weighting: str) -> None:
    """That of the party whose records weigh most, or secrets would not cancel."""
    sizes, problem = [50] * 7 + [400], {"loss": "logistic", "dim": 2, "weighting": weighting}
    plan = validate(tree(partition={"kind": "iid", "sizes": sizes}, problem=problem))
    priced = price(plan, public_network(plan))
    with jax.enable_x64(True):
        scale = np.asarray(priced.noise * DECOR.sensitivity(priced.cfg, priced.places, 0))  # type: ignore[misc]
    heaviest = 1 / 50 if weighting == "agents" else 8 / sum(sizes)
    assert scale == pytest.approx(np.full(8, scale[0]))
    assert scale[0] == pytest.approx(priced.noise[0] * 2 * priced.cfg.step * priced.cfg.clip * heaviest)  # type: ignore[attr-defined]


def test_one_party_alone_draws_what_nobody_else_knows() -> None:
    with jax.enable_x64(True):
        law = DECOR.draws(CFG, make_setting(DECOR, epsilon=1.0).place)["noise"]
    assert isinstance(law, Shared)
    assert law.own == pytest.approx(LEFT**0.5)
    assert law.edge == pytest.approx(RATIO * LEFT**0.5)


def test_a_person_at_two_parties_moves_two_messages_whose_noise_is_shared() -> None:
    """Both shifts add up in the average, where little noise is left: μ is twice that of one, not √2 times."""
    rng = np.random.default_rng(0)
    sites = [(rng.uniform(-0.5, 0.5, (12, 2)), rng.choice([-1, 1], 12)) for _ in range(4)]
    parties = ct.complete(sites, people=[np.arange(12) // 2] * 4)
    run = ct.train(ct.logistic(), parties, ct.decor(curious=0, ratio=50.0), ct.Budget(1.0, 1e-5), rounds=4, seed=0)
    told = run.result["privacy"]["protects"]
    assert told["person"] == pytest.approx(1.0, rel=1e-6)
    shifts = np.array([1.0, 1.0, 0.0, 0.0])
    edges = np.array([(i, j) for i in range(4) for j in range(i)])
    hides = np.eye(4) + 50.0**2 * sum(np.outer(e, e) for e in np.eye(4)[edges[:, 0]] - np.eye(4)[edges[:, 1]])
    factor = math.sqrt(shifts @ np.linalg.inv(hides) @ shifts / hidden_share(edges, 4, 50.0).max())
    assert factor > 1.99
    true = epsilon_of(factor * mu_for(1.0, 1e-5), 1e-5)
    assert true <= told["person_at_two_parties"] < 1.01 * true
