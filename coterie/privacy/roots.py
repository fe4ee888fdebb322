"""A root in a bracket by Brent's method: SciPy's `brentq` to the bit, without loading its optimisers.

Loading those takes a quarter of a second and 20 MB, at every party and every command that prices a plan.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["brentq"]

EPSILON = 4 * 2.0**-52


def brentq(
    f: Callable[[float], float], a: float, b: float, *, xtol: float = 2e-12, rtol: float = EPSILON, maxiter: int = 100
) -> float:
    """A root of f between a and b, where f has different signs.

    >>> brentq(lambda x: x**2 - 2, 0.0, 2.0)
    1.4142135623731364
    """
    before, now = float(a), float(b)  # the last two points
    f_before, f_now = float(f(before)), float(f(now))
    if f_before == 0:
        return before
    if f_now == 0:
        return now
    if not f_before * f_now < 0:
        raise ValueError(f"f has no change of sign between {a} and {b}: {f_before} and {f_now}")
    other = f_other = step = last = 0.0  # the end of the bracket across the root; the next step, and the one before
    for _ in range(maxiter):
        if f_before != 0 and f_now != 0 and (f_before < 0) != (f_now < 0):
            other, f_other = before, f_before
            step = last = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        enough = (xtol + rtol * abs(now)) / 2
        half = (other - now) / 2
        if f_now == 0 or abs(half) < enough:
            return now
        if abs(last) > enough and abs(f_now) < abs(f_before):
            if before == other:  # secant
                wanted = -f_now * (now - before) / (f_now - f_before)
            else:  # through three points
                one, two = (f_before - f_now) / (before - now), (f_other - f_now) / (other - now)
                wanted = -f_now * (f_other * two - f_before * one) / (two * one * (f_other - f_before))
            if 2 * abs(wanted) < min(abs(last), 3 * abs(half) - enough):
                last, step = step, wanted
            else:
                last = step = half
        else:
            last = step = half
        before, f_before = now, f_now
        if abs(step) > enough:
            now += step
        else:
            now += enough if half > 0 else -enough
        f_now = float(f(now))
    raise RuntimeError(f"no root after {maxiter} steps between {a} and {b}")
