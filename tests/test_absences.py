"""Parties that leave and join by a public list: silence, price, and what nobody can learn meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import coterie as ct
from coterie import cli
from coterie.algorithms.base import find
from coterie.contracts import check_contract
from coterie.deploy.noise import check_deployable
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.errors import InputError
from coterie.experiment import prepare, public_network
from coterie.graphs import make_graph, mixing
from coterie.losses.mean import Mean
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy.gdp import mu_for

ROUNDS, AGENTS, DIM = 6, 4, 2
PRESENT = np.ones((AGENTS, ROUNDS))
PRESENT[1, 2:4] = 0  # leaves, and comes back
PRESENT[2, :3] = 0  # joins late
PRESENT[3, 4:] = 0  # leaves for good
STEP = 0.3


def plan_of(away: dict[str, Any], slug: str = "dp-dsgd", **more: Any) -> Plan:
    tree: dict[str, Any] = {
        "data": {"source": "adult"},
        "partition": {"sizes": [200, 200, 200, 200]},
        "problem": {"loss": "logistic", "dim": 4},
        "algorithm": {"name": slug} | ({"mixing": 1} if slug == "dp-dsgd" else {}),
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "run": {"rounds": ROUNDS, "away": away},
    }
    return validate(tree | more)


def played(records: np.ndarray, present: np.ndarray | None = PRESENT, noise: float = 0.0) -> Trace:
    """dp-dsgd towards everybody's mean on a ring, all messages kept."""
    weights = mixing(make_graph("ring", AGENTS))
    algorithm = find("dp-dsgd")
    cfg = algorithm.example.replace(step=STEP, clip=10.0, mixing=1, momentum=0.0, batch=None, tail=0.0)
    with jax.enable_x64(True):
        layout = make_layout(
            Mean(DIM, 10.0), records, np.zeros(len(records)), np.split(np.arange(len(records)), AGENTS),
            weights.graph, weights, rounds=ROUNDS, present=present, start=np.array([0.5, -0.5]),
        )  # fmt: skip
    return simulate(algorithm, layout, [Run(3, cfg, noise)], rounds=ROUNDS, every=ROUNDS, record=True)


def by_hand(records: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The same loop, written down: what stands as everybody's message in every round."""
    weights = mixing(make_graph("ring", AGENTS)).dense()
    means = records.reshape(AGENTS, -1, DIM).mean(axis=1)
    x = np.tile([0.5, -0.5], (AGENTS, 1))
    said, found = x.copy(), []
    for t in range(ROUNDS):
        here = present[:, t] > 0
        said[here] = (x - STEP * (x - means))[here]
        heard = weights @ said
        x[here] = heard[here]
        found.append(said.copy())
    return np.array(found)


RECORDS = np.random.default_rng(0).uniform(-1, 1, (40, DIM))


def test_messages_are_those_of_the_loop_by_hand() -> None:
    trace = played(RECORDS)
    sent = np.asarray(jax.tree.leaves(trace.messages)[0])[0]
    assert sent == pytest.approx(by_hand(RECORDS, PRESENT), abs=1e-12)
    assert not np.allclose(sent, by_hand(RECORDS, np.ones_like(PRESENT)), atol=1e-3)
    assert trace.sent[0].tolist() == PRESENT.sum(axis=1).tolist()


def test_nothing_of_a_party_is_heard_before_it_joins_nor_after_it_left() -> None:
    """Its records do not matter to anybody's message in the rounds of which they must not."""
    before = np.asarray(jax.tree.leaves(played(RECORDS, noise=1.0).messages)[0])[0]
    for party, silent in ((2, slice(0, 3)), (3, None)):
        other = RECORDS.copy()
        other[10 * party : 10 * (party + 1)] = 1.0
        after = np.asarray(jax.tree.leaves(played(other, noise=1.0).messages)[0])[0]
        changed = np.any(before != after, axis=(1, 2))
        if silent is not None:
            assert not changed[silent].any()
            assert changed[3:].all()
        else:  # what it said in time stands, and it says nothing more
            assert changed[0]
            assert np.all(after[4:, party] == after[3, party])


def test_whoever_is_away_pays_for_the_rounds_in_which_it_speaks() -> None:
    plan = plan_of({"1": [[3, 4]], "agent 3": [[5, 6], [1, 1]]})
    check_contract(plan)
    priced = price(plan, public_network(plan))
    assert priced.spending is not None
    assert priced.spending.per_agent == pytest.approx([2.0] * 4, rel=1e-6)
    mu = float(mu_for(2.0, 1e-5))
    assert priced.noise == pytest.approx(np.sqrt([6, 4, 6, 3]) / mu, rel=1e-5)  # μ² = rounds/noise²
    each = ct.price(
        ct.logistic(), ct.ring(sizes=[200] * 4, features=4), ct.dp_dsgd(mixing=1), ct.Budget(2.0, 1e-5), rounds=6,
        away={1: [(3, 4)], 3: [(5, 6), (1, 1)]},
    )  # fmt: skip
    assert each.noise == pytest.approx(priced.noise, rel=1e-9)


def test_a_plan_is_run_with_its_list() -> None:
    tree = {"data": {"source": "clinics"}, "algorithm": {"name": "dp-dsgd", "mixing": 1}, "graph": {"kind": "complete"},
            "privacy": {"epsilon": 5.0, "delta": 1e-6}, "run": {"rounds": 4, "away": {"0": [[2, 4]]}}}  # fmt: skip
    plan = validate(tree)
    made = prepare(plan)
    priced = price(plan, made.network)
    trace = made.run(priced, [0])
    assert trace.sent[0, 0] == 1
    assert (trace.sent[0, 1:] == 4).all()


@pytest.mark.parametrize(
    ("away", "words"),
    [
        ({"7": [[1, 2]]}, "run.away: '7' is no party"),
        ({"0": [[1, 7]]}, "away until round 7, but there are 6 rounds"),
        ({"0": [[1, 3], [2, 6]]}, "away in all of 6 rounds"),
        ({"0": [[3, 2]]}, "ends before it begins"),
        ({"0": [[0, 2]]}, "run.away"),
        ({"0": []}, "run.away"),
    ],
)
def test_a_bad_list_is_refused(away: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        price(plan := plan_of(away), public_network(plan))


def test_where_nobody_goes_on_without_a_neighbour_it_is_refused() -> None:
    with pytest.raises(InputError, match="nobody goes on without a neighbour"):
        check_contract(plan_of({"0": [[1, 2]]}, slug="pp-admm"))
    summed = {"exchange": {"kind": "secret-sum", "honest": 3}, "graph": {"kind": "complete"}}
    with pytest.raises(InputError, match=r"with secret sums, exchange\.away"):
        check_contract(plan_of({"0": [[1, 2]]}, **summed))
    with pytest.raises(InputError, match=r"run\.away"):
        check_deployable(plan_of({"0": [[1, 2]]}))


def test_ledgers_hold_the_rounds_in_which_a_party_spoke() -> None:
    """With levels 3, 1, 1, 1 it matters which rounds a party misses; ledgers and certificate know each party's own."""
    rng = np.random.default_rng(2)
    sites = [(rng.uniform(-0.5, 0.5, (30, 2)), rng.choice([-1, 1], 30)) for _ in range(4)]
    found = ct.train(
        ct.logistic(), ct.ring(sites), ct.dp_dsgd(mixing=1), ct.Budget(2.0, 1e-5), levels=[3.0, 1.0, 1.0, 1.0], seed=0,
        away={0: [(1, 1)], 2: [(4, 4)]},
    )  # fmt: skip
    assert [int(np.sum(events[0].times)) for events in found.events] == [3, 4, 3, 4]
    assert [ledger.spent() for ledger in found.ledgers] == pytest.approx([2.0] * 4, rel=1e-6)
    mu = float(mu_for(2.0, 1e-5))
    paid = [np.sqrt(np.sum(e.times * (e.sensitivity / e.sigma) ** 2)) for (e,) in found.events]
    assert paid == pytest.approx([mu] * 4, rel=1e-5)
    largest = [float(np.max(e.sensitivity / e.sigma)) for (e,) in found.events]
    assert largest == pytest.approx(mu * np.array([3**-0.5, 3 / 12**0.5, 3 / 11**0.5, 3 / 12**0.5]), rel=1e-5)


@pytest.mark.slow
def test_a_certificate_tells_parties_apart_that_are_away_at_different_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sites = [(rng.uniform(-0.5, 0.5, (30, 2)), rng.choice([-1, 1], 30)) for _ in range(3)]
    found = ct.train(
        ct.logistic(), ct.complete(sites), ct.dp_dsgd(mixing=1), ct.Budget(2.0, 1e-5), rounds=3, seed=0,
        away={0: [(1, 1)], 1: [(3, 3)]},
    )  # fmt: skip
    found.save(tmp_path)
    written = json.loads((tmp_path / "certificate.json").read_text("utf-8"))
    assert [group["members"] for group in written["agents"]] == [[[0, 0]], [[1, 1]], [[2, 2]]]
    assert cli.main(["verify", str(tmp_path / "certificate.json")]) == 0
    said = [one["statement"] for one in written["statements"]]
    assert any("who is away in which rounds was fixed beforehand" in text for text in said)


def test_a_plan_with_a_list_is_checked_and_rehearsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        '[data]\nsource = "clinics"\n[algorithm]\nname = "dp-dsgd"\n[privacy]\nepsilon = 5.0\ndelta = 1e-6\n'
        '[run]\nrounds = 4\naway = { "0" = [[2, 3]] }\n'
    )
    assert cli.main(["plan", "check", str(path)]) == 0
    assert "will send at most 4 messages" in " ".join(capsys.readouterr().out.split())


def test_one_party_by_two_keys_and_a_number_that_is_none() -> None:
    asked = ct.logistic(), ct.ring(sizes=[200] * 4, features=4), ct.dp_dsgd(), ct.Budget(2.0, 1e-5)
    with pytest.raises(InputError, match="by number and by text"):
        ct.price(*asked, rounds=6, away={1: [(1, 2)], "1": [(4, 5)]})
    with pytest.raises(InputError, match="'²' is no party"):
        ct.price(*asked, rounds=6, away={"²": [(1, 2)]})
