"""A seeded fault: a privacy bug on purpose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault:
    """One bug: which lines of which module become what, and which check finds it."""

    name: str
    module: str  # an algorithm by its slug, or another module below `coterie`
    check: str  # one of those of `coterie.audit.checks`; driver, wire, sums, contract, certificate, loader
    patches: tuple[tuple[str, str], ...]
    changes: dict[str, object] = field(default_factory=dict)  # of the configuration
    options: dict[str, Any] = field(default_factory=dict)  # of `make_setting`, or of the attack on sums
    losses: tuple[str, ...] = ("logistic",)  # on which it is looked for; (): on all that the contract accepts
    runs: str = ""  # the algorithm that is run, if the module is none
    problem: str = ""  # of a module of problems: the one to learn, as it is made there
    put: tuple[str, ...] = ()  # names below `coterie` that are taken from the changed module meanwhile
    slow: bool = False  # its algorithm takes long to compile
    person: bool = False  # whether it is looked for between worlds that differ in a person
