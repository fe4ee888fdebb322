r"""The certificate of a run: what was spent, event by event, in a file that a stranger can check.

`certificate` builds it from public things only: the plan, the sizes, the graph, the settings and the noise. It holds
no record, no message and no number computed from either. `coterie.report.verification` recomputes it;
docs/certificate.md describes every field and says what a check of it proves.

    plan, public  ->  settings, events of every agent  ->  totals by every valid accountant  ->  claim

Numbers are written with as many digits as float64 needs, infinity as "inf". `digest` is the SHA-256 of the canonical
form (`canonical`) of everything but `digest` and `signature`; the signature is Ed25519 over the digest.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

import coterie
from coterie.algorithms._charges import alike, distinct, run_events
from coterie.algorithms.base import Algorithm, Config, Place, all_algorithms
from coterie.errors import InputError
from coterie.exchange.central import (
    cap_words,
    capped,
    central_words,
    check_grid,
    local_words,
    own_events,
    released,
    shared_events,
)
from coterie.exchange.sums import SumTerms
from coterie.found import files_hash
from coterie.graphs import from_outside
from coterie.losses import by_labels
from coterie.losses.base import problem_of
from coterie.network import Network
from coterie.plan import Plan
from coterie.pricing import Priced
from coterie.privacy.accountants import account
from coterie.privacy.codec import Json, every_kind, from_row, to_rows
from coterie.privacy.events import Event
from coterie.privacy.people import Protects, units_of
from coterie.problems import Problem
from coterie.problems.labels import ClassNumbers
from coterie.report.costs import (
    AlikeAgents,
    Certified,
    CertifiedClaim,
    Named,
    OpenedSums,
    Paid,
    PublicFacts,
    SentAgain,
    Shape,
    Totals,
)
from coterie.report.others import other_code
from coterie.report.sealing import canonical, lossless, plan_hash, written
from coterie.report.statements import SECURE, SIMULATED, statements

__all__ = [
    "SCHEMA",
    "SECURE",
    "SIMULATED",
    "alone",
    "certificate",
    "charged_rounds",
    "claims",
    "code_hash",
    "decode",
    "facts",
    "shape",
    "shared",
    "totals",
    "versions",
    "words_of",
]

SCHEMA = 5
LIBRARIES = ("jax", "numpy", "scipy", "dp-accounting")


def certificate(
    plan: Plan,
    network: Network,
    priced: Priced,
    *,
    noise: str = SIMULATED,
    completed: int | None = None,
    charged: Mapping[int, Sequence[Event]] | None = None,
    retried: Mapping[int, int] | None = None,
    files: Mapping[str, str] | None = None,
) -> Certified:
    """The content of certificate.json, not yet sealed (`seal`): of one run, whatever else was run to study it.

    Args:
        plan: the plan as it was run; of a simulation with several seeds, the first is certified.
        network: its public side.
        priced: settings and noise; of a deployed run, priced with `coterie.deploy.noise.on_grid`.
        noise: `SIMULATED` or `SECURE`.
        completed: rounds in which messages were sent, if fewer than planned.
        charged: what the ledgers of some agents (by node) really charged in these rounds; the others are charged all
            that was planned, since nobody here knows where they stopped. With shared noise: every masked vector.
        retried: of some agents, how many masked vectors beyond one per round they sent, with shared noise.
        files: SHA-256 of the files that this run released (`coterie.report.released`).
    """
    charged, retried = charged or {}, retried or {}
    cost = partial(own_events, priced.algorithm, priced.cfg, terms=priced.terms)
    done = charged_rounds(plan, priced.rounds, completed)
    budgets = np.broadcast_to(np.nan if plan.privacy is None else plan.privacy.epsilon, network.sizes.shape)
    delta = None if plan.privacy is None else plan.privacy.delta
    agents: list[AlikeAgents] = []
    ledgers = np.zeros(len(network.sizes))
    known = sorted({*charged, *retried})
    ledgers[known] = np.arange(1, len(known) + 1)  # an agent with a ledger stands alone
    _, kind = distinct(np.stack([np.nan_to_num(budgets), ledgers], axis=1))
    for members, place in alike(priced.places, kind):
        own = charged.get(int(members[0]))
        rounds = priced.rounds if charged and own is None else done
        again = int(retried.get(int(members[0]), 0))
        spent = to_rows(capped(cost(place, rounds), again) if own is None else own)
        agents.append(
            {
                "members": _ranges(members),
                "records": int(network.sizes[members[0]]),
                "neighbours": int(network.graph.degrees[members[0]]),
                "budget": None if delta is None else float(budgets[members[0]]),
                "noise_multiplier": float(priced.noise[members[0]]),
                "rounds": rounds,
                "sent_again": again,
                "events": spent,
                **totals(spent, delta),
            }
        )
    agents.sort(key=lambda group: group["members"][0][0])
    most = max(g["rounds"] for g in agents)
    sums, cap = shared(plan, priced.algorithm, priced.cfg, priced.places, priced.terms, most)
    words = words_of(priced.algorithm, priced.cfg)
    single = alone(plan, priced.algorithm, priced.cfg, priced.places, most)
    first, *others = claims(agents, sums, cap, delta, priced.cfg.printed, network.leaks, words, single)
    said = statements(
        plan, network.problem, priced.algorithm, priced.cfg, network.leaks, noise=noise, terms=priced.terms
    )  # fmt: skip
    content: Certified = {
        "schema": SCHEMA,
        "claim": first,
        "other_claims": others,
        "protects": protects(agents, sums, cap, delta, by_person=plan.by_person, words=words),
        "plan": plan.as_json(),
        "plan_sha256": plan_hash(plan),
        "public": facts(plan, network),
        "algorithm": {
            "name": priced.algorithm.slug,
            "rounds": priced.rounds,
            "settings": lossless(priced.cfg.model_dump(mode="json")),
        },
        "agents": agents,
        "central": sums,
        "cap": cap,
        "statements": [one._asdict() for one in said],
        "run": {"noise": noise, "seed": plan.run.seed if noise == SIMULATED else None},
        "files": dict(files or {}),
        "made_with": versions(),
        "other_code": other_code(plan),
    }
    if single:
        content["alone"] = single
    if priced.seats and delta:
        content["observers"] = [seat.as_json(delta) for seat in priced.seats]
    return content


def charged_rounds(plan: Plan, rounds: int, completed: int | None) -> int:
    """How many rounds of the plan a simulated party is charged for, if `completed` were played before an early end.

    Where noise followed what was released, for all: the planned noise of the rounds played is not what they had, and
    the filter's limit is the only guarantee.
    """
    if completed is None or (plan.privacy is not None and plan.privacy.adaptive is not None):
        return rounds
    return int(completed)


# ---- what is claimed -------------------------------------------------------------------------------------------------


def claims(
    agents: Sequence[AlikeAgents], sums: OpenedSums | None, cap: SentAgain | None,
    delta: float | None, printed: bool, leaks: Sequence[str], words: tuple[str, str] | None = None,
    own: Named | None = None,
) -> list[CertifiedClaim]:  # fmt: skip
    """The network's guarantees, each against its own adversary; the one that the budget is for comes first.

    A record sits at one agent, so the largest of the agents' ε is everybody's. `private` says whether an ε is within
    the plan's budget and is not that of a method run as printed. What a loader read from the records (`leaks`) is no
    event and every adversary sees what came of it, so where there is any, nothing is claimed against anybody. `cap` is
    there where noise is shared, and so the budget for the opened sums (`sums`). `words`: the name and the adversary of
    what agents pay for, where the algorithm says; `own`: what is left of it if everybody else pools what they know.
    """
    worst = max(agents, key=lambda group: float(group["epsilon"]))
    sound = delta is not None and not printed and not leaks
    local = sound and all(_within(g["epsilon"], g["budget"]) for g in agents)
    found = [_claim(*(words or local_words(shared=cap is not None)), worst, agents, delta, local)]
    if sums is not None:
        good = sound and _within(sums["epsilon"], sums["budget"])
        found.insert(0 if cap else 1, _claim(sums["name"], sums["adversary"], sums, [sums], delta, good))
    if cap is not None and sums is not None:
        good = sound and _within(cap["epsilon"], sums["budget"])
        found.append(_claim(cap["name"], cap["adversary"], cap, [cap], delta, good))
    if own is not None:
        good = sound and all(_within(own["epsilon"], g["budget"]) for g in agents)
        found.append(_claim(own["name"], own["adversary"], own, [own], delta, good))
    return found


def words_of(algorithm: Algorithm, cfg: Config) -> tuple[str, str] | None:
    """The name and the adversary of what agents pay for, where the algorithm says."""
    return None if algorithm.against is None else algorithm.against(cfg)


def _claim(
    name: str, adversary: str, total: Totals, parts: Sequence[Paid], delta: float | None,
    private: bool,
) -> CertifiedClaim:  # fmt: skip
    adjacency = {e["adjacency"] for part in parts for e in part["events"] if e["kind"] not in ("Free", "NonPrivate")}
    return {
        "name": name,
        "adversary": adversary,
        "private": private,
        "epsilon": total["epsilon"],
        "delta": delta,
        "accountant": total["accountant"],
        "adjacency": str(adjacency.pop()) if len(adjacency) == 1 else "replace-one",
    }


def protects(
    agents: Sequence[AlikeAgents], sums: OpenedSums | None, cap: SentAgain | None,
    delta: float | None, *, by_person: bool, words: tuple[str, str] | None = None,
) -> Protects | None:  # fmt: skip
    """Whom ε of the first claim is for: a record, a person, a person whom two parties know, whichever they are.

    Where sums are opened, or noise is shared (`words`), what a person moves at two parties adds up before it is hidden.
    """
    groups = [sums] if cap and sums else sorted(agents, key=lambda group: -float(group["epsilon"]))
    alone = lambda group: "members" not in group or group["members"] == [[group["members"][0][0]] * 2]  # noqa: E731
    each = [group["events"] for group in groups for _ in range(1 if alone(group) else 2)]
    total = float(groups[0]["epsilon"])
    return None if delta is None else _protects(canonical(each), total, delta, by_person, bool(cap or words)).copy()


@lru_cache(maxsize=256)
def _protects(rows: bytes, epsilon: float, delta: float, by_person: bool, summed: bool) -> Protects:
    each = [decode(one) for one in json.loads(rows)]
    return units_of(each, epsilon, delta, by_person=by_person, summed=summed)


def _within(epsilon: float | str, budget: float | None) -> bool:
    return budget is not None and float(epsilon) <= budget * (1 + 1e-9)


def shared(
    plan: Plan, algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms | None, rounds: int
) -> tuple[OpenedSums | None, SentAgain | None]:  # fmt: skip
    """What the sums opened in so many rounds cost, if the plan says how many agents are honest; and, with shared noise,
    what a party's vectors cost if everybody else colludes and all are sent again that may be.
    """
    if terms is None or terms.honest is None or plan.privacy is None:
        return None, None
    check_grid(terms, released(algorithm, cfg, places)[1])
    delta = plan.privacy.delta
    main, local = shared_events(algorithm, cfg, places, terms, rounds)
    name, adversary = central_words(terms)
    sums: OpenedSums = {
        "name": name, "adversary": adversary, "budget": float(np.min(plan.privacy.epsilon)),
        "colluders": terms.colluders, "must_answer": terms.quorum, "fraction_bits": terms.code.fraction_bits,
        **_paid([main], delta),
    }  # fmt: skip
    if not terms.shared:
        return sums, None
    name, adversary = cap_words(terms)
    every = _paid(capped([local], terms.retries), delta)
    return sums, {"name": name, "adversary": adversary, "sent_again": terms.retries, **every}


def alone(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place, rounds: int) -> Named | None:
    """Where neighbours share noise: what so many rounds cost the one who pays most if everybody else pools secrets."""
    if algorithm.own_cost is None or plan.privacy is None:
        return None
    own, delta = replace(algorithm, cost=algorithm.own_cost), plan.privacy.delta
    each = [_paid(run_events(own, cfg, place, rounds), delta) for _, place in alike(places, np.zeros(places.agents))]
    name, adversary = local_words(shared=True)
    return {"name": name, "adversary": adversary, **max(each, key=lambda paid: float(paid["epsilon"]))}


def _paid(events: list[Event], delta: float) -> Paid:
    rows = to_rows(events)
    return {"events": rows, **totals(rows, delta)}


@lru_cache(maxsize=4096)
def _account(rows: bytes, delta: float) -> tuple[dict[str, float], float, str]:
    total = account(decode(json.loads(rows)), delta)
    return total.all, total.epsilon, total.accountant


def totals(rows: list[dict[str, Json]], delta: float | None) -> Totals:
    """ε by every valid accountant, the smallest, and which one proves it; without a δ nothing is private."""
    if delta is None:
        return {"totals": {"non-private": "inf"}, "epsilon": "inf", "accountant": "non-private"}
    every, epsilon, accountant = _account(canonical(rows), delta)
    return {
        "totals": {name: written(each) for name, each in every.items()},
        "epsilon": written(epsilon),
        "accountant": accountant,
    }


# ---- events as plain data --------------------------------------------------------------------------------------------


@cache
def _kinds() -> dict[str, type[Event]]:
    """Every kind of event of the package, those of single algorithms included."""
    all_algorithms()
    return {name: kind for name, kind in every_kind().items() if kind.__module__.startswith("coterie.")}


def decode(rows: Iterable[Mapping[str, Json]]) -> list[Event]:
    """The events of a certificate's rows; anything else is an InputError."""
    return [from_row(row, _kinds()) for row in rows]


# ---- the code --------------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """What made the certificate."""
    made = {"coterie": coterie.__version__, "code_sha256": code_hash(), "python": platform.python_version()}
    return made | _libraries()


@cache
def _libraries() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


@cache
def code_hash() -> str:
    """SHA-256 over the names and contents of all of the package's Python files."""
    return files_hash(Path(coterie.__file__).parent)


# ---- small pieces ----------------------------------------------------------------------------------------------------


def facts(plan: Plan, network: Network) -> PublicFacts:
    """What the plan may leave to the data: shape of the problem, names, edges of a graph that came from a file; and
    what a loader read from the records besides.
    """
    names = list(network.names)
    return {
        "agents": len(names),
        "names": None if names == [f"agent {i}" for i in range(len(names))] else names,
        "edges": network.transport.edges.tolist() if from_outside(plan.graph.kind) else None,
        "leaks": list(network.leaks),
        **shape(plan, network.problem),
    }


def shape(plan: Plan, problem: Problem) -> Shape:
    """Loss and numbers of features, classes and parameters of a plan's problem; refuses one that it does not state."""
    loss = plan.problem.loss or by_labels(problem.labels.classes)
    classes = problem.labels.classes if isinstance(problem.labels, ClassNumbers) else None
    if problem_of(plan, loss, problem.columns, classes or 1) != problem:
        raise InputError(f"a certificate needs a problem that its plan states, got {problem.name}")
    return {"loss": loss, "features": problem.columns, "classes": classes, "parameters": problem.dim}


def _ranges(members: np.ndarray) -> list[list[int]]:
    """Sorted numbers as inclusive ranges: [0, 1, 2, 5] is [[0, 2], [5, 5]]."""
    parts = np.split(members, np.flatnonzero(np.diff(members) != 1) + 1)
    return [[int(part[0]), int(part[-1])] for part in parts]
