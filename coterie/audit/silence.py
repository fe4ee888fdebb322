r"""How likely a silence is: the likelihood of a decision to speak that rests on a secret draw.

An agent that tests before it speaks (`draws` has a `test`, as in `ipp-admm`) speaks iff the draw lies above an edge
that its records and the public past fix. The edge is found without knowing the algorithm: `emit` is asked again and
again, halving the interval, while the answers of `argmin` are remembered so that nothing is solved twice. Then

    P[speaks | past] = P[test ≥ edge].

In a sparse-vector test a threshold noise ρ (`bar`) is drawn once and moves all edges, edge_t(ρ) = edge_t(0) +
slope_t ρ. It is secret, so a transcript's bits are likely as

    ∫ f(ρ) Π_t P[b_t | edge_t(ρ)] dρ,

one integral per transcript, by Gauss-Legendre between the kinks of the integrand. A round's weight is the logarithm of
the ratio of the integrals up to it and up to the round before.

A test that looks at the noise of the message itself (what `ipp-admm` prints) has no such edge: given silence that
noise stays hidden. `edge_of` is then not used and the score is not called exact.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool
from scipy.stats import laplace, norm, rv_continuous

from coterie.algorithms.base import Law
from coterie.problems import HeldShard, Solver
from coterie.problems.shards import HELD

__all__ = ["Remembered", "bit_weights", "edge_of", "remember"]

FARTHEST = 1e6  # in units of the test's noise: beyond, a decision is certain
HALVINGS = 64
LAWS: dict[str, rv_continuous] = {"normal": norm, "laplace": laplace}
PIECES = np.array([-60.0, -40, -24, -16, -8, -4, 0, 4, 8, 16, 24, 40, 60])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


class _Recorder(HeldShard):
    """A shard that solves, and remembers what it answered."""

    answers: list = eqx.field(static=True, kw_only=True)

    def argmin(
        self, linear: Array, curvature: Array | float, solver: Solver, tolerance: Array | float
    ) -> tuple[Array, Solver]:
        x, after = HeldShard.argmin(self, linear, curvature, solver, tolerance)
        self.answers.append((x, after))
        return x, after


class Remembered(HeldShard):
    """A shard that answers `argmin` in the order that was remembered."""

    answers: list = eqx.field(kw_only=True)
    asked: list = eqx.field(static=True, kw_only=True)

    def argmin(self, linear: Array, curvature: object, solver: Solver, tolerance: object) -> tuple[Array, Solver]:
        self.asked.append(None)
        return self.answers[len(self.asked) - 1]


def remember(shard: HeldShard, ask: Callable[[HeldShard], object]) -> Callable[[], Remembered]:
    """Run `ask` on the shard once; what is returned makes shards that give the same answers without solving."""
    parts = {n: getattr(shard, n) for n in HELD}
    answers: list = []
    ask(_Recorder(**parts, answers=answers))
    return lambda: Remembered(**parts, answers=answers, asked=[])


def edge_of(speaks: Callable[[Array], Bool[Array, ""]]) -> Array:
    """The draw above which the agent speaks (∞: it never does, −∞: always)."""

    least, most = jnp.asarray(-FARTHEST), jnp.asarray(FARTHEST)

    def halve(k: Array, known: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        """Ask in the middle; before that at both ends, in the same place, as what is asked compiles for long."""
        low, high, always, ever = known
        first, second = k == 0, k == 1
        middle = (low + high) / 2
        over = speaks(jnp.where(first, least, jnp.where(second, most, middle)))
        always, ever = jnp.where(first, over, always), jnp.where(second, over, ever)
        low, high = jnp.where((k > 1) & ~over, middle, low), jnp.where((k > 1) & over, middle, high)
        return low, high, always, ever

    no = jnp.array(False)
    _, edge, always, ever = jax.lax.fori_loop(0, HALVINGS + 2, halve, (least, most, no, no))
    return jnp.where(always, -jnp.inf, jnp.where(ever, edge, jnp.inf))


def bit_weights(laws: dict[str, Law], edges: np.ndarray, moved: np.ndarray | None, sent: np.ndarray) -> np.ndarray:
    """Log-likelihood of every decision given those before it, (transcript, round).

    Args:
        laws: the algorithm's draws.
        edges: where the test's draw had to lie, (transcript, round).
        moved: the same with a threshold noise of 1 instead of 0, where there is one.
        sent: whether the agent spoke, (transcript, round).
    """
    test = LAWS[laws["test"].name]
    if moved is None:
        with np.errstate(divide="ignore"):
            return np.where(sent, test.logsf(edges), test.logcdf(edges))
    bar = LAWS[laws["bar"].name]
    certain = ~np.isfinite(edges)
    slope = np.where(certain, 0.0, np.where(certain, 0.0, moved) - np.where(certain, 0.0, edges))
    with np.errstate(divide="ignore", invalid="ignore"):
        kinks = np.where(slope == 0, 0.0, -edges / slope)
    kinks = np.clip(np.nan_to_num(kinks), PIECES[0], PIECES[-1])
    ends = np.sort(np.concatenate([np.broadcast_to(PIECES, (len(edges), len(PIECES))), kinks], axis=1), axis=1)
    half = np.diff(ends, axis=1)[:, :, None] / 2
    rho = ((ends[:, 1:, None] + ends[:, :-1, None]) / 2 + half * NODES).reshape(len(edges), -1)
    mass = np.log(np.maximum((half * WEIGHTS).reshape(len(edges), -1), 1e-300)) + bar.logpdf(rho)
    before, out = np.zeros(len(edges)), np.empty(edges.shape)
    for t in range(edges.shape[1]):
        with np.errstate(divide="ignore"):
            at = np.where(certain[:, t, None], edges[:, t, None], edges[:, t, None] + slope[:, t, None] * rho)
            mass = mass + np.where(sent[:, t, None], test.logsf(at), test.logcdf(at))
            top = np.max(mass, axis=1)
            safe = np.where(np.isfinite(top), top, 0.0)
            total = np.log(np.sum(np.exp(mass - safe[:, None]), axis=1)) + safe
        out[:, t] = np.where(np.isfinite(before), total - np.where(np.isfinite(before), before, 0.0), -np.inf)
        before = total
    return out
