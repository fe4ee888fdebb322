r"""What a claim for one record, or for one person, means for somebody who has several of them.

**Several records at one party** (`of_group`). Let one replacement cost what `events` say. Replacing k records, one
after the other, moves what Gaussian noise hides by k sensitivities at most: μ becomes k μ, exactly. Of any other law:
(ε, δ) for one gives (kε, δ (e^{kε} − 1)/(e^ε − 1)) for k (Vadhan 2017, Lemma 2.2); ε is read off the accountant's curve
at the δ for which that comes out at the δ that is asked for. These are upper bounds, by accountants with closed forms.

**One person at several parties** (`at_parties`). Who reads the messages of all of them sees one mechanism for each, and
the events of all compose: μ = √Σμ_i² of Gaussian ones. In an opened sum the person moves one number by what it moves at
each of them: μ = Σμ_i, which is at most k times the largest (`of_group`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from coterie.errors import InputError
from coterie.privacy.accountants import curve_of
from coterie.privacy.events import Event, Free, Gaussian

__all__ = ["at_parties", "of_group"]

STEPS = 60  # halvings of the search for a δ
LEAST = -230.0  # of ln δ that is looked at: e^−230 = 1e-100


def of_group(events: Iterable[Event], k: int, delta: float, *, lawful: bool = False) -> float:
    """ε at δ for somebody who has k of what `events` are the price of replacing one of; ∞ where nothing is left.

    `lawful`: of the declared law of the noise. How far real samplers are from it, some 1e-32 a number, costs e^ε times
    that in δ: an ε beyond 60 has no room for it, and says what it has to say without.

    >>> from coterie.privacy.gdp import mu_for
    >>> one = [Gaussian(float(mu_for(1.0, 1e-5)), 1.0)]
    >>> [round(of_group(one, k, 1e-5), 2) for k in (1, 2, 5, 10, 40)]
    [1.0, 2.15, 6.17, 14.43, 102.37]
    """
    listed = [replace(e, tv=0 * np.asarray(e.tv)) if lawful else e for e in events]
    if k < 1:
        raise InputError(f"a group has at least one member, got {k}")
    if all(isinstance(event, Gaussian | Free) for event in listed):
        moved = [
            replace(e, sensitivity=k * np.asarray(e.sensitivity)) if isinstance(e, Gaussian) else e for e in listed
        ]
        return curve_of(moved)(delta)
    curve = curve_of(listed)
    if k == 1 or not math.isfinite(curve(delta)):
        return curve(delta)
    if delta == 0:  # k steps, each of which costs the pure ε
        return k * curve(delta)

    def grown(log_delta: float) -> float:
        """ln of the δ of the group where one has e^`log_delta`."""
        eps = curve(math.exp(log_delta))
        if not math.isfinite(eps) or eps > 600:
            return math.inf
        more = (
            math.log(k) if eps == 0 else (k - 1) * eps + math.log1p(-math.exp(-k * eps)) - math.log1p(-math.exp(-eps))
        )
        return log_delta + more

    wanted, low, high = math.log(delta), LEAST, math.log(delta)
    if not grown(low) <= wanted:
        return math.inf
    for _ in range(STEPS):  # the largest δ of one that is small enough: less costs a larger ε
        middle = (low + high) / 2
        low, high = (middle, high) if grown(middle) <= wanted else (low, middle)
    return k * curve(math.exp(low))


def at_parties(each: Sequence[Iterable[Event]], delta: float) -> float:
    """ε at δ for a person whom several parties know, against who reads the messages of all of them.

    >>> round(at_parties([[Gaussian(0.3, 1.0)], [Gaussian(0.4, 1.0)]], 1e-5), 6) == round(
    ...     at_parties([[Gaussian(0.5, 1.0)]], 1e-5), 6)
    True
    """
    return curve_of(event for events in each for event in events)(delta)
