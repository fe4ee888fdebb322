"""What an exchange promises, in words and numbers, for reports: who learns what, and what that costs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.privacy.accountants import Account

__all__ = ["EVERY_MESSAGE", "Claim", "Statement", "check_threshold", "secret_sum_statement", "tolerated"]

EVERY_MESSAGE = "sees every message of every round, and knows every record but one"
"""The default adversary. Every other one sees less, and is named with its claim."""


def tolerated(parties: int, threshold: int | None) -> int:
    """How many parties may pool what they see without learning more than the sum of the others.

    Without a threshold N − 2. With one, colluders must not recover a secret alone (fewer than t), leave two honest
    contributions in a sum of t (at most t − 2), and not profit when honest parties disagree about who survived: both
    secrets of one owner need t shares each, of which colluders hold both and others give one, so fewer than 2t − N.
    """
    return parties - 2 if threshold is None else min(threshold - 2, 2 * threshold - parties - 1)


def check_threshold(parties: int, threshold: int) -> None:
    """Refuse a threshold that no number of parties can reach, or that protects against nobody."""
    if threshold > parties or tolerated(parties, threshold) < 1:
        least = max(3, (parties + 3) // 2)
        raise InputError(f"threshold must be in {least}..{parties} for {parties} parties, got {threshold}")


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


def secret_sum_statement(
    parties: int, threshold: int | None = None, claim: Claim | None = None, *, paid: str | None = None
) -> Statement:
    """The statement of a secret sum. `paid` says what guarantee the summed messages carry themselves, if any."""
    sums = "their own vectors and, each round, the sum of all the others'"
    if threshold is not None:
        sums += " who answered"
    cost = "The opened sums are exact: they are not private" if paid is None else f"The opened sums carry {paid}"
    assumptions = [
        "parties follow the protocol",
        "public keys are authentic",
        "two honest parties at least: with N − 1 colluders everything is open",
        "with exactly two honest parties their pair sum is what is revealed",
    ]
    if threshold is not None:
        assumptions += [f"a round needs {threshold} of {parties} parties; below that it aborts and nothing is opened"]
        assumptions += ["the stated number holds even if parties disagree about who answered"]
    kind = "secret-sum" if threshold is None else f"secret-sum with threshold {threshold}"
    return Statement(kind, tolerated(parties, threshold), 0.0, sums, cost, tuple(assumptions), claim)
