r"""Rare transcripts on purpose: what the printed `qdpsgd2` spends over a thousand rounds, measured on transcripts.

An ε at δ = 10⁻⁵ shows in events of probability near 10⁻⁵, which plain counting meets once in 10⁵ transcripts. The draws
of a run are arguments, so they can be drawn from another law and weighed: all noise is shifted by θ along the attacked
coordinate, and a transcript with draws ζ counts e^{−θ Σζ + Tθ²/2} times. The mean weight of {Σ_t z_t > s} is then the
event's true probability. On the event the weight is bounded in the world whose messages carry no signal; in the other,
large weights are cut, which only lowers what is claimed. So both are means of bounded variables, with limits that hold
at a stated confidence (`mean_bound`).

The attack: linear loss, every record alike but one, score Σ_t z_t; in the first world the
batches cannot be told apart, so its messages are noise around a fixed path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from coterie.algorithms import qdpsgd2
from coterie.algorithms.base import find
from coterie.audit.setting import ATTACKS, Setting, make_setting, place_of, worlds
from coterie.audit.transcripts import _drawn, _play

__all__ = ["Rare", "carried_setting", "mean_bound", "rare_epsilon"]

BATCH = 100  # transcripts per compiled call
CROWD = replace(ATTACKS[0], name="one record against a crowd of its opposites", rest=ATTACKS[0].first)


@dataclass(frozen=True)
class Rare:
    """ε ≥ `epsilon` at `confidence`, from two probabilities that are this small."""

    epsilon: float
    hit: float  # the event has at least this probability in the world with the record …
    miss: float  # … and at most this one in the other
    event: float  # where it begins, in units of the noise of the whole sum
    confidence: float
    trials: int


def carried_setting(
    claimed: float = 1.0, rounds: int = 1000, self_weight: float = 0.5, batch: int = 1, records: int = 50,
    delta: float = 1e-5,
) -> Setting:  # fmt: skip
    """The printed `qdpsgd2` at the noise for which Theorem 15 prints `claimed`; a grid too fine to matter.

    Batches of 1 of 50 have the law of 20 of 1000: noise, moves and chances depend on the ratio alone.
    """
    averaging = min(1.0, 11 / rounds**0.5)
    cfg = find("qdpsgd2").example.replace(
        scheme="fixed", batch=batch, grid=1e-7, range=4096.0, step=0.5, averaging=averaging
    )
    return make_setting(
        find("qdpsgd2"), cfg, epsilon=claimed, delta=delta, rounds=rounds, records=records, self_weight=self_weight,
        ridge=0.0, printed=True,
    )  # fmt: skip


def _sums(setting: Setting, world: int, shift: float, trials: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(Σ_t z_t, Σ_t ζ_t) along the canary, in units of the noise of one message, with draws shifted by `shift`."""
    cfg: Any = setting.cfg
    algorithm = setting.algorithm
    scores, noises = [], []
    with jax.enable_x64(True):
        place = place_of(setting, CROWD)
        shard, neighbours = worlds(setting, CROWD)[world], CROWD.neighbours(setting.degree)
        laws = tuple((n, type(law), law.shape) for n, law in algorithm.draws(cfg, place).items())
        scale = float(qdpsgd2.sigma(cfg, place, jnp.array(0), jnp.asarray(float(cfg.batch))))
        for k in range(-(-trials // BATCH)):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2 * k + world), BATCH)
            draws = _drawn(laws, keys, place.rounds)
            draws["noise"] = draws["noise"].at[:, :, 0].add(shift)
            seen = _play(algorithm, cfg, place, shard, neighbours, draws)
            scores.append(np.asarray(seen.messages.z[:, :, 0].sum(1)) / scale)
            noises.append(np.asarray(draws["noise"][:, :, 0].sum(1)))
    return np.concatenate(scores)[:trials], np.concatenate(noises)[:trials]


def rare_epsilon(setting: Setting, trials: int = 5000, *, confidence: float = 0.99, seed: int = 0) -> Rare:
    """What transcripts of the setting prove: event, shifts, cuts and bets are fixed on a pilot with other seeds."""
    rounds, delta, pilot = setting.place.rounds, setting.delta, max(200, trials // 10)
    root, tail = float(np.sqrt(rounds)), (1 - confidence) / 2
    quiet, noisy = ((score - noise) for score, noise in (_sums(setting, k, 0.0, pilot, seed + 1) for k in (0, 1)))
    path = float(np.mean(quiet))  # of the first world without noise: the same in every run
    signal = (path - noisy) / root  # what the record takes off, in units of the noise of the whole sum
    event = _event(signal, delta)
    means = []
    for world, centre in ((0, event), (1, event - float(np.mean(signal)))):
        theta = centre / root
        score, noise = _sums(setting, world, -theta, trials + pilot, seed + 2 + world)
        weight = np.exp(theta * noise + centre**2 / 2) * ((path - score) / root > event)
        most = float(np.exp(-(centre**2) / 2)) if world == 0 else float(np.max(weight[:pilot]))
        part = np.minimum(weight / most, 1.0)
        means.append(most * mean_bound(part[pilot:], part[:pilot], tail, upper=world == 0))
    miss, hit = means
    return Rare(float(np.log(max(hit - delta, 1e-300) / miss)), hit, miss, event, confidence, trials)


def _event(signal: np.ndarray, delta: float) -> float:
    """The threshold at which most can be proved if both probabilities come out a tenth worse than they are."""
    grid = np.linspace(1.0, 7.0, 241)
    hit = np.mean(norm.sf(grid[:, None] - signal[None]), axis=1)
    return float(grid[np.argmax(np.log(np.maximum(0.9 * hit - delta, 1e-300) / (1.1 * norm.sf(grid))))])


def mean_bound(sample: np.ndarray, pilot: np.ndarray, tail: float, *, upper: bool) -> float:
    """A limit of the mean of variables in [0, 1] that holds with probability 1 − tail, whatever their law.

    Betting (Waudby-Smith, Ramdas 2024): if the mean is m, Π (1 ± λ(x_i − m)) has expectation 1, so it exceeds 1/tail
    with probability at most `tail`; every m for which it does is ruled out. The stake λ comes from the pilot, which
    must be another sample.
    """
    count, sign = len(sample), -1.0 if upper else 1.0
    spread, centre = float(np.var(pilot)), float(np.mean(pilot))
    stake = float(np.sqrt(2 * np.log(1 / tail) / (count * max(spread, 1e-12))))
    stake = min(stake, 0.9 if upper else 0.5 / max(centre, 1e-12))

    def won(m: float) -> float:
        return float(np.sum(np.log1p(sign * stake * (sample - m)))) + np.log(tail)

    mean = float(np.mean(sample))
    if upper:
        return float(brentq(won, mean, 1.0)) if won(1.0) > 0 else 1.0
    return float(brentq(won, 0.0, min(mean, 0.9 / stake))) if mean > 0 and won(0.0) > 0 else 0.0
