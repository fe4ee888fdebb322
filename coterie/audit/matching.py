"""The noise with which the second world says what the first one said. See `coterie.audit.coupling`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms.base import Grid
from coterie.errors import InputError

__all__ = ["CLOSE", "flat", "match", "match_grid"]

CLOSE = 1e-7  # how far numbers may be apart that should be equal, relative to their size
LARGE = 30.0  # a move that every noise of a law without bounds can make
SMALL = 1e-6  # a move of every draw that a number of double precision follows and one of single precision does not


def flat(x: Array) -> Array:
    """As one vector."""
    return jnp.reshape(x, -1)


def match(
    first: PyTree, second: PyTree, draw: dict, other: dict, names: list[str], *, loops: int, exact: bool
) -> dict[str, PyTree]:
    """What both say, the second with the noises with which it says the same as the first does with its draw.

    If a single noise has as many numbers as the message and reaches all of them, it alone is moved (the strongest, if
    several do); else all noises are, by the shortest way.
    """
    sizes = [int(np.prod(draw[n].shape)) for n in names]
    blocks = np.concatenate([np.full(s, k) for k, s in enumerate(sizes)]) if sizes else np.zeros(0, int)

    def put(into: dict, z: Array) -> dict:
        parts = jnp.split(z, np.cumsum(sizes)[:-1]) if sizes else []
        return {**into, **{n: p.reshape(draw[n].shape) for n, p in zip(names, parts, strict=True)}}

    def probe(say: PyTree, into: dict, z: Array) -> tuple[Array, PyTree]:
        """Jacobian by the noises, and everything said."""

        def vector(v: Array) -> tuple[Array, PyTree]:
            said = say(put(into, v))
            return said[0], said

        return jax.jacfwd(vector, has_aux=True)(z)

    z = jnp.concatenate([flat(draw[n]) for n in names]) if sizes else jnp.zeros(0)
    one, said = probe(first, draw, z)
    y = said[0]
    whole = [k for k, s in enumerate(sizes) if s == y.size]
    squares = [jnp.sum(one[:, blocks == k] ** 2) * (k in whole) for k in range(len(sizes))]
    strength = jnp.stack(squares or [jnp.zeros(())])
    best = jnp.argmax(strength)
    alone = strength[best] > 0
    use = jnp.where(alone, jnp.asarray(blocks) == best, True) if sizes else jnp.zeros(0, bool)

    def newton(k: Array, carry: tuple) -> tuple:
        """Look at the second world, last of all where it ends: one program for both, as a solver compiles for long."""
        there = jnp.where((k < loops) | said[3], carry[0], z)  # what is not said need not be the same: it shows later
        two, now = probe(second, other, there)
        # a number cut to a bound has no slope there: take the other world's
        j = jnp.where(jnp.any(two != 0, axis=1, keepdims=True), two, one) * use
        return there + _shortest(j, y - now[0]), there, two, now

    _, moved, two, also = jax.lax.fori_loop(0 if sizes else loops, loops + 1, newton, (z, z, one, said))
    coarse = jnp.zeros(())
    if sizes:
        small = jnp.asarray([SMALL, LARGE, -LARGE])[:, None]  # neither swallowed nor cut off
        near = jax.vmap(lambda by: first(put(draw, z + by))[0])(small) - y
        whole_move = jnp.abs(small) * jnp.sum(jnp.abs(one), axis=1)
        lost = jnp.abs(near - small * jnp.sum(one, axis=1)) / jnp.where(whole_move > 0, whole_move, jnp.inf)
        coarse = jnp.max(lost, initial=0.0)
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


def _unequal(one: Array, two: Array, exact: bool) -> Array:
    """Numbers that are not the same; behind a solver, up to what its tolerance leaves."""
    floor = 1e-13 * (1 + jnp.max(jnp.abs(one), initial=0.0)) if exact else CLOSE
    return jnp.abs(one - two) > CLOSE * jnp.abs(one) + floor


def _shortest(j: Array, gap: Array) -> Array:
    """The shortest step that closes the gap, as far as one does."""
    if j.shape[1] == 0:
        return jnp.zeros(0)
    fine = jnp.all(jnp.isfinite(gap)) & jnp.all(jnp.isfinite(j))  # a world that fails is not followed by the other
    return jnp.where(fine, jnp.linalg.pinv(jnp.where(fine, j, 0.0), rtol=1e-12) @ jnp.where(fine, gap, 0.0), 0.0)


def match_grid(first: PyTree, second: PyTree, draw: dict, other: dict, names: list[str]) -> dict[str, PyTree]:
    """The same for one noise on a grid that enters every number of a message on its own: by subtraction."""
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
