"""Minimising one agent's subproblem: exact to a gradient norm, warm-started, with its factor kept between rounds.

`newton_like` is for strongly convex problems of moderate dimension. It takes BFGS steps of unit length with the inverse
of a Hessian that an earlier round computed and every step since has mended: subproblems of one agent differ little from
round to round, so what is learnt of one helps with all that follow. Where that is slow, the Hessian is renewed by a
damped Newton step. Both judge a step by the gradient norm, which decreases along a Newton direction of a convex
function, so no function value (and none of its rounding error) is needed.

`quasi_newton` is for large or non-convex problems: L-BFGS with backtracking on the value.

`projected` is for a constraint set: accelerated projected gradient with restart, certified by the gradient mapping.

These three are fast and may fail: on a loss with sharp corners, or far from the answer. `surely` cannot: it takes as
many gradient steps as public constants say are enough, whatever the function (`sure_steps`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coterie.problems.records import of_a_batch

__all__ = ["MOST_STEPS", "Solver", "SolverSettings", "newton_like", "projected", "quasi_newton", "sure_steps", "surely"]

Vector = Float[Array, " d"]
MEMORY = 4  # pairs kept by L-BFGS
MOST_STEPS = 20_000  # gradient steps that `surely` takes at most: a plan that may need more is refused
SHORTEST = 2.0**-28  # part of a Newton step below which no shorter one is tried
PATIENCE = 80  # steps at the present pace that cost as much as a new Hessian: many, as a batch renews all or none


class SolverSettings(eqx.Module):
    """How long to try. `fixed`: the same work whatever the data say, so that its duration tells nothing."""

    max_steps: int = eqx.field(static=True, default=200)
    fixed: bool = eqx.field(static=True, default=False)


class Solver(eqx.Module):
    """What an agent keeps between solves. Private: it may depend on the data."""

    x: Float[Array, " d"]
    inverse: Float[Array, "k k"]  # of an earlier Hessian, mended since (k = 0 where none is kept)
    ready: Bool[Array, ""]  # whether `inverse` means anything yet
    residual: Float[Array, ""]  # gradient norm that the last solve reached; in a set that of the gradient mapping
    steps: Int[Array, ""]  # gradient evaluations so far
    aside: Float[Array, " c"]  # −∇/m at x: x + aside is what the set cut off to x (c = 0 without a set)

    @classmethod
    def fresh(cls, x: Vector, keep: bool, within: bool = False) -> Solver:
        """A solver that starts from x and knows nothing yet."""
        k, aside = x.shape[0] if keep else 0, jnp.zeros(x.shape[0] if within else 0, x.dtype)
        # Half the memory, which is what a step costs beside its gradient: the gradient alone says how good a point is.
        return cls(
            x, jnp.zeros((k, k), jnp.float32), jnp.array(False), jnp.array(jnp.inf, x.dtype), jnp.array(0), aside
        )

    def at(self, x: Vector, residual: Array, steps: Array, **more: Array) -> Solver:
        """The same after so many more steps, at x."""
        return dataclasses.replace(self, x=x, residual=residual, steps=self.steps + steps, **more)


def _two_loop(g: Vector, pairs: tuple, base: Callable[[Vector], Vector]) -> Vector:
    """L-BFGS: the inverse Hessian estimate applied to g; pairs are newest first and rho = 0 marks an empty one."""
    s, y, rho = pairs
    alphas = []
    for i in range(s.shape[0]):
        a = rho[i] * jnp.dot(s[i], g)
        g = g - a * y[i]
        alphas.append(a)
    r = base(g)
    for i in reversed(range(s.shape[0])):
        r = r + s[i] * (alphas[i] - rho[i] * jnp.dot(y[i], r))
    return r


def _remember(pairs: tuple, step: Vector, change: Vector) -> tuple:
    s, y, rho = pairs
    push = lambda old, new: jnp.concatenate([new[None], old[:-1]])  # noqa: E731
    lengths = jnp.linalg.norm(step) * jnp.linalg.norm(change)
    return push(s, step), push(y, change), push(rho, _curved(jnp.dot(step, change), lengths))


def _no_pairs(x: Vector) -> tuple:
    empty = jnp.zeros((MEMORY, x.shape[0]), x.dtype)
    return empty, empty, jnp.zeros(MEMORY, x.dtype)


def _products(*pairs: tuple[Vector, Vector]) -> Array:
    """Inner products of pairs of vectors, side by side: what is compiled for one does for all."""
    one, other = zip(*pairs, strict=True)
    return jnp.sum(jnp.stack(one) * jnp.stack(other), axis=1)


def _curved(curvature: Array, lengths: Array) -> Array:
    """1/curvature, or 0 where that is no curvature but rounding; `lengths`: of the step and the change, multiplied."""
    good = curvature > 1e-12 * lengths
    return jnp.where(good, 1 / jnp.where(good, curvature, 1.0), 0.0)


def _mended(
    inverse: Array, bent: Vector, step: Vector, rho: Array, bend: Array
) -> tuple[Array, Callable[[Vector, Array, Array], Vector]]:
    """BFGS: the inverse that takes the change of the gradient to `step`, as before elsewhere; rho = 1/⟨step, change⟩.

    bent = inverse @ change, bend = ⟨bent, change⟩. And what makes of inverse @ g the product of the mended one, from
    ⟨step, g⟩ and ⟨bent, g⟩ too. Where the change tells of no curvature (rho = 0) the inverse stays as it is.
    """
    lean = jnp.where(rho > 0, rho * bent, 0.0)  # a change that is not finite would spoil a product even with 0
    back = jnp.where(rho > 0, jnp.maximum(rho + rho * (rho * bend), 0.0), 0.0)

    def mended(product: Vector, along: Array, across: Array) -> Vector:
        return product - lean * along + step * (back * along - jnp.where(rho > 0, rho * across, 0.0))

    a, b, c = (v.astype(inverse.dtype) for v in (lean, step, jnp.sqrt(back) * step))  # each of a size that it can hold
    new = inverse - jnp.outer(a, b) - jnp.outer(b, a) + jnp.outer(c, c)
    return jnp.where(rho > 0, new, inverse), mended


def newton_like(
    gradient: Callable[[Vector], Vector],
    hessian: Callable[[Vector], Array],
    solver: Solver,
    how: SolverSettings,
    tolerance: Array | float,
) -> Solver:
    """Solve gradient(x) = 0 to norm `tolerance` for a strongly convex function with the given Hessian."""
    identity = jnp.eye(solver.x.shape[0], dtype=solver.x.dtype)

    def invert(h: Array) -> Array:
        trace = jnp.trace(h)  # a shift of rounding size keeps the factor of a singular Hessian finite
        shift = jnp.where(trace > 0, 10 * jnp.finfo(h.dtype).eps * trace, 1.0)
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(h + shift * identity), True), identity)

    def open_(c: tuple) -> Bool[Array, ""]:
        return (c[2] == 0) | ((c[8] > tolerance) & (c[2] < how.max_steps) & ~c[5])

    def step(c: tuple) -> tuple:
        """A look at the gradient of one more point.

        The first is where the last solve ended. While few steps are in sight, a step goes as far as the kept inverse
        says and mends it. Else the next is a damped Newton step from a fresh Hessian, halved until it is short enough.
        """
        x, g, n, inverse, ready, _, length, toward, before = c
        first, damped = n == 0, ~ready & (n > 0)

        def renewed(c: tuple) -> tuple:
            fresh = invert(hessian(c[0]))
            return c[0] - fresh @ g, fresh.astype(inverse.dtype), fresh @ g, jnp.array(False)

        # Of a batch, a branch would cost everybody what one of them needs; a loop goes on while anybody needs it. This
        # one goes from a point that it moves: the compiler would compute what is the same each time before, for all.
        fresh = damped & (length == 1) & open_(c)
        ahead = jnp.where(fresh, x, x - length * toward), inverse, toward, fresh
        new_x, inverse, toward, _ = jax.lax.while_loop(lambda c: c[3], renewed, ahead)
        new_g = gradient(new_x)
        product = (inverse @ new_g.astype(inverse.dtype)).astype(x.dtype)
        move, change, bent = new_x - x, new_g - g, product - toward
        square, curvature, bend, along, across, *lengths = _products(
            (new_g, new_g), (move, change), (bent, change), (move, g), (bent, g), (move, move), (change, change)
        )
        after = jnp.sqrt(square)
        enough = damped & ((after <= (1 - length / 4) * before) | (length < SHORTEST))
        stuck = enough & ~(after < before)  # rounding error is all that is left: the residual says how much
        taken = first | jnp.where(damped, enough & ~stuck, after < before)
        fast = before / tolerance < (before / after) ** PATIENCE
        rho = _curved(curvature, jnp.sqrt(lengths[0]) * jnp.sqrt(lengths[1]))
        learnt, mended = _mended(inverse, bent, move, rho, bend)
        g, toward = jnp.where(taken, new_g, g), jnp.where(taken, product, toward)
        along, across = jnp.where(taken, along + curvature, along), jnp.where(taken, across + bend, across)
        return (
            jnp.where(taken, new_x, x), g, n + 1, jnp.where(damped, inverse, learnt),
            jnp.where(first, ready, jnp.where(damped, enough, fast)), stuck,
            jnp.where(damped & ~enough, length / 2, 1.0), jnp.where(damped, toward, mended(toward, along, across)),
            jnp.where(taken, after, before),
        )  # fmt: skip

    # One loop, as the gradient is compiled as often as it is written.
    none, one = jnp.zeros_like(solver.x), jnp.ones((), solver.x.dtype)
    start = (solver.x, none, jnp.array(0), solver.inverse, solver.ready, jnp.array(False), one, none, 0 * one)
    x, _, n, inverse, ready, *_, left = jax.lax.while_loop(open_, step, of_a_batch(start, solver.x))
    return solver.at(x, left, n, inverse=inverse, ready=ready)


def quasi_newton(
    value_and_gradient: Callable[[Vector], tuple[Array, Vector]],
    solver: Solver,
    how: SolverSettings,
    tolerance: Array | float,
) -> Solver:
    """L-BFGS with backtracking; a local minimiser of any smooth function, to gradient norm `tolerance`."""
    norm = jnp.linalg.norm

    def base(pairs: tuple) -> Callable[[Vector], Vector]:
        s, y, rho = pairs
        scale = jnp.where(rho[0] > 0, jnp.dot(s[0], y[0]) / jnp.maximum(jnp.dot(y[0], y[0]), 1e-300), 1.0)
        return lambda v: scale.astype(v.dtype) * v

    def step(c: tuple) -> tuple:
        x, f, g, n, pairs, _ = c
        direction = _two_loop(g, pairs, base(pairs))
        slope = jnp.dot(direction, g)
        direction = jnp.where(slope > 0, direction, g)
        slope = jnp.where(slope > 0, slope, jnp.dot(g, g))
        first = jnp.where(pairs[2][0] > 0, 1.0, jnp.minimum(1.0, 1 / norm(g))).astype(x.dtype)

        def good(f2: Array, g2: Vector, length: Array) -> Bool[Array, ""]:
            flat = jnp.abs(f2 - f) <= 8 * jnp.finfo(x.dtype).eps * jnp.abs(f)  # values can no longer tell
            return (f2 <= f - 1e-4 * length * slope) | (flat & (norm(g2) < norm(g)))

        def shorter(b: tuple) -> tuple:
            length = b[3] / 2
            x2 = x - length * direction
            return (x2, *value_and_gradient(x2), length, b[4] + 1)

        x1 = x - first * direction
        start = of_a_batch((x1, *value_and_gradient(x1), first, jnp.array(1)), x1)
        keep_on = lambda b: ~good(b[1], b[2], b[3]) & (b[4] < 25)  # noqa: E731
        x2, f2, g2, length, tries = jax.lax.while_loop(keep_on, shorter, start)
        ok = good(f2, g2, length)
        pairs = _remember(pairs, jnp.where(ok, x2 - x, 0), jnp.where(ok, g2 - g, 0))
        return jnp.where(ok, x2, x), jnp.where(ok, f2, f), jnp.where(ok, g2, g), n + tries, pairs, ok

    f, g = value_and_gradient(solver.x)
    start = of_a_batch((solver.x, f, g, jnp.array(1), _no_pairs(solver.x), jnp.array(True)), solver.x)
    end = jax.lax.while_loop(lambda c: c[5] & (norm(c[2]) > tolerance) & (c[3] < how.max_steps), step, start)
    return solver.at(end[0], norm(end[2]), end[3])


Progress = tuple[Vector, Vector, Array, Array, Array, Array]  # x, ahead, momentum, residual, steps, curvature


def projected(
    gradient: Callable[[Vector], Vector],
    project: Callable[[Vector], Vector],
    smooth: Array | float,
    solver: Solver,
    how: SolverSettings,
    tolerance: Array | float,
    bounded: bool = True,
) -> Solver:
    """Minimise over a convex set; `smooth` bounds the curvature. Residual: norm of the gradient mapping.

    Where no bound is known (`bounded` = False) it is found by doubling, which takes as long as the data say.
    """

    def step(c: Progress) -> Progress:
        x, y, momentum, _, n, bend = c
        g = gradient(y)

        def too_flat(bend: Array) -> Bool[Array, ""]:
            move = project(y - g / bend) - y
            return jnp.dot(gradient(y + move) - g, move) > bend * jnp.dot(move, move)

        if not bounded:
            bend = jax.lax.while_loop(too_flat, lambda b: 2 * b, bend)
        new = project(y - g / bend)
        residual = bend * jnp.linalg.norm(new - y)
        restart = jnp.dot(y - new, new - x) > 0
        m = jnp.where(restart, 1.0, momentum)
        following = (1 + jnp.sqrt(1 + 4 * m**2)) / 2
        ahead = jnp.where(restart, new, new + (m - 1) / following * (new - x))
        return new, ahead, following, residual, n + 1, bend

    x, one = project(solver.x), jnp.ones((), solver.x.dtype)
    start = (x, x, one, jnp.inf * one, jnp.array(0), smooth * one if bounded else one)
    unfinished = lambda c: (c[3] > tolerance) & (c[4] < 50 * how.max_steps)  # noqa: E731
    end = jax.lax.while_loop(unfinished, step, of_a_batch(start, x))
    return solver.at(end[0], end[3], end[4])


def sure_steps(
    far: Array | float, low: Array | float, high: Array | float, tolerance: Array | float, within: bool = False
) -> tuple[Array, Array, Array]:
    r"""(steps, length, momentum) that bring any function to gradient norm `tolerance` from `far` off its minimiser.

    Its curvature lies between `low` = m and `high` = M, κ = M/m. Two methods are proved; the shorter is taken:
    gradient descent, steps 2/(M + m):            ‖∇(x_k)‖ ≤ M ((κ − 1)/(κ + 1))^k far
    Nesterov's, steps 1/M, momentum (√κ−1)/(√κ+1): ‖∇(x_k)‖ ≤ √(M (M + m)) (1 − 1/√κ)^{k/2} far
    (Nesterov 2004, Thm 2.1.15 and 2.2.3 with ‖∇‖² ≤ 2M (f − f*), f(x₀) − f* ≤ M far²/2). Half of the tolerance is left
    to rounding. `within` a set the same bounds the gradient mapping, the first method with 2M for M: see
    docs/theory/sets.md.
    """
    root = jnp.sqrt(high / low)
    aim = jnp.maximum(1.0, 2 * high * far / tolerance)
    slow = jnp.log(2 * aim if within else aim) / -jnp.log1p(-2 * low / (high + low))
    fast = 2 * jnp.log(aim * jnp.sqrt(1 + low / high)) / -jnp.log1p(-1 / jnp.maximum(root, 1 + 1e-9))
    plain = slow <= fast
    steps = jnp.ceil(jnp.where(plain, slow, fast))
    return steps, jnp.where(plain, 2 / (high + low), 1 / high), jnp.where(plain, 0.0, (root - 1) / (root + 1))


def surely(
    gradient: Callable[[Vector], Vector],
    start: Vector,
    far: Array | float,
    low: Array | float,
    high: Array | float,
    solver: Solver,
    tolerance: Array | float,
    fixed: bool,
    project: Callable[[Vector], Vector] | None = None,
) -> Solver:
    """The solver's answer if it is good enough, else that of as many gradient steps as are enough for any function.

    `start` is within `far` of the minimiser. `fixed`: take those steps from there whatever the solver has. Where `low`
    is 0 or more than `MOST_STEPS` are needed, nothing is sure; private algorithms are not run then. `project`: over a
    set; every step ends in it, and its residual is that of the gradient mapping.
    """
    steps, length, momentum = sure_steps(far, low, high, tolerance, project is not None)
    steps = jnp.where(jnp.isfinite(steps), jnp.minimum(steps, MOST_STEPS), 0)
    inside = project or (lambda x: x)

    def left(x: Vector, g: Vector) -> tuple[Vector, Array]:
        """What is handed out at a point with this gradient, and how far from solved it is at most, times `low`."""
        if project is None:
            return x, jnp.linalg.norm(g)
        end = inside(x - g / high)
        return end, high * jnp.linalg.norm(end - x)

    def step(c: tuple) -> tuple:  # the first only looks at the start; the last ends where no momentum carries it on
        x, y, g, k, _ = c
        new = jnp.where(k < 0, y, inside(y - length * g))
        ahead = new + jnp.where(k + 1 < steps, momentum, 0.0) * (new - x)
        g = gradient(ahead)
        return new, ahead, g, k + 1, left(ahead, g)[1]

    def unfinished(c: tuple) -> Bool[Array, ""]:
        return (c[3] < 0) | ((c[3] < steps) & (fixed | (c[4] > tolerance)))

    def descended(start: Vector) -> tuple[Vector, Array, Array]:
        """Where the steps lead, how far from solved that is, and how many were taken."""
        if project is not None:  # one step more, after which the value too is known to be near the least
            start = inside(start)
            start = left(start, gradient(start))[0]
        begun = start, start, 0 * start, -jnp.ones((), steps.dtype), jnp.zeros((), start.dtype)
        _, y, g, k, far_off = jax.lax.while_loop(unfinished, step, of_a_batch(begun, start))
        return left(y, g)[0], far_off, k

    if fixed:
        x, reached, k = descended(start)
        return solver.at(x, reached, k.astype(solver.steps.dtype))
    # A loop that is gone through once or not at all: in a batch a branch would cost everybody these gradients. It goes
    # from what it carries, or the compiler would move all of it out of the loop.
    done = (solver.residual <= tolerance) | (steps == 0)
    still = jnp.where(done, solver.x, start), solver.residual, jnp.zeros((), steps.dtype), done
    still = of_a_batch(still, solver.x)
    x, reached, k, _ = jax.lax.while_loop(lambda c: ~c[3], lambda c: (*descended(c[0]), jnp.array(True)), still)
    return solver.at(x, reached, k.astype(solver.steps.dtype))
