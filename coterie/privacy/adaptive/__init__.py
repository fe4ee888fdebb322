"""How much noise the next round gets, by a public rule from what was released: one file each, found and never listed.

A rule is a function `rule(round, released)` that returns the round's noise as a multiple of the planned one: 1 spends
what was planned for the round, ½ four times that, 2 a quarter. It sees `History`, which holds messages that were sent,
their noise, and nothing else: its answer is a function of what a reader of every message has anyway. What is spent is
kept within its limit by a filter (`coterie.drivers.adaptive`, docs/theory/adaptive.md).

A file has `make(…)`, whose keyword arguments are its options (`privacy.adaptive_options` of a plan) and which returns
the rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.found import Kinds

__all__ = ["RULES", "History", "Rule", "make"]

RULES = Kinds("adaptive rule", __name__)
"""Every rule, by name."""


@dataclass(frozen=True)
class History:
    """What everybody has seen before a round."""

    messages: NDArray[np.floating]  # (rounds so far, parties, numbers): what each party said; may not be written to
    noise: tuple[float, ...]  # of those rounds, as multiples of the planned; 0 where none was due
    left: float  # share of the limit that is not spent yet


Rule = Callable[[int, History], float]
"""How much noise a round gets, as a multiple of the planned, by its number and what was released before it."""


def make(name: str, options: Mapping[str, float]) -> Rule:
    """The rule of that name with these options."""
    maker = RULES.load(name, "make").make
    try:
        inspect.signature(maker).bind(**options)
    except TypeError:
        raise InputError(f"adaptive rule {name!r} does not take {', '.join(options)}") from None
    rule: Rule = maker(**options)
    return rule
