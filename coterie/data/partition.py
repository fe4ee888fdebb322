"""Who holds which record: shards of a data set, and the split into training and test records.

Everything here works on row numbers, and the same seed gives the same rows. Where a data set has `people`, all
records of a person stay together: a person split over two agents would pay at both.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from coterie.data.dataset import Dataset
from coterie.data.partitions import PARTITIONS
from coterie.errors import InputError
from coterie.settings import Settings, read

__all__ = ["by_site", "by_size", "deal", "own_test", "partition", "split", "stated_sizes"]


def partition(
    dataset: Dataset,
    agents: int | None,
    kind: str = "iid",
    *,
    seed: int = 0,
    sizes: int | Sequence[int] | None = None,
    **settings: object,
) -> list[np.ndarray]:
    """Disjoint, non-empty, sorted row numbers of each agent, dealt by a kind that is found.

    `sizes`: of one number, or one per agent, for a kind that keeps to them. `agents` may be None where sites say it.

    >>> from coterie.data import make_clinics
    >>> [len(rows) for rows in partition(make_clinics(), 4, "iid", seed=1)]
    [750, 750, 750, 750]
    """
    return deal(dataset, agents, kind, read(_kind(kind).Settings, settings), seed=seed, sizes=sizes)


def deal(
    dataset: Dataset,
    agents: int | None,
    kind: str,
    settings: Settings,
    *,
    seed: int,
    sizes: int | Sequence[int] | None = None,
) -> list[np.ndarray]:
    """The same with the kind's settings, and what it dealt is looked at."""
    if sizes is not None and not by_size(kind):
        fit = " or ".join(repr(name) for name in PARTITIONS.names if PARTITIONS.ours(name) and by_size(name))
        raise InputError(f"sizes belong to the partition {fit}, not to {kind!r}")
    if not by_site(kind) and (agents is None or agents < 1):
        raise InputError(f"agents must be >= 1, got {agents}")
    dealt = _kind(kind).deal(dataset, agents, settings, sizes=sizes, rng=np.random.default_rng(seed))
    parts = [np.asarray(rows) for rows in dealt]
    if any(rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu") for rows in parts):
        raise InputError(f"partition {kind!r} must deal a list of row numbers, whole ones, to each agent")
    parts = [rows.astype(np.intp, copy=False) for rows in parts]
    if len(parts) != agents and not (by_site(kind) and agents is None):
        raise InputError(f"partition {kind!r} dealt to {len(parts)} agents, expected {agents}")
    every, given = np.concatenate(parts), np.zeros(len(dataset), bool)
    known = every.min(initial=0) >= 0 and every.max(initial=0) < len(dataset)
    if known:
        given[every] = True
    if any(not len(rows) for rows in parts) or not known or np.count_nonzero(given) < len(every):
        raise InputError(f"partition {kind!r} left an agent without records, or gave one away twice")
    return _in_order(parts)


def _in_order(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Every agent's rows sorted: all in one sort, as there may be a million agents."""
    rows, ends = np.concatenate(parts), np.cumsum([0, *(len(part) for part in parts)])
    whose = np.repeat(np.arange(len(parts)) * (int(rows.max()) + 1), np.diff(ends))
    ordered = np.sort(whose + rows) - whose
    return [ordered[low:high] for low, high in itertools.pairwise(ends)]


def by_site(kind: str) -> bool:
    """Whether its agents are the data's sites."""
    return bool(getattr(_kind(kind), "SITED", False))


def by_size(kind: str) -> bool:
    """Whether it keeps to sizes."""
    return bool(getattr(_kind(kind), "SIZED", False))


def stated_sizes(kind: str, agents: int, settings: Settings) -> list[int] | None:
    """Records of each agent, where the kind's settings say it."""
    stated = getattr(_kind(kind), "sizes", None)
    return None if stated is None else list(stated(agents, settings) or ()) or None


def _kind(kind: str) -> ModuleType:
    return PARTITIONS.load(kind, "Settings", "deal")


def split(
    dataset: Dataset, test_fraction: float | None = 0.25, *, seed: int | Sequence[int] = 0, stratify: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted (training rows, test rows), at random.

    The test set takes the same fraction of every site (and of every class, with `stratify`). `None` asks for the
    official test set of the data. With `people` the fraction is of people, and no person is on both sides; a site of
    which everybody would be held out keeps one person to learn from.
    """
    if test_fraction is None:
        if dataset.test is None:
            raise InputError(f"data set {dataset.name!r} has no official test set: give a test fraction")
        return np.flatnonzero(~dataset.test), np.flatnonzero(dataset.test)
    if dataset.test is not None and not dataset.test.any():  # there is nothing to test on
        return np.arange(len(dataset)), np.arange(0)
    if not 0 < test_fraction < 1:
        raise InputError(f"test_fraction must lie between 0 and 1, got {test_fraction}")
    rng = np.random.default_rng(seed)
    if dataset.people is not None:
        names, person = np.unique(dataset.people, return_inverse=True)
        chosen = rng.permutation(len(names)) < round(test_fraction * len(names))
        if dataset.sites is not None:
            sites, first = np.unique(dataset.sites, return_index=True)
            emptied = ~np.isin(sites, dataset.sites[~chosen[person]])
            chosen[person[first[emptied]]] = False
        test = chosen[person]
    else:
        stratum = np.zeros(len(dataset), int) if dataset.sites is None else dataset.sites.astype(int)
        if stratify and dataset.classes is not None:
            stratum = stratum * len(dataset.classes) + dataset.targets
        test = np.zeros(len(dataset), bool)
        order = np.arange(len(dataset))
        if np.any(np.diff(stratum) < 0):
            order = np.argsort(stratum, kind="stable")  # once: there may be a million sites
        for members in np.split(order, np.flatnonzero(np.diff(stratum[order])) + 1):
            rows = rng.permutation(members)
            test[rows[: round(test_fraction * len(rows))]] = True
    if not test.any() or test.all():
        raise InputError(f"test_fraction {test_fraction} of {len(dataset)} records leaves one side empty")
    return np.flatnonzero(~test), np.flatnonzero(test)


def own_test(
    training: Dataset, parts: Sequence[np.ndarray], held: Dataset, kind: str, *, seed: int = 0
) -> list[np.ndarray]:
    """The held-out rows that belong to each party: people like those whom it trains on.

    By site: those of its site. Where records were dealt, a party gets of every class the share that it has of the
    training records (of all records, if there are no classes); all records of a person go to one party.
    """
    if by_site(kind):
        assert held.sites is not None
        return _rows_of(held.sites.astype(int), len(parts))
    rng, owner = np.random.default_rng([seed, len(held)]), np.empty(len(held), int)
    if held.people is not None:
        _, person = np.unique(held.people, return_inverse=True)
        owner = (rng.permutation(person.max() + 1) % len(parts))[person]
        return _rows_of(owner, len(parts))
    whose = np.repeat(np.arange(len(parts)), sizes := [len(p) for p in parts])
    labels = None if held.classes is None else training.targets[np.concatenate(list(parts))]
    for label in [None] if held.classes is None else range(len(held.classes)):
        mine = np.arange(len(held)) if label is None else np.flatnonzero(held.targets == label)
        has = np.asarray(sizes) if labels is None else np.bincount(whose[labels == label], minlength=len(parts))
        if not has.any():
            has = np.asarray(sizes)
        ends = np.round(np.cumsum(has) / has.sum() * len(mine))
        owner[rng.permutation(mine)] = np.searchsorted(ends[:-1], np.arange(len(mine)), side="right")
    return _rows_of(owner, len(parts))


def _rows_of(owner: np.ndarray, parties: int) -> list[np.ndarray]:
    """The rows of each party, in order: sorted once, as there may be a million parties."""
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(parties + 1))
    return [order[low:high] for low, high in itertools.pairwise(ends)]
