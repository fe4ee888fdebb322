"""The noise that makes the second world say the same: by Newton's method, or, on a grid, by subtraction.

`say(world, draw)` is what an agent of the first (False) or second world (True) says with a round's draws: the vector to
agree on first, and fourth whether the worlds have to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms.base import Grid
from coterie.errors import InputError
from coterie.problems.records import of_a_batch

__all__ = ["CLOSE", "flat", "match", "match_grid", "pick"]

CLOSE = 1e-7  # how far numbers may be apart that should be equal, relative to their size
LARGE = 30.0  # a move that every noise of a law without bounds can make
SMALL = 1e-6  # a move of every draw that a number of double precision follows and one of single precision does not


def pick(world: Array, both: tuple[PyTree, PyTree]) -> PyTree:
    """What belongs to the first world, or (True) to the second."""
    return jax.tree.map(lambda one, two: jnp.where(world, two, one), *both)


def flat(x: Array) -> Array:
    """A draw as a vector."""
    return jnp.reshape(x, -1)


def match(say: Callable, draws: tuple[dict, dict], names: list[str], *, loops: int, exact: bool) -> dict[str, PyTree]:
    """What both say, the second with the noises with which it says the same as the first does with its draw.

    If a single noise has as many numbers as the message and reaches all of them, it alone is moved (the strongest, if
    several do); else all noises are, by the shortest way.
    """
    draw, other = draws
    sizes = [int(np.prod(draw[n].shape)) for n in names]
    blocks = np.concatenate([np.full(s, k) for k, s in enumerate(sizes)]) if sizes else np.zeros(0, int)

    def put(into: dict, z: Array) -> dict:
        parts = jnp.split(z, np.cumsum(sizes)[:-1]) if sizes else []
        return {**into, **{n: p.reshape(draw[n].shape) for n, p in zip(names, parts, strict=True)}}

    @jax.jit
    def probe(world: Array, z: Array) -> tuple[Array, PyTree]:
        """Jacobian by the noises, and everything said."""

        def vector(v: Array) -> tuple[Array, PyTree]:
            said = say(world, put(pick(world, draws), v))
            return said[0], said

        return jax.jacfwd(vector, has_aux=True)(z)

    z = jnp.concatenate([flat(draw[n]) for n in names]) if sizes else jnp.zeros(0)
    small = jnp.asarray([SMALL, LARGE, -LARGE, 0.0])  # neither swallowed nor cut off; last, the draw itself
    looks, last = small.size, small.size + (loops if sizes else 0)
    blank = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(probe, jnp.array(False), z))
    whole = [k for k, s in enumerate(sizes) if s == blank[1][0].size]

    def used(one: Array) -> tuple[Array, Array, Array]:
        """The noises to move, the strongest that reaches every number alone, and whether one does."""
        squares = [jnp.sum(one[:, blocks == k] ** 2) * (k in whole) for k in range(len(sizes))]
        strength = jnp.stack(squares or [jnp.zeros(())])
        best = jnp.argmax(strength)
        alone = strength[best] > 0
        return (jnp.where(alone, jnp.asarray(blocks) == best, True) if sizes else jnp.zeros(0, bool)), best, alone

    def look(k: Array, carry: tuple) -> tuple:
        """The first world near its draw and at it, then the second one by Newton's method, last of all where it ends.

        All in one place of the program, as a solver compiles for long.
        """
        near, (one, said), ahead, *_ = carry
        second = (k >= looks).astype(bool)  # as in the trace before: a weak type would be another
        there = jnp.where((k < last) | said[3], ahead, z)  # what is not said need not be the same: it shows later
        there = jnp.where(second, there, z + small[jnp.minimum(k, looks - 1)])
        jacobian, now = probe(second, there)
        one, said = jax.tree.map(lambda old, new: jnp.where(second, old, new), (one, said), (jacobian, now))
        # a number cut to a bound has no slope there: take the other world's
        j = jnp.where(jnp.any(jacobian != 0, axis=1, keepdims=True), jacobian, one) * used(one)[0]
        ahead = jnp.where(second, there + _shortest(j, said[0] - now[0]), z)
        return near.at[k].set(now[0], mode="drop"), (one, said), ahead, there, jacobian, now

    near = jnp.zeros((looks, blank[1][0].size), blank[1][0].dtype)
    seen = jax.lax.fori_loop(0, last + 1, look, of_a_batch((near, blank, z, z, *blank), z))
    near, (one, said), _, moved, two, also = seen
    y = said[0]
    use, best, alone = used(one)
    coarse = jnp.zeros(())
    if sizes:
        by = small[:-1, None]
        whole_move = jnp.abs(by) * jnp.sum(jnp.abs(one), axis=1)
        off = jnp.abs(near[:-1] - y - by * jnp.sum(one, axis=1))
        coarse = jnp.max(off / jnp.where(whole_move > 0, whole_move, jnp.inf), initial=0.0)
    touched = jnp.any((one != 0) | (two != 0), axis=1) if sizes else jnp.zeros(y.size, bool)
    apart = _unequal(y, also[0], exact)
    size = jnp.max(jnp.abs(one), initial=0.0) + jnp.max(jnp.abs(two), initial=0.0)
    volume = jnp.zeros(())
    if whole:
        part = lambda j, k: j[:, blocks == k]  # noqa: E731
        dets = [jnp.linalg.slogdet(part(two, k))[1] - jnp.linalg.slogdet(part(one, k))[1] for k in whole]
        volume = jnp.where(alone, jnp.select([best == k for k in whole], dets, 0.0), 0.0)
    return {
        "said": (said, also),
        "draw": put(other, moved),
        "bare": jnp.any(apart & ~touched),
        "scale": jnp.sqrt(jnp.sum((one * use) ** 2, axis=1)),
        "coarse": coarse,
        "unlike": jnp.max(jnp.abs(one - two), initial=0.0) / jnp.where(size > 0, size, 1.0),
        "volume": jnp.where(jnp.isfinite(volume), volume, 0.0),
    }


def _shortest(j: Array, gap: Array) -> Array:
    """The shortest step that closes the gap, as far as one does."""
    if j.shape[1] == 0:
        return jnp.zeros(0)
    fine = jnp.all(jnp.isfinite(gap)) & jnp.all(jnp.isfinite(j))  # a world that fails is not followed by the other
    return jnp.where(fine, jnp.linalg.pinv(jnp.where(fine, j, 0.0), rtol=1e-12) @ jnp.where(fine, gap, 0.0), 0.0)


def match_grid(say: Callable, draws: tuple[dict, dict], names: list[str]) -> dict[str, PyTree]:
    """The same for one noise on a grid that enters every number of a message on its own: by subtraction."""
    first, second = (partial(say, jnp.array(world)) for world in (False, True))
    draw, other = draws
    said = first(draw)
    y = said[0]
    name = next((n for n in names if draw[n].steps.size == y.size), None)
    if name is None:
        raise InputError("on a deployed party's grid one noise must have as many numbers as the message")
    noise = draw[name]

    def moved(into: dict, by: Array) -> dict:
        return {**into, name: Grid(noise.steps + by.reshape(noise.steps.shape), noise.unit)}

    quiet, far = second(other)[0], 2.0**20
    everything = jnp.full(y.size, far)
    step = (second(moved(other, everything))[0] - quiet) / far  # rounding to a coarser grid comes after: far enough
    own = (first(moved(draw, everything))[0] - y) / far
    steps = jnp.where((step != 0) & said[3], jnp.round((y - quiet) / jnp.where(step != 0, step, 1.0)), 0.0)
    also = second(moved(other, steps))
    apart = jnp.abs(y - also[0]) > CLOSE * (1 + jnp.abs(y))
    size = jnp.max(jnp.abs(own)) + jnp.max(jnp.abs(step))
    return {
        "said": (said, also),
        "draw": moved(other, steps),
        "bare": jnp.any(apart & (step == 0)),
        "scale": jnp.abs(own) * noise.unit,
        "coarse": jnp.zeros(()),
        "unlike": jnp.max(jnp.abs(own - step)) / jnp.where(size > 0, size, 1.0),
        "volume": jnp.zeros(()),
    }


def _unequal(one: Array, two: Array, exact: bool) -> Array:
    """Numbers that are not the same; behind a solver, up to what its tolerance leaves."""
    floor = 1e-13 * (1 + jnp.max(jnp.abs(one), initial=0.0)) if exact else CLOSE
    return jnp.abs(one - two) > CLOSE * jnp.abs(one) + floor
