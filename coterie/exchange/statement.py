"""What an exchange promises, in words and numbers, for reports: who learns what, and what that costs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.privacy.accountants import Account

__all__ = ["EVERY_MESSAGE", "Claim", "Statement"]

EVERY_MESSAGE = "sees every message of every round, and knows every record but one"
"""The default adversary. Every other one sees less, and is named with its claim."""


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

    def as_json(self) -> dict[str, Any]:
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

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        claim = None if self.claim is None else self.claim.as_json()
        return asdict(self) | {"assumptions": list(self.assumptions), "text": self.text(), "claim": claim}
