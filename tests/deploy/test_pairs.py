"""Noise that neighbours share, deployed: one law, one use, one price; and what a curious neighbour can make of it."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coterie.algorithms.base import find
from coterie.algorithms.laws import Grid, Normal, Shared
from coterie.audit.recorded import audit_folder
from coterie.audit.shared_wire import Coalition
from coterie.audit.wire import audit_wire, make_worlds
from coterie.deploy import agent as agent_module
from coterie.deploy.accounts import DataAccount
from coterie.deploy.agreement import Agreement
from coterie.deploy.drawing import Drawing
from coterie.deploy.noise import GAUSSIAN_UNIT, SystemSource, on_grid
from coterie.deploy.pairs import LEAST, PairSecrets, SharedSource, pair_table
from coterie.deploy.succession import refuse_more_curious
from coterie.deploy.terms import Terms
from coterie.errors import InputError
from coterie.graphs import make_graph
from coterie.plan import Plan, validate
from coterie.privacy.accountants import account as total_of
from coterie.privacy.ledger import Budget
from coterie.privacy.observers import hidden_share, worst_hidden_share
from coterie.privacy.secure import GRID_VARIANCE
from coterie.privacy.secure_table import WideGaussianTable
from coterie.report.certificate import SECURE, certificate, totals, words_of
from coterie.report.certificate import claims as claims_of
from coterie.report.sealing import seal
from coterie.report.verification import Refuted, parse, verify
from tests.deploy.house import House, Setting, small_plan, together
from tests.deploy.test_agent import PLACES, Crashes

RATIO, MANY = 3.0, 30_000
GRAPH = make_graph("regular", 6, degree=4)
LAW = Shared(MANY, own=0.4, ratio=RATIO)


def pairs_on_graph(plan: bytes = bytes(32), seeds: int = 0) -> list[PairSecrets]:
    """Everybody's secrets on the graph above; the same keys for the same `seeds`."""
    raw = [bytes([0, seeds, node, *[7] * 29]) for node in range(GRAPH.size)]
    keys = [X25519PrivateKey.from_private_bytes(r) for r in raw]
    public = [key.public_key().public_bytes_raw() for key in keys]
    near = [{int(j): public[j] for j in GRAPH.neighbours(node)} for node in range(GRAPH.size)]
    return [PairSecrets.between(plan, node, key, near[node]) for node, key in enumerate(keys)]


# ---- one secret, one use ---------------------------------------------------------------------------------------------


def test_both_ends_have_the_same_numbers_and_all_cancel() -> None:
    pairs = pairs_on_graph()
    for low, high in GRAPH.edges.tolist():
        one, other = pairs[low].secret(high, 5, "noise", LAW), pairs[high].secret(low, 5, "noise", LAW)
        np.testing.assert_array_equal(one, other)
        assert one.any()
    totals = [p.total(5, "noise", LAW) for p in pairs]
    assert all(t.any() for t in totals)
    np.testing.assert_array_equal(np.sum(totals, axis=0), 0)  # exactly
    again = pairs_on_graph()[0].total(5, "noise", LAW)  # another process, after a crash
    np.testing.assert_array_equal(again, totals[0])


def test_no_two_uses_share_a_number() -> None:
    """Another round, edge, agreement, draw or key: independent numbers, not the same ones moved or turned around."""
    pairs, amended, others = pairs_on_graph(), pairs_on_graph(bytes(31) + b"\1"), pairs_on_graph(seeds=1)
    low, high = GRAPH.edges[0].tolist()
    far = next(int(j) for j in GRAPH.neighbours(low) if j != high)
    used = [
        pairs[low].secret(high, 0, "noise", LAW), pairs[low].secret(high, 1, "noise", LAW),
        pairs[low].secret(high, 2**16, "noise", LAW), pairs[low].secret(far, 0, "noise", LAW),
        pairs[low].secret(high, 0, "other", LAW), amended[low].secret(high, 0, "noise", LAW),
        others[low].secret(high, 0, "noise", LAW),
    ]  # fmt: skip
    for one, other in itertools.combinations(used, 2):
        assert np.mean(one == other) < 1e-3
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(MANY)


@pytest.mark.parametrize(
    ("ratio", "known"), [(0.5, "c797015787f03c6a"), (3.0, "b924623661a8a59a"), (10.0, "b95544cffea6984c")]
)
def test_every_version_derives_the_same_numbers(ratio: float, known: str) -> None:
    """Else two neighbours' would not cancel: what changes here raises PROTOCOL."""
    found = pairs_on_graph()[0].secret(2, 5, "noise", Shared(100, own=1.0, ratio=ratio))
    assert hashlib.sha256(found.astype("<i8").tobytes()).hexdigest()[:16] == known


def test_a_key_that_gives_no_secret_is_refused() -> None:
    """A point of low order: everybody would know what it agrees on."""
    with pytest.raises(InputError, match="the frame key of party 1 gives no secret"):
        PairSecrets.between(bytes(32), 0, X25519PrivateKey.generate(), {1: bytes(32)})


def test_nobody_draws_without_the_neighbours_secrets() -> None:
    """Own noise alone would hide less than is charged."""
    with pytest.raises(InputError, match="needs their secrets"):
        SystemSource().draw(0, {"noise": LAW})


def test_the_keys_of_an_agreement_give_the_secrets(tmp_path: Path) -> None:
    setting = Setting.small(tmp_path / "t", 2, "decor", deadline=1.0, patience=5.0)
    agreed = setting.agreement
    pairs = {n: PairSecrets.of(agreed, keys) for n, keys in setting.keys.items()}
    np.testing.assert_array_equal(sum(p.total(0, "noise", LAW) for p in pairs.values()), 0)
    later = agreed.model_dump(mode="json") | {"valid_until": "2999-01-01T00:00:00Z"}
    other = Agreement.model_validate(later)
    assert other.plan_hash != agreed.plan_hash
    amended = PairSecrets.of(other, setting.keys["ada"])
    assert np.mean(amended.total(0, "noise", LAW) == pairs["ada"].total(0, "noise", LAW)) < 1e-3


# ---- the law ---------------------------------------------------------------------------------------------------------


def wrong_directions(draws: np.ndarray, ratio: float) -> list[float]:
    """Of all parties' draws (party, number) in steps: variances along the eigenvectors of I + ratio² Laplacian, over
    what is declared, where they are more than 4 % off, five standard errors; 5 % less noise is 10 % less."""
    values, vectors = np.linalg.eigh(np.eye(GRAPH.size) + ratio**2 * GRAPH.laplacian().toarray())
    found = np.mean((vectors.T @ draws) ** 2, axis=1) / GRID_VARIANCE / values
    return [float(x) for x in found if abs(x - 1) > 0.04]


def test_draws_of_a_network_have_the_declared_covariance() -> None:
    sources = [SharedSource(SystemSource(), p) for p in pairs_on_graph()]
    drawn = np.array([[s.draw(t, {"noise": LAW})["noise"].steps for s in sources] for t in range(2)], float)
    for t in range(2):
        assert wrong_directions(drawn[t], RATIO) == []
    across = np.einsum("ik,ik->i", drawn[0], drawn[1]) / np.sqrt(np.prod(np.sum(drawn**2, axis=2), axis=0))
    assert np.abs(across).max() < 5 / math.sqrt(MANY)  # rounds are fresh
    # broken twins: own noise 5 % short; secrets 5 % short; secrets that one party leaves out
    own = np.array([SystemSource().draw(0, {"n": Normal(MANY)})["n"].steps for _ in sources], float)
    shared = np.array([p.total(0, "noise", LAW) for p in pairs_on_graph()], float)
    assert wrong_directions(own + shared, RATIO) == []
    assert wrong_directions(0.95 * own + shared, RATIO)
    assert wrong_directions(own + 0.95 * shared, RATIO)
    left_out = shared - np.eye(GRAPH.size)[:, :1] * shared[:1]
    assert wrong_directions(own + left_out, RATIO)
    stuck = np.corrcoef(own[0] + shared[0], own[1] + shared[0])[0, 1]  # the same secrets in two rounds
    assert stuck > 5 / math.sqrt(MANY)


@pytest.mark.parametrize("ratio", [1e-6, 0.3, 1.0, 3.9995, 4.0, 10.0, 1e4])
def test_the_law_of_a_secret(ratio: float) -> None:
    """One table, or two folded: parameter, symmetry, and a stated error; never so small that a sum is no Gaussian."""
    table = pair_table(ratio)
    assert table.variance == max(Fraction(ratio) ** 2 * GRID_VARIANCE, LEAST**2)
    assert table.total_variation < 1e-33
    words = np.random.default_rng(0).integers(0, 2**64, table.words_per_draw * 200_000, dtype=np.uint64)
    x = table.read(words) / math.sqrt(table.variance)
    assert np.mean(x**2) == pytest.approx(1, abs=0.016)
    assert np.mean(x**4) == pytest.approx(3, abs=0.12)
    assert abs(np.mean(x)) < 0.012
    steps = np.bincount(table.read(words) % 16, minlength=16) / 200_000  # no step of the grid is preferred
    assert steps == pytest.approx(np.full(16, 1 / 16), abs=0.003)


def test_a_folded_law_is_the_discrete_gaussian() -> None:
    """P(m Y + X = x) ∝ exp(−x²/2σ²), by direct summation with small numbers in the places of 2^18."""
    fine, coarse, m = 40.0, 60.0, 4  # 1/s² = 1/60² + 16/40²: s = 9.9
    k = np.arange(-800, 801)
    for x in (0, 1, 2, 3, 57, 400):
        direct = np.sum(np.exp(-(k**2) / (2 * coarse**2) - (x - m * k) ** 2 / (2 * fine**2)))
        middle = np.sum(np.exp(-(k**2) / (2 * coarse**2) - (m * k) ** 2 / (2 * fine**2)))
        assert direct / middle == pytest.approx(math.exp(-(x**2) / (2 * (m**2 * coarse**2 + fine**2))), rel=1e-12)
    assert WideGaussianTable(Fraction(2**36 + 1)).fold  # just above one table, where little is left to fold


def test_own_noise_and_secrets_add_up_to_a_discrete_gaussian_vector() -> None:
    """The lemma of docs/theory/wire.md, by direct summation: a triangle, own parameter 3, secrets' 4."""
    own, edge, edges = 3.0, 4.0, [(0, 1), (0, 2), (1, 2)]
    incidence = np.zeros((3, 3))
    for e, (low, high) in enumerate(edges):
        incidence[low, e], incidence[high, e] = 1, -1
    shape = np.linalg.inv(own**2 * np.eye(3) + edge**2 * incidence @ incidence.T)
    grid = np.stack(np.meshgrid(*[np.arange(-40, 41)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)

    def mass(x: np.ndarray) -> float:
        rest = x - grid @ incidence.T
        return float(np.sum(np.exp(-np.sum(rest**2, axis=1) / (2 * own**2) - np.sum(grid**2, axis=1) / (2 * edge**2))))

    for x in np.array([[1, 0, 0], [1, 1, 0], [3, -2, 5], [7, 7, 7]]):
        assert mass(x) / mass(np.zeros(3)) == pytest.approx(math.exp(-x @ shape @ x / 2), rel=1e-9)


def test_two_curious_neighbours_among_a_hundred_learn_what_is_charged() -> None:
    """Deployed integers on a random 4-regular graph: at most .02 of local noise is left on the average, and the worst
    pair's best guess leaves what is charged. Own noise 5 % short leaves too little of both."""
    graph, ratio, many = make_graph("regular", 100, degree=4), 10.0, 20_000
    left = worst_hidden_share(graph.edges, 100, ratio, 2)
    secrets = {(i, j): os.urandom(32) for i, j in graph.edges.tolist()}
    near = lambda i: {int(j): secrets[min(i, j), max(i, j)] for j in graph.neighbours(i)}  # noqa: E731
    pairs, law = [PairSecrets(bytes(32), i, near(i)) for i in range(100)], Shared(many, own=left**0.5, ratio=ratio)
    shared = np.array([p.total(0, "noise", law) for p in pairs])
    own = np.array([SystemSource().draw(0, {"n": Normal(many)})["n"].steps for _ in pairs])
    around = {q for i in range(100) for q in itertools.combinations(map(int, graph.neighbours(i)), 2)}
    worst = max(around, key=lambda q: hidden_share(graph.edges, 100, ratio, q).max())
    share = hidden_share(graph.edges, 100, ratio, worst)
    party, rest = int(np.argmax(share)), [i for i in range(100) if i not in worst]
    assert share[party] == pytest.approx(left, rel=1e-6)
    known = np.zeros((100, many), np.int64)  # what the pair takes off everybody's messages
    for q in worst:
        for j in graph.neighbours(q):
            known[j] += (1 if j < q else -1) * pairs[q].secret(int(j), 0, "noise", law)
    inside = graph.edges[~np.isin(graph.edges, worst).any(axis=1)]
    hides = np.eye(100)
    for i, j in inside.tolist():
        hides[[i, i, j, j], [i, j, j, i]] += ratio**2 * np.array([1, -1, 1, -1])
    inverse = np.linalg.inv(hides[np.ix_(rest, rest)])[rest.index(party)]

    def measured(noise: np.ndarray) -> tuple[float, float]:
        """Variance of the average, and of what hides the party from the pair, over those of local noise."""
        local = GRID_VARIANCE / left  # what hides as much alone
        guess = (inverse / inverse[rest.index(party)]) @ (noise + shared - known)[rest]
        return float(np.var((noise + shared).mean(axis=0)) * 100 / local), float(np.var(guess) / local)

    average, hidden = measured(own)
    assert average == pytest.approx(left, rel=0.05)
    assert average <= 0.02
    assert hidden == pytest.approx(1.0, rel=0.05)
    less, easier = measured(np.rint(0.95 * own).astype(np.int64))
    assert less < 0.94 * left
    assert easier < hidden - 0.03


# ---- the price -------------------------------------------------------------------------------------------------------


def mu_on_the_grid(terms: Terms, share: float, sigma: float, rounds: int) -> float:
    """From scratch: whole steps that a record moves, over what hides them; own noise, `sigma`, is 65,544 steps."""
    cfg: Any = terms.priced.cfg
    step = sigma / GAUSSIAN_UNIT
    moved = (2 * cfg.step * cfg.clip * cfg.heaviest + 2 * step * math.sqrt(3)) / step
    return moved * math.sqrt(rounds * share / (GRID_VARIANCE - 16))


def test_the_price_is_that_of_the_worst_coalition_on_the_grid() -> None:
    terms = Terms.of(small_plan(6, "decor"))
    cfg: Any = terms.priced.cfg
    edges = terms.network.graph.edges
    share = worst_hidden_share(edges, 3, cfg.ratio, 1)
    assert cfg.left == pytest.approx(share)
    (sigma,) = set((terms.steps.size * GAUSSIAN_UNIT).ravel().tolist())  # one grid for all: secrets cancel
    gradients = len(range(0, 6, cfg.mixing))
    for node in range(3):
        charged = [event for t, one in enumerate(terms.charges(node)) for event in one if t % cfg.mixing == 0]
        assert [e.times for e in charged] == [1] * gradients
        assert all(e.times == 0 for t, one in enumerate(terms.charges(node)) for e in one if t % cfg.mixing)
        mu = math.sqrt(sum(float(e.sensitivity / e.sigma) ** 2 for e in charged))
        assert mu == pytest.approx(mu_on_the_grid(terms, share, sigma, gradients), rel=1e-9)
        assert all(float(e.tv) >= 3 * (3 + 3) * pair_table(cfg.ratio).total_variation for e in charged)
        own = terms.alone(node)
        assert own is not None
        alone = math.sqrt(sum(float(np.sum(e.times * (e.sensitivity / e.sigma) ** 2)) for e in own))
        assert alone == pytest.approx(mu_on_the_grid(terms, 1.0, sigma, gradients), rel=1e-9)
    assert terms.priced.claims[0].account.epsilon <= 2.0 * (1 + 1e-9)
    simulated = Terms.of(small_plan(6, "dp-dsgd"))
    assert simulated.alone(0) is None


@pytest.mark.slow
def test_more_neighbours_than_the_claim_allows_learn_more() -> None:
    """Half of the own noise that the price asks for is refuted by the coalition's attack; what is right holds."""
    worlds = make_worlds("decor", epsilon=8.0, rounds=12, settings={"mixing": 1})
    assert worlds.mu is not None
    right = audit_wire(worlds, 1000)
    assert not right.violated
    assert right.mu_bound > 0.65 * worlds.mu
    everybody = make_worlds("decor", epsilon=8.0, rounds=12, settings={"mixing": 1}, everybody=True)
    assert everybody.mu == pytest.approx(worlds.mu / math.sqrt(worlds.terms.priced.cfg.left), rel=1e-3)  # type: ignore[attr-defined]
    all_know = audit_wire(everybody, 1000)
    assert not all_know.violated
    assert all_know.mu_bound > 0.65 * everybody.mu  # type: ignore[operator]
    assert all_know.mu_bound > worlds.mu  # two curious are more than the first claim is for
    for fault in (lambda steps, t: steps // 2, lambda steps, t: steps * (t < 11)):
        assert audit_wire(worlds, 250, source=Tampered(fault)).violated
        assert audit_wire(everybody, 250, source=Tampered(fault)).violated


class Tampered:
    """Own noise, changed; secrets as they are."""

    def __init__(self, how: Any):
        self.how = how

    def draw(self, round: int, laws: Any) -> dict[str, Any]:
        drawn = SystemSource().draw(round, laws)
        return {n: Grid(self.how(g.steps, round), g.unit) for n, g in drawn.items()}


def test_what_a_coalition_knows() -> None:
    """Its guess of the noise leaves exactly the variance that the price says."""
    told = Coalition(3, (1,), 2.0)
    law = Shared(40_000, own=1.0, ratio=2.0)
    drawn = told.draw(0, {"noise": law})["noise"].steps
    rest = (drawn - told.known[:, 0]) / GAUSSIAN_UNIT
    assert told.variance == pytest.approx(1 / hidden_share(np.array([[0, 1], [0, 2], [1, 2]]), 3, 2.0, (1,))[0])
    assert np.var(rest) == pytest.approx(told.variance, rel=0.04)
    assert np.var(drawn / GAUSSIAN_UNIT) == pytest.approx(1 + 2 * 2.0**2, rel=0.04)


def test_too_steep_a_ratio_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="a ratio of 20000 hides no more than 10000"):
        Terms.of(small_plan(2, "decor").model_copy(update={"algorithm": _with_ratio(2e4)}))
    assert on_grid(find("decor")).own_cost is not None


def test_a_bound_that_would_cut_what_is_shared_is_refused() -> None:
    """Cut at one end, it would not cancel: harmless to privacy, and the end of the average."""
    Terms.of(small_plan(2, "decor", bound=1000.0))
    with pytest.raises(InputError, match=r"deploy\.bound = 10 would cut noise that neighbours share"):
        Terms.of(small_plan(2, "decor", bound=10.0))


def _with_ratio(ratio: float) -> Any:
    asked = small_plan(2, "decor").algorithm
    return type(asked).model_validate({"name": "decor", "ratio": ratio})


# ---- what is said of it ----------------------------------------------------------------------------------------------


def watched_plan(rounds: int = 6, algorithm: str = "decor") -> Plan:
    plan = small_plan(rounds, algorithm)
    assert plan.privacy is not None
    observed = plan.privacy.model_copy(update={"observers": ["ada", "ada + ben"]})
    return validate(plan.model_copy(update={"privacy": observed}).model_dump(mode="json", exclude_none=True))


def test_a_party_certifies_both_claims_and_every_observer() -> None:
    """And each of the numbers is recomputed: a certificate that leaves one out, or makes one smaller, is refused."""
    terms = Terms.of(watched_plan())
    cfg: Any = terms.priced.cfg
    gradients, sigma = len(range(0, 6, cfg.mixing)), float(terms.steps.size[0, 0]) * GAUSSIAN_UNIT
    edges = terms.network.graph.edges
    for seat, gone in zip(terms.priced.seats, ((0,), (0, 1)), strict=True):
        expected = mu_on_the_grid(terms, float(hidden_share(edges, 3, cfg.ratio, gone)[2]), sigma, gradients)
        assert seat.mu[2] == pytest.approx(expected, rel=1e-9)
    charged = {0: [e for one in terms.charges(0) for e in one]}
    body = certificate(terms.plan, terms.network, terms.priced, noise=SECURE, charged=charged)
    verified = verify(parse(json.dumps(seal(body))), strict=True)
    claims = [verified.content.claim, *verified.content.other_claims]
    assert [c.name for c in claims] == ["shared noise, at most 1 curious", "local, everybody else colludes"]
    assert [c.private for c in claims] == [True, False]
    own = terms.alone(0)
    assert own is not None
    assert claims[1].epsilon == pytest.approx(total_of(own, 1e-5).epsilon, rel=1e-9)
    assert claims[1].epsilon > 1.1 * float(claims[0].epsilon)
    assert [seat.observer for seat in verified.content.observers or ()] == ["ada", "ada + ben"]
    pair = verified.content.observers[1].epsilon[2]  # type: ignore[index]
    assert pair == pytest.approx(claims[1].epsilon, rel=1e-6)  # of three parties two are everybody else
    assert any("all other parties pool what they know" in s.statement for s in verified.content.statements)

    def refuted(why: str, **changes: Any) -> None:
        with pytest.raises(Refuted, match=why):
            verify(parse(json.dumps(seal(copy.deepcopy(body) | changes))), strict=True)

    refuted("alone: noise is shared", alone=None, other_claims=[])
    refuted("other_claims", other_claims=[])
    refuted("other_claims.*epsilon", other_claims=[body["other_claims"][0] | {"epsilon": 2.0}])
    half = [row | {"sigma": 2 * row["sigma"]} for row in body["alone"]["events"]]
    less = body["alone"] | {"events": half, **totals(half, 1e-5)}
    found = claims_of(body["agents"], None, None, 1e-5, False, [], words_of(terms.priced.algorithm, cfg), less)
    refuted("alone.events", alone=less, other_claims=found[1:])
    seats = copy.deepcopy(body["observers"])
    seats[1]["epsilon"][2] /= 2
    refuted("observers", observers=seats)


def test_observers_of_rounded_messages_are_refused_where_nothing_is_proved() -> None:
    with pytest.raises(InputError, match=r"privacy\.observers of dp-dsgd is proved for messages that are not rounded"):
        Terms.of(watched_plan(algorithm="dp-dsgd"))


def test_an_account_against_everybody_pays_for_own_noise_alone(tmp_path: Path) -> None:
    setting = Setting.small(tmp_path / "t", 2, "decor", deadline=1.0, patience=5.0)
    site = setting.site("ada")
    drawn = {}
    for against in ("agreed", "everybody"):
        account = DataAccount.open(
            tmp_path / f"{against}.account", Budget(50.0, 1e-4), data=site.data, may=["ada"],
            keeper=tmp_path / f"keeper-{against}", against=against,
        )  # fmt: skip
        drawing = Drawing.of(account, setting.agreement, setting.keys["ada"], setting.parties["ada"].turns, site.data)
        drawn[against] = drawing.draw([]).epsilon
    own = setting.terms.alone(0)
    assert own is not None
    assert drawn["everybody"] > 1.1 * drawn["agreed"]
    assert drawn["everybody"] == pytest.approx(total_of(own, 1e-5).epsilon, rel=0.3)  # by the account's own measure


@pytest.mark.parametrize(
    ("before", "after", "whom"), [(1, 2, "against 2"), (1, None, "against everybody"), (2, 1, ""), (None, 1, "")]
)
def test_what_was_paid_against_few_is_not_added_to_what_is_claimed_against_more(
    before: int | None, after: int | None, whom: str
) -> None:
    """None: messages with noise of their own, whose price is against everybody."""
    plans = []
    for curious in (before, after):
        asked = {"name": "dp-dsgd"} if curious is None else {"name": "decor", "curious": curious}
        plan = small_plan(4)
        plans.append(plan.model_copy(update={"algorithm": type(plan.algorithm).model_validate(asked)}))
    if not whom:
        return refuse_more_curious(*plans)
    with pytest.raises(InputError, match=f"against 1 curious party .*{whom}: the two are never added"):
        refuse_more_curious(*plans)


# ---- crashes ---------------------------------------------------------------------------------------------------------


def test_crashes_show_no_secret_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One party is ended before and after each of its steps: one frame a round leaves, each charged once; secrets are
    the same after every restart, so that they cancel, and own noise never is."""
    monkeypatch.setattr(agent_module, "GRACE", 0.05)
    setting = Setting.small(tmp_path / "t", 12, "decor", deadline=2.0, patience=60.0)
    house = House(setting, tmp_path / "h")
    crashes = Crashes(*[(t, where) for t, where in enumerate(PLACES)])
    together(house.live("ada"), house.live("cleo"), house.lives_on("ben", crashes))
    assert crashes.points == set()
    assert house.violations(12) == []
    own = [d["noise"].steps.tobytes() for _, d in house.sources["ben"].calls]
    assert len(set(own)) == len(own) > 12
    for name in house.names:  # the files as an auditor finds them
        shutil.copytree(house.state[name], tmp_path / "t" / name / "state")
    found = audit_folder(tmp_path / "t")
    assert [f.check for f in found[0].findings] == ["ledger", "frames", "noise", "secrets"]
    assert all(f.passed for f in found), [f.findings for f in found]
    assert "secrets cancel" in found[0].findings[3].detail
