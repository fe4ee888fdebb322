"""What an exchange promises, in words and numbers, for reports: who learns what, and what that costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from coterie.privacy.accountants import Account

__all__ = ["EVERY_MESSAGE", "Claim", "Statement", "ToldClaim", "ToldStatement"]

EVERY_MESSAGE = "sees every message of every round, and knows every record but one"
"""The default adversary. Every other one sees less, and is named with its claim."""


class ToldClaim(TypedDict):
    """A claim in result.json; an infinite ε is None."""

    name: str
    adversary: str
    epsilon: float | None
    delta: float
    accountant: str
    adjacency: str


class ToldStatement(TypedDict):
    """The part `exchange` of result.json."""

    exchange: str
    colluders: int | None
    epsilon: float
    revealed: str
    sums: str
    assumptions: list[str]
    claim: ToldClaim | None
    text: str


@dataclass(frozen=True)
class Claim:
    """A guarantee with its name and the adversary that it holds against."""

    name: str
    adversary: str
    account: Account

    @property
    def local(self) -> bool:
        """Whether it holds against the default adversary."""
        return self.adversary == EVERY_MESSAGE

    def as_json(self) -> ToldClaim:
        """For result.json; an infinite ε is null."""
        total = self.account
        epsilon = float(total.epsilon) if math.isfinite(total.epsilon) else None
        return {
            "name": self.name, "adversary": self.adversary, "epsilon": epsilon, "delta": total.delta,
            "accountant": total.accountant, "adjacency": total.adjacency,
        }  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """The security of one exchange. `epsilon` is what the exchange itself costs to at most `colluders` parties."""

    exchange: str
    colluders: int | None  # None: no limit, nothing is hidden by the exchange
    epsilon: float
    revealed: str  # what they learn
    sums: str  # what that costs
    assumptions: tuple[str, ...]
    claim: Claim | None = None

    def text(self) -> str:
        """One paragraph."""
        if self.colluders is None:
            return f"{self.exchange}: {self.revealed}. {self.sums}."
        words = (
            f"{self.exchange}: up to {self.colluders} honest-but-curious colluders learn {self.revealed}, and nothing "
            f"else: the exchange itself costs ε = {self.epsilon:g}. {self.sums}. "
            f"Assumed: {'; '.join(self.assumptions)}."
        )
        if self.claim is not None:
            total = self.claim.account
            words += f" {self.claim.name}: ({total.epsilon:.4g}, {total.delta:g})-DP against an adversary who "
            words += f"{self.claim.adversary}."
        return words

    def as_json(self) -> ToldStatement:
        """For result.json."""
        return {
            "exchange": self.exchange, "colluders": self.colluders, "epsilon": self.epsilon, "revealed": self.revealed,
            "sums": self.sums, "assumptions": list(self.assumptions),
            "claim": None if self.claim is None else self.claim.as_json(), "text": self.text(),
        }  # fmt: skip
