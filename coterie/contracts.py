"""What a plan has to meet before a record is read: an algorithm's promise is refused where its proof does not hold.

What may be missing: a fact about the loss (`check_contract`), settings that go with graph, exchange and rounds
(`need_possible`), and what a solver and floating-point numbers can do (`coterie.solvable`). All of it is decided by
public numbers.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import numpy as np

from coterie.algorithms.base import Algorithm, Config, all_algorithms, find
from coterie.algorithms.batches import rows
from coterie.drivers.layout import make_places
from coterie.errors import InputError
from coterie.exchange.central import shared_events
from coterie.exchange.planned import exchange_of, sum_terms
from coterie.graphs import make_graph, mixing
from coterie.losses import BY_LABELS
from coterie.losses.base import need_set, problem_of
from coterie.network import Network, graph_of, public_facts, shape_of
from coterie.plan import Plan
from coterie.problems import Problem
from coterie.solvable import need_precision, need_solvable

__all__ = ["check_contract", "hollow", "need_fit", "need_possible", "need_pure"]

GUESSES = (3, 4, 8)  # agents, where only the data knows
SOME_ROUNDS = 10  # where the algorithm's own rule will say
SOME_DELTA = 1e-5  # to ask what an algorithm would send that is to be refused


def check_contract(plan: Plan, *problems: Problem) -> None:
    """Refuse a plan whose algorithm, budget, graph and loss do not go together, before data is read.

    Of several problems (default: the plan's; where it leaves the loss to the labels, each that may follow) one must
    fit.
    """
    algorithm = find(plan.algorithm.name)
    need_fit(algorithm, plan)
    losses = (plan.problem.loss,) if plan.problem.loss else BY_LABELS
    refused = []
    asked = problems or tuple(problem_of(plan, loss) for loss in losses)
    for problem in asked:
        try:
            need_set(problem)
            algorithm.check(plan.algorithm.config(), problem)
            need_possible(plan, algorithm, problem)
        except InputError as error:
            refused.append(error)
    if len(refused) == len(asked):
        raise refused[0]
    need_precision(plan, algorithm, plan.algorithm.config())


HARDLY = 20.0  # the best guess between two records may then be right 95 % of the time
"""An ε beyond which a plan is warned that it promises next to nothing."""


def hollow(plan: Plan, records: int) -> list[str]:
    """A budget that is valid and still protects hardly anybody: its δ or its ε is too large."""
    if plan.privacy is None:
        return []
    found, unit = [], "people" if plan.by_person else "records"
    largest = max(plan.privacy.epsilon) if isinstance(plan.privacy.epsilon, list) else plan.privacy.epsilon
    if largest > HARDLY:
        found.append(
            f"privacy.epsilon = {largest:g} promises next to nothing: above {HARDLY:g} a good guess is nearly sure"
        )
    if plan.privacy.delta * records >= 1:
        found.append(
            f"privacy.delta = {plan.privacy.delta:g} is not below 1/{records} (one over all {unit}): to publish one of "
            f"the {unit} as it is would be within it"
        )
    return found


def need_fit(algorithm: Algorithm, plan: Plan) -> None:
    """Refuse what no run could repair: a budget without noise, noise without a budget, a graph that does not fit."""
    if algorithm.private and plan.privacy is None:
        raise InputError(f"{algorithm.slug} is private, so the plan needs a [privacy] table with epsilon and delta")
    if not algorithm.private and plan.privacy is not None:
        raise InputError(f"{algorithm.slug} is not private: remove the [privacy] table or choose a private algorithm")
    cfg, p = plan.algorithm.config(), plan.privacy
    if p is not None and p.schedule != "uniform" and algorithm.needs(cfg).even:
        raise InputError(
            f"{algorithm.slug} spreads its budget by a rule of its own: privacy.schedule must be 'uniform'"
        )
    if p is not None and p.listed is not None and plan.run.rounds != p.listed:
        raise InputError(
            f"privacy.schedule_options lists {p.listed} rounds, and run.rounds is {plan.run.rounds or 'not stated'}"
        )
    if p is not None and p.own_rounds and plan.exchange.central:
        raise InputError(
            "noise that parties share is the same on all: privacy.schedule_options must list one number for each round"
        )
    if p is not None and p.observers and algorithm.observed is None:
        raise InputError(
            f"privacy.observers: no account of single observers is proved for {algorithm.slug}, which reacts to what "
            "it hears; use gossip-mean, decor, or dp-dsgd without momentum"
        )
    if p is not None and p.observers and plan.deploy is not None and algorithm.against is None:
        raise InputError(
            f"privacy.observers of {algorithm.slug} is proved for messages that are not rounded: leave it out where "
            "parties are deployed"
        )
    if p is not None and p.observers and plan.exchange.kind != "broadcast":
        raise InputError(
            f"privacy.observers is about messages that neighbours see: exchange.kind must be 'broadcast', got "
            f"{plan.exchange.kind!r}"
        )
    if plan.run.away:
        _need_absences(algorithm, plan)
    if p is not None and p.adaptive is not None:
        _need_filter(algorithm, plan)
    if algorithm.needs(algorithm.example).alike:  # of the algorithm, whatever the plan names
        _need_alike(algorithm, plan)
    if p is not None and p.claim == "paper" and algorithm.claim is None:
        raise InputError(f"{algorithm.slug} has no formula of a paper's claim: privacy.claim must be 'tight'")
    allowed = algorithm.graphs
    if allowed and plan.exchange.sums is None and plan.graph.kind not in allowed:  # a sum is over everybody
        raise InputError(
            f"{algorithm.slug} runs on {' or '.join(allowed)} graphs, not on graph.kind = {plan.graph.kind!r}"
        )


def _need_filter(algorithm: Algorithm, plan: Plan) -> None:
    """Refuse noise that follows what was released where no filter is proved for it."""
    what, p = f"privacy.adaptive = {plan.privacy.adaptive!r}" if plan.privacy else "", plan.privacy
    if not algorithm.fresh:
        able = [a.slug for a in all_algorithms().values() if a.fresh]
        raise InputError(f"{what}: no filter is proved for {algorithm.slug}; use {' or '.join(able)}")
    if getattr(plan.algorithm.config(), "batch", None) is not None:
        raise InputError(f"{what}: no filter is proved for rounds on a batch; leave out algorithm.batch")
    reasons = {
        "privacy.delta = 0: a filter is for Gaussian noise, which needs delta > 0": p is not None and p.delta == 0,
        f"exchange.kind = {plan.exchange.kind!r}: a rule looks at messages as they were sent; use 'broadcast'":
            plan.exchange.kind != "broadcast",
        "run.away: who is silent is for the filter to say; leave it out": bool(plan.run.away),
        "privacy.observers is proved for noise that is fixed beforehand; leave it out":
            p is not None and bool(p.observers),
        "problem.model = 'additive': the bands of its curves are for noise that is fixed beforehand":
            plan.problem.additive,
        "deploy: parties see their neighbours' messages only, and a rule looks at all; simulate it":
            plan.deploy is not None,
    }  # fmt: skip
    if why := next((reason for reason, met in reasons.items() if met), None):
        raise InputError(f"{what} does not go with {why}")


def _need_absences(algorithm: Algorithm, plan: Plan) -> None:
    """Refuse a list of absences where the others could not go on without those who are away."""
    if algorithm.late != "reuse":
        raise InputError(
            f"run.away: in {algorithm.slug} nobody goes on without a neighbour; choose an algorithm that averages, "
            "such as dp-dsgd"
        )
    if plan.exchange.sums is not None:
        raise InputError(
            "run.away is about messages to neighbours: with secret sums, exchange.away says how many are left out"
        )
    if plan.privacy is not None and plan.privacy.observers:
        raise InputError("privacy.observers is proved for parties that hear every round: leave out run.away")


def _need_alike(algorithm: Algorithm, plan: Plan) -> None:
    """Refuse noise of which no party can say how much is on the total: unlike budgets, and parties that may miss."""
    budgets = plan.privacy.epsilon if plan.privacy is not None else 0.0
    if isinstance(budgets, list) and len(set(budgets)) > 1:
        raise InputError(
            f"{algorithm.slug} states the noise on the total of all parties: privacy.epsilon must be one number"
        )
    if plan.privacy is not None and plan.privacy.own_rounds:
        raise InputError(
            f"{algorithm.slug} needs the same noise at all parties: privacy.schedule_options must list one number for "
            "each round"
        )
    if plan.exchange.kind not in ("broadcast", "secret-sum"):
        raise InputError(
            f"{algorithm.slug} states the noise on the total: exchange.kind = {plan.exchange.kind!r} would add to it, "
            "use 'broadcast' or 'secret-sum'"
        )
    sums = plan.exchange.sums
    if sums is not None and sums.threshold is not None:
        raise InputError(
            f"{algorithm.slug} is about the records of all parties: leave out exchange.threshold = {sums.threshold}, "
            "which lets some be missing"
        )


def need_possible(plan: Plan, algorithm: Algorithm, problem: Problem) -> None:
    """Refuse what settings, graph, exchange and rounds rule out whatever the records are.

    The settings are filled in and a round's price is asked for, with one record per agent: a plan that is
    impossible with one record is impossible with more. Where the plan leaves the number of agents to the data, it is
    refused only if each of a few guesses would be.
    """
    p, refused = plan.partition, []
    known = p.agents or (len(p.sizes) if p.sizes else None)
    for size in (known,) if known else _guesses(plan):
        try:
            links = graph_of(plan, size)
        except InputError:
            if known:
                raise
            continue  # of a guess it says nothing
        if known:
            exchange_of(plan, algorithm, links.graph, links.mixing)
        try:
            return _try(plan, algorithm, Network(*links, problem, np.ones(size, int), (), leaks=()))
        except InputError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _guesses(plan: Plan) -> tuple[int, ...]:
    """Numbers of agents to try where only the data knows it: enough for as many honest ones as the plan states."""
    sums = plan.exchange.sums
    if sums is None or sums.honest is None:
        return GUESSES
    return (max(3, sums.honest, sums.threshold or 0),)


def _try(plan: Plan, algorithm: Algorithm, network: Network) -> None:
    """Fill in the settings for this network; where the rounds are stated, ask for the price of one."""
    cfg, rounds = plan.algorithm.config(), plan.run.rounds
    steered = getattr(cfg, "penalty", None) is not None  # else it follows from the sizes
    if plan.privacy is not None and plan.privacy.delta == 0:
        need_pure(plan, algorithm, network)
    if algorithm.tune is not None:
        cfg = algorithm.tune(cfg, public_facts(plan, network, rounds or SOME_ROUNDS))
    if plan.privacy is not None and plan.privacy.observers:
        _need_account(plan, algorithm, cfg, network.problem)
    if rounds is None:
        return
    shape = shape_of(plan, rounds, len(network.sizes))
    with jax.enable_x64(True):
        places = make_places(
            network.problem, network.sizes, network.graph, network.mixing, rounds=rounds, ridge=plan.ridge,
            weighting=plan.weighting, shape=shape,
        )  # fmt: skip
        jax.eval_shape(lambda t: algorithm.cost(cfg, rows(places, 0), t, None), 0)
        if (terms := sum_terms(plan, places.agents, rounds)) is not None and terms.honest is not None:
            shared_events(algorithm, cfg, places, terms)
    if steered:
        need_solvable(plan, algorithm, cfg, places, network.problem)


def need_pure(plan: Plan, algorithm: Algorithm, network: Network) -> None:
    """Refuse δ = 0 where what a round costs has no pure guarantee, by the names of algorithm and event."""
    rounds = plan.run.rounds or SOME_ROUNDS
    cfg, public = plan.algorithm.config(), public_facts(plan, network, rounds)
    if algorithm.tune is not None:
        try:
            cfg = algorithm.tune(cfg, public)
        except (InputError, ArithmeticError, ValueError):  # its rule needs some δ: what it would send is asked below
            cfg = algorithm.tune(cfg, dataclasses.replace(public, delta=SOME_DELTA))
    with jax.enable_x64(True):
        places = make_places(
            network.problem, network.sizes, network.graph, network.mixing, rounds=rounds, ridge=plan.ridge,
            weighting=plan.weighting,
        )  # fmt: skip
        found = jax.eval_shape(lambda t: algorithm.cost(cfg, rows(places, 0), t, None), 0)
    kinds = {type(e) for e in (found if isinstance(found, tuple) else (found,))}
    if plan.exchange.central:
        raise InputError(
            f"privacy.delta = 0 does not go with exchange.kind = {plan.exchange.kind!r} and shared noise, whose sum is "
            "Gaussian: give delta > 0"
        )
    if rough := sorted(k.__name__ for k in kinds if not k.purely()):
        gamma = " or set algorithm.noise = 'gamma'" if getattr(cfg, "noise", None) == "gaussian" else ""
        raise InputError(
            f"privacy.delta = 0 asks for a pure guarantee, and {algorithm.slug} has none ({', '.join(rough)}): give "
            f"delta > 0{gamma}"
        )


def _need_account(plan: Plan, algorithm: Algorithm, cfg: Config, problem: Problem) -> None:
    """Refuse settings and losses for which nothing is proved of single observers: three parties show it."""
    assert algorithm.observed is not None
    graph = make_graph("path", 3)
    weights = mixing(graph, "metropolis")
    with jax.enable_x64(True):
        places = make_places(problem, np.ones(3, int), graph, weights, rounds=2, ridge=plan.ridge)
        places = eqx.tree_at(lambda p: p.noise, places, jax.device_put(np.ones(3)))
        algorithm.observed(cfg, places, problem, graph, weights.dense(), (0,))
