"""Exact discrete samplers from the operating system's randomness: rational parameters, no rounding anywhere.

Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy* (2020), Algorithms 1-3, in big-integer
arithmetic. They are the oracle that the fast tables of `coterie.privacy.secure_table` are held against. How long a
draw takes does not depend on the data, but it does depend on the noise it returns: where an adversary can time
a release, use the tables (timing attack: Jin et al. 2022).
"""

from __future__ import annotations

import math
import secrets
from fractions import Fraction
from numbers import Integral

from coterie.errors import InputError

__all__ = ["exact_discrete_gaussian", "exact_discrete_laplace", "rational"]


def rational(name: str, value: float | Fraction) -> Fraction:
    """`value` as the exact rational number it is; an `InputError` about `name` unless finite and positive.

    >>> rational("scale", 0.75)
    Fraction(3, 4)
    """
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be a finite number > 0, got {value}")
    if isinstance(value, Integral):
        return Fraction(int(value))  # NumPy's integers would overflow in the arithmetic that follows
    return Fraction(*value.as_integer_ratio())


def _bernoulli_exp(n: int, d: int) -> bool:
    """True with probability e^(-n/d), n ≥ 0, d ≥ 1 (Algorithm 1)."""
    while n > d:  # e^(-γ) = e^(-1) e^(-(γ-1))
        if not _bernoulli_exp(1, 1):
            return False
        n -= d
    k = 1  # ends at k with probability γ^(k-1)/(k-1)! - γ^k/k!, and the odd k add up to the series of e^(-γ)
    while secrets.randbelow(d * k) < n:
        k += 1
    return k % 2 == 1


def _discrete_laplace(t: int, s: int) -> int:
    """One draw with P(x) ∝ e^(-|x| s/t) (Algorithm 2)."""
    while True:
        u = secrets.randbelow(t)
        if not _bernoulli_exp(u, t):
            continue
        v = 0
        while _bernoulli_exp(1, 1):
            v += 1
        x = (u + t * v) // s
        negative = secrets.randbits(1)
        if not (negative and x == 0):  # or zero would be counted twice
            return -x if negative else x


def exact_discrete_laplace(scale: float | Fraction) -> int:
    """One draw of the discrete Laplace law P(x) ∝ e^(-|x|/scale) on the integers, with no error.

    A float is taken as the rational number it is.
    """
    return _discrete_laplace(*rational("scale", scale).as_integer_ratio())


def exact_discrete_gaussian(variance: float | Fraction) -> int:
    """One draw of the discrete Gaussian P(x) ∝ e^(-x²/(2 variance)) on the integers, with no error.

    `variance` is the parameter σ², never below the variance of the law (they agree to 1e-6 from σ = 1 on).
    Rejection from a discrete Laplace law (Algorithm 3), accepted with probability ≈ 0.76 for large σ.
    """
    n, d = rational("variance", variance).as_integer_ratio()
    t = math.isqrt(n // d) + 1
    while True:
        y = _discrete_laplace(t, 1)
        # accept with probability e^(-(|y| - σ²/t)²/(2σ²)); both sides of the fraction times (d t)²
        if _bernoulli_exp((abs(y) * t * d - n) ** 2, 2 * n * d * t * t):
            return y
