"""A plan audited from the seat of some of its parties: what they learn of the others, near and far.

One party at every distance up to five, and the farthest, is attacked. What is claimed of it is the plan's own account
of these observers, where one is proved; else what is claimed against a reader of every message. Beside it stands what
the matrix-factorisation account would claim, which is no claim of ours for learning: it shows where that fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from coterie.algorithms.batches import rows
from coterie.audit.observers import BATCH, Vantage, Witnessed, attack, glance, record_pair
from coterie.audit.planned import problem_in_two, read_for_audit
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.graphs import Graph
from coterie.network import Network
from coterie.pricing import Priced
from coterie.privacy.accountants import total_mu
from coterie.privacy.gdp import epsilon_of
from coterie.privacy.observers import factorised, view

__all__ = ["FromSeat", "from_seat"]

NUMBERS = 400  # in a view that is scored: rounds beyond it are left out, which weakens no bound
HOPS = 5  # distances at which somebody is attacked, and the farthest
MOST_RECORDS = 200  # that a party holds in an audit


@dataclass(frozen=True)
class FromSeat:
    """What the observers learn of one party: claimed at most, and proved at least."""

    observers: str
    party: str
    distance: int
    claimed: float  # μ
    against: str  # whom the claim is against
    formula: float | None  # μ of the unproved account, where it says something
    seen: Witnessed
    rounds: str
    delta: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is: the bound holds at its confidence whatever the score."""
        return self.seen.mu > self.claimed

    @property
    def formula_refuted(self) -> bool:
        """Whether the account that is not proved is."""
        return self.formula is not None and self.seen.mu > self.formula

    def as_json(self) -> dict[str, object]:
        """For audit.json."""
        ε = lambda mu: float(epsilon_of(mu, self.delta)) if mu else 0.0  # noqa: E731
        return {
            "observers": self.observers, "party": self.party, "distance": self.distance, "delta": self.delta,
            "claimed_mu": self.claimed, "claimed_epsilon": ε(self.claimed), "adversary": self.against,
            "formula_epsilon": None if self.formula is None else ε(self.formula),
            "mu_at_least": self.seen.mu, "epsilon_at_least": ε(self.seen.mu), "mu_estimate": self.seen.estimate,
            "trials": self.seen.trials, "confidence": self.seen.confidence, "rounds": self.rounds,
            "refuted": self.refuted, "formula_refuted": self.formula_refuted,
        }  # fmt: skip


def from_seat(
    path: Path, names: list[str], trials: int | None, report: Callable[[float], None] = lambda share: None
) -> list[FromSeat]:  # fmt: skip
    """Attack one party at every distance from the named parties, who pool what they see."""
    plan, network, priced = read_for_audit(path)
    assert plan.privacy is not None
    if plan.exchange.kind != "broadcast":
        raise InputError(f"--observer looks at messages between neighbours: {path} uses {plan.exchange.kind!r}")
    own = tuple(sorted({network.number(name.strip(), "--observer") for name in names}))
    if len(own) == network.graph.size:
        raise InputError("--observer names every party: there is nobody left to look at")
    problem = problem_in_two(plan, network)
    everything = priced.algorithm.against is not None
    heard = network.graph.size if everything else len(set(own).union(*(network.graph.neighbours(o) for o in own)))
    rounds = max(1, min(priced.rounds, NUMBERS // (heard * problem.dim)))
    claims, words = _claims(priced, network, own)
    clip = priced.algorithm.clips(priced.cfg)
    pair, found = record_pair(problem, clip), []
    chosen = _by_distance(network.graph, own)
    chosen = chosen if len(chosen) <= HOPS + 1 else [*chosen[:HOPS], chosen[-1]]
    weights = network.mixing.dense()
    for k, (distance, party) in enumerate(chosen):
        report(k / len(chosen))
        seat = Vantage(
            priced.algorithm, priced.cfg, problem, network.graph, network.mixing,
            min(int(network.sizes.min()), MOST_RECORDS), rounds, priced.noise, own, party, pair,
            shape=priced.shape[:rounds], ridge=plan.ridge, weighting=plan.weighting, everything=everything,
        )  # fmt: skip
        nothing = (
            np.zeros_like(np.asarray(pair[0][0], float)),
            pair[0][1],
        )  # others react in another way, or not at all
        still = dataclasses.replace(seat, others=dict.fromkeys(range(network.graph.size), (nothing,)))
        seat = max(seat, still, key=glance)
        seen = attack(seat, pilot=_pilots(heard * rounds * problem.dim), trials=trials or 5 * BATCH)
        found.append(
            FromSeat(
                " + ".join(network.names[o] for o in own), network.names[party], distance, float(claims[party]), words,
                _formula(priced, weights, own, party), seen,
                f"{rounds}" if rounds == priced.rounds else f"{rounds} of {priced.rounds}", plan.privacy.delta,
            )
        )  # fmt: skip
    return found


def _pilots(numbers: int) -> int:
    """Runs from which a filter of so many numbers is fitted: whole batches, thirty to each number."""
    return BATCH * max(1, round(30 * numbers / BATCH))


def _claims(priced: Priced, network: Network, own: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """μ of every party that the plan claims against these observers, or against a reader of every message."""
    if priced.algorithm.observed is not None:
        try:
            with jax.enable_x64(True):
                words, mu = priced.algorithm.observed(
                    priced.cfg, priced.places, network.problem, network.graph, network.mixing.dense(), own
                )  # fmt: skip
            return mu, words
        except InputError:
            pass  # nothing is proved of them: they see no more than a reader of all
    local = [
        total_mu(run_events(priced.algorithm, priced.cfg, rows(priced.places, i))) for i in range(network.graph.size)
    ]
    if any(mu is None for mu in local):
        raise InputError(f"--observer scores Gaussian claims, and {priced.algorithm.slug} makes another")
    return np.array(local, float), priced.claims[0].adversary


def _formula(priced: Priced, weights: np.ndarray, own: tuple[int, ...], party: int) -> float | None:
    """μ of the matrix-factorisation account for gradient descent with noise in every round; None elsewhere."""
    cfg = priced.cfg
    descends = priced.algorithm.slug == "dp-dsgd" and not cfg.momentum and cfg.mixing == 1 and cfg.batch is None  # type: ignore[attr-defined]
    if not descends or weights.shape[0] * priced.rounds > 4000:
        return None
    with jax.enable_x64(True):
        assert priced.algorithm.sensitivity is not None
        shift = np.broadcast_to(np.asarray(priced.algorithm.sensitivity(cfg, priced.places, 0)), len(weights))
    scale = (priced.noise * shift)[:, None] * priced.shape
    return factorised(view(weights, own), party, np.full(priced.rounds, shift[party]), scale)


def _by_distance(graph: Graph, own: tuple[int, ...]) -> list[tuple[int, int]]:
    """(distance, the first party at it), from near to far."""
    reached, front, out, distance = set(own), set(own), [], 0
    while front:
        front = {int(j) for i in front for j in graph.neighbours(i)} - reached
        distance += 1
        if front:
            out.append((distance, min(front)))
        reached |= front
    return out
