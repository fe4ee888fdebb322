"""What `cost` declares about the rounds of transcripts, in the units in which coupling measures: noise for noise.

A Gaussian event lets the noises of the two worlds lie μ apart (Euclidean), a pure one lets the logarithm of the
likelihood change by ε: for Laplace noise the sum of the absolute shifts, for L2 Laplace noise their length, for noise
inside an objective also the change of volume. What a random batch or mask earns is not counted here: coins and masks
are the same in both worlds (`coterie.audit.coupling`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.audit.coupling import TwoWorlds
from coterie.audit.setting import Setting
from coterie.privacy.events import (
    Event,
    Gaussian,
    L2Laplace,
    Laplace,
    ObjectivePerturbation,
    Pure,
    SampledGaussian,
    SparseVector,
    flat,
)

E = TypeVar("E", bound=Event)
PIECE = 24  # transcripts that are priced at once, so that one compiled program serves any number of them

__all__ = ["Declared", "Limits", "declare", "limits", "told"]


@dataclass(frozen=True)
class Limits:
    """What one round is allowed to tell, if it is charged at all."""

    gaussian: float  # root of the sum of the squares of its Gaussian events
    pure: float  # sum of its pure events
    volume: float  # change of logarithmic volume that objective perturbation allows for beside them
    test: float  # how far the test that lets an agent speak may move, in units of its noise
    tested: float  # how often that is charged
    query: float  # scale of the noise on the test's query; NaN: no test
    bar: float  # scale of the noise on its threshold, drawn once for all rounds; NaN: it has none
    positives: float  # how often the agent may speak in all
    inside: bool  # noise enters an objective: its scale on the message depends on the records, as declared
    paid: float  # how often it is charged: 0 in a round that reads no data
    scale: float  # least scale of continuous noise that it declares on a number that is sent; NaN: none
    rate: float  # share of the records in a batch; NaN: no batch


@dataclass(frozen=True)
class Declared:
    """The limits of every round of every transcript, as arrays (transcript, round) by name, and the events."""

    events: list[list[list[Event]]]  # [transcript][round]; rounds that are charged alike are one object
    arrays: dict[str, np.ndarray]

    def distinct(self) -> list[list[list[Event]]]:
        """Transcripts whose charges differ, one of each."""
        return list({tuple(map(id, events)): events for events in self.events}.values())

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None


def declare(setting: Setting, messages: PyTree) -> Declared:
    """What `cost` says of each message, which may carry its price (a batch size) with it."""
    messages = jax.tree.map(np.asarray, messages)
    count, rounds = jax.tree.leaves(messages)[0].shape[0], range(setting.place.rounds)
    with jax.enable_x64(True):
        parts = [
            _costs(setting.algorithm, setting.cfg, setting.place, jax.tree.map(lambda x: x[k : k + PIECE], messages))  # noqa: B023
            for k in range(0, count, PIECE)
        ]
    whole = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    leaves, structure = jax.tree.flatten(whole)
    flat_bytes = [np.ascontiguousarray(x).reshape(count * len(rounds), -1).view(np.uint8) for x in leaves]
    one_each = np.concatenate(flat_bytes, axis=1)  # what a round of a transcript is charged, as bytes
    _, first, which = np.unique(one_each.view(f"V{one_each.shape[1]}").ravel(), return_index=True, return_inverse=True)
    places = [np.unravel_index(k, (count, len(rounds))) for k in first]
    made = [list(jax.tree.unflatten(structure, [x[at] for x in leaves])) for at in places]
    found = [limits(setting, events) for events in made]
    which = which.reshape(count, len(rounds))
    names = Limits.__dataclass_fields__
    arrays = {name: np.array([getattr(l, name) for l in found])[which] for name in names}
    return Declared([[made[k] for k in row] for row in which], arrays)


@eqx.filter_jit
def _costs(algorithm: Algorithm, cfg: Config, place: Place, messages: PyTree) -> tuple[Event, ...]:
    """The events of every message, (transcript, round)."""

    def cost(t: Array, message: PyTree) -> tuple[Event, ...]:
        events = algorithm.cost(cfg, place, t, message)
        return events if isinstance(events, tuple) else (events,)

    return jax.vmap(jax.vmap(cost), (None, 0))(jnp.arange(place.rounds), messages)


def limits(setting: Setting, events: list[Event]) -> Limits:
    """The limits of a round from its events; a test's event is the first where the algorithm tests before it speaks."""
    tests = "test" in setting.algorithm.draws(setting.cfg, setting.place)
    test, rest = (events[0], events[1:]) if tests and len(events) > 1 else (None, events)
    far = [_distance(e) for e in rest]
    kappa = [float(np.max(o.jacobian())) for e in rest if isinstance(o := _once(e), ObjectivePerturbation)]
    vector = _once(test) if isinstance(test, SparseVector) else None
    moved = 0.0 if test is None else _distance(test) or _pure(test)
    if vector is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = float(np.max(np.nan_to_num(vector.sensitivity / vector.query, nan=0.0, posinf=np.inf)))
    charged = [e for e in rest if np.any(np.asarray(e.times) > 0)]
    scales = [s for e in charged if (s := _scale(e)) is not None]
    rates = [float(np.max(e.rate)) for e in charged if isinstance(e, SampledGaussian)]
    return Limits(
        gaussian=float(np.sqrt(sum(d**2 for d in far if d is not None))),
        pure=float(sum(_pure(e) for e in rest)),
        volume=float(sum(kappa)),
        test=float(moved),
        tested=0.0 if test is None else float(np.sum(np.asarray(test.times))),
        query=np.nan if test is None else float(np.min(vector.query)) if vector is not None else _scale(test) or np.nan,
        bar=np.nan if vector is None else float(np.min(vector.threshold)),
        positives=np.inf if vector is None else float(np.max(vector.positives)),
        inside=any(isinstance(e, ObjectivePerturbation | Pure) for e in rest),
        paid=float(sum(np.sum(np.asarray(e.times)) for e in rest)),
        scale=min(scales, default=np.nan),
        rate=max(rates, default=np.nan),
    )


def told(setting: Setting, coupled: TwoWorlds) -> tuple[np.ndarray, np.ndarray]:
    """(Gaussian distance, change of log-likelihood) of every round of every transcript."""
    laws = setting.algorithm.draws(setting.cfg, setting.place)
    square, loss = np.zeros(coupled.sent.shape), np.zeros(coupled.sent.shape)
    for name, shift in coupled.shift.items():
        by = np.asarray(shift)
        if laws[name].name == "normal":
            square += np.sum(by**2, axis=2)
        else:
            loss += np.sum(np.abs(by), axis=2) if laws[name].name == "laplace" else np.linalg.norm(by, axis=2)
    return np.sqrt(square), loss


def _once(event: E) -> E:
    """The event as if it were charged once, whatever its `times` say, in its flat form."""
    return flat(eqx.tree_at(lambda e: e.times, event, np.ones_like(np.asarray(event.times), float)))


def _distance(event: Event) -> float | None:
    """How far apart, in noise, an event lets the worlds be; None: it bounds the likelihood ratio instead (`_pure`)."""
    one = _once(event)
    if isinstance(one, ObjectivePerturbation):
        return float(np.max(one.gaussian_part()))
    if np.all(np.isfinite(one.pure())):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        square = 2 * np.nan_to_num(np.asarray(one.zcdp(), float), nan=np.inf, posinf=np.inf)
    return float(np.sqrt(np.max(square)))


def _pure(event: Event) -> float:
    """The pure ε of one charge; 0 for an event that is accounted by its Gaussian distance."""
    return float(np.max(_once(event).pure())) if _distance(event) is None else 0.0


def _scale(event: Event) -> float | None:
    """The scale of the continuous noise that an event declares on a number that is sent, if it declares one."""
    if isinstance(event, Gaussian):
        return float(event.sigma)
    if isinstance(event, Laplace | L2Laplace):
        return float(1 / event.rate) if event.rate > 0 else np.inf
    return None
