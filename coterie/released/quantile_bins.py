r"""Bins at quantiles of the records, which are paid for: noisy counts of a fine public grid, and edges read off them.

Counts of C columns are one release (`coterie.released.statistics`): one Gaussian event with Δ² = 2C h² whatever the
grid, so its cells may be many. Edges are a function of what was released. Both the counts and what is trained on the
bins are paid for: with the share r of μ² for counts, √r μ and √(1 − r) μ compose to μ exactly, also because the bins of
the training are chosen by the counts (adaptive composition of Gaussian events).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.encode import Number
from coterie.errors import InputError
from coterie.privacy import gdp
from coterie.privacy.events import Event
from coterie.privacy.ledger import Budget
from coterie.released.once import Charge, events_of
from coterie.released.statistics import statistics
from coterie.released.table_statistics import TableStatistics

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BINS", "CELLS", "QUANTILES", "edges_of", "quantile_edges", "split_budget"]

QUANTILES = "quantiles"
BINS = 10
CELLS = 64  # of the public grid
SPARE = 1e-6  # of μ, for what searches for noise leave over


def edges_of(told: TableStatistics, column: str, bins: int = BINS) -> list[float]:
    """Edges between bins that hold about equally many records, by what was released; fewer where values repeat."""
    if isinstance(bins, bool) or not isinstance(bins, int) or not 2 <= bins <= CELLS:
        raise InputError(f"quantiles make 2 to {CELLS} bins, got {bins!r}")
    found = [told.quantile(column, k / bins).value for k in range(1, bins)]
    rule = told.rules[told.names.index(column)]
    assert isinstance(rule, Number)
    least, last, edges = 1 / (10 * CELLS), 0.0, []
    for value, place in zip(found, rule.scale(np.array(found)).tolist(), strict=True):
        if place - last > least and 1 - place > least:  # apart on the column's own scale, which may be a logarithm
            edges.append(value)
            last = place
    return edges or [(rule.low + rule.high) / 2]


def split_budget(budget: Budget, share: float) -> tuple[Budget, Budget]:
    """(for quantiles, for training): together exactly the whole, where training is priced by Gaussian events."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError(f"quantile_share must be between 0 and 1, got {share!r}")
    if not budget.delta > 0:
        raise InputError(f"quantiles are released with Gaussian noise, which needs delta > 0, got {budget.delta}")
    whole = float(gdp.mu_for(budget.epsilon, budget.delta)) * (1 - SPARE)
    parts = (share**0.5 * whole, (1 - share) ** 0.5 * whole)
    one, two = (Budget(float(gdp.epsilon_of(mu, budget.delta)), budget.delta) for mu in parts)
    if not min(one.epsilon, two.epsilon) > 0:
        raise InputError(
            f"epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is too small to be split between quantiles and "
            "training: state steps or edges"
        )
    return one, two


def quantile_edges(
    sites: Sequence[pd.DataFrame], ranges: Mapping[str, Number], budget: Budget, *, bins: int = BINS,
    names: Sequence[str] | None = None, seed: int | None = None, charge: Charge | None = None,
) -> tuple[dict[str, list[float]], list[Event]]:  # fmt: skip
    """Edges of every column from counts with noise of each party's own, and the events that a record pays for them."""
    bounds = {name: (rule.low, rule.high) for name, rule in ranges.items()}
    told = statistics(
        list(sites), budget=budget, bounds=bounds, gaps=list(bounds), bins=CELLS, moments=False, names=names, seed=seed,
        charge=charge,
    )  # fmt: skip
    assert told.once is not None
    edges = {}
    for name, rule in ranges.items():
        try:
            edges[name] = edges_of(told, name, bins)
        except InputError:  # too few values for the noise, which the released numbers say: the middle of the range
            edges[name] = [(rule.low + rule.high) / 2]
    return edges, events_of(told.once.priced)
