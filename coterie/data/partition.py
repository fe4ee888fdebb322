"""Who holds which record: shards of a data set, and the split into training and test records.

Everything here works on row numbers, and the same seed gives the same rows. Where a data set has `people`, all
records of a person stay together: a person split over two agents would pay at both.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from coterie.data.dataset import Dataset
from coterie.data.partitions import PARTITIONS
from coterie.data.parts import Parts
from coterie.errors import InputError
from coterie.passes import BLOCK, gather, joined, larger, over, where
from coterie.settings import Settings, read

__all__ = ["by_site", "by_size", "deal", "own_test", "partition", "split", "stated_sizes"]

MANY = 1 << 14  # sites beyond which what is held out of them is drawn for many at once
DRAWN = 1 << 18  # random numbers of one stream, a cache's worth


def partition(
    dataset: Dataset,
    agents: int | None,
    kind: str = "iid",
    *,
    seed: int = 0,
    sizes: int | Sequence[int] | None = None,
    **settings: object,
) -> Sequence[np.ndarray]:
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
) -> Sequence[np.ndarray]:
    """The same with the kind's settings, and what it dealt is looked at."""
    if sizes is not None and not by_size(kind):
        fit = " or ".join(repr(name) for name in PARTITIONS.names if PARTITIONS.ours(name) and by_size(name))
        raise InputError(f"sizes belong to the partition {fit}, not to {kind!r}")
    if not by_site(kind) and (agents is None or agents < 1):
        raise InputError(f"agents must be >= 1, got {agents}")
    dealt = _kind(kind).deal(dataset, agents, settings, sizes=sizes, rng=np.random.default_rng(seed))
    parts = _looked_at(kind, dealt)
    if len(parts) != agents and not (by_site(kind) and agents is None):
        raise InputError(f"partition {kind!r} dealt to {len(parts)} parties, expected {agents}")
    rows, given = parts.rows, np.zeros(len(dataset), bool)
    known = rows.min(initial=0) >= 0 and rows.max(initial=0) < len(dataset)
    if known:
        over(len(rows), 1, lambda own: given.__setitem__(rows[own], True))
    if not parts.sizes.all() or not known or np.count_nonzero(given) < len(rows):
        raise InputError(f"partition {kind!r} left a party without records, or gave one away twice")
    return _in_order(parts)


def _looked_at(kind: str, dealt: Sequence[np.ndarray]) -> Parts:
    """What a kind dealt, if it is row numbers."""
    parts = [dealt.rows] if isinstance(dealt, Parts) else [np.asarray(rows) for rows in dealt]
    if any(rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu") for rows in parts):
        raise InputError(f"partition {kind!r} must deal a list of row numbers, whole ones, to each party")
    if isinstance(dealt, Parts):
        return Parts(dealt.rows.astype(np.intp, copy=False), dealt.sizes)
    rows = np.concatenate([rows.astype(np.intp, copy=False) for rows in parts] or [np.empty(0, np.intp)])
    return Parts(rows, np.array([len(rows) for rows in parts], int))


def _in_order(parts: Parts) -> Parts:
    """Every agent's rows sorted: all in a few sorts, as there may be a million agents."""
    sizes, most = parts.sizes, int(parts.sizes.max())
    if sizes.min() == most:
        ordered = parts.rows.reshape(len(parts), most).copy()
        over(len(parts), most, lambda own: ordered[own].sort(axis=1))
        return Parts(ordered.reshape(-1), sizes)
    whose = np.repeat(np.arange(len(parts)) * (int(parts.rows.max()) + 1), sizes)
    return Parts(np.sort(whose + parts.rows) - whose, sizes)


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
        stratum = np.zeros(len(dataset), int) if dataset.sites is None else dataset.sites.astype(int, copy=False)
        if stratify and dataset.classes is not None:
            stratum = stratum * len(dataset.classes) + dataset.targets
        test = np.zeros(len(dataset), bool)
        order = None  # there may be a million sites: they are sorted once, and not at all if they stand in order
        if any(over(len(stratum) - 1, 1, lambda own: bool(np.any(stratum[1:][own] < stratum[:-1][own])))):
            order = np.argsort(stratum, kind="stable")
            stratum = stratum[order]
        starts = np.concatenate([[0], where(lambda own: stratum[1:][own] != stratum[:-1][own], len(stratum) - 1) + 1])
        sizes = np.diff(starts, append=len(stratum))
        if len(sizes) > MANY:
            some = _some_of_each(starts, sizes, test_fraction, rng)
            test[some if order is None else order[some]] = True
        else:
            for low, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                rows = rng.permutation(np.arange(low, low + size) if order is None else order[low : low + size])
                test[rows[: round(test_fraction * size)]] = True
    if not test.any() or test.all():
        raise InputError(f"test_fraction {test_fraction} of {len(dataset)} records leaves one side empty")
    return where(lambda own: ~test[own], len(test)), where(lambda own: test[own], len(test))


def _some_of_each(starts: np.ndarray, sizes: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """At random that fraction of each of many runs of places: runs of one length together, on every core."""
    work = []
    for size in np.unique(sizes).tolist():
        if count := round(fraction * size):
            alike = starts[sizes == size]
            work += [(some, size, count) for some in np.array_split(alike, -(-len(alike) * size // DRAWN))]
    streams, found = rng.spawn(len(work)), [np.empty(0, np.intp)] * len(work)

    def draw(some: slice) -> None:
        for k in range(some.start, some.stop):
            begin, size, count = work[k]
            keys = streams[k].random((len(begin), size))
            found[k] = (begin[:, None] + np.argpartition(keys, count - 1, axis=1)[:, :count]).reshape(-1)

    over(len(work), larger(BLOCK), draw)
    return joined([*found, np.empty(0, np.intp)])


def own_test(
    training: Dataset, parts: Sequence[np.ndarray], held: Dataset, kind: str, *, seed: int = 0
) -> Sequence[np.ndarray]:
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
    dealt = Parts.of(parts)
    labels = None if held.classes is None else gather(training.targets, dealt.rows)
    for label in [None] if held.classes is None else range(len(held.classes)):
        mine = np.arange(len(held)) if label is None else np.flatnonzero(held.targets == label)
        has = dealt.sizes if labels is None else np.add.reduceat(labels == label, dealt.ends[:-1], dtype=int)
        if not has.any():
            has = dealt.sizes
        ends = np.round(np.cumsum(has) / has.sum() * len(mine))
        owner[rng.permutation(mine)] = np.searchsorted(ends[:-1], np.arange(len(mine)), side="right")
    return _rows_of(owner, len(parts))


def _rows_of(owner: np.ndarray, parties: int) -> Parts:
    """The rows of each party, in order: sorted once, as there may be a million parties."""
    order = np.argsort(owner.astype(np.uint16), kind="stable")  # by the lower digit, then by the upper: those of two
    if parties > 1 << 16:  # bytes are put into heaps, in a fifth of the time of comparing
        order = order[np.argsort((owner >> 16).astype(np.uint16)[order], kind="stable")]
    return Parts(order, np.bincount(owner, minlength=parties))
