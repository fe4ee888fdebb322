"""A plan's own claims: which of its agents are looked at, with how many records, neighbours and rounds.

The problem has two features, whatever the plan's has: what is attacked is the code, which does not know how many there
are. Of agents that stand alike one is enough. Those are looked at that have the fewest and the most neighbours, the
fewest and the most records, the largest and the smallest ε, each with the graph, weights, records and ε of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.audit.checks import Finding
from coterie.audit.exchange import opened
from coterie.audit.setting import Setting, make_setting
from coterie.contracts import check_contract
from coterie.data.planned import public_sizes
from coterie.errors import InputError
from coterie.experiment import prepare, public_network
from coterie.losses import by_labels
from coterie.losses.base import find_loss
from coterie.network import Network
from coterie.plan import Plan, read_plan
from coterie.pricing import Priced, price
from coterie.problems import Problem, of_people

__all__ = ["Looked", "of_plan", "problem_in_two", "read_for_audit", "sums"]

MOST_ROUNDS, MOST_RECORDS = 100, 2000  # that are played


@dataclass(frozen=True)
class Looked:
    """One agent of a plan, and what was looked at."""

    words: str
    setting: Setting


def read_for_audit(path: Path) -> tuple[Plan, Network, Priced]:
    """A plan that makes a claim, its public side and its price."""
    plan = read_plan(path, [])
    if plan.privacy is None:
        raise InputError(f"{path} has no [privacy]: there is no claim to audit")
    if plan.run.away:
        raise InputError(
            f"{path} has run.away, and an audit plays every round: leave it out. Whoever is away sends nothing, so "
            "what is left are rounds that the audit has played"
        )
    if plan.privacy.adaptive is not None:
        raise InputError(
            f"{path} has privacy.adaptive, and an audit plays rounds whose noise is fixed: leave it out. What adaptive "
            "noise adds is proved and simulated elsewhere (docs/theory/adaptive.md)"
        )
    check_contract(plan)
    network = prepare(plan).network if public_sizes(plan) is None else public_network(plan)
    priced = price(plan, network)
    if priced.leaks:
        raise InputError(f"{path} claims no privacy, so there is nothing to audit: {priced.leaks[0]}")
    return plan, network, priced


def of_plan(path: Path) -> tuple[Plan, list[Looked]]:
    """The plan, and its agents that are looked at: the one with the largest ε, and the fewest records, comes first."""
    plan, network, priced = read_for_audit(path)
    problem = problem_in_two(plan, network)
    return plan, [_looked(plan, network, priced, problem, agent) for agent in _agents(plan, network)]


def problem_in_two(plan: Plan, network: Network) -> Problem:
    """The plan's problem in two features."""
    classes = network.problem.labels.classes
    loss = plan.problem.loss or by_labels(classes)
    made = find_loss(loss).make(plan.problem.settings(loss), 2, classes or 1)  # without bins: any row of norm 1
    return of_people(made) if plan.by_person else made


def _agents(plan: Plan, network: Network) -> list[int]:
    """Agents that stand apart from all others, one of each kind."""
    assert plan.privacy is not None
    sizes, degrees = np.asarray(network.sizes, float), np.asarray(network.graph.degrees, float)
    budgets = np.broadcast_to(np.asarray(plan.privacy.epsilon, float), sizes.shape)
    weights = np.asarray(network.mixing.self_weights)
    ends = (sizes, -sizes, degrees, -degrees, budgets)
    orders = ((sizes, -budgets), *((-budgets, end) for end in ends))
    chosen: dict[tuple, int] = {}
    for order in orders:
        agent = int(np.lexsort(order)[0])  # the last key counts first
        chosen.setdefault((sizes[agent], degrees[agent], budgets[agent], round(weights[agent], 9)), agent)
    return list(chosen.values())


def _looked(plan: Plan, network: Network, priced: Priced, problem: Problem, agent: int) -> Looked:
    """One agent as it stands in the plan, with no more records and rounds than can be played."""
    assert plan.privacy is not None
    delta = plan.privacy.delta
    epsilon = float(np.broadcast_to(np.asarray(plan.privacy.epsilon, float), network.sizes.shape)[agent])
    unit, count = float(np.asarray(priced.places.unit)[agent]), int(network.sizes[agent])
    own = priced.shape if priced.shape.ndim == 1 else priced.shape[agent]
    records = min(count, MOST_RECORDS)

    def after(rounds: int) -> Setting:
        return make_setting(
            priced.algorithm, priced.cfg, epsilon=epsilon, delta=delta, rounds=rounds, records=records,
            ridge=plan.ridge, shape=own[:rounds], printed=priced.cfg.printed, problem=problem,
            load=unit * count, graph=network.graph, weights=network.mixing, agent=agent,
            noise=float(priced.noise[agent]) if priced.for_sums else None,
        )  # fmt: skip

    try:
        setting = after(min(priced.rounds, MOST_ROUNDS))
    except InputError:  # settings that need all of them
        setting = after(priced.rounds)
    rounds, held = setting.place.rounds, "people" if plan.by_person else "records"
    words = (
        f"{problem.name}, {network.names[agent]}: {setting.degree} neighbours, {_of(records, count, held)}, "
        f"{_of(rounds, priced.rounds, 'rounds')}, ε = {setting.epsilon:.4g}"
    )
    return Looked(words, setting)


def _of(some: int, every: int, what: str) -> str:
    return f"{some} {what}" if some == every else f"{some} of {every} {what}"


def sums(plan: Plan) -> list[tuple[str, Finding]]:
    """What opened sums show, where the plan makes a claim about them; other exchanges change no claim."""
    asked, privacy = plan.exchange.sums, plan.privacy
    if asked is None or asked.honest is None or privacy is None:
        return []
    agents = plan.partition.agents or len(plan.partition.sizes or ()) or 5
    words = f"opened sums of {agents} parties, {asked.honest} of them honest"
    try:
        wrong = opened(
            plan.algorithm.name, asked.honest, float(np.min(privacy.epsilon)), agents=agents, delta=privacy.delta,
            exchange=plan.exchange.model_dump(), settings=dict(plan.algorithm.model_extra or {}),
        )  # fmt: skip
    except InputError as error:
        return [(words, Finding("exchange", "inconclusive", str(error)))]
    return [(words, Finding("exchange", "refuted" if wrong else "holds", wrong or "they carry the declared noise"))]
