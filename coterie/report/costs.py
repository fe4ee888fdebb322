"""What a certificate says of costs: the parts of it, and of which type."""

from __future__ import annotations

from typing import TypedDict

from coterie.privacy.codec import Json

__all__ = ["AlikeAgents", "Named", "OpenedSums", "Paid", "SentAgain", "Totals"]


class Totals(TypedDict):
    """ε of some events by every valid accountant, the smallest, and which one proves it; infinity is "inf"."""

    totals: dict[str, float | str]
    epsilon: float | str
    accountant: str


class Paid(Totals):
    """Events with their totals."""

    events: list[dict[str, Json]]


class Named(Paid):
    """What is paid against one adversary."""

    name: str
    adversary: str


class OpenedSums(Named):
    """What opened sums cost."""

    budget: float
    colluders: int
    must_answer: int
    fraction_bits: int


class SentAgain(Named):
    """What a party's vectors cost if all are sent again that may be."""

    sent_again: int


class AlikeAgents(Paid):
    """What agents in like places pay."""

    members: list[list[int]]
    records: int
    neighbours: int
    budget: float | None
    noise_multiplier: float
    rounds: int
    sent_again: int
