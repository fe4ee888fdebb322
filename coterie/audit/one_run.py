"""Many canaries in one run: a bound on ε from a single transcript.

The agent holds m records, record i being +e_i or −e_i by a fair coin, one coordinate each. The adversary sees one
transcript, guesses the coins of the r records that it is surest of, and is right v times. A mechanism that is
(ε, δ)-DP under replacement of one record allows no more than `bounds.one_run_epsilon` says (Steinke, Nasr, Jagielski
2023), a Gaussian one no more than `bounds.one_run_mu` (Mahloujifar, Melis, Chaudhuri 2025). One run instead of
thousands: for algorithms or drivers that are slow, at the price of a weaker bound. How many to guess is fixed on
another run.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from coterie.audit import bounds
from coterie.audit.neighbours import Neighbours
from coterie.audit.setting import Setting
from coterie.audit.transcripts import play
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.problems import HeldShard, SolverSettings

__all__ = ["OneRun", "one_run"]


@dataclass(frozen=True)
class OneRun:
    """What one run proves at `confidence`."""

    canaries: int
    guesses: int
    right: int
    epsilon_bound: float
    mu_bound: float | None  # for Gaussian claims
    confidence: float
    violated: bool


def one_run(setting: Setting, *, confidence: float = 0.99, seed: int = 0) -> OneRun:
    """Attack one run of a setting made with `dim` = `records` (one canary per coordinate)."""
    m = setting.records
    if setting.place.dim != m:
        raise InputError(f"one canary per coordinate needs dim = records, got {setting.place.dim} and {m}")

    def proves(coins: np.ndarray, scores: np.ndarray, guesses: int) -> tuple[int, float]:
        surest = np.argsort(-np.abs(scores))[:guesses]
        right = int(np.sum(np.sign(scores[surest]) == coins[surest]))
        return right, bounds.one_run_epsilon(m, guesses, right, setting.delta, confidence)

    pilot = _scores(setting, seed + 1_000_003)
    choices = np.unique(np.geomspace(max(8, m // 100), m, 12).astype(int))
    guesses = int(max(choices, key=lambda r: proves(*pilot, int(r))[1]))
    right, epsilon = proves(*_scores(setting, seed), guesses)
    mu = None if setting.mu is None else bounds.one_run_mu(m, guesses, right, confidence)
    over = epsilon > setting.epsilon if mu is None or setting.mu is None else mu > setting.mu
    return OneRun(m, guesses, right, epsilon, mu, confidence, bool(over))


def _scores(setting: Setting, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The coins of one run, and how much its messages lean to either side of each coordinate."""
    m = setting.records
    coins = np.where(np.random.default_rng(seed).uniform(size=m) < 0.5, -1.0, 1.0)
    with jax.enable_x64(True):
        how = SolverSettings(max_steps=100)
        place = setting.place
        shard = HeldShard(
            Logistic(m), jnp.asarray(np.diag(coins)), jnp.ones(m), jnp.asarray(m), place.unit, place.ridge, how
        )
        nobody = Neighbours.at(jnp.zeros(m))
        keys = jax.random.split(jax.random.key(seed), 1)
        seen = play(setting.algorithm, setting.cfg, place, shard, nobody, keys)
        leaves = [x for x in jax.tree.leaves(seen.messages) if x.ndim == 3 and x.shape[2] == m]
        return coins, np.asarray(sum(leaf[0].sum(0) for leaf in leaves))
