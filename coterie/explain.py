"""A plan in words, before anything runs: who sends what to whom, at what price, and what to expect of it.

The expectation comes from a rehearsal on synthetic records of the plan's shape (sizes, features, graph, budget): it is
what the method does at this scale on data that can be learned, not a promise about anybody's data.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms._charges import alike
from coterie.algorithms.base import Maybe
from coterie.algorithms.batches import rows
from coterie.contracts import check_contract
from coterie.data import find_source, make_clinics
from coterie.data.partition import by_site
from coterie.data.planned import public_sizes
from coterie.drivers.dry_run import emitted, empty_shard
from coterie.drivers.simulate import Test
from coterie.errors import InputError
from coterie.exchange.central import own_events, shared_events
from coterie.exchange.planned import sum_terms
from coterie.exchange.sums import SumTerms, bytes_per_round
from coterie.experiment import assemble, prepare, public_network
from coterie.losses import by_labels
from coterie.losses.base import find_loss
from coterie.network import Network, ObserverAccount
from coterie.plan import Plan
from coterie.pricing import Priced, price
from coterie.privacy.events import Event, Free, Gaussian
from coterie.privacy.people import Protects, unit_words, units_of
from coterie.problems.labels import SIGNS
from coterie.tables.algorithm import REFERENCES
from coterie.worth.judge import judge

__all__ = ["Rehearsal", "explain", "message_size", "of_sums", "paying", "rehearse", "unit_block"]

MOST_NUMBERS = 50_000_000  # of synthetic features: beyond it a rehearsal is a run of its own
HELD_OUT = 2000


@dataclass(frozen=True)
class Rehearsal:
    """Accuracy on own test records of synthetic patients, mean of the parties: by the plan, pooled, and alone."""

    metric: str
    score: float
    pooled: float
    alone: float


def explain(plan: Plan) -> tuple[list[str], Network, Priced]:
    """Sentences about a plan, for the person who signs it. Data is read only if the plan does not state its shape."""
    if plan.algorithm.name in REFERENCES:
        raise InputError(f"{plan.algorithm.name} is a yardstick, not an algorithm of the network: choose another")
    check_contract(plan)
    network, note = _network(plan)
    priced = price(plan, network)
    sizes, graph = network.sizes, network.transport
    held, one = ("people", "person") if plan.by_person else ("records", "record")
    count = f"{sizes[0]} {held} each" if len(set(sizes.tolist())) == 1 else f"{sizes.min()} to {sizes.max()} {held}"
    degrees = np.asarray(graph.degrees)
    talks = f"{degrees.min()}" if degrees.min() == degrees.max() else f"{degrees.min()} to {degrees.max()}"
    numbers, always = message_size(network, priced)
    adaptive = None if plan.privacy is None else plan.privacy.adaptive
    surely = always and not plan.run.away and adaptive is None
    often = f"{priced.rounds}" if surely else f"at most {priced.rounds}"
    says = [
        f"Each party will send {often} messages of {numbers} numbers "
        f"({_bytes(priced.rounds * numbers * 8)} to each neighbour).",
    ]
    if (terms := priced.terms or sum_terms(plan, len(sizes), priced.rounds)) is not None:
        says = of_sums(terms, numbers, priced.rounds)
    lines = [
        f"{len(sizes)} parties with {count} train one {_what(plan, network)} of {network.problem.dim} parameters "
        f"by {priced.algorithm.slug}, without a server.",
        f"They talk over a {graph.kind} graph, each with {talks} others. A message reaches everybody after "
        f"{graph.describe()['diameter'] if len(sizes) <= 2000 else 'several'} hops.",
        *says,
    ]
    if plan.privacy is None or priced.spending is None:
        lines.append("The messages carry NO noise: whoever reads them learns about single records. Nothing is spent.")
    else:
        first, *others = priced.claims
        spent, budget = first.account.epsilon, np.max(np.asarray(plan.privacy.epsilon))
        against = "reads every message" if first.local else first.adversary
        lines += [
            f"Privacy: ε = {spent:.2f} of {budget:.2f} will be spent by the party that spends most, at δ = "
            f"{plan.privacy.delta:g}, by the {first.account.accountant} accountant. It covers replacing one "
            f"{one}{' with all of its records' if plan.by_person else ''}, against somebody who {against}.",
            f"For {unit_words(unit_block(plan, priced), plan.privacy.delta)}.",
            *(
                f"Another adversary, who {other.adversary}: ε = {other.account.epsilon:.2f} ({other.name})."
                for other in others
            ),
            *(
                f"{seat.name} {seat.adversary}: of another party's {one} it learns ε = "
                f"{_epsilon(seat, np.min, plan.privacy.delta):.2f} to {_epsilon(seat, np.max, plan.privacy.delta):.2f} "
                "at most."
                for seat in priced.seats
            ),
            f"Noise: {_span(priced.noise)} times what one {one} can change in a message.",
        ]
        if adaptive is not None:
            lines.append(
                f"That is as planned: the rule {adaptive!r} changes it by what was released, and no more is sent where "
                "this ε would be passed."
            )
        if plan.privacy.delta > 1 / sizes.max():
            lines.append(f"Warning: δ = {plan.privacy.delta:g} is larger than 1 in {sizes.max()}, a whole {one}.")
        if spent > 10:
            lines.append(f"Warning: ε = {spent:.3g} promises next to nothing; below 1 is strong, up to 3 is common.")
        if plan.privacy.tuned_on_private_data:
            lines.append("Warning: settings were tuned on private data; that costs more than the ε above.")
        if plan.privacy.before is not None:
            lines.append(f"Beside it: {plan.privacy.before.words(plan.privacy.delta)}.")
    lines += [f"Warning: {w}" for w in priced.warnings]
    return [*lines, *note], network, priced


def _epsilon(seat: ObserverAccount, of: Callable[[np.ndarray], float], delta: float) -> float:
    """ε of the party that the observer learns least, or most, about."""
    return seat.epsilon(of(np.delete(seat.mu, seat.observers)), delta)


def of_sums(terms: SumTerms, numbers: int, rounds: int) -> list[str]:
    """What secret sums open, to whom, what happens when a party drops out, and how many bytes they take."""
    n, t, d = terms.parties, terms.quorum, terms.dropouts
    each = bytes_per_round(terms, numbers)
    lines = [
        f"In each of {rounds} rounds one sum of {numbers} numbers over all {n} parties is opened, to everybody; nobody "
        f"sees the message of another, {_pooling(terms.colluders)}. The graph only carries "
        "words that say nothing to who passes them on.",
        f"Each party makes about {_bytes(each)} a round ({_bytes(rounds * each)} in all), and passes on what others "
        "make.",
    ]
    if not d:
        return [
            *lines,
            f"If a party drops out: all {n} must answer, so the round waits for it and nothing is opened "
            "(exchange.threshold lets some be missing).",
        ]
    more = f"{_more(terms):.0%} more noise at worst" if terms.shared else "the noise of those who answered"
    return [
        *lines,
        f"If parties drop out: up to {d} of the {n} may be missing from a round. The sum is then over those who "
        f"answered, scaled to stand for all, with {more}; the round costs every party the same. With fewer "
        f"than {t} answers nothing is opened and the round waits. A party that comes back takes part in later rounds.",
    ]


def _pooling(colluders: int) -> str:
    if colluders == 0:
        return "as long as each keeps to itself what it knows"
    if colluders == 1:
        return "as long as no two of them pool what they know"
    return f"even if {colluders} of them pool what they know"


def _more(terms: SumTerms) -> float:
    """By how much drop-outs may raise the noise of the parties' mean, in its standard deviation."""
    n = terms.parties
    mean = [math.sqrt(terms.left(r)) / (n - r) for r in range(terms.dropouts + 1)]
    return max(mean) / mean[0] - 1


def _network(plan: Plan) -> tuple[Network, list[str]]:
    source = find_source(plan.data.source)
    made_here = source.made or (source.stream is not None and plan.deploy is None)
    stated = plan.problem.dim is not None and plan.problem.loss is not None and public_sizes(plan) is not None
    if made_here or stated:
        return public_network(plan), []
    note = "The plan does not state partition.sizes, problem.loss and problem.dim: the data was read for its shape."
    return prepare(plan).network, [note]


def message_size(network: Network, priced: Priced) -> tuple[int, bool]:
    """How many numbers a message has, and whether one is sent in every round."""
    algorithm, cfg = priced.algorithm, priced.cfg
    with jax.enable_x64(True):
        place = rows(priced.places, 0)
        place = dataclasses.replace(place, start=jnp.zeros(network.problem.dim))
        out = emitted(algorithm, cfg, place, empty_shard(network.problem, place, network.problem.columns))
    message = out.message if isinstance(out, Maybe) else out
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(message)), not isinstance(out, Maybe)


def _what(plan: Plan, network: Network) -> str:
    return find_loss(plan.problem.loss or by_labels(network.problem.labels.classes)).model


def _span(values: np.ndarray) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def rehearse(plan: Plan, network: Network, priced: Priced) -> Rehearsal | None:
    """One run on synthetic patients in the plan's shape; None for losses and sizes that this cannot stand for."""
    sizes, features = network.sizes, network.problem.columns
    total = int(sizes.sum())
    if network.problem.labels is not SIGNS or features < 2 or total * features > MOST_NUMBERS:
        return None
    unlike = by_site(plan.partition.kind) or plan.deploy is not None  # then every party is a clinic of its own
    largest = 2 * int(sizes.max()) * len(sizes) if unlike else total  # the smallest clinic has half the mean size
    records = max(largest, 10 * len(sizes)) + HELD_OUT
    if records * features > MOST_NUMBERS:
        return None
    everybody = make_clinics(seed=0, sites=len(sizes), records=records, features=features)
    assert everybody.sites is not None
    targets = network.problem.encode(everybody.targets, everybody.classes)
    order = np.random.default_rng(0).permutation(len(targets))
    held, rest = order[:HELD_OUT], order[HELD_OUT:]
    if unlike:
        parts = [rest[everybody.sites[rest] == s][:n] for s, n in enumerate(sizes)]
        owned = [np.flatnonzero(everybody.sites[held] == s) for s in range(len(sizes))]
    else:
        parts = np.split(rest[:total], np.cumsum(sizes)[:-1])
        owned = np.array_split(np.arange(HELD_OUT), len(sizes))
    test = Test(everybody.features[held], targets[held])
    alone = np.arange(len(targets)) if plan.by_person else None  # made up: everybody has one record
    experiment = assemble(
        plan, network.problem, everybody.features, targets, parts, names=network.names, origins=everybody.origins,
        test=test, own_test=owned, people=alone,
    )  # fmt: skip
    trace = experiment.run(priced, [0], every=priced.rounds)
    worth = judge(experiment, trace.points, measure="accuracy").worth
    if worth is None or worth["mean"]["verdict"] is None:
        return None
    mean = worth["mean"]
    private, pooled, by_itself = mean["private"], mean["pooled"], mean["alone"]
    assert private is not None and pooled is not None and by_itself is not None  # noqa: PT018  # as there is a verdict
    return Rehearsal("accuracy", private, pooled, by_itself)


# ---- whom it is for --------------------------------------------------------------------------------------------------


def unit_block(plan: Plan, priced: Priced) -> Protects:
    """ε of the plan's budget for a record, for a person, and for a person at two parties, whichever they are."""
    assert plan.privacy is not None
    first = priced.claims[0]
    return units_of(
        paying(priced), float(first.account.epsilon), plan.privacy.delta, by_person=plan.by_person,
        summed=not first.local,
    )  # fmt: skip


def paying(priced: Priced) -> list[list[Event]]:
    """What the budget's claim charges parties that differ, the dearest first, twice if two pay it; of sums, all alike.

    Of Gaussian prices the first two: no two others cost a person more.
    """
    if priced.for_sums:
        assert priced.terms is not None
        return [[shared_events(priced.algorithm, priced.cfg, priced.places, priced.terms)[0]]]
    assert priced.spending is not None
    found: list[list[Event]] = []
    for events in _by_price(priced, priced.spending.per_agent):
        found.append(events)
        if len(found) == 2 and all(isinstance(event, Gaussian | Free) for one in found for event in one):
            break
    return found


def _by_price(priced: Priced, paid: np.ndarray) -> Iterator[list[Event]]:
    groups = alike(priced.places, np.asarray(paid, float))
    for members, place in sorted(groups, key=lambda group: -float(paid[group[0][0]])):
        events = own_events(priced.algorithm, priced.cfg, place, terms=priced.terms)
        yield from [events] * min(len(members), 2)
