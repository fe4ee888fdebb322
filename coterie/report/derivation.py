r"""What the installed code makes of a plan: the part of a certificate's check that needs more than arithmetic.

From the plan and the public facts follow settings, the noise that calibration gives, events and the assumptions' words.
No data is read: made data is made again, sizes that the plan states are compared, a graph from a file travels with the
certificate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, find
from coterie.algorithms.batches import rows
from coterie.data import find_source
from coterie.data.planned import leaks_of, public_sizes
from coterie.errors import InputError
from coterie.exchange.central import capped, own_events
from coterie.experiment import public_network
from coterie.graphs import Graph, from_outside
from coterie.losses import BY_LABELS
from coterie.losses.base import need_facts, problem_of
from coterie.network import Network, ToldSeat, links_on, seats_of
from coterie.plan import Plan, validate
from coterie.pricing import noise_of, settle
from coterie.privacy.accountants import total_mu
from coterie.privacy.calibration import TOLERANCE
from coterie.privacy.codec import Json, to_rows
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.costs import CertifiedAlgorithm, Named, OpenedSums, PublicFacts, SentAgain
from coterie.report.form import LARGEST
from coterie.report.statements import statements

__all__ = ["Refuted", "derive", "equal"]

TOO_LARGE = "the plan's made data is too large to be made again: sizes and names were not compared with it"
EVENTS = 1e-9  # relative: how far two machines may differ in the last digits of an event, or of noise in closed form


class Refuted(Exception):
    """The certificate is wrong; the message names the first field and what was expected."""


class DerivedAgents(TypedDict):
    """What agents in like places have and pay."""

    neighbours: int
    events: list[dict[str, Json]]


class Derived(TypedDict):
    """What follows from a plan: the parts of a certificate."""

    algorithm: CertifiedAlgorithm
    statements: list[dict[str, str]]
    seed: int
    warnings: list[str]
    agents: list[DerivedAgents]
    central: OpenedSums | None
    cap: SentAgain | None
    alone: Named | None
    observers: list[ToldSeat]


@lru_cache(maxsize=64)
def derive(inputs: bytes) -> Derived | str:
    """What the installed code makes of the inputs, or what is wrong with them."""
    given = json.loads(inputs)
    try:
        plan = validate(given["plan"], foreign=True)
        equal("plan", given["plan"], plan.as_json(), 0.0)
        sizes, noise = np.zeros(given["public"]["agents"], int), np.zeros(given["public"]["agents"])
        for members, records, multiplier, *_ in given["agents"]:
            for first, last in members:
                sizes[first : last + 1], noise[first : last + 1] = records, multiplier
        secure = given["noise"] == c.SECURE
        network = _network(plan, given["public"], sizes, secure)
        algorithm = find(plan.algorithm.name)
        if secure:
            algorithm = _deployed(plan, algorithm)
        if (plan.run.rounds or 0) > LARGEST:
            raise Refuted(f"plan.run.rounds: {plan.run.rounds} is more than is checked here")
        settled = settle(plan, network, algorithm)
        with jax.enable_x64(True):
            places = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, float)), settled.places)
            places = eqx.tree_at(lambda p: p.noise, places, jnp.asarray(noise))
        found, terms = (None, None) if plan.privacy is None else noise_of(plan, settled)
        agents: list[DerivedAgents] = []
        for k, (members, _, _, rounds, again) in enumerate(given["agents"]):
            everyone = np.concatenate([np.arange(first, last + 1) for first, last in members])
            facts = [places.count, places.degree, places.self_weight, places.unit]
            facts += [own for own in (places.present, places.shape) if own is not None and np.ndim(own) == 2]
            if any(np.max(np.ptp(np.asarray(fact)[everyone], axis=0)) > 1e-12 for fact in facts):
                raise Refuted(f"agents[{k}].members: these agents stand in different places")
            if rounds > settled.rounds:
                raise Refuted(f"agents[{k}].rounds: the plan has {settled.rounds}, got {rounds}")
            events = own_events(algorithm, settled.cfg, rows(places, int(everyone[0])), rounds, terms=terms)
            spent = to_rows(capped(events, again))
            agents.append({"neighbours": int(network.graph.degrees[everyone[0]]), "events": spent})
        if found is not None:  # noise that is searched for is known to the search's tolerance
            searched = secure or plan.exchange.central
            for k, (members, _, multiplier, *_) in enumerate(given["agents"]):
                closed = not searched and total_mu(c.decode(agents[k]["events"])) is not None
                made, near = float(found[members[0][0]]), EVENTS if closed else TOLERANCE
                equal(f"agents[{k}].noise_multiplier", multiplier, made, near)
        most = max(rounds for *_, rounds, _ in given["agents"])
        central, cap = c.shared(plan, algorithm, settled.cfg, places, terms, most)
        own = c.alone(plan, algorithm, settled.cfg, places, most)
        watched = seats_of(plan, network, algorithm, settled.cfg, places)
    except Exception as error:  # a plan that nobody has run yet may fail in any way
        return str(error) if isinstance(error, InputError | Refuted) else f"plan: cannot be derived: {error!r}"
    settings = sealing.lossless(settled.cfg.model_dump(mode="json"))
    said = statements(
        plan, network.problem, algorithm, settled.cfg, network.leaks, noise=given["noise"], terms=terms
    )  # fmt: skip
    return {
        "algorithm": {"name": algorithm.slug, "rounds": settled.rounds, "settings": settings},
        "statements": [one._asdict() for one in said],
        "seed": plan.run.seed,
        "warnings": [TOO_LARGE] if find_source(plan.data.source).made and _too_large(plan) else [],
        "agents": agents,
        "central": central,
        "cap": cap,
        "alone": own,
        "observers": [seat.as_json(plan.privacy.delta) for seat in watched if plan.privacy is not None],
    }


def _network(plan: Plan, public: PublicFacts, sizes: np.ndarray, secure: bool) -> Network:
    """The public side as the certificate states it, compared with the plan where the plan states or makes it."""
    own = public_sizes(plan)
    if own is not None and own.tolist() != sizes.tolist():
        raise Refuted(f"agents.records: the plan's sizes are {own.tolist()[:20]}, not {sizes.tolist()[:20]}")
    if public["loss"] not in ((plan.problem.loss,) if plan.problem.loss else BY_LABELS):
        raise Refuted(f"public.loss: the plan says {plan.problem.loss or 'that the labels decide'}")
    if plan.problem.dim not in (None, public["features"]):
        raise Refuted(f"public.features: the plan says {plan.problem.dim}")
    if public["classes"] is not None and plan.problem.classes not in (None, public["classes"]):
        raise Refuted(f"public.classes: the plan says {plan.problem.classes}")
    source = find_source(plan.data.source)
    if source.made and not _too_large(plan):
        made = public_network(plan)
        facts = c.facts(plan, made)
        equal("public", public, facts, 0.0)
        equal("agents.records", sizes.tolist(), made.sizes.tolist(), 0.0)
    if secure or not source.tells:  # a store says it for itself; a deployed party reads nothing
        equal("public.leaks", public["leaks"], [] if secure else list(leaks_of(plan)), 0.0)
    problem = problem_of(plan, public["loss"], public["features"], public["classes"] or 1)
    need_facts(problem, problem.columns)
    stated: Mapping[str, object] = public
    for name, value in c.shape(plan, problem).items():
        equal(f"public.{name}", stated[name], value, 0.0)
    links = links_on(plan, _graph(plan, public))
    names = tuple(public["names"] or (f"agent {i}" for i in range(len(sizes))))
    if secure and plan.deploy is not None:
        equal("public.names", list(names), [party.shown for party in plan.deploy.parties], 0.0)
    return Network(*links, problem, sizes, names, leaks=tuple(public["leaks"]))


def _too_large(plan: Plan) -> bool:
    """Whether made data has too many numbers to be made again."""
    numbers = [plan.data.options.get(name, 1) for name in ("records", "features")]
    whole = [number for number in numbers if isinstance(number, int)]
    return len(whole) == len(numbers) and math.prod(whole) > 4 * LARGEST


def _graph(plan: Plan, public: PublicFacts) -> Graph:
    size = public["agents"]
    if from_outside(plan.graph.kind) != (public["edges"] is not None):
        raise Refuted("public.edges: listed for graphs from a file, and only for those")
    if public["edges"] is None:
        return plan.graph.graph(size)
    edges = [tuple(edge) for edge in public["edges"]]
    if edges != sorted(set(edges)) or not all(0 <= i < j < size for i, j in edges):
        raise Refuted(f"public.edges: expected sorted pairs i < j < {size}, each once")
    return Graph(size, np.array(edges), plan.graph.kind)


def _deployed(plan: Plan, algorithm: Algorithm) -> Algorithm:
    """The algorithm at the price of its deployed form; refuses a plan that no party would run."""
    from coterie.deploy.noise import on_grid
    from coterie.deploy.party import Terms

    Terms.check(plan)
    return algorithm if plan.exchange.central else on_grid(algorithm)  # shared noise is priced on its grid already


# ---- comparing -------------------------------------------------------------------------------------------------------


def equal(where: str, got: object, expected: object, tolerance: float) -> None:
    """Two trees of plain data with the same keys, types and values; numbers may differ by a relative tolerance."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in (*expected, *got):
            if name not in got or name not in expected:
                raise Refuted(f"{where}.{name}: {'missing' if name not in got else 'unknown'}")
            equal(f"{where}.{name}", got[name], expected[name], tolerance)
    elif isinstance(expected, list) and isinstance(got, list):
        if len(got) != len(expected):
            raise Refuted(f"{where}: expected {len(expected)} entries, got {len(got)}")
        for k, (one, other) in enumerate(zip(got, expected, strict=True)):
            equal(f"{where}[{k}]", one, other, tolerance)
    elif not _close(got, expected, tolerance):
        raise Refuted(f"{where}: expected {expected!r}, got {got!r}")


def _close(got: object, expected: object, tolerance: float) -> bool:
    if isinstance(got, bool) or isinstance(expected, bool) or not isinstance(expected, float):
        return type(got) is type(expected) and got == expected
    return isinstance(got, int | float) and abs(got - expected) <= tolerance * abs(expected)
