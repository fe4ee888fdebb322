"""Checks of one agent's privacy that need next to no statistics: they look at coupled worlds.

`gather` plays both worlds together (`coterie.audit.coupling`) for many pairs of records and kinds of neighbours, and
every check looks at all of it:

- `abort`: whether the agent speaks or fails does not depend on the record;
- `replay`: with the same words said so far, the worlds differ by no more than the round declares, and nothing that
  carries no noise depends on the record;
- `noise`: noise enters at no less than the declared scale, and at the same scale in both worlds;
- `ledger`: every message can be charged to the plan, and at no time have the messages told more than was charged;
- `answer`: what is handed out in the end is a function of what was released;
- `solver`: no residual is above what is charged for;
- `sampling`: fresh coins alone draw a batch, with the charged law (`coterie.audit.batches`), and a record is used no
  more often than the declared rate says;
- `reads`: no more is read of the others' messages than `READS` says.

A check that cannot decide says so (`inconclusive`), which is not a pass; an algorithm may list why it must be so
(`INCONCLUSIVE = {"replay": "reason"}`). `driver` looks at the draws of a simulation instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from scipy.special import xlogy

from coterie.algorithms._sampling import Pace
from coterie.algorithms.base import Algorithm, Config
from coterie.algorithms.laws import Law
from coterie.audit import exchange
from coterie.audit.batches import batches, drawn, explained
from coterie.audit.coupling import TwoWorlds, couple
from coterie.audit.declared import Declared, declare, told
from coterie.audit.losses import Pair
from coterie.audit.matching import CLOSE
from coterie.audit.setting import DRAWN, Setting, attacks_on, place_of, worlds
from coterie.losses.logistic import Logistic
from coterie.privacy.accountants import account
from coterie.privacy.events import Event
from coterie.privacy.filter import BudgetExceeded
from coterie.privacy.ledger import Budget, MemoryLedger

__all__ = ["CHECKS", "Evidence", "Finding", "driver", "examine", "gather"]

TRANSCRIPTS = 24  # of each pair
MANY = 240  # transcripts of the strongest pair, for what has to be counted
COARSE = 0.03  # how much of a small move of a draw may be lost on the way to the message
RARE = 1e-6  # how rarely `sampling`, the one check with statistics, may find fault with correct code


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    check: str
    verdict: Literal["holds", "refuted", "inconclusive"]
    detail: str
    share: float = float("nan")  # `replay`: the largest part of what is declared that was seen

    @property
    def passed(self) -> bool:
        """Whether the check found nothing, and could look."""
        return self.verdict == "holds"


@dataclass(frozen=True)
class Played:
    """Coupled worlds of one pair, and what was declared of them."""

    pair: Pair
    coupled: TwoWorlds
    declared: Declared


@dataclass(frozen=True)
class Evidence:
    """Coupled worlds of many pairs; the strongest one comes first, with more transcripts."""

    setting: Setting
    tried: tuple[Played, ...]


# ---- playing ---------------------------------------------------------------------------------------------------------


def gather(
    setting: Setting, pairs: Iterable[Pair] | None = None, seed: int = 0, *, grid: bool = False, drawn: int = DRAWN
) -> Evidence:
    """Couple the worlds of the given pairs, by default of the crafted ones and some drawn at random."""
    chosen = attacks_on(setting, drawn, seed) if pairs is None else tuple(pairs)
    tried = [play(setting, pair, TRANSCRIPTS, seed, grid) for pair in chosen]
    strongest = max(tried, key=lambda t: _strength(setting, t.coupled)).pair
    return Evidence(setting, (play(setting, strongest, MANY, seed + 1, grid), *tried))


def play(setting: Setting, pair: Pair, count: int = TRANSCRIPTS, seed: int = 0, grid: bool = False) -> Played:
    """Both worlds of one pair, `count` transcripts; on a `grid` with a deployed party's whole-numbered noise."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 7), count)
        place, neighbours, shards = place_of(setting, pair), pair.neighbours(setting.degree), worlds(setting, pair)
        parts = [  # of one size, so that one compiled program serves all
            couple(setting.algorithm, setting.cfg, place, shards, neighbours, keys[k : k + TRANSCRIPTS], grid)
            for k in range(0, count, TRANSCRIPTS)
        ]
        coupled = jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x]), *parts)
    return Played(pair, coupled, declare(setting, coupled.message))


def _strength(setting: Setting, coupled: TwoWorlds) -> float:
    """How much the transcripts tell: to choose the pair that is looked at longest."""
    far, loss = told(setting, coupled)
    whole = np.sum(far**2 + loss, axis=1)
    return float(np.nan_to_num(np.mean(whole), nan=np.inf, posinf=np.inf))


# ---- the checks ------------------------------------------------------------------------------------------------------


def abort(evidence: Evidence) -> Finding:
    """Speaking, falling silent and failing are messages too."""
    tests = "test" in evidence.setting.algorithm.draws(evidence.setting.cfg, evidence.setting.place)
    for p in evidence.tried:
        c = p.coupled
        if np.any(c.finite[..., 0] != c.finite[..., 1]):
            return _refuted("abort", p, "a number that is not finite in one world only: the agent fails there")
        if not np.all(c.spoke):
            what = "a test that is not covered by its noise" if tests else "the record"
            return _refuted("abort", p, f"whether the agent speaks depends on {what}")
        if not np.all(c.finite):
            return Finding("abort", "inconclusive", f"{p.pair.name}: both worlds leave the finite numbers")
    return Finding("abort", "holds", "the agent speaks, and fails, alike in both worlds")


def replay(evidence: Evidence) -> Finding:
    """Given the same words so far, a round tells no more about the record than it declares."""
    setting, largest, stuck = evidence.setting, 0.0, ""
    ahead = setting.algorithm.prepays
    for p in evidence.tried:
        c, here = p.coupled, p.declared
        far, loss = told(setting, c)
        if np.any(c.bare):
            return _refuted("replay", p, f"{_when(c.bare)}: a number that carries no noise depends on the record")
        open_ = (here.paid > 0) | ahead  # a round that is charged, or may have been charged before
        volume = np.abs(c.volume)
        of = (
            (far, np.where(open_, here.gaussian, 0.0), "the worlds are {} of the noise apart"),
            (loss + np.where(here.pure > 0, volume, 0.0), np.where(open_, here.pure, 0.0), "a likelihood ratio of {}"),
            (np.where((here.pure == 0) & here.inside, volume, 0.0), here.volume, "a change of volume of {}"),
            (np.abs(c.edge), np.where(_tested(here), here.test, 0.0), "the test moves by {} of its noise"),
        )
        for seen, limit, words in of:
            over = ~(seen <= limit * (1 + 1e-6) + 1e-6)  # what is not a number is too much
            if np.any(over):
                k = np.unravel_index(np.argmax(np.where(over, np.nan_to_num(seen, nan=np.inf), -1.0)), over.shape)
                size = words.format(f"{seen[k]:.4g}")
                return _refuted("replay", p, f"round {k[1]}: {size}, declared {limit[k]:.4g}")
            largest = max(largest, float(np.max(np.where(limit > 0, seen / np.where(limit > 0, limit, 1.0), 0.0))))
        unlike = (c.unlike > CLOSE) & ~here.inside
        if np.any(unlike):
            return _refuted("replay", p, f"{_when(unlike)}: the scale of the noise depends on the record")
        if np.any(c.gap > CLOSE):
            stuck = stuck or f"{p.pair.name}, {_when(c.gap > CLOSE)}: no noise lets the other world say the same"
    if stuck:
        return Finding("replay", "inconclusive", stuck)
    return Finding("replay", "holds", f"at most {largest:.3f} of what is declared", largest)


def noise(evidence: Evidence) -> Finding:
    """Every charged round carries fresh noise, at the declared scale at least, neither coarse nor cut off."""
    least = np.inf
    laws = evidence.setting.algorithm.draws(evidence.setting.cfg, evidence.setting.place)
    if strange := [n for n, law in laws.items() if type(law).__module__ not in (Law.__module__, Pace.__module__)]:
        return Finding("noise", "refuted", f"the draw {strange[0]!r} has a law of its own, which nobody has checked")
    prepays = evidence.setting.algorithm.prepays
    for p in evidence.tried:
        c, declared = p.coupled, p.declared.scale
        limited = (p.declared.gaussian > 0) | (p.declared.pure > 0)
        said = _says_something(c.message)
        # a message at a public cut shows neither noise nor record: without noise it is wrong where the worlds differ
        apart = np.asarray(c.gap) > 0
        bare = (p.declared.paid > 0) & limited & c.told & said & ~np.any(c.scale > 0, axis=2) & apart
        if np.any(bare) and not prepays:
            return _refuted("noise", p, f"{_when(bare)} is charged as noised, but no noise enters the message")
        if found := _test_noise(p):
            return found
        look = ~np.isnan(declared) & (declared > 0) & ~p.declared.inside & c.told
        if not np.any(look):
            continue
        ratio = np.min(np.where(c.scale > 0, c.scale, np.inf), axis=2) / np.where(look, declared, np.nan)
        least = min(least, float(np.nanmin(ratio)))
        if least < 1 - 1e-6:
            return _refuted("noise", p, f"{_when(ratio < 1 - 1e-6)}: the noise is {least:.3f} times the declared")
        if np.any(look & (c.coarse > COARSE)):
            return _refuted(
                "noise", p, f"{_when(look & (c.coarse > COARSE))}: the noise takes few values only, or is cut off"
            )
    return Finding("noise", "holds", "no scale is declared" if np.isinf(least) else f"{least:.3f} times the declared")


def _tested(here: Declared) -> np.ndarray:
    """Rounds whose test is charged: a sparse vector is, once for all that come after, (transcript, round)."""
    once = ~np.isnan(here.bar)
    return np.where(once, np.maximum.accumulate(here.tested, axis=1), here.tested) > 0


def _test_noise(p: Played) -> Finding | None:
    """What is wrong with the noise that decides whether the agent speaks, if it is charged as noised."""
    c, here = p.coupled, p.declared
    wanted = _tested(here) & ~np.isnan(here.query) & (here.query > 0)
    if not np.any(wanted):
        return None
    spoken = np.cumsum(c.sent, axis=1) - c.sent
    sure = wanted & c.certain & (spoken < here.positives) & np.isfinite(here.positives)
    if np.any(sure):
        return _refuted("noise", p, f"{_when(sure)}: no draw changes whether the agent speaks, as a test's must")
    for what, seen, declared in (("a test's query", c.test, here.query), ("its threshold", c.bar, here.bar)):
        look = wanted & ~c.certain & ~np.isnan(declared)
        if np.any(look & np.isnan(seen)):
            where = _when(look & np.isnan(seen))
            return Finding("noise", "inconclusive", f"{p.pair.name}, {where}: the noise on {what} is not seen")
        ratio = np.where(look, seen, np.inf) / np.where(look, declared, 1.0)
        if np.any(ratio < 1 - 1e-6):
            short = f"the noise on {what} is {np.min(ratio):.3f} times the declared"
            return _refuted("noise", p, f"{_when(ratio < 1 - 1e-6)}: {short}")
    return None


def _says_something(message: PyTree) -> np.ndarray:
    """Whether a message has a number that is not zero: a random mask may leave none, (transcript, round)."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(message)]
    return np.any([np.any(x.reshape(*x.shape[:2], -1) != 0, axis=2) for x in leaves], axis=0)


def ledger(evidence: Evidence) -> Finding:
    """Every message fits the plan, and at no time was more told than charged."""
    setting = evidence.setting
    total = account(setting.events, setting.delta, fast=True).epsilon if setting.delta else np.inf
    if not np.isfinite(total) and setting.delta:
        return Finding("ledger", "refuted", "the plan has no finite total")
    planned = {type(e) for e in setting.events}
    allowed = planned | {t for kind in planned for t in kind.realised_as}
    for p in evidence.tried:
        for events in p.declared.distinct():
            kinds = {type(e) for round_ in events for e in round_}
            if strange := kinds - allowed:
                return _refuted("ledger", p, f"a message is charged as {strange.pop().__name__}, which is not planned")
            if setting.delta and kinds <= planned and (wrong := _beyond(setting, total, events)):
                return _refuted("ledger", p, wrong)
        here, c = p.declared, p.coupled
        far, loss = told(setting, c)
        if np.any(often := np.cumsum(c.sent, axis=1) > here.positives):
            return _refuted("ledger", p, f"by {_when(often)} the agent has spoken more often than its tests charge")
        for seen, owed in (
            (far**2 + c.edge**2, here.paid * here.gaussian**2 + np.where(_tested(here), here.test, 0.0) ** 2),
            (loss + np.abs(c.volume), here.paid * (here.pure + here.volume)),
        ):
            over = ~(np.cumsum(seen, axis=1) <= np.cumsum(owed, axis=1) * (1 + 1e-6) + 1e-6)
            if np.any(over):
                return _refuted("ledger", p, f"by {_when(over)} the messages tell more than has been charged")
    return Finding("ledger", "holds", "every message was charged, and nothing was told that was not")


def _beyond(setting: Setting, total: float, events: list[list[Event]]) -> str | None:
    """Why these charges are not those of the plan, if they are not."""
    book = MemoryLedger(Budget(total * (1 + 1e-9), setting.delta), plan=setting.events)
    try:
        for t, round_ in enumerate(events):
            for event in round_:
                book.charge(t, event)
    except BudgetExceeded as stop:
        return str(stop)
    return None


def answer(evidence: Evidence) -> Finding:
    """After the same releases both worlds hand out the same answer."""
    for p in evidence.tried:
        apart = float(np.max(p.coupled.answer))
        if apart > 10 * CLOSE:
            return _refuted("answer", p, f"the answer depends on more than what was released: {apart:.2g} apart")
    return Finding("answer", "holds", "the answer is a function of what was released")


def solver(evidence: Evidence) -> Finding:
    """No subproblem is left further from solved than is charged for."""
    setting = evidence.setting
    if not setting.algorithm.needs(setting.cfg).solver:
        return Finding("solver", "holds", "no subproblem is solved to a tolerance")
    charged: float = setting.cfg.tolerance  # type: ignore[attr-defined]
    worst = max(float(np.max(p.coupled.residual)) for p in evidence.tried)
    if not worst <= charged:
        return Finding("solver", "refuted", f"a residual of {worst:.2g} where {charged:g} is charged")
    return Finding("solver", "holds", f"residuals up to {worst:.2g}, {charged:g} is charged")


def sampling(evidence: Evidence) -> Finding:
    """A batch is drawn by fresh coins alone, with the charged law; a record is used no more often than declared."""
    p = evidence.tried[0]
    rates = p.declared.rate
    if not np.any(rates < 1) and not drawn(evidence.setting):
        return Finding("sampling", "holds", "no batches are declared")
    if explained(evidence.setting) and (wrong := batches(evidence.setting)):
        return Finding("sampling", "refuted", wrong)
    moved = np.any([np.any(np.abs(s) > 1e-9, axis=2) for s in p.coupled.shift.values()], axis=0)
    n = p.coupled.count
    used, share = moved.mean(0), np.nan_to_num(rates, nan=0.0).mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = xlogy(used, used / share) + xlogy(1 - used, (1 - used) / (1 - share))
    surprise = np.where(used > share, np.exp(-n * np.nan_to_num(excess, nan=np.inf)), 1.0) * len(used)
    t = int(np.argmin(surprise))
    words = f"the record is used in {used[t]:.2f} of the transcripts, declared {share[t]:.2f}"
    if surprise[t] < RARE:
        return Finding("sampling", "refuted", f"round {t}: {words}")
    if not used.any():
        return Finding("sampling", "inconclusive", "the record is never used: nothing is seen of its rate")
    if not explained(evidence.setting):
        return Finding("sampling", "inconclusive", "the algorithm refuses the loss that shows who is in a batch")
    return Finding("sampling", "holds", words)


def _refuted(check: str, played: Played, detail: str) -> Finding:
    return Finding(check, "refuted", f"{detail} ({played.pair.name})")


def _when(where: ArrayLike) -> str:
    """The first round in which some transcript has it."""
    return f"round {int(np.argmax(np.any(where, axis=0)))}"


def reads(evidence: Evidence) -> Finding:
    """The agent reads no more of the others' messages than it says: claims about opened sums rest on that."""
    wrong = exchange.reads(evidence.setting)
    return Finding("reads", "refuted" if wrong else "holds", wrong or f"it reads {evidence.setting.algorithm.reads}")


CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "abort": abort, "replay": replay, "noise": noise, "ledger": ledger, "answer": answer, "solver": solver,
    "sampling": sampling, "reads": reads,
}  # fmt: skip
"""The checks that look at one setting's evidence."""


def examine(evidence: Evidence, checks: Iterable[str] = CHECKS) -> list[Finding]:
    """What the checks find, a failure to decide that the algorithm lists with its reason counting as a pass."""
    known = dict(evidence.setting.algorithm.inconclusive)
    out = []
    for name in checks:
        found = CHECKS[name](evidence)
        if found.verdict == "inconclusive" and name in known:
            found = Finding(name, "holds", f"not decided, as listed: {known[name]}")
        out.append(found)
    return out


def driver(algorithm: Algorithm, cfg: Config | None = None, rounds: int = 4) -> Finding:
    """Simulate two runs of a ring of five and look for a draw that was used twice."""
    from coterie.drivers.layout import make_layout
    from coterie.drivers.simulate import Run, simulate
    from coterie.graphs import make_graph, mixing

    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, (20, 2))
    labels = np.where(features[:, 0] > 0, 1.0, -1.0)
    graph = make_graph((algorithm.graphs or ("ring",))[0], 5)
    parts = np.split(np.arange(20), 5)
    with jax.enable_x64(True):
        layout = make_layout(
            Logistic(2), features, labels, parts, graph, mixing(graph, "metropolis"), rounds=rounds, ridge=0.05
        )
        runs = [Run(seed, cfg or algorithm.example, 1.0) for seed in (0, 1)]
        trace = simulate(algorithm, layout, runs, rounds=rounds, record=True)
    return repeats(trace.draws or {}, algorithm)


def repeats(draws: Mapping[str, ArrayLike], algorithm: Algorithm) -> Finding:
    """Whether two slots (run, round, agent) hold the same draw of some name."""
    for name, values in draws.items():
        rows = np.asarray(values, float)
        rows = rows.reshape(int(np.prod(rows.shape[:3])), -1)
        if len(np.unique(rows, axis=0)) < len(rows):
            return Finding("driver", "refuted", f"{algorithm.slug}: two agents, rounds or runs share the draw {name!r}")
    return Finding("driver", "holds", "all draws differ")
