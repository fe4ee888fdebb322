r"""Two worlds, one transcript: which noise the second world needs to say what the first one said.

This is the argument of every proof here, run on the real code. An agent with either record plays among the same
neighbours. In each round the first world draws its noise z and speaks; the second world is given the noise z' with
which it says exactly the same, and both go on *with their own states*. So

- how far z' lies from z is what the round told about the record, in units of the noise: never more than declared;
- what differs between the states (a warm start, a gradient that somebody kept) shows as soon as it enters a message,
  however long it was kept, and is then part of that distance;
- where no z' exists, a number that carries no noise depends on the record;
- whether the agent speaks, fails (a number that is not finite) or hands out another answer must not differ at all.

Nothing is assumed about the shape of a message: its numbers are one vector y, the round's noises one vector z, and z'
solves y₂(z') = y by Newton's method, with the Jacobian of the whole `emit` by forward differentiation (through a solver
by the implicit function theorem). All other draws (coins, masks, dithers, weights) are the same in both worlds: what
they earn is for other tests, here they may be known. Noise on a deployed grid is a whole number of steps, found by
subtraction.

An agent that tests before it speaks (`draws` has a `test`) speaks iff that draw lies above an edge. The second world's
draw is moved by as much as its edge differs, so that both decide alike. How loud the test's noise is, in units of its
query, shows as the edge moves with the setting that the query is compared with (`THRESHOLD`); how loud the noise of a
sparse vector's threshold (`bar`) is, and that it stays the one of the first round, shows in a third play of the first
world, with that draw one larger.

`reveals(cfg, place, state, message)`, where an algorithm has it, is what its proof treats as released if that is more
than the message (a noisy step of which only a rounding is sent): the worlds are then made to agree on that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PyTree

from coterie.algorithms.base import Algorithm, Config, Grid, Law, Place
from coterie.audit.matching import CLOSE, flat, match, match_grid, pick
from coterie.audit.neighbours import Neighbours
from coterie.audit.silence import edge_of, remember
from coterie.drivers.agent import begin, facing, greet, hear, speak
from coterie.privacy.events import Gaussian, Laplace, SparseVector
from coterie.problems import HeldShard, Solver
from coterie.problems.shards import HELD

__all__ = ["TwoWorlds", "couple", "noises"]

NOISES = ("normal", "laplace", "l2-laplace")
DECIDING = ("test", "bar")  # draws that decide whether to speak; all others of the laws above are noise on numbers
GRID_UNIT = 65_536.0  # steps of a deployed draw per unit of its law (nearly: what is measured is the grid)


class TwoWorlds(eqx.Module):
    """What coupling found; axes (transcript, round, …)."""

    message: PyTree  # of the first world; the second one's is the same where `gap` is 0
    sent: Bool[Array, "n rounds"]
    told: Bool[Array, "n rounds"]  # whether something was released: what was sent, or what the proof treats as seen
    spoke: Bool[Array, "n rounds"]  # whether the second world spoke just when the first did
    finite: Bool[Array, "n rounds 2"]  # whether each world's state and message are finite numbers
    gap: Float[Array, "n rounds"]  # largest difference that no noise makes up for, relative to the number's size
    bare: Bool[Array, "n rounds"]  # some number that differs between the worlds carries no noise at all
    shift: dict[str, Float[Array, "n rounds size"]]  # z' − z of every noise, in its own units
    drawn: dict[str, Float[Array, "n rounds size"]]  # z
    scale: Float[Array, "n rounds size"]  # least scale at which noise enters each number (0: none does)
    coarse: Float[Array, "n rounds"]  # share of a small move of the draws that is lost on its way to the message
    unlike: Float[Array, "n rounds"]  # by how much the worlds' Jacobians differ, relative to their size
    volume: Float[Array, "n rounds"]  # difference of their logarithmic determinants, where one draw explains a message
    edge: Float[Array, "n rounds"]  # by how much the draw that lets the agent speak differs (0: no such draw)
    certain: Bool[Array, "n rounds"]  # no such draw would have changed whether the agent speaks
    test: Float[Array, "n rounds"]  # scale of the noise on a test's query, in the query's units (NaN: not seen)
    bar: Float[Array, "n rounds"]  # the same of its threshold's noise, as drawn in the first round
    residual: Float[Array, "n rounds"]  # the larger of the worlds' solvers' (0: no solver)
    answer: Float[Array, " n"]  # difference of the answers handed out in the end, relative to their size

    @property
    def count(self) -> int:
        """Number of transcripts."""
        return int(self.sent.shape[0])


class _Implicit(HeldShard):
    """A shard whose minimisers can be differentiated: by their optimality condition, not through the solver's loop.

    In a set what it cut off moves too, and the two together as one-to-one with the linear term as a minimiser does
    without a set: algorithms whose noise is in the objective are compared on both (`reveals`).
    """

    def argmin(
        self, linear: Array, curvature: Array | float, solver: Solver, tolerance: Array | float
    ) -> tuple[Array, Solver]:
        fixed = jax.lax.stop_gradient
        x, after = HeldShard.argmin(
            jax.tree.map(fixed, self), fixed(linear), fixed(curvature), jax.tree.map(fixed, solver), fixed(tolerance)
        )
        x, after = fixed(x), jax.tree.map(fixed, after)
        eye = jnp.eye(x.shape[0], dtype=x.dtype)
        bent = fixed(self.hessian(x) + curvature * eye)
        off = self.slope(x) + linear + curvature * x
        if self.problem.constraint is None:
            return x - jnp.linalg.solve(bent, off - fixed(off)), after
        # x = P(u), u = x + aside, and ∇ + m·aside = 0: differentiate both, Q the derivative of P at u
        low = fixed(self.ridge + curvature)
        cut = fixed(jax.jacfwd(self.problem.project)(x + after.aside))
        by = -jnp.linalg.solve(bent @ cut + low * (eye - cut), off - fixed(off))
        return x + cut @ by, dataclasses.replace(after, aside=after.aside + by - cut @ by)


def noises(laws: dict[str, Law]) -> dict[str, Law]:
    """The draws that may noise numbers."""
    return {n: law for n, law in laws.items() if law.name in NOISES and n not in DECIDING}


def couple(
    algorithm: Algorithm, cfg: Config, place: Place, shards: tuple[HeldShard, HeldShard], neighbours: Neighbours,
    keys: Array, grid: bool = False,
) -> TwoWorlds:  # fmt: skip
    """Play one transcript per key in both worlds (inside x64). `grid`: with a deployed party's whole-numbered noise."""
    return _couple(algorithm, cfg, place, (_implicit(shards[0]), _implicit(shards[1])), neighbours, keys, grid)


def _implicit(shard: HeldShard) -> _Implicit:
    return _Implicit(*(getattr(shard, n) for n in HELD))


@eqx.filter_jit
def _couple(
    algorithm: Algorithm, cfg: Config, place: Place, shards: tuple[_Implicit, _Implicit], neighbours: Neighbours,
    keys: Array, grid: bool,
) -> TwoWorlds:  # fmt: skip
    laws = algorithm.draws(cfg, place)
    names = list(noises(laws))
    degree = neighbours.degree
    weight = jnp.full(degree, (1 - place.self_weight) / degree)
    loops = 12 if algorithm.needs(cfg).solver else 3
    unknown = jnp.asarray(jnp.nan)
    held, (rest, _) = eqx.partition(shards, eqx.is_array)

    def say(
        shard: HeldShard, t: Array, state: PyTree, draw: dict, by: Config = cfg
    ) -> tuple[Array, PyTree, PyTree, Array, Array]:
        """The vector to agree on, state, message, whether the worlds have to agree, and whether it was sent."""
        state, message, sent = speak(algorithm, by, place, t, state, shard, draw)
        more = algorithm.reveals(by, place, state, message) if algorithm.reveals is not None else None
        shown = message if more is None else more
        return _vector(shown, place.start.dtype), state, message, sent | (more is not None), sent

    def say_in(world: Array, t: Array, states: PyTree, draw: dict) -> tuple[Array, PyTree, PyTree, Array, Array]:
        """The same in the first or the second world: one program for both."""
        return say(eqx.combine(pick(world, held), rest), t, pick(world, states), draw)

    def edges_of(
        t: Array, states: tuple[PyTree, PyTree], third: PyTree, draw: dict
    ) -> tuple[Array, Array, tuple[Array, Array], PyTree]:
        """Both worlds' edges, scales of the noises on a test's query and threshold, and the third play's state."""
        setting, over, above = algorithm.threshold, unknown, unknown
        level = getattr(cfg, setting) if setting else 0.0
        step = _declared_scale(algorithm.cost(cfg, place, t, None)) if setting else jnp.zeros(())
        first, moved = jnp.array(False), dict(draw)
        asked = [
            (first, states[0], draw, level),
            (~first, states[1], draw, level),
            (first, states[0], draw, level + step),
        ]
        if third is not None:
            moved["bar"] = draw["bar"] + jnp.where(t == 0, 1.0, 0.0)
            asked.append((first, third, moved, level))

        def edge(world: Array, state: PyTree, draw: dict, level: Array) -> Array:
            by = cfg.replace(**{setting: level}) if setting else cfg
            return _edge(say, t, state, draw, eqx.combine(pick(world, held), rest), by)

        own, theirs, higher, *late = jax.vmap(edge)(*jax.tree.map(lambda *x: jnp.stack(x), *asked))
        if setting:
            by = higher - own
            over = jnp.where(jnp.isfinite(by) & (by > 0), step / jnp.where(by > 0, by, 1.0), jnp.nan)
        if third is None:
            return own, theirs, (over, above), None
        slope = _between(own, late[0])
        above = jnp.where(jnp.isfinite(own), slope * over, jnp.nan)
        return own, theirs, (over, above), say(shards[0], t, third, {**moved, "test": draw["test"] + slope})[1]

    def step(carry: tuple, t: Array) -> tuple[tuple, dict[str, PyTree]]:
        def one(key: Array, carry: tuple) -> tuple[tuple, dict[str, PyTree]]:
            ((first, second), third), memories, last = carry
            draw = _draw(laws, jax.random.fold_in(key, t), grid)
            edges, certain, heights = jnp.zeros(()), jnp.array(False), (unknown, unknown)
            other, late = dict(draw), third
            if "test" in laws:
                own, theirs, heights, late = edges_of(t, (first, second), third, draw)
                edges, certain = _between(own, theirs), ~jnp.isfinite(own)
                other["test"] = draw["test"] + edges
            matched = match_grid if grid else partial(match, loops=loops, exact=loops == 3)
            found = matched(lambda world, z: say_in(world, t, (first, second), z), (draw, other), names)
            (y, new_first, message, told, sent), (y2, new_second, twin, _, also) = found["said"]
            # what the proof calls released has to agree by some noise, and then the message does by itself
            gap = jnp.maximum(_apart(y, y2), _apart(*(_vector(m, y.dtype) for m in (message, twin))))
            hidden = (_apart(y, y2) <= CLOSE) & (gap > CLOSE)  # the message tells what `reveals` does not
            shown = jax.tree.map(lambda a, b: jnp.where(sent, a, b), message, last)
            heard = neighbours.answer(shown, t)
            states, kept = zip(
                *(hear(algorithm, cfg, place, t, s, facing(heard, weight, m))
                  for s, m in zip((new_first, new_second), memories, strict=True)), strict=True,
            )  # fmt: skip
            if third is not None:
                late = hear(algorithm, cfg, place, t, late, facing(heard, weight, memories[0]))[0]
            spoken = jnp.where(told, 1.0, 0.0)
            row = {
                "message": message,
                "sent": sent,
                "told": told,
                "spoke": sent == also,
                "finite": jnp.stack([_finite((new_first, message)), _finite((new_second, twin))]),
                "gap": jnp.where(jnp.isfinite(gap), gap, jnp.inf) * spoken,
                "bare": (found["bare"] | hidden) & told,
                "shift": {n: spoken * flat(_numbers(found["draw"][n]) - _numbers(draw[n])) for n in names},
                "drawn": {n: flat(_numbers(draw[n])) for n in names},
                "scale": found["scale"],
                "coarse": found["coarse"] * spoken,
                "unlike": found["unlike"] * spoken,
                "volume": found["volume"] * spoken,
                "edge": edges,
                "certain": certain,
                "test": heights[0],
                "bar": heights[1],
                "residual": jnp.maximum(_residual(new_first), _residual(new_second)),
            }
            return ((states, late), kept, shown), row

        return jax.vmap(one)(keys, carry)

    def differ(states: tuple[PyTree, PyTree]) -> Array:
        apart = _apart(*(algorithm.estimate(cfg, place, s) for s in states))
        return jnp.where(jnp.isnan(apart), jnp.inf, apart)

    state, memory = begin(algorithm, cfg, place, degree)
    third = state if "bar" in laws else None
    start = (((state, state), third), (memory, memory), greet(algorithm, cfg, place, shards[0]))
    # transcripts side by side within a round: the other way round JAX would trace the round anew for each thing kept
    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *jnp.shape(x))), start)
    ((states, _), _, _), rows = jax.lax.scan(step, everywhere, jnp.arange(place.rounds))
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    return TwoWorlds(**rows, answer=jax.vmap(differ)(states))


# ---- draws -----------------------------------------------------------------------------------------------------------


def _draw(laws: dict[str, Law], key: Array, grid: bool) -> dict[str, PyTree]:
    """A round's draws; on a grid, noise is a whole number of steps."""
    out: dict[str, PyTree] = {}
    for k, (name, law) in enumerate(laws.items()):
        out[name] = law.sample(jax.random.fold_in(key, k), jnp.float64)
        if grid and name in noises(laws):
            out[name] = Grid(jnp.round(GRID_UNIT * out[name]), GRID_UNIT)
    return out


def _numbers(draw: PyTree) -> Array:
    """A draw in units of its law."""
    return jnp.asarray(draw.steps / draw.unit if isinstance(draw, Grid) else draw)


def _apart(one: Array, two: Array) -> Array:
    """Largest difference, relative to the numbers' size."""
    return jnp.max(jnp.abs(one - two) / (1 + jnp.abs(one)), initial=0.0)


def _vector(tree: PyTree, dtype: DTypeLike) -> Array:
    """All numbers of a message, whatever its shape."""
    return jnp.concatenate([jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(tree)])


def _finite(tree: PyTree) -> Array:
    numbers = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    # a solver that has not begun says that its residual is infinite
    return jnp.all(jnp.stack([jnp.all(~jnp.isnan(x)) for x in numbers]))


def _residual(state: PyTree) -> Array:
    solvers = [x for x in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Solver)) if isinstance(x, Solver)]
    found = [jnp.where(jnp.isinf(s.residual), 0.0, s.residual) for s in solvers]  # it has not been asked yet
    return jnp.max(jnp.stack(found)) if found else jnp.zeros(())


def _edge(say: Callable, t: Array, state: PyTree, draw: dict, shard: HeldShard, by: Config) -> Array:
    """The `test` draw from which on an agent speaks, all other draws being these."""
    # solutions are remembered, so that the search for the edge solves nothing
    quick = remember(shard, lambda holder: say(holder, t, state, draw, by)[4])
    return edge_of(lambda test: say(quick(), t, state, {**draw, "test": test}, by)[4])


def _between(one: Array, two: Array) -> Array:
    """How far apart two edges are, 0 where a decision is certain."""
    known = jnp.isfinite(one) & jnp.isfinite(two)
    return jnp.where(known, jnp.where(known, two, 0.0) - jnp.where(known, one, 0.0), 0.0)


def _declared_scale(events: object) -> Array:
    """The scale of the noise that the event of a test declares on its query; 1 if it declares none."""
    first = events[0] if isinstance(events, tuple) else events
    if isinstance(first, SparseVector):
        return jnp.asarray(first.query)
    if isinstance(first, Laplace):
        return 1 / jnp.asarray(first.rate)
    return jnp.asarray(first.sigma if isinstance(first, Gaussian) else 1.0)
