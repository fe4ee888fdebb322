"""Loaders on small files made here: what they compute, what they refuse, and that records do not touch each other."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.data import load
from coterie.data.encode import Category, Number
from coterie.data.sources.adult import BOOK, COLUMNS
from coterie.data.sources.mnist import read_idx
from coterie.errors import InputError

ADULT = """\
39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,United-States,<=50K
50,Self-emp-not-inc,83311,Bachelors,13,Married-civ-spouse,Exec-managerial,Husband,White,Male,0,0,13,India,>50K
38,Private,215646,HS-grad,9,Divorced,Handlers-cleaners,Not-in-family,White,Male,0,0,40,United-States,<=50K
53,?,234721,11th,7,Married-civ-spouse,?,Husband,Black,Male,0,0,40,United-States,<=50K
28,Private,338409,Bachelors,13,Married-civ-spouse,Prof-specialty,Wife,Black,Female,0,0,40,Cuba,>50K
"""
OUTLIER = "90,Never-worked,1400000,Doctorate,16,Widowed,Armed-Forces,Wife,Other,Female,99999,4356,99,Hong,>50K\n"


def adult_files(directory: Path, train: str, test: str = ADULT) -> Path:
    directory.mkdir()
    (directory / "adult.data").write_text(train.replace(",", ", ") + "\n")
    lines = [line.replace(",", ", ") + "." for line in test.splitlines()]
    (directory / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(lines) + "\n\n")
    return directory


def test_adult_official_form(tmp_path: Path) -> None:
    data = load("adult", path=adult_files(tmp_path / "a", ADULT))
    assert data.features.shape == (8, 104)
    assert data.targets.tolist() == [0, 1, 0, 1] * 2
    assert data.classes == ("<=50K", ">50K")
    assert data.test.tolist() == [False] * 4 + [True] * 4
    assert data.columns["sex"].tolist()[:4] == ["Male", "Male", "Male", "Female"]
    np.testing.assert_allclose(np.linalg.norm(data.features, axis=1), 1)
    assert set(data.sha256) == {"adult.data", "adult.test"}
    first = dict(zip(data.feature_names, data.features[0], strict=True))
    raw = {"age": 22 / 73, "education-num": 12 / 15, "capital-gain": 2174 / 99999, "hours-per-week": 39 / 98}
    raw = {name: 2 * share - 1 for name, share in (raw | {"capital-loss": 0}).items()}
    norm = np.sqrt(8 + sum(value**2 for value in raw.values()))  # eight categories, five numbers in [−1, 1]
    for name, value in (raw | {"workclass=State-gov": 1, "sex=Male": 1, "sex=Female": 0}).items():
        assert first[name] == pytest.approx(value / norm)
    papers = load("adult", path=tmp_path / "a", coding="ordinal", row_norm="none")
    assert papers.features[0, papers.feature_names.index("age")] == pytest.approx(22 / 73)
    assert len(load("adult", path=tmp_path / "a", missing="keep")) == 10


@pytest.mark.parametrize(
    "options", [{}, {"coding": "ordinal"}, {"row_norm": "max"}, {"money": "log", "constant": True}]
)
def test_adult_records_do_not_touch_each_other(tmp_path: Path, options: dict) -> None:
    before = load("adult", path=adult_files(tmp_path / "a", ADULT), **options)
    after = load("adult", path=adult_files(tmp_path / "b", ADULT + OUTLIER), **options)
    kept = [0, 1, 2, 3, 5, 6, 7, 8]
    assert np.array_equal(before.features, after.features[kept])
    assert np.linalg.norm(after.features, axis=1).max() <= 1 + 1e-12
    assert after.leaks == ()


def test_adult_frequency_coding_is_flagged_because_it_leaks(tmp_path: Path) -> None:
    options = {"coding": "frequency", "fnlwgt": True, "row_norm": "none"}
    before = load("adult", path=adult_files(tmp_path / "a", ADULT), **options)
    after = load("adult", path=adult_files(tmp_path / "b", ADULT + OUTLIER), **options)
    assert before.features.shape == (8, 14)
    assert before.features[0, before.feature_names.index("race")] == 6 / 8
    assert not np.array_equal(before.features, after.features[[0, 1, 2, 3, 5, 6, 7, 8]])
    assert before.leaks == ("categories are coded by their frequency in the data",)


def test_adult_book_is_complete() -> None:
    assert tuple(BOOK) == COLUMNS[:-1]
    sizes = [len(rule.levels) for rule in BOOK.values() if isinstance(rule, Category)]
    assert sizes == [8, 16, 7, 14, 6, 5, 2, 41]
    assert sum(isinstance(rule, Number) for rule in BOOK.values()) == 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (">50K", "rich", "column 'income' has the unknown category 'rich' in 2 rows"),
        ("Cuba", "Atlantis", "column 'native-country' has the unknown category 'Atlantis'"),
        ("28,Private", "young,Private", "column 'age' must be numeric, but has 'young'"),
    ],
)
def test_adult_refuses_what_is_not_in_the_book(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load("adult", path=adult_files(tmp_path / "a", ADULT.replace(old, new)))


def test_load_refuses_unknown_names_and_options(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown data set 'iris'; there are adult, census, cifar10, clinics, "):
        load("iris")
    with pytest.raises(InputError, match=r"unknown key clinics\.rows; expected one of sites, records"):
        load("clinics", rows=3)
    with pytest.raises(InputError, match=r"csv\.label is needed"):
        load("csv", path=tmp_path)
    with pytest.raises(
        InputError, match=r"adult\.coding: input should be 'onehot', 'ordinal' or 'frequency' .got 'hash'"
    ):
        load("adult", coding="hash")
    with pytest.raises(InputError, match="takes no path"):
        load("clinics", path=tmp_path)
    with pytest.raises(InputError, match=r"clinics\.records: input should be a whole number.*'many'"):
        load("clinics", records="many")
    with pytest.raises(InputError, match="'store' is streamed: it cannot be loaded whole"):
        load("store", path=tmp_path)


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def test_mnist_form(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    for prefix, rows in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx(pixels[rows]))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.arange(5, dtype=np.uint8)[rows]))
    data = load("mnist", path=tmp_path)
    np.testing.assert_allclose(data.features, pixels.reshape(5, 784) / 255, rtol=1e-6)
    assert data.targets.tolist() == [0, 1, 2, 3, 4]
    assert data.test.tolist() == [False] * 3 + [True] * 2
    assert len(load("mnist", path=tmp_path, part="test")) == 2
    assert np.linalg.norm(load("mnist", path=tmp_path, row_norm="unit").features, axis=1) == pytest.approx(1, rel=4e-6)
    bad = tmp_path / "t10k-images-idx3-ubyte"
    bad.write_bytes(bad.read_bytes()[:-1])
    with pytest.raises(InputError, match="is not an idx file"):
        load("mnist", path=tmp_path)
    bad.write_bytes(idx(pixels))
    with pytest.raises(InputError, match="5 images but 2 labels"):
        load("mnist", path=tmp_path)
    for content in (b"", b"\0\0\x08\x03", b"text"):
        bad.write_bytes(content)
        with pytest.raises(InputError, match="is not an idx file"):
            read_idx(bad)


def test_cifar_archive(tmp_path: Path) -> None:
    """Colour planes become (height, width, colour); batches keep their order; the test batch comes last."""
    planes = np.random.default_rng(0).integers(0, 256, (3, 2, 3, 32, 32), dtype=np.uint8)
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for batch, name in enumerate(("test_batch.bin", "data_batch_1.bin", "data_batch_2.bin")):
            labels = np.full((2, 1), batch, np.uint8)
            content = np.hstack([labels, planes[batch].reshape(2, -1)]).tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    data = load("cifar10", path=tmp_path)
    assert data.targets.tolist() == [1, 1, 2, 2, 0, 0]
    assert data.test.tolist() == [False] * 4 + [True] * 2
    at = data.feature_names.index("g_3_7")
    assert data.features[0, at] == pytest.approx(planes[1, 0, 1, 3, 7] / 255)
    assert data.notes[1:] == ()
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"not a tar file")
    with pytest.raises(InputError, match="cannot read"):
        load("cifar10", path=tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    pd.DataFrame(
        {
            "weight": [50.0, 75.0, 300.0, 100.0],
            "colour": ["red", "blue", "red", "green"],
            "clinic": ["north", "south", "north", "south"],
            "who": [1, 1, 2, 3],
            "sick": ["no", "yes", "yes", "no"],
        }
    ).to_csv(path, index=False)
    return path


DECLARED = {"bounds": {"weight": [50, 150]}, "categories": {"colour": ["blue", "red", "green"]}}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_table_by_hand(table: Path, form: str) -> None:
    if form == "parquet":
        pd.read_csv(table).to_parquet(table.with_suffix(".parquet"))
        table = table.with_suffix(".parquet")
    whole = {"label": "sick", "classes": ["no", "yes"], "site": "clinic", "sites": ["north", "south"], "person": "who"}
    data = load(form, path=table, row_norm="none", missing="error", **whole, **DECLARED)
    assert data.feature_names == ("weight", "colour=blue", "colour=red", "colour=green")
    assert data.features.tolist() == [[-1, 0, 1, 0], [-0.5, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert (data.classes, data.targets.tolist()) == (("no", "yes"), [0, 1, 1, 0])
    assert (data.site_names, data.sites.tolist()) == (("north", "south"), [0, 1, 0, 1])
    assert data.people.tolist() == ["1", "1", "2", "3"]
    assert data.leaks == ()
    options = {"features": ["weight", "colour"], "missing": "error"}
    clipped = load(form, path=table, label="sick", constant=True, **options, **DECLARED)
    assert np.linalg.norm(clipped.features, axis=1) == pytest.approx(1)
    assert set(clipped.columns) == {"clinic", "who"}
    scaled = load(form, path=table, label="sick", row_norm="max", **options, **DECLARED)
    assert scaled.features[2] == pytest.approx(np.array([1, 0, 1, 0]) / np.sqrt(2))


def test_table_targets(table: Path) -> None:
    options = {"path": table, "features": ["weight"], "bounds": {"weight": (50, 150)}}
    flipped = load("csv", label="sick", classes=["yes", "no"], **options)
    assert (flipped.classes, flipped.targets.tolist()) == (("yes", "no"), [1, 0, 0, 1])
    assert load("csv", label="who", **options).classes == ("1", "2", "3")
    numbers = load("csv", label="who", task="regression", **options)
    assert (numbers.classes, numbers.targets.tolist()) == (None, [1, 1, 2, 3])
    bounded = load("csv", path=table, label="weight", features=["who"], bounds={"weight": (0, 200)})
    assert bounded.targets.tolist() == [0.25, 0.375, 1, 0.5]


def test_table_leaks_and_notes(table: Path) -> None:
    inferred = load("csv", path=table, label="sick", features=["colour"], categories="data")
    assert "categories of text columns are read from the data" in inferred.leaks
    raw = load("csv", path=table, label="sick", features=["weight"], row_norm="none", optional=[])
    assert raw.notes[0] == "weight: no public range, used as it is"
    assert raw.features.ravel().tolist() == [50, 75, 300, 100]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "ill"}, r"table.csv: there is no column 'ill': it has weight, colour"),
        ({"label": "sick", "site": "ward"}, "there is no column 'ward'"),
        ({"label": "sick", "bounds": {"height": (0, 1)}}, "there is no column 'height'"),
        ({"label": "sick"}, "column 'colour' is text: declare its categories"),
        ({"label": "sick", "features": ["weight"], "bounds": {"weight": (3,)}}, r"low < high, got \[3.0\]"),
        ({"label": "sick", "features": ["weight"], "bounds": {"weight": (3, 3)}}, r"low < high, got \[3.0, 3.0\]"),
        ({"label": "sick", "features": ["colour"], "categories": {"colour": ["red"]}}, "has 'blue' and the like in 2"),
        ({"label": "sick", "features": ["weight"], "classes": ["no"]}, "single class"),
        ({"label": "sick", "features": ["weight"], "classes": ["no", "maybe"]}, "has 'yes' and the like in 2 rows"),
        ({"label": "sick", "features": ["weight"], "task": "regression"}, "'sick' is text"),
        ({"label": "sick", "features": []}, "features is empty"),
        ({"label": "sick", "features": ["weight"], "row_norm": "max"}, "needs public bounds"),
        ({"label": "sick", "categories": "guess"}, "unknown categories 'guess'"),
        ({"label": "sick", "task": "regression", "classes": ["no", "yes"]}, "are for classification"),
        ({"label": "sick", "bounds": {"sick": (0, 1)}, "classes": ["no", "yes"]}, "are for regression"),
        ({"label": "sick", "sites": ["north"]}, "the column that holds them, is not given"),
        ({"label": "sick", "features": ["weight"], "site": "clinic", "sites": ["north"]}, "has 'south' and the"),
        ({"label": "sick", "features": ["weight"], "bounds": {"who": (0, 9)}}, "not one of the features"),
    ],
)
def test_table_refusals(table: Path, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load("csv", path=table, **options)
    assert "\n" not in str(caught.value)


def test_tables_with_gaps_infinities_or_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,a\n,b\n3,a\n")
    with pytest.raises(InputError, match="column 'x' is missing in 1 rows: missing = 'keep' gives"):
        load("csv", path=path, label="y", missing="error")
    path.write_text("x,y\n1,a\n,b\n3,b\n")
    assert len(load("csv", path=path, label="y", missing="drop")) == 2
    path.write_text("x,y\n1,a\ninf,b\n")
    for row_norm in ("none", "clip", "unit"):
        with pytest.raises(InputError, match="column 'x' is infinite in 1 rows"):
            load("csv", path=path, label="y", row_norm=row_norm)
    path.write_text('x,y\n1,a\n1,2,3,"')
    with pytest.raises(InputError, match="cannot read"):
        load("csv", path=path, label="y")
    path.write_text("x,y\n")
    with pytest.raises(InputError, match="it has 0 records"):
        load("csv", path=path, label="y")
    for bad in (tmp_path / "absent.csv", tmp_path, tmp_path / "absent.parquet"):
        with pytest.raises(InputError, match=r"cannot read|is a folder"):
            load("csv", path=bad, label="y")
    (tmp_path / "b.parquet").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"cannot read .*b.parquet"):
        load("parquet", path=tmp_path / "b.parquet", label="y")
    with pytest.raises(InputError, match="needs a path"):
        load("csv", label="y")
