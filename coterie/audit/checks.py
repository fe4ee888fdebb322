"""Checks that need no statistics, or little: from one piece of transcripts of each world and their explanations.

- `replay`: the same draws on neighbouring records change neither who speaks nor any number that is not noised, and
  given the same messages so far the worlds differ by no more than the declared event allows;
- `noise`: what was added has the declared scale (χ²), is fresh in every round, coordinate and run, and is no float32;
- `ledger`: every message of a recorded run can be charged to the plan, and at no time have the messages told more
  about the record than has been charged;
- `answer`: what is handed out in the end is a function of the messages;
- `sampling`: a record is used no more often than the declared rate says;
- `driver`: no two agents, rounds or runs of a simulation share a draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.stats import beta, chi2, gamma

from coterie.algorithms.base import Algorithm, Config
from coterie.audit.audit import PIECE, Watched, find_attack, watch
from coterie.audit.setting import Attack, Setting
from coterie.audit.transcripts import IMPOSSIBLE, Transcripts, play
from coterie.privacy.accountants import account
from coterie.privacy.events import (
    Event,
    Gaussian,
    L2Laplace,
    Laplace,
    MaskedGaussian,
    ObjectivePerturbation,
    Pure,
    SampledGaussian,
    flat,
)
from coterie.privacy.filter import BudgetExceeded
from coterie.privacy.ledger import Budget, MemoryLedger

__all__ = ["CHECKS", "Evidence", "Finding", "answer", "driver", "gather", "ledger", "noise", "replay", "sampling"]

CLOSE = 1e-6
RARE = 1e-5  # how rarely a check that uses statistics may find fault with correct code


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    check: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Evidence:
    """One piece of transcripts of each world, and the same draws in both."""

    setting: Setting
    attack: Attack
    watched: tuple[Watched, Watched]
    twins: tuple[Transcripts, Transcripts]

    @property
    def explained(self) -> bool:
        """Whether the transcripts have an exact explanation."""
        return self.watched[0].told is not None


def gather(setting: Setting, attack: Attack | None = None, seed: int = 0) -> Evidence:
    """Play what the checks look at, with the strongest attack unless one is given."""
    if attack is None:
        attack, watched = find_attack(setting, seed)
    else:
        watched = watch(setting, attack, 0, seed=seed), watch(setting, attack, 1, seed=seed)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), PIECE)  # those of watched[0]
        other = attack.worlds(setting)[1]
        args = (setting.algorithm, setting.cfg, attack.place(setting))
        twin = play(*args, other, attack.environment(), keys)
    return Evidence(setting, attack, watched, (watched[0].seen, twin))


# ---- what is declared ------------------------------------------------------------------------------------------------


def charges(setting: Setting, seen: Transcripts, transcript: int = 0) -> list[list[Event]]:
    """The events of every round of one transcript, as `cost` declares them for the messages that were sent."""
    out = []
    with jax.enable_x64(True):
        for t in range(setting.place.rounds):
            message = jax.tree.map(lambda x: x[transcript, t], seen.messages)  # noqa: B023
            events = setting.algorithm.cost(setting.cfg, setting.place, np.asarray(t), message)
            events = events if isinstance(events, tuple) else (events,)
            out.append([jax.tree.map(np.asarray, e) for e in events])
    return out


def _distance(event: Event) -> float | None:
    """How far apart (in noise) an event lets the worlds be, if its noise is Gaussian."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if isinstance(event, Gaussian | MaskedGaussian):
            return float(np.nan_to_num(event.sensitivity / event.sigma, nan=0.0, posinf=np.inf))
        if isinstance(event, SampledGaussian):
            return float(1 / event.noise_multiplier)
        if isinstance(event, ObjectivePerturbation):
            return float(event.gradient / event.sigma)
    return None


def _pure(event: Event) -> float:
    once = flat(event)
    return float(np.sum(once.pure())) if once.times.size else 0.0


def _scale(event: Event) -> float | None:
    """The declared scale of the noise."""
    if isinstance(event, Gaussian | MaskedGaussian | ObjectivePerturbation):
        return float(event.sigma)
    if isinstance(event, Laplace | L2Laplace):
        return float(1 / event.rate)
    return None


def _noising(events: list[Event], inside: bool) -> Event:
    """The event of a round that stands for the noise on the message; for one inside an objective, that objective's.

    An event that is not charged in this round counts only where no other does (part of an epoch that was charged when
    it began, or a release booked earlier).
    """
    fit = [e for e in events if isinstance(e, ObjectivePerturbation | Pure) == inside] or events
    return ([e for e in fit if np.any(np.asarray(e.times) > 0)] or fit)[0]


def _inside(watched: Watched, t: int) -> bool:
    assert watched.told is not None
    return bool(np.any(watched.told[0].inside[:, t]))


def _edges(watched: Watched) -> np.ndarray:
    """By how much the draws differ that would have let the agent speak in the two worlds: (transcript, round)."""
    one, two = (np.asarray(t.edge) for t in watched.told)  # type: ignore[union-attr]
    both = np.isfinite(one) & np.isfinite(two)
    return np.abs(np.where(both, one, 0.0) - np.where(both, two, 0.0))


# ---- the checks ------------------------------------------------------------------------------------------------------


def replay(evidence: Evidence) -> Finding:
    """Same draws, neighbouring records: the same control flow and sizes; same messages: a gap within the declared."""
    setting, (one, two) = evidence.setting, evidence.twins
    if "test" not in one.draws and not np.array_equal(one.sent, two.sent):
        return Finding("replay", False, "whether the agent speaks depends on the record")
    for a, b in zip(jax.tree.leaves(one.messages), jax.tree.leaves(two.messages), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return Finding("replay", False, "the message's shape depends on the record")
        first = a[:, 0].reshape(len(a), -1)
        differs = np.any(np.abs(first - b[:, 0].reshape(len(b), -1)) > CLOSE * (1 + np.abs(first)))
        if differs and len(np.unique(first, axis=0)) < len(first) // 2:
            return Finding("replay", False, "a number that carries no noise depends on the record")
    if not evidence.explained:
        return Finding("replay", True, "same control flow and sizes; no exact explanation of the noise")
    largest = 0.0
    declared = charges(setting, one)
    for watched in evidence.watched:
        weights = np.asarray(watched.told[1].weight) - np.asarray(watched.told[0].weight)  # type: ignore[index]
        gaps, edges = np.linalg.norm(watched.apart, axis=2), _edges(watched)
        if np.any(np.abs(weights) > IMPOSSIBLE / 2):
            t = int(np.argmax(np.abs(weights).max(0)))
            return Finding("replay", False, f"round {t}: a message that carries no noise tells the worlds apart")
        for t, events in enumerate(declared):
            if tests := [_distance(e) or 0.0 for e in events if isinstance(e, Gaussian)] if edges.any() else []:
                moved = float(edges[:, t].max())
                if moved > max(tests) * (1 + CLOSE) + CLOSE:
                    return Finding("replay", False, f"round {t}: the test moves by {moved:.4g} of its noise, declared "
                                                    f"{max(tests):.4g}")  # fmt: skip
            event = _noising(events, _inside(watched, t))
            distance = _distance(event)
            limit = _pure(event) if distance is None else distance
            seen = float(np.max(np.abs(weights[:, t]) if distance is None else gaps[:, t]))
            largest = max(largest, seen / limit if limit > 0 else (0.0 if seen <= CLOSE else np.inf))
            if seen > limit * (1 + CLOSE) + CLOSE:
                return Finding("replay", False, f"round {t}: the worlds are {seen:.4g} apart, declared {limit:.4g}")
    return Finding("replay", True, f"at most {largest:.3f} of the declared gap")


def noise(evidence: Evidence) -> Finding:
    """The noise that was added has at least the declared scale, and is fresh."""
    if not evidence.explained:
        return Finding("noise", True, "no exact explanation of the noise")
    if (t := _bare(evidence)) is not None:
        return Finding("noise", False, f"round {t} is charged as noised, but none of its draws is in the message")
    standard = _standardised(evidence)  # (transcript, round, number); NaN where no scale is declared
    kinds = evidence.setting.laws
    rows = standard[~np.isnan(standard).any(axis=2)]
    if not rows.size:
        return Finding("noise", True, "no scale is declared")
    if "normal" in kinds:
        ratio, p = np.sqrt(np.mean(rows**2)), chi2.cdf(np.sum(rows**2), rows.size)
    else:
        size = np.abs(rows) if "laplace" in kinds else np.linalg.norm(rows, axis=1)
        ratio, p = np.sum(size) / rows.size, gamma.cdf(np.sum(size), rows.size)
    if p < RARE:
        return Finding("noise", False, f"the noise is {ratio:.3f} times the declared, p = {p:.1g}")
    if (why := _stale(standard)) is not None:
        return Finding("noise", False, why)
    found = np.concatenate([np.asarray(w.told[k].noise) for k, w in enumerate(evidence.watched)])  # type: ignore[index]
    found = found[found != 0]
    off = np.abs(found - found.astype(np.float32)) / np.spacing(np.abs(found.astype(np.float32)))
    if np.mean(off < 0.01) > 0.5:
        return Finding("noise", False, "the noise takes float32 values only: its support tells the worlds apart")
    return Finding("noise", True, f"{ratio:.3f} times the declared scale over {rows.size} numbers")


def _bare(evidence: Evidence) -> int | None:
    """A round that declares noise and has none, if there is one."""
    watched = evidence.watched[0]
    entered = np.any(np.asarray(watched.told[0].scale) != 0, axis=2)  # type: ignore[index]
    if "mask" in watched.seen.draws:
        return None  # a message may have no coordinate at all
    for t, events in enumerate(charges(evidence.setting, watched.seen)):
        event = _noising(events, _inside(watched, t))
        if (
            np.any(np.asarray(event.times) > 0)
            and (_scale(event) or 0) > 0
            and np.any(~entered[:, t] & np.asarray(watched.seen.sent)[:, t])
        ):
            return t
    return None


def _standardised(evidence: Evidence) -> np.ndarray:
    parts = []
    for k, watched in enumerate(evidence.watched):
        told, seen = watched.told[k], watched.seen  # type: ignore[index]
        value, scale = np.asarray(told.noise), np.asarray(told.scale)
        if "weight" in seen.draws:
            blur = np.asarray(seen.draws["weight"]).reshape(value.shape) * np.asarray(told.width)
            value = value - blur / np.where(scale == 0, 1.0, scale)
        out = np.full(value.shape, np.nan)
        for t, events in enumerate(charges(evidence.setting, seen)):
            declared = _scale(_noising(events, _inside(watched, t)))
            if not declared:
                continue
            keep = evidence.setting.cfg.keep if hasattr(evidence.setting.cfg, "keep") else 1.0  # sent divided by it
            entered = np.all(scale[:, t] != 0, axis=1) & np.asarray(seen.sent)[:, t]
            out[entered, t] = (value * scale)[entered, t] * keep / declared
        parts.append(out)
    return np.concatenate(parts)


def _stale(standard: np.ndarray) -> str | None:
    """Why the noise is not fresh, if it is not."""
    pairs = {
        "from round to round": (standard[:, 1:], standard[:, :-1]),
        "from coordinate to coordinate": (standard[:, :, 1:], standard[:, :, :-1]),
        "from run to run": (standard[1:], standard[:-1]),
    }
    for where, (a, b) in pairs.items():
        both = ~np.isnan(a) & ~np.isnan(b)
        if both.sum() < 50:
            continue
        x, y = a[both], b[both]
        correlation = np.sum(x * y) / np.sqrt(np.sum(x**2) * np.sum(y**2))
        if abs(correlation) > 6 / np.sqrt(len(x)) + 0.02:
            return f"the noise repeats {where}: correlation {correlation:.2f}"
    return None


def ledger(evidence: Evidence) -> Finding:
    """Every message of a recorded run fits the plan, and at no time was more told than charged."""
    setting, seen = evidence.setting, evidence.twins[0]
    total = account(setting.events, setting.delta, fast=True).epsilon if setting.delta else np.inf
    if not np.isfinite(total) and setting.delta:
        return Finding("ledger", False, "the plan has no finite total")
    declared = charges(setting, seen)
    if setting.delta:
        book = MemoryLedger(Budget(total * (1 + 1e-9), setting.delta), plan=setting.events)
        try:
            for t, events in enumerate(declared):
                for event in events:
                    book.charge(t, event)
        except BudgetExceeded as stop:
            return Finding("ledger", False, str(stop))
    if not evidence.explained:
        return Finding("ledger", True, "every message was charged")
    paid = [[float(np.sum(e.times)) for e in events] for events in declared]
    squares = [
        sum(n * (_distance(e) or 0.0) ** 2 for n, e in zip(times, events, strict=True))
        for times, events in zip(paid, declared, strict=True)
    ]
    pures = [
        sum(n * _pure(e) for n, e in zip(times, events, strict=True) if n)
        for times, events in zip(paid, declared, strict=True)
    ]
    gaussian = "normal" in setting.laws
    for watched in evidence.watched:
        gaps = np.sum(watched.apart**2, axis=2) + _edges(watched) ** 2
        weights = np.abs(np.asarray(watched.told[1].weight) - np.asarray(watched.told[0].weight))  # type: ignore[index]
        told, owed = (gaps, squares) if gaussian else (weights, pures)
        told = np.where(weights > IMPOSSIBLE / 2, np.inf, told)
        over = np.cumsum(told, axis=1).max(0) - np.cumsum(owed) * (1 + CLOSE) - CLOSE
        if np.any(over > 0):
            t = int(np.argmax(over > 0))
            return Finding("ledger", False, f"by round {t} the messages tell more than has been charged")
    return Finding("ledger", True, "every message was charged, and nothing was told that was not")


def answer(evidence: Evidence) -> Finding:
    """After the same messages both worlds hand out the same answer."""
    if not evidence.explained:
        return Finding("answer", True, "no exact explanation of the noise")
    for k, watched in enumerate(evidence.watched):
        own, other = (np.asarray(t.estimate) for t in watched.told)  # type: ignore[union-attr]
        if k == 1:
            own, other = other, own
        out = np.asarray(watched.seen.estimate)
        apart = np.max(np.abs(own - other) / (1 + np.abs(out)))
        if apart > CLOSE:
            return Finding("answer", False, f"the answer depends on more than the messages: {apart:.2g} apart")
    return Finding("answer", True, "the answer is a function of the messages")


def sampling(evidence: Evidence) -> Finding:
    """With the same draws the record changes a round's message no more often than the declared rate."""
    setting, (one, two) = evidence.setting, evidence.twins
    rates = [float(np.max(e.rate)) for e in setting.events if isinstance(e, SampledGaussian)]
    if not rates or max(rates) >= 1:
        return Finding("sampling", True, "no batches are declared")
    for t in range(setting.place.rounds):
        leaves = [
            (np.asarray(a)[:, t].reshape(PIECE, -1), np.asarray(b)[:, t].reshape(PIECE, -1))
            for a, b in zip(jax.tree.leaves(one.messages), jax.tree.leaves(two.messages), strict=True)
        ]
        moved = np.any([np.any(np.abs(a - b) > 1e-9 * (1 + np.abs(a)), axis=1) for a, b in leaves], axis=0)
        hits = int(moved.sum())
        if not hits:
            continue
        least = float(beta.ppf(RARE, hits, PIECE - hits + 1))
        if least > max(rates):
            return Finding("sampling", False, f"the record is used in {hits / PIECE:.2f} of the rounds, "
                                              f"declared {max(rates):.2f}")  # fmt: skip
        return Finding("sampling", True, f"the record is used in {hits / PIECE:.2f} of the rounds")
    return Finding("sampling", False, "the record is never used: nothing is amplified by chance")


def driver(algorithm: Algorithm, cfg: Config | None = None, rounds: int = 4) -> Finding:
    """Simulate two runs of a ring of five and look for a draw that was used twice."""
    from coterie.drivers.layout import make_layout
    from coterie.drivers.simulate import Run, simulate
    from coterie.graphs import make_graph, mixing
    from coterie.problems import Linear

    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, (20, 2))
    labels = np.where(features[:, 0] > 0, 1.0, -1.0)
    graph = make_graph(getattr(algorithm.module, "GRAPHS", ("ring",))[0], 5)
    parts = np.split(np.arange(20), 5)
    with jax.enable_x64(True):
        layout = make_layout(
            Linear(2), features, labels, parts, graph, mixing(graph, "metropolis"), rounds=rounds, ridge=0.05
        )
        runs = [Run(seed, cfg or algorithm.EXAMPLE, 1.0) for seed in (0, 1)]
        trace = simulate(algorithm, layout, runs, rounds=rounds, record=True)
    return repeats(trace.draws or {}, algorithm)


def repeats(draws: dict[str, Any], algorithm: Algorithm) -> Finding:
    """Whether two slots (run, round, agent) hold the same draw of some name."""
    for name, values in draws.items():
        rows = np.asarray(values, float)
        rows = rows.reshape(int(np.prod(rows.shape[:3])), -1)
        if len(np.unique(rows, axis=0)) < len(rows):
            return Finding("driver", False, f"{algorithm.slug}: two agents, rounds or runs share the draw {name!r}")
    return Finding("driver", True, "all draws differ")


CHECKS = {"replay": replay, "noise": noise, "ledger": ledger, "answer": answer, "sampling": sampling}
"""The checks that look at one setting's evidence."""
