"""Shared noise on any graph: who may collude and be missing, what that costs, and what is left when some are."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms._charges import alike
from coterie.errors import InputError
from coterie.exchange.central import LARGEST, capped, own_events, released, shared_events
from coterie.exchange.choice import Lost, SecretSum
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.sum_noise import FLOAT_ERROR, FLOAT_STEPS, opened_event
from coterie.exchange.sums import SumTerms, bytes_per_round
from coterie.experiment import prepare, public_network
from coterie.explain import explain
from coterie.graphs import Graph
from coterie.network import links_on
from coterie.plan import validate
from coterie.pricing import Priced, price
from coterie.privacy import gdp
from coterie.report import certificate, sealing, verification
from coterie.sums.noise import Layers, default_levels
from coterie.sums.terms import least_threshold, spares_for
from tests.deploy.shared_house import shared_plan
from tests.sums.test_messages import mean_bytes

SIZES = [60, 80, 60, 100, 70, 90]


def tree_of(kind: str = "ring", **exchange: Any) -> dict[str, Any]:
    return {
        "data": {"source": "adult"},
        "problem": {"loss": "logistic", "dim": 3},
        "partition": {"kind": "iid", "sizes": SIZES},
        "graph": {"kind": kind},
        "algorithm": {"name": "gauss-avg-gd"},
        "privacy": {"epsilon": 1.0},
        "run": {"rounds": 20},
        "exchange": {"kind": "secret-sum", "noise": "central", "honest": 5, **exchange},
    }


def priced(tree: dict[str, Any]) -> Priced:
    plan = validate(tree)
    return price(plan, public_network(plan))


# ---- who may collude, who may be missing -----------------------------------------------------------------------------


def test_terms_are_those_of_the_protocol() -> None:
    """Least thresholds, levels and layers are the core's, which draws them."""
    for n, c in ((3, 1), (5, 1), (8, 1), (10, 2), (20, 4), (20, 9), (100, 10), (100, 49)):
        least = least_threshold(n, c)
        terms = SumTerms(FixedPoint(n), n - c, least, shared=True)
        assert (terms.colluders, terms.quorum, terms.dropouts) == (c, least, n - least)
        assert terms.levels == default_levels(n - least)
        layers = Layers(n, c, terms.levels, Fraction(10**6))
        np.testing.assert_allclose(terms.parts, [float(v) / 1e6 for v in layers.variances], rtol=1e-12)
        for r in range(terms.dropouts + 1):
            total = (n - r) * layers.kept(layers.keep(r)) / layers.variance
            assert terms.left(r) == pytest.approx(float(total))
        with pytest.raises(InputError, match=rf"threshold must be in {least}\.\.{n} for {n} parties of whom {c} may"):
            SumTerms(FixedPoint(n), n - c, least - 1)
    everybody = SumTerms(FixedPoint(6), 5)
    assert (everybody.quorum, everybody.dropouts, everybody.parts) == (6, 0, (1 / 5,))
    assert SumTerms(FixedPoint(6)).colluders == 4  # all but two


@pytest.mark.parametrize(
    ("n", "c", "told"), [(5, 1, 2_642), (10, 2, 3_907), (20, 9, 5_856), (100, 49, 20_986), (100, 10, 23_019)]
)
def test_bytes_are_those_that_parties_make(n: int, c: int, told: int) -> None:
    """`mean_bytes` is held to frames in tests/sums; the numbers stand in docs/theory/shared-sums.md."""
    terms = SumTerms(FixedPoint(n), n - c, least_threshold(n, c), shared=True)
    made = mean_bytes(n, terms.quorum, len(terms.parts) - 1, 142, spares=spares_for(n))
    assert bytes_per_round(terms, 142) == pytest.approx(made)
    assert bytes_per_round(terms, 142) == pytest.approx(told, abs=0.51)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exchange": {"honest": 7}}, r"exchange.honest must be in 2\.\.6 for 6 parties, got 7"),
        ({"exchange": {"threshold": 3}}, r"exchange.threshold must be in 4\.\.6 for 6 parties of whom 1 may collude"),
        ({"exchange": {"threshold": 7}}, r"exchange.threshold must be in 4\.\.6 .* got 7"),
        ({"exchange": {"bound": 2.0**35, "fraction_bits": 0}}, "more than 2\\^34: float64 would not keep"),
        ({"exchange": {"fraction_bits": 24}}, "more than 2\\^18, the most that can be drawn"),
        ({"exchange": {"bound": 1e12}}, "too large for any grid of a secret sum"),
        ({"graph": {"kind": "ring", "mixing": "two-thirds"}}, "graph.mixing = 'two-thirds' is not obeyed by exchange"),
        ({"algorithm": {"name": "hmv-dgd"}}, "needs Gaussian noise on all records"),
        ({"algorithm": {"name": "ldp-admm"}, "exchange": {"noise": "local", "threshold": 5}}, "lacks some"),
        ({"algorithm": {"name": "ldp-admm"}}, "ldp-admm keeps its own messages"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    tree = tree_of()
    for table, keys in change.items():
        tree[table] = {**tree[table], **keys} if table == "exchange" else keys
    with pytest.raises(InputError, match=message) as caught:
        priced(tree)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ({"noise": "local", "retries": 3}, "retries = 3 belongs to noise = 'central'"),
        ({"away": 0.1}, "away = 0.1 needs exchange.threshold"),
        ({"noise": "local", "honest": None, "threshold": 5}, "threshold = 5 needs exchange.honest"),
        ({"honest": None}, "needs exchange.honest"),
    ],
)
def test_settings_that_need_others(exchange: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate(tree_of(**exchange))


def test_more_parties_than_frames_can_name_are_refused_where_they_are_deployed() -> None:
    tree = {**tree_of(), "partition": {"kind": "iid", "sizes": [40] * 255}}
    parties = [{"name": f"p{i}"} for i in range(255)]
    with pytest.raises(InputError, match=r"lists 255 parties, but exchange\.kind = 'secret-sum' is deployed"):
        validate({**tree, "deploy": {"parties": parties}})
    validate(tree)
    validate({**tree, "deploy": {"parties": parties}, "exchange": {"kind": "broadcast"}})


# ---- the price -------------------------------------------------------------------------------------------------------


def test_main_and_local_events_by_hand() -> None:
    """√T (2^f Δ + 17/16 √d)/√(h σ₀² − 9) for sums; the same with one party's σ₀ alone if everybody else colludes."""
    for threshold, retries in ((None, 6), (5, 6), (5, 0)):  # drop-outs change neither: layers stand in for them
        p = priced(tree_of(retries=retries, threshold=threshold))
        assert p.terms is not None
        steps, dim = 2.0**p.terms.code.fraction_bits, 3
        reach = p.cfg.step * 2 * float(p.places.lipschitz) * np.asarray(p.places.unit)
        own = steps * p.noise * reach
        np.testing.assert_allclose(own, own[0])
        shift = steps * reach.max() + 17 / 16 * math.sqrt(dim)
        main, local = shared_events(p.algorithm, p.cfg, p.places, p.terms)
        np.testing.assert_allclose(main.mu(), shift / math.sqrt(5 * own[0] ** 2 - 9))
        np.testing.assert_allclose(local.mu(), shift / math.sqrt(own[0] ** 2 - 9))
        first, second, cap = p.claims
        assert first.account.epsilon == pytest.approx(1.0, rel=1e-3)
        assert first.account.epsilon <= 1.0
        for claim, vectors in ((second, 20), (cap, 20 + retries)):
            mu = math.sqrt(vectors) * shift / math.sqrt(own[0] ** 2 - 9)
            assert claim.account.epsilon == pytest.approx(float(gdp.epsilon_of(mu, 1e-5)), rel=1e-6)
        ratio = float(local.mu()[0] / main.mu()[0])
        assert ratio == pytest.approx(math.sqrt(5), rel=1e-3)


def test_every_agent_pays_for_its_own_vectors() -> None:
    p = priced(tree_of())
    assert p.spending is not None
    assert p.terms is not None
    shift, sigma, _ = released(p.algorithm, p.cfg, p.places)
    steps = 2.0**p.terms.code.fraction_bits
    for members, place in alike(p.places, p.noise):
        (event,) = own_events(p.algorithm, p.cfg, place, terms=p.terms)
        i = members[0]
        np.testing.assert_allclose(
            event.mu(), (steps * shift[i] + 17 / 16 * math.sqrt(3)) / np.sqrt((steps * sigma[i]) ** 2 - 9)
        )
    assert np.argmax(p.spending.per_agent) == int(np.argmin(SIZES))
    again = capped(own_events(p.algorithm, p.cfg, place, terms=p.terms), 3)
    assert sum(int(np.sum(e.times)) for e in again) == 23


def test_the_samplers_of_all_layers_are_paid_for() -> None:
    for n, c in ((3, 1), (10, 2), (20, 9), (100, 49)):
        terms = SumTerms(FixedPoint(n), n - c, least_threshold(n, c), shared=True)
        layers = Layers(n, c, terms.levels, Fraction(2) ** 24)
        event = opened_event(1.0, 1.0, n - c, 12, 142, draws=terms.draws, error=FLOAT_ERROR)
        assert layers.distance(142) <= float(np.max(event.tv)) < 1e-28


def test_float64_stays_within_what_is_charged() -> None:
    """2^13 numbers as large as the bound, added one after the other: off by less than 1/32 of a step; twin: 2^44."""
    rng, bound = np.random.default_rng(0), 1024.0
    values = rng.uniform(-bound, bound, 2**13)
    total = 0.0
    for value in values:
        total = math.fsum([0.0, total + value])  # rounded once an addition
    error = abs(Fraction(total) - sum(map(Fraction, values)))
    grid = FLOAT_STEPS / bound
    assert error * grid < FLOAT_ERROR / 2
    assert error * 2.0**44 / bound > FLOAT_ERROR / 2


def test_the_grid_is_the_finest_that_can_be_drawn() -> None:
    p = priced(tree_of())
    assert p.terms is not None
    steps = released(p.algorithm, p.cfg, p.places)[1].max() * 2.0**p.terms.code.fraction_bits
    assert LARGEST / 2 < steps <= LARGEST
    # where noise is little float64 is what limits it
    tree = tree_of(bound=2.0**14) | {"partition": {"kind": "iid", "sizes": [10_000] * 6}}
    fine = priced({**tree, "privacy": {"epsilon": 8.0}})
    assert fine.terms is not None
    assert fine.terms.code.fraction_bits == 20


# ---- any graph, some missing -----------------------------------------------------------------------------------------


def small(kind: str, **exchange: Any) -> dict[str, Any]:
    tree = tree_of(kind, **exchange)
    return {
        **tree, "data": {"source": "clinics", "options": {"sites": 6, "records": 300}}, "partition": {},
        "problem": {"loss": "logistic"}, "run": {"rounds": 5},
    }  # fmt: skip


def test_the_graph_is_transport() -> None:
    """The same model bit for bit, at the same price, whatever carries the words; the picture shows the plan's graph."""
    found = {}
    for kind in ("ring", "complete", "star"):
        experiment = prepare(validate(small(kind)))
        p = price(experiment.plan, experiment.network)
        assert experiment.network.transport.kind == kind
        assert experiment.network.graph.kind == "complete"
        assert p.public.degree_min == 5
        assert p.public.mixing_gap == pytest.approx(1.0)
        found[kind] = experiment.run(p, [0]).points, p.noise
    for points, noise in found.values():
        np.testing.assert_array_equal(points, found["ring"][0])
        np.testing.assert_array_equal(noise, found["ring"][1])


def test_a_graph_in_two_parts_carries_no_sum() -> None:
    apart = Graph(6, np.array([[0, 1], [1, 2], [3, 4], [4, 5]]), "listed")
    with pytest.raises(InputError, match="is not connected: a secret sum reaches everybody"):
        links_on(validate(tree_of()), apart)


def test_a_sum_that_lacks_some_stands_for_all_with_the_noise_that_is_left() -> None:
    """Scaled by N/|S|; the noise of the sum is (N − r)/(N − c − ℓ) σ² for every number of drop-outs; no more than D."""
    n, sigma, d = 10, 4.0, 4000
    sums = SecretSum(n, 16, honest=8, threshold=7, shared=True, away=0.15)
    seen = set()
    with jax.enable_x64(True):
        noise = sigma * jax.random.normal(jax.random.key(9), (n, d))
        for k in range(30):
            lost = Lost(jax.random.key(k), jnp.full(n, sigma))
            here = np.asarray(sums.answered(lost))
            r = n - int(here.sum())
            seen.add(r)
            place = type("Place", (), {"self_weight": jnp.full(n, 1 / n), "degree": jnp.full(n, n - 1.0)})
            total, mixed = sums.sums(place, 3.0 + noise, lost)
            opened = np.asarray(total + 3.0 + noise)  # with the own message back on
            np.testing.assert_allclose(opened, opened[0][None].repeat(n, 0), atol=1e-9)
            np.testing.assert_allclose(np.asarray(mixed) * n, np.asarray(total))
            own = np.asarray(3.0 + noise)[here].mean(0)
            extra = opened[0] / n - own
            share = sums.terms.left(r) * 8 / (n - r) - 1  # beyond the layer that every message carries
            expected = sigma * math.sqrt(share / (n - r))
            assert extra.std() == pytest.approx(expected, rel=0.06, abs=2.0**-16)
            assert opened[0].mean() == pytest.approx(3.0 * n, abs=6 * n * sigma / math.sqrt(d * (n - r)))
    assert seen == {0, 1, 2, 3}


def test_plan_check_says_what_is_opened_and_what_drop_outs_do() -> None:
    text = " ".join(explain(validate(tree_of(threshold=5)))[0])
    for words in (
        "one sum of 3 numbers over all 6 parties is opened, to everybody", "as long as no two of them pool what they",
        "They talk over a ring graph, each with 2 others", "up to 1 of the 6 may be missing", "costs every party the",
        "With fewer than 5 answers nothing is opened", "a round (", "local, everybody else colludes",
    ):  # fmt: skip
        assert words in text, words
    assert "all 6 must answer" in " ".join(explain(validate(tree_of()))[0])


# ---- certificates ----------------------------------------------------------------------------------------------------


def sealed(tree: dict[str, Any], **more: Any) -> dict[str, Any]:
    plan = validate(tree)
    network = public_network(plan)
    made = certificate.certificate(plan, network, price(plan, network), **more)
    return verification.parse(json.dumps(sealing.seal(made)))


def again(content: dict[str, Any]) -> dict[str, Any]:
    body = {k: v for k, v in content.items() if k not in ("digest", "signature", "signer")}
    return verification.parse(json.dumps(sealing.seal(body)))


def retold(content: dict[str, Any]) -> dict[str, Any]:
    """With totals and claims that fit its events."""
    for part in (*content["agents"], content["central"], content["cap"]):
        part |= certificate.totals(part["events"], 1e-5)
    first, *others = certificate.claims(content["agents"], content["central"], content["cap"], 1e-5, False, [])
    told = certificate.protects(content["agents"], content["central"], content["cap"], 1e-5, by_person=False)
    return again(content | {"claim": first, "other_claims": others, "protects": told})


def test_a_certificate_states_three_numbers_and_is_derived_anew() -> None:
    content = sealed(tree_of(threshold=5))
    verdict = verification.verify(content, strict=True)
    assert verdict.derived
    names = [content["claim"]["name"], *(one["name"] for one in content["other_claims"])]
    assert names == [
        "central, at least 5 honest parties",
        "local, everybody else colludes",
        "local, everybody else colludes, 6 vectors sent again",
    ]
    first, local, cap = [content["claim"], *content["other_claims"]]
    assert first["epsilon"] <= 1 < local["epsilon"] < cap["epsilon"]
    assert [first["private"], local["private"]] == [True, False]
    assert "any 1 of the parties who answered know, together with all who did not" in first["adversary"]
    said = " ".join(one["statement"] for one in content["statements"])
    assert "no more than 1 parties pool what they know" in said
    assert "stops after sending 6 vectors again" in said


@pytest.mark.parametrize("node", [0, 3])
def test_a_party_that_sent_vectors_again_pays_for_them_and_stands_alone(node: int) -> None:
    plan = shared_plan(5, exchange={"noise": "central", "honest": 4, "threshold": 4})  # all parties are alike
    content = sealed(plan.as_json(), retried={node: 2}, noise=certificate.SECURE)
    assert verification.verify(content, strict=True).derived
    (mine,) = (group for group in content["agents"] if group["members"] == [[node, node]])
    others = [group for group in content["agents"] if group is not mine]
    assert mine["sent_again"] == 2
    assert {group["sent_again"] for group in others} == {0}
    assert sum(e["times"] for e in mine["events"]) == 2 + sum(e["times"] for e in others[0]["events"])
    assert mine["epsilon"] == content["other_claims"][0]["epsilon"] > others[0]["epsilon"]


def halved(content: dict[str, Any], *where: str) -> dict[str, Any]:
    parts = content["agents"] if where == ("agents",) else [content[where[0]]]
    for part in parts:
        for row in part["events"]:
            row["sensitivity"] /= 2
    return content


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda c: halved(c, "agents"), r"agents\[0\]\.events"),
        (lambda c: halved(c, "cap"), r"cap\.events"),
        (lambda c: halved(c, "central"), r"central\.events"),
        (lambda c: c | {"cap": {**c["cap"], "sent_again": 1}}, r"cap\.sent_again"),
        (lambda c: c | {"central": {**c["central"], "colluders": 0}}, r"central\.colluders"),
        (lambda c: c | {"agents": [{**g, "sent_again": 1} for g in c["agents"]]}, r"agents\[0\]\.sent_again"),
    ],
)
def test_a_wrong_claim_is_rejected(wrong: Any, message: str) -> None:
    """Though all totals and claims were worked out from the events that it states."""
    content = wrong(copy.deepcopy(sealed(tree_of(threshold=5))))
    with pytest.raises(verification.Refuted, match=message):
        verification.verify(retold(content), strict=True)


def test_a_local_claim_cannot_be_left_out_or_told_smaller() -> None:
    content = sealed(tree_of())
    with pytest.raises(verification.Refuted, match="cap"):
        verification.verify(again({**content, "cap": None}))
    with pytest.raises(verification.Refuted, match="other_claims"):
        verification.verify(again({**content, "other_claims": content["other_claims"][:1]}))
    less = [{**one, "epsilon": one["epsilon"] / 2} for one in content["other_claims"]]
    with pytest.raises(verification.Refuted, match="other_claims"):
        verification.verify(again({**content, "other_claims": less}))
