"""Running a coupled problem: noise from a budget, rounds, the answer, and what it cost.

Agents of one shape are batched. Without an exchange all rounds run as one compiled program; with `aggregate` (or with
ledgers) each round's messages go through it on the host, and its answer is all that anybody learns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from coterie.coupled import admm
from coterie.coupled.admm import Config, StepSizes
from coterie.drivers.budget import Spending
from coterie.drivers.seeds import fresh_seed, keys_of
from coterie.errors import InputError
from coterie.privacy import schedules
from coterie.privacy.accountants import Account, account
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event, NonPrivate
from coterie.privacy.ledger import Ledger
from coterie.problems.coupled import Coupled, CoupledAgent

__all__ = ["Aggregate", "Answer", "calibrate_coupled", "coupled_events", "solve", "spending"]

Aggregate = Callable[[np.ndarray], np.ndarray]
"""(agents, rows) messages -> their sum, (rows,)."""


@dataclass(frozen=True)
class Answer:
    """What came out of a run. All of it is a function of released values."""

    points: tuple[np.ndarray, ...]  # x_i of every agent, averaged over the tail
    price: np.ndarray  # λ, averaged over the tail
    residuals: np.ndarray  # Σ A_i x_i − c after every round, (rounds, rows)
    prices: np.ndarray  # λ after every round, (rounds, rows)
    history: tuple[np.ndarray, ...] | None  # with record: x_i after every round, (rounds, d_i) each
    noise: np.ndarray  # the agents' noise multipliers
    steps: StepSizes  # the step sizes that were used
    privacy: Spending | None  # ε of the worst agent and of each; None without a delta
    warning: str | None  # what lies outside the range in which convergence is proved


class _Group(eqx.Module):
    """Agents of equal shape, stacked."""

    who: Array  # their numbers
    agent: CoupledAgent
    steps: StepSizes
    noise: Float[Array, " members"]


class _State(eqx.Module):
    """Everything that changes from round to round."""

    points: tuple[Array, ...]  # of every group
    price: Array
    residual: Array


def coupled_events(
    problem: Coupled, cfg: Config, steps: StepSizes, noise: ArrayLike, rounds: int, schedule: ArrayLike | None = None
) -> list[Event]:
    """Every agent's cost of a whole run; `noise` is one multiplier or one per agent, `schedule` its shape in time."""
    shape = _shape(schedule, rounds)
    multipliers = np.broadcast_to(np.asarray(noise, float), (problem.size,))
    each = zip(problem.agents, multipliers, strict=True)
    return [admm.cost(cfg, _row(steps, i), agent, z * shape) for i, (agent, z) in enumerate(each)]


def calibrate_coupled(
    problem: Coupled,
    cfg: Config,
    steps: StepSizes,
    rounds: int,
    epsilon: float,
    delta: float,
    schedule: ArrayLike | None = None,
) -> np.ndarray:
    """The smallest noise multiplier of every agent that keeps its whole run within (ε, δ)."""
    shape, noise = _shape(schedule, rounds), np.zeros(problem.size)
    known: dict[tuple, float] = {}
    for i, agent in enumerate(problem.agents):
        row = _row(steps, i)
        gap = admm.sensitivity(cfg, row, agent)
        if isinstance(admm.cost(cfg, row, agent, shape), NonPrivate):
            raise InputError(f"agent {i} promises no gap between its cost functions: no amount of noise fits a budget")
        if gap.l2 == 0:
            continue
        # the cost depends on ratios only, so agents that differ in scale are solved once
        alike = (agent.dim, float(f"{gap.l1 / gap.l2:.12g}"), float(f"{gap.linf / gap.l2:.12g}"))
        if alike not in known:
            known[alike] = calibrate(partial(_at, cfg, row, agent, shape), epsilon, delta)
        noise[i] = known[alike]
    return noise


def spending(events: Sequence[Event], delta: float) -> Spending:
    """The accounts of all agents: the network's ε is the largest, since a function sits at one agent."""
    accounts: dict[tuple[object, ...], Account] = {}
    each = []
    for event in events:
        key = (type(event), *(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(event)), getattr(event, "dim", 0))
        if key not in accounts:
            accounts[key] = account([event], delta, fast=True)
        each.append(accounts[key])
    return Spending(max(each, key=lambda a: a.epsilon), np.array([a.epsilon for a in each]))


def solve(
    problem: Coupled,
    cfg: Config | None = None,
    *,
    rounds: int,
    epsilon: float | None = None,
    delta: float | None = None,
    noise: ArrayLike | None = None,
    schedule: ArrayLike | None = None,
    seed: int | None = None,
    aggregate: Aggregate | None = None,
    ledgers: Sequence[Ledger] | None = None,
    record: bool = False,
) -> Answer:
    """Run the method on a problem.

    Args:
        problem: the agents and what couples them.
        cfg: method, steps, penalties, law of the noise; None: first-order with automatic steps.
        rounds: how many.
        epsilon: budget of every agent for the whole run; the noise is computed from it. Needs `delta`.
        delta: δ of the budget, and of the account of a given `noise`.
        noise: multiplier(s) instead of a budget; 0 is no noise, the default.
        schedule: relative noise of each round; None: uniform.
        seed: of the simulated draws, from 0 to 2⁶⁴ − 1; None: from the operating system. Anyone who knows it can
            subtract the noise.
        aggregate: opens Σ A_i x_i from the messages, as a secret-sum exchange does; None: a plain sum.
        ledgers: one per agent; each round is charged before its messages leave, and `BudgetExceeded` ends the run.
        record: keep every x_i.

    >>> from coterie.problems.coupled import Coupled, quadratic_agent
    >>> shares = [quadratic_agent(1.0, -t) for t in (1.0, 2.0, 3.0)]
    >>> answer = solve(Coupled(shares, total=3.0), rounds=100)
    >>> [round(float(x[0]), 6) + 0.0 for x in answer.points]
    [0.0, 1.0, 2.0]
    """
    cfg = Config() if cfg is None else cfg
    if not rounds >= 1:
        raise InputError(f"rounds must be >= 1, got {rounds}")
    if aggregate is not None and not problem.sums_hide:
        raise InputError(
            "the opened sum would give away single agents' values: the matrices A_i must all have the same column "
            "space for a sum-only exchange (an incidence matrix has not)"
        )
    if ledgers is not None and len(ledgers) != problem.size:
        raise InputError(f"expected {problem.size} ledgers, got {len(ledgers)}")
    if epsilon is not None and (noise is not None or delta is None):
        raise InputError("give epsilon together with delta, and no noise")
    quiet = epsilon is None and (noise is None or not np.any(np.asarray(noise, float) > 0))
    steps = admm.resolve(cfg, problem, 0 if quiet else rounds)
    if epsilon is not None and delta is not None:
        multipliers = calibrate_coupled(problem, cfg, steps, rounds, epsilon, delta, schedule)
    else:
        multipliers = np.broadcast_to(np.asarray(0.0 if noise is None else noise, float), (problem.size,))
        if not (np.all(multipliers >= 0) and np.all(np.isfinite(multipliers))):
            raise InputError(f"noise must be >= 0 and finite, got {noise!r}")
    events = coupled_events(problem, cfg, steps, multipliers, rounds, schedule)
    for i, event in enumerate(events):
        if multipliers[i] > 0 and isinstance(event, NonPrivate) and not cfg.printed:
            raise InputError(f"agent {i} promises no gap between its cost functions: noise has no scale")
    warning = admm.convergent(cfg, problem, steps)
    share = (0.0 if quiet else 0.5) if cfg.tail is None else float(cfg.tail)
    first = rounds - max(1, round(share * rounds))

    with jax.enable_x64(True):
        groups, state = _stack(problem, steps, multipliers)
        key, shape = keys_of([fresh_seed() if seed is None else seed])[0], jnp.asarray(_shape(schedule, rounds))
        # numbers are in `groups` by now: without them, runs that differ in numbers share one compiled program
        bare = Config(method=cfg.method, law=cfg.law)
        cfg = bare.as_in_print() if cfg.printed else bare
        if aggregate is None and ledgers is None:
            out = _all_rounds(cfg, groups, jnp.asarray(problem.total), state, key, shape, jnp.asarray(first), record)
        else:
            out = _one_by_one(cfg, groups, problem, state, key, shape, first, record, aggregate, ledgers, events)
        means, residuals, prices, history = jax.tree.map(np.asarray, out)
    seat = {int(i): (k, row) for k, group in enumerate(groups) for row, i in enumerate(np.asarray(group.who))}
    seats = [seat[i] for i in range(problem.size)]
    return Answer(
        tuple(means[k][row] for k, row in seats), prices[first:].mean(axis=0), residuals, prices,
        tuple(history[k][:, row] for k, row in seats) if record else None, multipliers,
        steps, None if delta is None else spending(events, delta), warning,
    )  # fmt: skip


def _shape(schedule: ArrayLike | None, rounds: int) -> np.ndarray:
    shape = schedules.make("uniform", rounds) if schedule is None else np.asarray(schedule, float)
    if shape.shape != (rounds,) or not np.all((shape > 0) & np.isfinite(shape)):
        raise InputError(f"schedule must be {rounds} positive numbers, got shape {shape.shape}")
    return shape


def _at(cfg: Config, steps: StepSizes, agent: CoupledAgent, shape: np.ndarray, noise: float) -> list[Event]:
    return [admm.cost(cfg, steps, agent, noise * shape)]


def _row(steps: StepSizes, i: int) -> StepSizes:
    return jax.tree.map(lambda x: x[i], steps)


def _stack(problem: Coupled, steps: StepSizes, noise: np.ndarray) -> tuple[tuple[_Group, ...], _State]:
    """Agents sorted into groups of equal shape, and the public state before the first round."""
    kinds: dict[object, list[int]] = {}
    for i, agent in enumerate(problem.agents):
        leaves, tree = jax.tree.flatten(agent)
        kinds.setdefault((tree, tuple(np.shape(leaf) for leaf in leaves)), []).append(i)
    groups = []
    for who in kinds.values():
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *(problem.agents[i] for i in who))
        rows = jax.tree.map(lambda x, w=who: jnp.asarray(np.asarray(x, float)[w]), steps)
        groups.append(_Group(jnp.asarray(who), stacked, rows, jnp.asarray(noise[who])))
    residual = problem.residual([np.asarray(agent.start) for agent in problem.agents])
    start = _State(tuple(jnp.asarray(g.agent.start) for g in groups), jnp.zeros(problem.rows), jnp.asarray(residual))
    return tuple(groups), start


def _emit_all(
    cfg: Config, groups: tuple[_Group, ...], state: _State, key: Key[Array, ""], shape: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Every agent's next point and message; draws depend on seed, round and the agent's number only."""

    def one(group: _Group, x: Array) -> tuple[Array, Array]:
        laws = admm.draws(cfg, group.agent)
        keys = jax.random.split(jax.random.fold_in(key, group.who), len(laws))
        draw = {name: law.sample(k, x.dtype) for (name, law), k in zip(laws.items(), keys, strict=True)}
        noise = group.noise * shape
        return admm.emit(cfg, group.steps, group.agent, x, state.price, state.residual, noise, draw)

    done = [jax.vmap(one)(group, x) for group, x in zip(groups, state.points, strict=True)]
    return tuple(x for x, _ in done), tuple(message for _, message in done)


def _absorb(
    cfg: Config, groups: tuple[_Group, ...], points: tuple, total: Array, opened: Array, price: Array
) -> _State:
    residual = opened - total
    return _State(points, admm.price_step(cfg, groups[0].steps.dual[0], price, residual), residual)


@eqx.filter_jit
def _all_rounds(
    cfg: Config, groups: tuple[_Group, ...], total: Array, state: _State, key: Array, shape: Array, first: Array,
    record: bool,
) -> tuple:  # fmt: skip
    rounds = shape.shape[0]

    def step(carry: tuple[_State, tuple], t: Array) -> tuple:
        state, means = carry
        points, messages = _emit_all(cfg, groups, state, jax.random.fold_in(key, t), shape[t])
        opened = sum(jnp.sum(message, axis=0) for message in messages)
        state = _absorb(cfg, groups, points, total, jnp.asarray(opened), state.price)
        weight = jnp.where(t >= first, 1 / (rounds - first), 0.0)
        means = jax.tree.map(lambda mean, x: mean + weight * x, means, points)
        return (state, means), (state.residual, state.price, points if record else None)

    zero = jax.tree.map(jnp.zeros_like, state.points)
    end: tuple[tuple, tuple] = jax.lax.scan(step, (state, zero), jnp.arange(rounds))
    return end[0][1], *end[1]


_emit_once = eqx.filter_jit(_emit_all)


def _one_by_one(
    cfg: Config, groups: tuple[_Group, ...], problem: Coupled, state: _State, key: Array, shape: Array, first: int,
    record: bool, aggregate: Aggregate | None, ledgers: Sequence[Ledger] | None, events: Sequence[Event],
) -> tuple:  # fmt: skip
    order = np.argsort(np.concatenate([np.asarray(g.who) for g in groups]))
    rounds, total = shape.shape[0], jnp.asarray(problem.total)
    means = jax.tree.map(jnp.zeros_like, state.points)
    residuals: list[Array] = []
    prices: list[Array] = []
    path: list[tuple[Array, ...]] = []
    for t in range(rounds):
        for ledger, event in zip(ledgers or (), events if ledgers else (), strict=True):
            ledger.charge(t, jax.tree.map(lambda x, t=t: x[t] if np.ndim(x) else x, event))
        points, messages = _emit_once(cfg, groups, state, jax.random.fold_in(key, t), shape[t])
        sent = np.concatenate([np.asarray(m) for m in messages])[order]
        opened = np.asarray(sent.sum(axis=0) if aggregate is None else aggregate(sent), float)
        if opened.shape != (problem.rows,):
            raise InputError(f"aggregate must return {problem.rows} numbers, got shape {opened.shape}")
        state = _absorb(cfg, groups, points, total, jnp.asarray(opened), state.price)
        if t >= first:
            means = jax.tree.map(lambda mean, x: mean + x / (rounds - first), means, points)
        residuals.append(state.residual)
        prices.append(state.price)
        path.append(points)
    history = tuple(np.stack([np.asarray(p[k]) for p in path]) for k in range(len(groups))) if record else None
    return means, np.stack(residuals), np.stack(prices), history
