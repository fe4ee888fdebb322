"""The real files: published counts, ranges, norms, and that both forms of a data set give the same records."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from coterie.data import load, partition, split
from coterie.data.download import KNOWN, REMOTES
from coterie.losses.softmax import Softmax

pytestmark = pytest.mark.data


def in_unit_ball(features: np.ndarray) -> bool:
    return bool(np.linalg.norm(features, axis=1).max() <= 1 + 1e-12)


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def write(path: Path, text: str, remote: str) -> None:
    """A file of the official distribution, rebuilt: its checksum says whether we rebuilt it right."""
    path.write_bytes(text.encode())
    assert hashlib.sha256(text.encode()).hexdigest() == REMOTES[remote][path.name].sha256


def accuracy(data, train, test) -> float:
    train = train[:: max(1, len(train) // 10_000)]
    model = LogisticRegression(C=100, fit_intercept=False, max_iter=1000)
    return model.fit(data.features[train], data.targets[train]).score(data.features[test], data.targets[test])


def test_adult(real_data: Path) -> None:
    data = load("adult")
    assert data.features.shape == (45_222, 104)
    assert np.bincount(data.targets[~data.test]).tolist() == [22_654, 7_508]
    assert np.bincount(data.targets[data.test]).tolist() == [11_360, 3_700]
    assert in_unit_ball(data.features)
    assert data.sha256 == KNOWN["adult"]
    assert data.leaks == ()
    whole = load("adult", missing="keep", coding="ordinal")
    assert whole.features.shape == (48_842, 13)
    assert np.bincount(whole.targets[~whole.test]).tolist() == [24_720, 7_841]
    assert [int((whole.columns["sex"][~whole.test] == sex).sum()) for sex in ("Male", "Female")] == [21_790, 10_771]
    train, test = split(data, None)
    assert len(test) == 15_060
    assert accuracy(data, train, test) > 0.835  # 0.754 are <=50K


def test_adult_official_form(real_data: Path, tmp_path: Path) -> None:
    train, test = (lines(real_data / f"adult_{part}.csv.gz")[1:] for part in ("train", "test"))
    write(tmp_path / "adult.data", "".join(f"{line}\n".replace(",", ", ") for line in train) + "\n", "adult")
    rows = "".join(f"{line}.\n".replace(",", ", ") for line in test)
    write(tmp_path / "adult.test", f"|1x3 Cross validator\n{rows}\n", "adult")
    ours, official = load("adult"), load("adult", path=tmp_path)
    assert np.array_equal(ours.features, official.features)
    assert np.array_equal(ours.targets, official.targets)


def test_mnist(real_data: Path) -> None:
    data = load("mnist")
    assert data.features.shape == (70_000, 784)
    assert data.features.dtype == np.float32
    assert (data.features.min(), data.features.max()) == (0, 1)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(data.targets[~data.test]).tolist() == train
    assert np.bincount(data.targets[data.test]).tolist() == test
    for name, remote in REMOTES["mnist"].items():
        content = gzip.decompress((real_data / f"{name}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == remote.sha256


@pytest.mark.parametrize("row_norm", ["unit", "clip", "max"])
def test_a_linear_model_takes_mnist_with_every_row_norm_but_none(real_data: Path, row_norm: str) -> None:
    model = Softmax(784, 10)
    assert model.outside(load("mnist", part="test", row_norm=row_norm).features) is None
    assert model.outside(load("mnist", part="test").features) is not None


@pytest.mark.slow
def test_cifar10(real_data: Path) -> None:
    data = load("cifar10")
    assert data.features.shape == (15_000, 3072)
    train = [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    test = [488, 505, 512, 497, 507, 488, 491, 495, 504, 513]
    assert np.bincount(data.targets[~data.test]).tolist() == train
    assert np.bincount(data.targets[data.test]).tolist() == test
    assert "not pixel-exact" in data.notes[1]


def test_heart(real_data: Path) -> None:
    data = load("heart")
    assert data.features.shape == (920, 33)
    assert in_unit_ball(data.features)
    shards = partition(data, 4, "site")
    assert [len(rows) for rows in shards] == [303, 294, 123, 200]
    assert [int(data.targets[rows].sum()) for rows in shards] == [139, 106, 115, 149]
    flagged = data.features[:, data.feature_names.index("chol=missing")] > 0
    assert flagged[shards[2]].all()  # Switzerland's zeros mean missing
    assert flagged[shards[3]].sum() == 49 + 7
    complete = load("heart", missing="drop")
    assert not any("missing" in name or name.startswith(("chol", "ca", "thal=")) for name in complete.feature_names)
    train, test = split(data, 0.25, seed=0, stratify=True)
    alone = [accuracy(data, train[data.sites[train] == site], test) for site in range(4)]
    assert accuracy(data, train, test) > max(alone) + 0.02


def test_heart_official_form(real_data: Path, tmp_path: Path) -> None:
    rows = [line.split(",") for line in lines(real_data / "heart_disease.csv.gz")[1:]]
    for site in ("cleveland", "hungarian", "switzerland", "va"):
        text = "".join(",".join(cell or "?" for cell in row[1:]) + "\n" for row in rows if row[0] == site)
        write(tmp_path / f"processed.{site}.data", text, "heart")
    ours, official = load("heart"), load("heart", path=tmp_path)
    assert np.array_equal(ours.features, official.features)
    assert np.array_equal(ours.sites, official.sites)


@pytest.mark.slow
def test_diabetes(real_data: Path, tmp_path: Path) -> None:
    everything = load("diabetes", encounters="all", target="early")
    gone = 1642 + 399 + 372 + 8 + 2  # discharged to a hospice or dead, from the counts of the raw column
    assert len(everything) == 101_766 - gone
    assert in_unit_ball(everything.features)
    train, test = split(everything, 0.2, seed=1)
    assert not np.isin(everything.people[test], everything.people[train]).any()
    first = load("diabetes", site="admission_source_id")
    assert len(first) == len(np.unique(everything.people))
    assert first.people is None
    assert len(first.site_names) <= 17
    train, test = split(first, 0.2, seed=1)
    assert accuracy(first, train, test) > max(np.bincount(first.targets[test])) / len(test) + 0.02
    write(
        tmp_path / "diabetic_data.csv",
        gzip.decompress((real_data / "diabetes130.csv.gz").read_bytes()).decode(),
        "diabetes",
    )
    assert np.array_equal(load("diabetes", path=tmp_path).features, first.features)
