"""A plan whose bins are at quantiles: what is counted first, the plan that follows, and that both together cost ε.

Bins must be known before a record is read, so a plan that says `problem.bins.age = "quantiles"` is run in two steps,
each with a price, a ledger and an agreement of its own: noisy counts of the columns that are asked for, with the share
r of μ², and the plan with the edges that follow from them, with the rest. √r μ and √(1 − r) μ compose to μ, whatever
the edges are (adaptive composition), where training is priced by Gaussian events: this is checked before anything is
counted. Noise comes from the operating system: two runs with one seed and different shares would give the counts away.
The plan that follows says in `privacy.before` what was paid, and so does all that states its ε.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.data.encode import Number
from coterie.deploy.accounts import DataAccount
from coterie.drivers.seeds import fresh_seed
from coterie.errors import InputError
from coterie.experiment import prepare
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy import gdp
from coterie.privacy.accountants import account as total
from coterie.privacy.events import Gaussian
from coterie.privacy.ledger import Budget
from coterie.released.once import events_of
from coterie.released.quantile_bins import BINS, CELLS, QUANTILES, edges_of, split_budget
from coterie.released.statistics import planned_statistics, table_of
from coterie.released.table_statistics import TableStatistics

__all__ = ["Staged", "staged"]


@dataclass(frozen=True, eq=False)
class Staged:
    """What was counted, the plan with the edges, and what each costs."""

    told: TableStatistics
    tree: dict[str, Any]
    counts: Budget
    training: Budget
    whole: Budget


def staged(
    tree: Mapping[str, Any], *, bins: int = BINS, share: float = 0.1, account: DataAccount | None = None
) -> Staged:
    """Count what the plan's quantiles need, with this share of μ², and return the plan that has the edges."""
    if isinstance(bins, bool) or not isinstance(bins, int) or not 2 <= bins <= CELLS:
        raise InputError(f"quantiles make 2 to {CELLS} bins, got {bins!r}")
    rules = dict((tree.get("problem") or {}).get("bins") or {})
    asked = [name for name, rule in rules.items() if rule == QUANTILES]
    if not asked:
        raise InputError(f"no column of problem.bins is {QUANTILES!r}: there is nothing to be counted first")
    stated = (tree.get("privacy") or {}).get("epsilon", 1.0)
    if isinstance(stated, list):
        raise InputError(f"{QUANTILES} need one privacy.epsilon for all parties, got {stated}")
    bare = copy.deepcopy(dict(tree))
    bare["problem"]["bins"] = {name: rule for name, rule in rules.items() if name not in asked}
    known = validate(bare)
    if known.privacy is not None and known.privacy.before is not None:
        raise InputError("privacy.before says that quantiles were counted already: state the edges that were found")
    if known.privacy is None:
        raise InputError(f"{QUANTILES} are paid for: the plan has no [privacy] table")
    if known.by_person:
        raise InputError(f"{QUANTILES} are of records, and people are the unit: state steps or edges")
    whole = Budget(float(stated), known.privacy.delta)
    first, rest = split_budget(whole, share)
    _need_gaussian(_at(bare, rest), first, whole)
    _need_numbers(known, asked)
    told = planned_statistics(
        _at(bare, first), bins=CELLS, moments=False, seed=None if account is not None else fresh_seed(),
        account=account, columns=asked,
    )  # fmt: skip
    found = _paying(bare, rest)
    found["problem"]["bins"] |= {name: _edges(told, name, bins) for name in asked}
    found["privacy"]["before"] = {"epsilon": first.epsilon, "what": f"bins at quantiles of {', '.join(asked)}"}
    validate(found)
    return Staged(told, found, first, rest, whole)


def _paying(tree: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
    out = copy.deepcopy(dict(tree))
    out["privacy"] = {**out.get("privacy", {}), "epsilon": budget.epsilon}
    return out


def _at(tree: Mapping[str, object], budget: Budget) -> Plan:
    """The plan with this budget, and neutral bins where edges are still to come."""
    return validate(_paying(tree, budget))


def _need_gaussian(training: Plan, first: Budget, whole: Budget) -> None:
    """Refuse an algorithm whose price does not add up with that of the counts to the whole."""
    events = events_of(price(training, prepare(training).network))
    counts = Gaussian(float(gdp.mu_for(first.epsilon, first.delta)), 1.0)
    if not total([counts, *events], whole.delta, fast=True).epsilon <= whole.epsilon * (1 + 1e-9):
        raise InputError(
            f"{training.algorithm.name} with these settings is not priced by Gaussian events alone, as bins at "
            f"{QUANTILES} need: use dp-dsgd without batches, or release"
        )


def _need_numbers(plan: Plan, asked: Sequence[str]) -> None:
    """Refuse a column that does not exist, or that has no quantiles."""
    _, rules, _, _ = table_of(plan)
    for name in asked:
        if name not in rules:
            raise InputError(f"problem.bins.{name}: unknown column; there are {', '.join(rules)}")
        if not isinstance(rules[name], Number):
            raise InputError(f"problem.bins.{name} = {QUANTILES!r}: it is a category, and has no quantiles")


def _edges(told: TableStatistics, name: str, bins: int) -> list[float]:
    """Edges that a plan states; of a column with too little above the noise, the middle of its range."""
    rule = told.rules[told.names.index(name)]
    assert isinstance(rule, Number)
    try:
        found = edges_of(told, name, bins)
    except InputError:
        found = [(rule.low + rule.high) / 2]
    digits = 8 - math.floor(math.log10(rule.high - rule.low))  # of the range: edges of one far from 0 stay apart
    kept = sorted({edge for edge in (round(edge, digits) for edge in found) if rule.low < edge < rule.high})
    return kept or [(rule.low + rule.high) / 2]
