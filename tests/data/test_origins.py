"""What shapes a release was declared, or is reported: two worlds that differ in one record, through every loader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.data import ALL_PUBLIC, SOURCES, Dataset, Origins, find_source, load, origins
from coterie.data.planned import leaks_of, options_of
from coterie.data.store import open_store
from coterie.data.store_writer import write_store
from coterie.errors import InputError
from coterie.plan import validate
from tests.data.test_loaders import ADULT, OUTLIER, adult_files

TABLE = {
    "weight": [50.0, 75.0, 300.0, 100.0, 60.0, 90.0],
    "ward": ["1", "2", "1", "2", "1", "2"],
    "clinic": ["north", "south"] * 3,
    "sick": ["no", "yes", "yes", "no", "no", "yes"],
}
STATED: dict[str, Any] = {
    "label": "sick", "classes": ["no", "yes", "unsure"], "site": "clinic", "sites": ["north", "south", "west"],
    "bounds": {"weight": [50, 150]}, "categories": {"ward": ["1", "2", "3"]},
}  # fmt: skip


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in STATED.items() if name not in names} | more


# what a user leaves out, and a record that then decides something for everybody
READ = {
    "classes": (without("classes", task="classification"), {"sick": "unsure"}),
    "task": (without("classes"), {"sick": "unsure"}),
    "categories": (without("categories", categories="data"), {"ward": "x"}),
    "sites": (without("sites"), {"clinic": "west"}),
}


def tables(folder: Path, change: dict[str, Any]) -> tuple[Path, Path]:
    """Two worlds: the last record as it is, and changed."""
    frame = pd.DataFrame(TABLE)
    other = frame.copy()
    for column, value in change.items():
        other.loc[5, column] = value
    paths = folder / "one.csv", folder / "two.csv"
    for path, world in zip(paths, (frame, other), strict=True):
        world.to_csv(path, index=False)
    return paths


def shape(data: Dataset) -> tuple:
    """All that a record's own row is not: what other records must not decide."""
    return data.classes, data.feature_names, data.site_names, data.features[:5].tolist(), data.targets[:5].tolist()


@pytest.mark.parametrize("name", READ)
def test_what_one_record_decides_is_reported(tmp_path: Path, name: str) -> None:
    options, change = READ[name]
    one, two = (load("csv", path=path, **options) for path in tables(tmp_path, change))
    assert shape(one) != shape(two), "this record decides nothing: the case is no case"
    assert len(one.leaks) == len(two.leaks) == 1
    assert origins("csv", **options) == one.origins, "known before a record is read"


@pytest.mark.parametrize("change", [{"sick": "unsure"}, {"ward": "3"}, {"clinic": "west"}, {"weight": 1e9}])
def test_what_is_stated_no_record_decides(tmp_path: Path, change: dict[str, Any]) -> None:
    one, two = (load("csv", path=path, **STATED) for path in tables(tmp_path, change))
    assert shape(one) == shape(two)
    assert one.leaks == two.leaks == ()


def test_a_gap_left_out_changes_no_other_record(tmp_path: Path) -> None:
    """Read by pandas' own guess, one gap in a column of whole numbers would turn every 1 into 1.0."""
    one, two = (load("csv", path=path, **STATED, missing="drop") for path in tables(tmp_path, {"ward": None}))
    assert (len(one), len(two)) == (6, 5)
    assert shape(one) == shape(two)
    assert two.leaks == ()


@pytest.mark.parametrize("options", [{}, {"coding": "ordinal"}, {"coding": "frequency"}, {"missing": "keep"}])
def test_adult_in_two_worlds(tmp_path: Path, options: dict[str, Any]) -> None:
    last = ADULT.splitlines()[-1] + "\n"
    one = load("adult", path=adult_files(tmp_path / "a", ADULT), **options)
    two = load("adult", path=adult_files(tmp_path / "b", ADULT.replace(last, OUTLIER)), **options)
    same = np.array_equal(one.features[:3], two.features[:3]) and one.feature_names == two.feature_names
    assert same == (one.leaks == ()) == (options.get("coding") != "frequency")
    assert origins("adult", **options) == one.origins


@pytest.mark.parametrize("name", [name for name in SOURCES.names if not find_source(name).needs_path])
def test_named_data_sets_read_nothing_unless_asked_to(name: str) -> None:
    assert origins(name) == ALL_PUBLIC


def test_sites_of_diabetes_are_read_unless_they_are_stated() -> None:
    assert origins("diabetes", site="medical_specialty").leaks == (
        "medical_specialty: the names of the sites are read from the data",
    )
    assert origins("diabetes", site="medical_specialty", sites=["unknown", "Surgery"]).leaks == ()


def test_nobody_can_forget_to_say() -> None:
    everything = {part.name: () for part in fields(Origins)}
    for name in everything:
        with pytest.raises(TypeError, match=name):
            Origins(**{k: v for k, v in everything.items() if k != name})
    with pytest.raises(TypeError, match="origins"):
        Dataset("x", np.ones((2, 1)), np.zeros(2), None, ("a",))  # type: ignore[call-arg]


# -- plans -------------------------------------------------------------------------------------------------------------


def plan_of(options: dict[str, Any], **more: Any) -> Any:
    data = {"source": "csv", "path": "nowhere.csv", "label": options["label"], "site": options["site"]}
    rest = {k: v for k, v in options.items() if k not in data}
    return validate({"data": {**data, "options": rest}, "privacy": {}, **more})


@pytest.mark.parametrize("name", READ)
def test_a_plan_says_what_will_be_read(name: str) -> None:
    assert len(leaks_of(plan_of(READ[name][0]))) == 1
    assert leaks_of(plan_of(STATED)) == ()


@pytest.mark.parametrize(
    ("loss", "kind"), [("squared", "regression"), ("mean", "regression"), ("hinge", "classification")]
)
def test_a_stated_loss_says_what_the_label_is(loss: str, kind: str) -> None:
    """Left to the values, few whole numbers would be classes, and which of them occur would fix the targets."""
    plan = plan_of(without("classes"), problem={"loss": loss})
    assert options_of(plan)["task"] == kind
    assert bool(leaks_of(plan)) == (kind == "classification")


# -- stores ------------------------------------------------------------------------------------------------------------


def piece() -> tuple[np.ndarray, np.ndarray]:
    return np.eye(2), np.array([0, 1])


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Origins], Path]:
    def make(made: Origins) -> Path:
        write_store(tmp_path / "s", {"a": [piece()], "b": [piece()]}, test=piece(), classes=("n", "y"), origins=made)
        return tmp_path / "s"

    return make


def test_a_store_keeps_what_was_read(write: Callable[[Origins], Path]) -> None:
    made = replace(ALL_PUBLIC, classes=("y: its classes are read from the data",))
    assert open_store(write(made)).origins == made


def test_a_store_that_does_not_say_is_not_public(write: Callable[[Origins], Path]) -> None:
    folder = write(ALL_PUBLIC)
    assert open_store(folder).origins == ALL_PUBLIC
    manifest = folder / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format": 2', '"format": 1').replace('"origins"', '"older"'))
    assert "does not say" in open_store(folder).origins.leaks[0]
    manifest.write_text(text.replace('"scale"', '"style"'))
    with pytest.raises(InputError, match="is damaged"):
        open_store(folder)
