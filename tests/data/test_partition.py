"""Partitions are disjoint, never empty, of the promised sizes; splits keep sites and people apart."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data import ALL_PUBLIC, Dataset, make_clinics, partition, split
from coterie.data.partition import _rows_of, own_test
from coterie.data.parts import Parts, lengths_of
from coterie.errors import InputError


def toy(n: int, classes: int = 3, seed: int = 0, people: int | None = None) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(
        name="toy",
        features=rng.standard_normal((n, 2)),
        targets=rng.integers(0, classes, n),
        classes=tuple("abcdefghij"[:classes]),
        feature_names=("u", "v"),
        people=None if people is None else rng.integers(0, people, n),
        origins=ALL_PUBLIC,
    )


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 200), agents=st.integers(1, 40), seed=st.integers(0, 9))
def test_iid_is_a_fair_deal(n: int, agents: int, seed: int) -> None:
    data = toy(n)
    if agents > n:
        with pytest.raises(InputError, match="parties cannot share"):
            partition(data, agents, "iid", seed=seed)
        return
    shards = partition(data, agents, "iid", seed=seed)
    assert sorted(np.concatenate(shards)) == list(range(n))
    sizes = [len(rows) for rows in shards]
    assert max(sizes) - min(sizes) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(shards, partition(data, agents, "iid", seed=seed), strict=True))


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 200),
    agents=st.integers(1, 40),
    concentration=st.floats(0.01, 100),
    seed=st.integers(0, 9),
    classes=st.integers(1, 10),
)
def test_dirichlet_covers_everything_and_leaves_nobody_empty(n, agents, concentration, seed, classes) -> None:
    data = toy(n, classes)
    if agents > n:
        with pytest.raises(InputError, match="cannot share"):
            partition(data, agents, "dirichlet", seed=seed, concentration=concentration)
        return
    shards = partition(data, agents, "dirichlet", seed=seed, concentration=concentration)
    assert sorted(np.concatenate(shards)) == list(range(n))
    assert min(len(rows) for rows in shards) >= 1
    again = partition(data, agents, "dirichlet", seed=seed, concentration=concentration)
    assert all(np.array_equal(a, b) for a, b in zip(shards, again, strict=True))


def test_dirichlet_concentration_means_what_it_says() -> None:
    """The share of a class at one of k agents has variance (1/k)(1 − 1/k)/(kα + 1)."""
    data, k = toy(2000, 2), 5
    for alpha in (0.2, 5.0):
        shares = []
        for seed in range(300):
            shards = partition(data, k, "dirichlet", seed=seed, concentration=alpha)
            counts = np.array([np.bincount(data.targets[rows], minlength=2) for rows in shards])
            shares.append(counts / counts.sum(axis=0))
        wanted = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
        assert np.var(shares) == pytest.approx(wanted, rel=0.1)
        assert np.var(shares) != pytest.approx((1 / k) * (1 - 1 / k) / (1.5 * k * alpha + 1), rel=0.1)


def test_sizes_and_sites() -> None:
    data = make_clinics(seed=0)
    assert [len(rows) for rows in partition(data, 3, sizes=[5, 1, 9])] == [5, 1, 9]
    assert [len(rows) for rows in partition(data, 3, sizes=7)] == [7, 7, 7]
    for agents in (5, None):
        shards = partition(data, agents, "site")
        assert [set(data.sites[rows]) for rows in shards] == [{0}, {1}, {2}, {3}, {4}]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, "iid"), {}, "agents must be >= 1, got 0"),
        ((None, "iid"), {}, "agents must be >= 1, got None"),
        ((3, "random"), {}, "unknown partition 'random'; there are dirichlet, iid, site"),
        ((3, "site"), {}, "has 5 sites, but 3 parties"),
        ((3, "iid"), {"sizes": [1, 2]}, "3 parties need 3 sizes, got 2"),
        ((3, "iid"), {"sizes": [1, 0, 2]}, "0 or more records"),
        ((3, "iid"), {"sizes": 1001}, "need 3003 of 3000 records"),
        ((5, "site"), {"sizes": 3}, "sizes belong to the partition 'iid'"),
        ((5, "dirichlet"), {"concentration": 0.0}, "concentration: input should be greater than 0"),
    ],
)
def test_partition_refusals(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        partition(make_clinics(), *arguments, **options)


def test_partition_refusals_by_data() -> None:
    data = make_clinics()
    with pytest.raises(InputError, match="site 'valley' of data set 'clinics' has no records"):
        partition(data.take(np.flatnonzero(data.sites != 2)), 5, "site")
    with pytest.raises(InputError, match="has no sites"):
        partition(toy(9), 3, "site")
    regression = Dataset("r", np.ones((3, 1)), np.ones(3), None, ("x",), origins=ALL_PUBLIC)
    with pytest.raises(InputError, match="needs class labels"):
        partition(regression, 2, "dirichlet")
    with pytest.raises(InputError, match="separate the records of a person"):
        partition(toy(9, people=3), 2, "dirichlet")
    with pytest.raises(InputError, match="2 parties with 2 or more people need 4 of 3 people"):
        partition(toy(9, people=3), 2, "iid", sizes=2)
    with pytest.raises(InputError, match="9 parties cannot share"):
        partition(toy(9, people=3), 9, "iid")


def test_a_site_of_one_person_keeps_it_to_learn_from() -> None:
    """Thirty sites of one or two people each: holding out people leaves no site without a training record."""
    rng = np.random.default_rng(0)
    sites = np.repeat(np.arange(30), 4)
    person = np.where(sites % 2 == 0, sites, sites + 100 * rng.integers(0, 2, len(sites)))
    data = Dataset(
        "small", rng.uniform(size=(120, 2)) / 2, np.arange(120) % 2, ("a", "b"), ("u", "v"), sites=sites,
        site_names=tuple(map(str, range(30))), people=person, origins=ALL_PUBLIC,
    )  # fmt: skip
    for seed in range(20):
        train, test = split(data, 0.5, seed=seed)
        assert set(sites[train]) == set(range(30))
        assert not set(person[train]) & set(person[test])
        assert len(test) > 5
        assert min(map(len, partition(data.take(train), None, "site"))) > 0


def test_a_person_is_never_divided() -> None:
    data = toy(300, people=60)
    sized = [set(data.people[rows]) for rows in partition(data, 3, "iid", seed=2, sizes=[5, 10, 20])]
    assert list(map(len, sized)) == [5, 10, 20]  # sizes are numbers of people
    assert sum(map(len, sized)) == len(set.union(*sized))
    shards = partition(data, 7, "iid", seed=2)
    assert sorted(np.concatenate(shards)) == list(range(300))
    people = [set(data.people[rows]) for rows in shards]
    assert sum(map(len, people)) == len(set.union(*people))
    train, test = split(data, 0.3, seed=2)
    assert not set(data.people[train]) & set(data.people[test])
    assert len(set(data.people[test])) == round(0.3 * len(set(data.people)))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(8, 200), fraction=st.floats(0.15, 0.85), seed=st.integers(0, 9), stratify=st.booleans())
def test_split_is_a_partition(n: int, fraction: float, seed: int, stratify: bool) -> None:
    data = toy(n, 2)
    train, test = split(data, fraction, seed=seed, stratify=stratify)
    assert sorted([*train, *test]) == list(range(n))
    for label in (0, 1) if stratify else ():
        rows = int((data.targets == label).sum())
        assert (data.targets[test] == label).sum() == round(fraction * rows)
    if not stratify:
        assert len(test) == round(fraction * n)
    assert np.array_equal(test, split(data, fraction, seed=seed, stratify=stratify)[1])


def test_split_draws_from_every_site_and_knows_official_tests() -> None:
    data = make_clinics()
    _, test = split(data, 0.2, seed=5)
    assert np.bincount(data.sites[test]).tolist() == [60, 90, 120, 150, 180]
    assert not np.array_equal(test, split(data, 0.2, seed=6)[1])
    with pytest.raises(InputError, match="no official test set"):
        split(data, None)
    with pytest.raises(InputError, match="between 0 and 1, got 1"):
        split(data, 1.0)
    with pytest.raises(InputError, match="leaves one side empty"):
        split(toy(2), 0.1)
    official = Dataset(
        "o", np.ones((3, 1)), np.ones(3), None, ("x",), origins=ALL_PUBLIC, test=np.array([True, False, True])
    )
    assert [rows.tolist() for rows in split(official, None)] == [[1], [0, 2]]


@settings(max_examples=40, deadline=None)
@given(agents=st.integers(1, 12), people=st.sampled_from([None, 30]), seed=st.integers(0, 9))
def test_every_held_out_record_is_one_partys_and_a_party_has_its_share_of_each_class(
    agents: int, people: int | None, seed: int
) -> None:
    training, held = toy(120, seed=seed), toy(60, seed=seed + 100, people=people)
    parts = partition(training, agents, "iid", seed=seed)
    own = own_test(training, parts, held, "iid", seed=seed)
    assert len(own) == agents
    assert np.array_equal(np.sort(np.concatenate(own)), np.arange(60))
    assert all(np.array_equal(rows, np.sort(rows)) for rows in own)
    if people is not None:
        owners = [set(held.people[rows].tolist()) for rows in own]
        assert sum(map(len, owners)) == len(set().union(*owners))
        return
    for label in range(3):  # shares are rounded at both ends
        mine = np.sum(held.targets == label)
        for part, rows in zip(parts, own, strict=True):
            share = np.sum(training.targets[part] == label) / np.sum(training.targets == label)
            assert abs(np.sum(held.targets[rows] == label) - share * mine) <= 1


def test_test_records_of_a_site_are_its_own() -> None:
    data = make_clinics(seed=0)
    train, test = split(data, 0.2)
    parts = partition(data.take(train), None, "site")
    own = own_test(data.take(train), parts, data.take(test), "site")
    assert [set(data.sites[test][rows].tolist()) for rows in own] == [{0}, {1}, {2}, {3}, {4}]
    assert sum(map(len, own)) == len(test)


def test_of_many_sites_each_holds_out_its_share_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_clinics(seed=0, sites=60, records=3000)
    assert data.sites is not None
    few = split(data, 0.1, seed=0)[1]
    module = import_module("coterie.data.partition")  # a function of the package has the same name
    monkeypatch.setattr(module, "MANY", 10)
    monkeypatch.setattr(module, "DRAWN", 500)
    sizes = np.bincount(data.sites)
    seen = np.zeros(len(data))
    for seed in range(150):
        train, test = split(data, 0.1, seed=seed)
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(data)))
        np.testing.assert_array_equal(np.bincount(data.sites[test]), [round(0.1 * size) for size in sizes])
        seen[test] += 1
    np.testing.assert_array_equal(split(data, 0.1, seed=7)[1], split(data, 0.1, seed=7)[1])
    assert len(few) == len(split(data, 0.1, seed=0)[1])
    chance = np.array([round(0.1 * size) for size in sizes])[data.sites] / sizes[data.sites]
    assert np.abs(seen / 150 - chance).max() < 5.5 * np.sqrt(0.11 * 0.89 / 150)


def test_parts_read_as_a_list_of_rows() -> None:
    listed = [np.array([3, 1]), np.array([2]), np.array([0, 5, 4])]
    parts = Parts.of(listed)
    assert [rows.tolist() for rows in parts] == [rows.tolist() for rows in listed]
    assert parts[-1].tolist() == [0, 5, 4]
    assert [rows.tolist() for rows in parts[1:]] == [[2], [0, 5, 4]]
    assert lengths_of(parts).tolist() == lengths_of(listed).tolist() == [2, 1, 3]
    assert Parts.of(parts) is parts
    assert Parts.of(np.arange(6).reshape(2, 3))[1].tolist() == [3, 4, 5]
    with pytest.raises(IndexError):
        parts[3]
    with pytest.raises(ValueError, match="5 rows cannot be cut into sizes that add up to 6"):
        Parts(np.arange(5), np.array([2, 4]))


def test_rows_of_more_parties_than_two_bytes_can_number() -> None:
    owner = np.random.default_rng(0).integers(0, 70_000, 200_000)
    found = _rows_of(owner, 70_000)
    np.testing.assert_array_equal(found.rows, np.argsort(owner, kind="stable"))
    np.testing.assert_array_equal(found.sizes, np.bincount(owner, minlength=70_000))


def test_whether_all_rows_exist() -> None:
    assert Parts(np.arange(4), np.array([1, 3])).within(4)
    assert not Parts(np.arange(4), np.array([1, 3])).within(3)
    assert not Parts(np.array([-1]), np.array([1])).within(3)
