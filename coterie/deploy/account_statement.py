"""A data set's account as it stands, in words for people and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.deploy.account_rows import Contents, Draw, Epoch
from coterie.privacy.lifetime import Lifetime

__all__ = ["AccountStatement"]


@dataclass(frozen=True)
class AccountStatement:
    """An account as it stands. `print` it for people; `as_json` for programs.

    Attributes:
        path, name, identity, created: which one, and since when.
        rules: budget, unit, measure, adjacency, whom it holds against.
        draws: all, oldest first.
        epochs: of the records, oldest first.
        holders: who may draw.
        closed: why nothing is drawn any more; None: it is open.
        spent: ε that a record (or a person) has paid who was in the data all the time, at the account's δ.
        left: ε of the largest single draw that still fits, at the same δ. Not the difference: μ² adds, not ε.
        known: names of the files or tables that may be drawn for.
    """

    path: Path
    name: str
    identity: str
    created: str
    rules: Lifetime
    draws: tuple[Draw, ...]
    epochs: tuple[Epoch, ...]
    holders: tuple[str, ...]
    closed: str | None
    spent: float
    left: float
    known: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, found: Contents) -> AccountStatement:
        """Of what was read."""
        meta, rules = found.meta, found.rules
        return cls(
            path, meta.name, meta.identity, meta.created, rules, tuple(found.draws.values()), tuple(found.epochs),
            tuple(found.holders), found.closed, rules.epsilon(found.spent), rules.left(found.spent),
            tuple(found.known.values()),
        )  # fmt: skip

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        rules = self.rules
        return {
            "path": str(self.path), "name": self.name, "identity": self.identity, "created": self.created,
            "epsilon": rules.budget.epsilon, "delta": rules.budget.delta, "unit": rules.unit,
            "records_per_person": rules.most, "measure": rules.measure, "adjacency": rules.adjacency,
            "against": rules.against, "spent": self.spent, "left": self.left, "closed": self.closed,
            "may_draw": list(self.holders),
            "epochs": [{"number": e.number, "data": list(e.data), "all_new": e.all_new, "by": e.by,
                        "created": e.created} for e in self.epochs],
            "draws": [{"number": d.number, "key": d.key, "kind": d.kind, "what": d.what, "by": d.by, "unit": d.unit,
                       "epsilon": d.epsilon, "epoch": d.epoch, "created": d.created, "settled": d.settled,
                       "events": d.written} for d in self.draws],
        }  # fmt: skip

    def __str__(self) -> str:
        rules = self.rules
        who = {"record": "a record", "person": "a person"}[rules.unit]
        if rules.most is not None:
            who += f" with at most {rules.most} records, changed and not more or fewer of them"
        lines = [
            f"account of {self.name}, opened {self.created}" + (f", closed: {self.closed}" if self.closed else ""),
            f"spent ε {self.spent:.4g} of {rules.budget.epsilon:g} at δ {rules.budget.delta:g}, for {who} in the data "
            f"all the time, in {len(self.draws)} draw{'' if len(self.draws) == 1 else 's'}",
            "nothing is left" if self.left == 0 or self.closed else f"one more draw of at most ε {self.left:.4g} fits",
        ]
        return "\n".join(lines)
