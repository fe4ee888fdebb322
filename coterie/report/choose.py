"""The table that helps to choose an algorithm: what a run costs a party, where it runs, what it guarantees.

Nothing is written by hand: a module's flags say what it needs, `emit` how large its messages are, `cost` what they are
charged as, its errata what its paper got wrong. Rounds and sizes are those of the embedded plan, or of a complete
graph where an algorithm needs one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax

from coterie.algorithms.base import Algorithm, all_algorithms
from coterie.algorithms.batches import rows
from coterie.experiment import prepare
from coterie.explain import message_size
from coterie.network import Network
from coterie.plan import Plan, read_plan
from coterie.pricing import settle
from coterie.privacy.events import Event, Gaussian
from coterie.report.markdown import code, table

__all__ = ["choose"]

NOISE = {
    "DeadlineGaussian": "Gaussian, batches by deadline",
    "Gaussian": "Gaussian",
    "L2Laplace": "L2 Laplace",
    "Laplace": "Laplace",
    "LaplaceUniform": "Laplace and uniform",
    "MaskedGaussian": "Gaussian on some coordinates",
    "ObjectivePerturbation": "in the local objective",
    "SampledGaussian": "Gaussian, random batches",
    "SparseVector": "private test",
}


def choose() -> str:
    """Every private algorithm: local work, messages, graphs, noise, guarantee, errata."""
    header = ("name", "work a round", "messages", "graph", "noise", "guarantee", "secret sums", "printed guarantee")
    return table(header, [_row(a) for a in all_algorithms().values() if a.private])


@cache
def _embedded(graph: str) -> tuple[Plan, Network]:
    plan = read_plan(Path("clinics"), [f"graph.kind={graph}"])
    return plan, prepare(plan).network


def _row(algorithm: Algorithm) -> tuple[str, ...]:
    graphs = algorithm.graphs
    kind = graphs[0] if graphs else "ring"
    plan, network = _embedded(kind)
    settled = settle(plan, network, algorithm, algorithm.config())
    numbers, always = message_size(network, settled)
    with jax.enable_x64(True):
        place = rows(settled.places, 0)
        events = jax.eval_shape(lambda t: algorithm.cost(settled.cfg, place, t, None), 0)
    kinds = [type(e) for e in (events if isinstance(events, tuple) else (events,))]
    pure = all(k.pure is not Event.pure for k in kinds)
    broken = any(e.severity == "privacy" for e in algorithm.errata)
    return (
        f"[{code(algorithm.slug)}](algorithms.md#{algorithm.slug})",
        "solves a small problem" if algorithm.solves else "a gradient",
        f"{'' if always else 'up to '}{settled.rounds} × {numbers}",
        " or ".join(graphs) or "any",
        ", ".join(dict.fromkeys(NOISE[k.__name__] for k in kinds)),
        "ε alone possible" if pure else "(ε, δ)",
        _sums(algorithm, kinds),
        f"[wrong](errata.md#{algorithm.slug})" if broken else "",
    )


def _sums(algorithm: Algorithm, kinds: list[type[Event]]) -> str:
    """Whether it runs over secret sums, and whether there is a claim for noise that parties share: it is Gaussian."""
    if algorithm.reads == "individuals":
        return ""
    return "yes, shared noise" if algorithm.reads == "total" and kinds == [Gaussian] else "yes"
