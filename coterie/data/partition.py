"""Who holds which record: shards of a data set, and the split into training and test records.

Everything here works on row numbers, and the same seed gives the same rows. Where a data set has `people`, all
records of a person stay together: a person split over two agents would pay at both.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from coterie.arguments import choose
from coterie.data.dataset import Dataset
from coterie.errors import InputError

__all__ = ["PARTITIONS", "own_test", "partition", "split"]

PARTITIONS = ("iid", "site", "dirichlet")
"""How records are dealt to agents."""


def partition(
    dataset: Dataset,
    agents: int | None,
    kind: str = "iid",
    *,
    seed: int = 0,
    concentration: float = 0.5,
    sizes: int | Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Disjoint, non-empty, sorted row numbers of each agent.

    `iid`: a random deal, equal up to one record, or of the given `sizes` (one number, or one per agent; records
    left over belong to nobody). `site`: agent k holds site k (`agents` may be None). `dirichlet`: the share of
    each class that agent k holds is drawn from Dirichlet(concentration), so a small concentration means that
    agents see different labels; an agent left without records gets one of the largest shard.

    >>> from coterie.data import make_clinics
    >>> [len(rows) for rows in partition(make_clinics(), 4, "iid", seed=1)]
    [750, 750, 750, 750]
    """
    choose("partition", kind, PARTITIONS)
    if sizes is not None and kind != "iid":
        raise InputError(f"sizes belong to the partition 'iid', not to {kind!r}")
    if kind == "site":
        return _by_site(dataset, agents)
    if agents is None or agents < 1:
        raise InputError(f"agents must be >= 1, got {agents}")
    rng = np.random.default_rng(seed)
    if kind == "dirichlet":
        return _dirichlet(dataset, agents, concentration, rng)
    return _iid(dataset, agents, sizes, rng)


def _by_site(dataset: Dataset, agents: int | None) -> list[np.ndarray]:
    if dataset.sites is None:
        raise InputError(f"data set {dataset.name!r} has no sites: use the partition 'iid' or 'dirichlet'")
    count = len(dataset.site_names)
    if agents not in (None, count):
        raise InputError(f"data set {dataset.name!r} has {count} sites, but {agents} agents are wanted")
    shards = [np.flatnonzero(dataset.sites == site) for site in range(count)]
    for name, rows in zip(dataset.site_names, shards, strict=True):
        if not len(rows):
            raise InputError(f"site {name!r} of data set {dataset.name!r} has no records to learn from")
    return shards


def _iid(
    dataset: Dataset, agents: int, sizes: int | Sequence[int] | None, rng: np.random.Generator
) -> list[np.ndarray]:
    n = len(dataset)
    if dataset.people is not None:
        if sizes is not None:
            raise InputError(f"sizes cannot be kept for {dataset.name!r}: a person's records stay together")
        _, person = np.unique(dataset.people, return_inverse=True)
        if person.max() + 1 < agents:
            raise InputError(f"{agents} agents cannot share {person.max() + 1} people")
        owner = rng.permutation(person.max() + 1) % agents
        return [np.flatnonzero(owner[person] == agent) for agent in range(agents)]
    if sizes is None:
        counts = np.full(agents, n // agents) + (np.arange(agents) < n % agents)
    else:
        counts = np.full(agents, sizes) if isinstance(sizes, int) else np.asarray(sizes)
        if len(counts) != agents:
            raise InputError(f"{agents} agents need {agents} sizes, got {len(counts)}")
    if counts.min() < 1 or counts.sum() > n:
        raise InputError(f"{agents} agents with {counts.min()} or more records need {counts.sum()} of {n} records")
    order, ends = rng.permutation(n), np.concatenate([[0], np.cumsum(counts)])
    return [np.sort(order[start:end]) for start, end in pairwise(ends)]


def _dirichlet(dataset: Dataset, agents: int, concentration: float, rng: np.random.Generator) -> list[np.ndarray]:
    if dataset.classes is None:
        raise InputError(f"the partition 'dirichlet' needs class labels, and {dataset.name!r} has none")
    if dataset.people is not None:
        raise InputError(f"the partition 'dirichlet' would separate the records of a person in {dataset.name!r}")
    if not concentration > 0:
        raise InputError(f"concentration must be > 0, got {concentration}")
    if agents > len(dataset):
        raise InputError(f"{agents} agents cannot share {len(dataset)} records")
    owner = np.empty(len(dataset), int)
    for label in range(len(dataset.classes)):
        rows = rng.permutation(np.flatnonzero(dataset.targets == label))
        ends = np.round(np.cumsum(rng.dirichlet(np.full(agents, concentration))) * len(rows))
        owner[rows] = np.searchsorted(ends[:-1], np.arange(len(rows)), side="right")
    shards = [np.flatnonzero(owner == agent) for agent in range(agents)]
    for agent in range(agents):
        if not len(shards[agent]):
            largest = max(range(agents), key=lambda k: len(shards[k]))
            pick = rng.integers(len(shards[largest]))
            shards[agent] = shards[largest][pick : pick + 1]
            shards[largest] = np.delete(shards[largest], pick)
    return shards


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

    By `site`: those of its site. Where records were dealt, a party gets of every class the share that it has of the
    training records (of all records, if there are no classes); all records of a person go to one party.
    """
    if kind == "site":
        assert held.sites is not None
        return [np.flatnonzero(held.sites == site) for site in range(len(parts))]
    rng, owner = np.random.default_rng([seed, len(held)]), np.empty(len(held), int)
    if held.people is not None:
        _, person = np.unique(held.people, return_inverse=True)
        owner = (rng.permutation(person.max() + 1) % len(parts))[person]
        return [np.flatnonzero(owner == k) for k in range(len(parts))]
    for label in [None] if held.classes is None else range(len(held.classes)):
        mine = np.arange(len(held)) if label is None else np.flatnonzero(held.targets == label)
        has = [len(p) if label is None else int(np.sum(training.targets[p] == label)) for p in parts]
        if not sum(has):
            has = [len(p) for p in parts]
        ends = np.round(np.cumsum(has) / sum(has) * len(mine))
        owner[rng.permutation(mine)] = np.searchsorted(ends[:-1], np.arange(len(mine)), side="right")
    return [np.flatnonzero(owner == k) for k in range(len(parts))]
