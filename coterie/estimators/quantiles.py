"""Bins at private quantiles for the additive estimators: released first, and paid from the same budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from coterie.api.accounts import as_account, need_unseeded
from coterie.data.encode import Category, Number
from coterie.errors import InputError
from coterie.estimators.base import Consensus
from coterie.privacy.events import Event
from coterie.privacy.filter import BudgetExceeded
from coterie.privacy.ledger import Budget, MemoryLedger
from coterie.privacy.people import units_of
from coterie.released.quantile_bins import QUANTILES, quantile_edges, split_budget

__all__ = ["Quantiles"]

STREAM = 0x9A17  # of the quantiles' noise, beside that of training


@dataclass(frozen=True)
class _PaidFirst:
    """What was released before training, and what is left for it."""

    edges: dict[str, list[float]]
    events: tuple[Event, ...]
    whole: Budget
    rest: Budget


class Quantiles(Consensus, ABC):
    """What estimators with bins do about `bins = "quantiles"`."""

    bins: Mapping[object, object] | str | None
    quantile_share: float
    _paid: _PaidFirst | None

    @abstractmethod
    def _bins(self, named: dict[str, Number | Category]) -> object:
        """The bins of these columns."""

    def _rules(self, book: Mapping[str, Number | Category]) -> dict[str, object]:
        """What is said of each column's bins; a number whose edges were paid for has them."""
        if isinstance(self.bins, str):
            if self.bins != QUANTILES:
                raise InputError(f"bins must be a dictionary by column or {QUANTILES!r}, got {self.bins!r}")
            said: dict[str, object] = {name: QUANTILES for name, rule in book.items() if isinstance(rule, Number)}
        elif self.bins is not None and not isinstance(self.bins, Mapping):
            raise InputError(f"bins must be a dictionary by column or {QUANTILES!r}, got {self.bins!r}")
        else:
            said = {str(name): rule for name, rule in (self.bins or {}).items()}
        for name, rule in said.items():
            if isinstance(rule, str) and rule == QUANTILES and isinstance(book.get(name), Category):
                raise InputError(f"bins[{name!r}] = {QUANTILES!r}: {name!r} is a category, whose levels are its bins")
        return said

    def _pay_for_quantiles(
        self,
        table: pd.DataFrame,
        book: dict[str, Number | Category],
        agents: ArrayLike | None,
        people: object,
        given: object,
    ) -> ArrayLike | None:
        """Release the quantiles that are asked for; returns who holds which record, the same as training will have."""
        self._paid = None
        said = self._rules(book)
        asked = {n: r for n, r in book.items() if isinstance(r, Number) and isinstance(said.get(n), str)
                 and said[n] == QUANTILES}  # fmt: skip
        if not asked:
            return agents
        if people is not None:
            raise InputError(f"bins = {QUANTILES!r} are of records, and people are the unit: state steps or edges")
        if isinstance(self.epsilon, Sequence | np.ndarray):
            raise InputError(f"bins = {QUANTILES!r} need one epsilon for all parties, got {list(self.epsilon)}")
        self._bins(book)  # what cannot be is refused before anything is released
        whole = Budget(float(self.epsilon), self.delta)
        first, rest = split_budget(whole, self.quantile_share)
        seeds = self._seeds()
        parts, names = self._parts(agents, len(table), seeds.split)
        known = isinstance(self.random_state, int | np.integer)
        words = np.random.SeedSequence([seeds.noise, STREAM]).generate_state(1, np.uint32 if known else np.uint64)
        account = as_account(self.account)
        need_unseeded(account, self.random_state, "random_state")  # before anything is drawn for what is refused later

        def charge(events: Sequence[Event], delta: float) -> None:
            if account is not None:
                account.charge(events, what="quantiles", kind="fit", data=given)

        edges, events = quantile_edges(
            [table.iloc[part] for part in parts], asked, first, names=names, charge=charge,
            seed=None if self.random_state is None else int(words[0]),
        )  # fmt: skip
        self._paid = _PaidFirst(edges, tuple(events), whole, rest)
        holders: NDArray = np.empty(len(table), dtype=object)
        for name, part in zip(names, parts, strict=True):
            holders[part] = name
        return holders

    def _edges(self, said: dict[str, object]) -> dict[str, object]:
        """The rules with the edges that were paid for; before that, with those of the neutral rule."""
        paid = {} if self._paid is None else self._paid.edges
        return {n: paid.get(n, True) if isinstance(r, str) and r == QUANTILES else r for n, r in said.items()}

    def _budget(self) -> Budget | list[Budget]:
        paid = getattr(self, "_paid", None)
        return super()._budget() if paid is None else paid.rest

    def _add_quantiles(self) -> None:
        """Every party's ledger with the quantiles, which came first; what was spent, and by whom, is of both."""
        if self._paid is None:
            return
        books: dict[str, MemoryLedger] = {}
        self.epsilon_spent_, self.protects_ = np.inf, None  # of training alone: too little, should this be refused
        for name, book in self.ledger_.items():
            events = [*self._paid.events, *(entry.event for entry in book.entries)]
            try:
                books[name] = MemoryLedger(self._paid.whole, plan=events)
            except BudgetExceeded:
                raise InputError(
                    f"{self.algorithm_} with these settings is not priced by Gaussian events alone, as bins = "
                    f"{QUANTILES!r} need: use dp-dsgd without batches"
                ) from None
            for event in events:
                books[name].charge(0, event)
        self.ledger_ = books
        self.epsilon_spent_ = max(book.spent() for book in books.values())
        dearest = sorted(books.values(), key=lambda book: -book.spent())
        each = [[entry.event for entry in book.entries] for book in dearest]
        self.protects_ = units_of(each, self.epsilon_spent_, self.delta, by_person=False, summed=False)
