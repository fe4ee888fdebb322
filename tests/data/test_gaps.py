"""Gaps in one's own table: the plan alone decides which columns there are, and nothing is lost in silence."""

from __future__ import annotations

import logging
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.data import load, origins
from coterie.data.planned import load_planned
from coterie.data.stated import PROPOSED
from coterie.errors import InputError, InputErrors
from coterie.plan import validate

STATED: dict[str, Any] = {
    "label": "sick", "classes": ["no", "yes"], "bounds": {"age": [0, 100]},
    "categories": {"ward": ["None", "NA", "heart"]}, "row_norm": "none",
}  # fmt: skip


def table(path: Path, *rows: str, header: str = "age,ward,sick") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return path


def test_a_gap_has_a_place_of_its_own(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "20,heart,no", ",None,yes", "70,,no")
    data = load("csv", path=path, **STATED)
    assert data.feature_names == ("age", "age=missing", "ward=None", "ward=NA", "ward=heart", "ward=missing")
    np.testing.assert_allclose(
        data.features, [[-0.6, 0, 0, 0, 1, 0], [0, 1, 1, 0, 0, 0], [0.4, 0, 0, 0, 0, 1]], atol=1e-12
    )
    assert data.remarks == (
        ("age", "column 'age': 1 of 3 values are missing: 50 stands for them, and 'age=missing' says so"),
        ("ward", "column 'ward': 1 of 3 values are missing: 'ward=missing' says so"),
    )
    assert load("csv", path=path, **STATED, impute={"age": 40}).features[1, 0] == pytest.approx(-0.2)
    assert load("csv", path=path, **STATED, centre=False).features[:, 0].tolist() == [0.2, 0.5, 0.7]
    assert data.leaks == ()


def test_columns_are_those_of_the_plan_whether_there_are_gaps_or_not(tmp_path: Path) -> None:
    """Two worlds: one record's gap must not change how many columns everybody has."""
    full = table(tmp_path / "full.csv", "20,heart,no", "30,NA,yes")
    gappy = table(tmp_path / "gappy.csv", "20,heart,no", ",,yes")
    for optional, width in ((None, 6), (["age"], 5), ([], 4)):
        assert len(load("csv", path=full, **STATED, optional=optional).feature_names) == width
    one, two = load("csv", path=full, **STATED), load("csv", path=gappy, **STATED)
    assert one.feature_names == two.feature_names
    assert one.features[0].tolist() == two.features[0].tolist()
    with pytest.raises(InputError, match=r"'ward' is missing in 1 rows, and optional, which .* does not name it"):
        load("csv", path=gappy, **STATED, optional=["age"])


def test_words_for_missing_are_categories_unless_they_are_listed(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "20,None,no", "30,NA,yes")
    assert load("csv", path=path, **STATED).features[:, 2:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    listed = load("csv", path=path, **STATED, missing_values=["NA"])
    assert listed.features[:, 2:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    numbers = table(tmp_path / "n.csv", "NA,None,no", "30,NA,yes")
    with pytest.raises(InputError, match=r"'age' must be numeric, but has 'NA' .* missing_values = \['NA'\]"):
        load("csv", path=numbers, **STATED)
    assert load("csv", path=numbers, **STATED, missing_values=["NA"]).features[0, :2].tolist() == [0, 1]
    coded = table(tmp_path / "c.csv", "-9,None,no", "30,NA,yes")
    assert load("csv", path=coded, **STATED, missing_values=[-9]).features[0, :2].tolist() == [0, 1]


def test_rows_stay_in_the_ball_when_gaps_are_filled(tmp_path: Path) -> None:
    """A gap sets two numbers of its column, which the largest norm must count."""
    path = table(tmp_path / "t.csv", ",,no", "100,heart,yes")
    for fill in (0, 50, 100):
        data = load("csv", path=path, **STATED | {"row_norm": "max"}, impute={"age": fill}, constant=True)
        assert np.linalg.norm(data.features, axis=1).max() <= 1 + 1e-12


def test_what_the_book_lacks_is_another_level_where_it_is_said(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "20,eye,no", "30,,yes", "40,heart,yes")
    with pytest.raises(InputError, match=r"has 'eye' and the like in 1 rows: expected .*; other = \['ward'\] makes"):
        load("csv", path=path, **STATED)
    for other in (True, ["ward"]):
        data = load("csv", path=path, **STATED, other=other)
        assert data.feature_names[2:] == ("ward=None", "ward=NA", "ward=heart", "ward=other", "ward=missing")
        assert data.features[:, 2:].argmax(axis=1).tolist() == [3, 4, 2]
    named = STATED | {"categories": {"ward": ["heart", "other", "missing"]}}
    data = load("csv", path=path, **named, other=True)
    assert data.feature_names[2:] == ("ward=heart", "ward=other", "ward=missing")
    assert data.features[:, 2:].argmax(axis=1).tolist() == [1, 2, 0]


def test_dropping_says_how_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = table(tmp_path / "t.csv", "20,heart,no", ",NA,yes", ",,no", "30,NA,yes")
    data = load("csv", path=path, **STATED, missing="drop")
    assert len(data) == 2
    assert data.remarks[0] == ("", "missing = 'drop' leaves out 2 of 4 records, with gaps in age (2), ward (1)")
    options = {k: v for k, v in STATED.items() if k != "label"} | {"missing": "drop"}
    tree = {"data": {"source": "csv", "path": str(path), "label": "sick", "options": options},
            "algorithm": {"name": "dgd"}}  # fmt: skip
    with caplog.at_level(logging.WARNING):
        load_planned(validate(tree))
    assert "t.csv: missing = 'drop' leaves out 2 of 4 records" in caplog.text


def test_parquet_gaps_do_not_change_how_whole_numbers_are_written(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [20.0, None], "ward": [1.0, None], "sick": [True, False]})
    frame.to_parquet(tmp_path / "t.parquet")
    options = STATED | {"categories": {"ward": [1, 2]}, "classes": ["False", "True"]}
    data = load("parquet", path=tmp_path / "t.parquet", **options)
    assert data.features.tolist() == [[-0.6, 0, 1, 0, 0], [0, 1, 0, 0, 1]]
    assert data.targets.tolist() == [1, 0]


def test_parquet_types_are_taken_as_they_are_meant(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({
        "age": pd.Series([20, None], dtype="Int64"), "smokes": pd.Series([True, None], dtype="boolean"),
        "paid": [Decimal("1.5"), Decimal("2.5")], "ward": pd.Categorical(["heart", None]), "sick": ["no", "yes"],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "t.parquet")
    options = STATED | {
        "bounds": {"age": [0, 100], "smokes": [0, 1], "paid": [0, 10]},
        "optional": ["age", "smokes", "ward"],
    }
    data = load("parquet", path=tmp_path / "t.parquet", **options)
    assert data.features.tolist() == [[-0.6, 0, 1, 0, -0.7, 0, 0, 1, 0], [0, 1, 0, 1, -0.5, 0, 0, 0, 1]]
    frame.assign(day=pd.to_datetime(["2024-01-02", "2024-02-03"])).to_parquet(tmp_path / "d.parquet")
    with pytest.raises(InputError, match="'day' is text: it holds dates"):
        load("parquet", path=tmp_path / "d.parquet", **options)
    frame.assign(tags=[["a"], ["b"]]).to_parquet(tmp_path / "l.parquet")
    with pytest.raises(InputError, match="'tags' holds ndarray values: expected numbers or text"):
        load("parquet", path=tmp_path / "l.parquet", **options)


def test_a_proposed_book_claims_nothing() -> None:
    assert origins("csv", **STATED).leaks == ()
    assert origins("csv", **STATED, read_from_records=True).leaks == (PROPOSED,)


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "20,eye,no", "old,NA,perhaps", "inf,,")
    with pytest.raises(InputErrors) as caught:
        load("csv", path=path, **STATED | {"optional": []}, site="clinic", sites=["a"])
    assert len(caught.value.mistakes) == 7
    assert pickle.loads(pickle.dumps(caught.value)).mistakes == caught.value.mistakes, "processes hand errors on"
    for words in ("no column 'clinic'", "'eye'", "'old'", "'perhaps'", "'age' is infinite", "'ward' is missing",
                  "'sick' is missing"):  # fmt: skip
        assert sum(words in line for line in caught.value.mistakes) == 1, words


def test_a_logarithmic_scale_is_that_of_the_public_range(tmp_path: Path) -> None:
    """2 log(1 + x − low)/log(1 + high − low) − 1, whatever the others are; what lies outside is moved to the end."""
    path = tmp_path / "t.csv"
    path.write_text("visits,sick\n2,no\n3,yes\n10,no\n99,yes\n,no\n")
    data = load("csv", path=path, label="sick", classes=["no", "yes"], bounds={"visits": [2, 10]}, log=["visits"],
                impute={"visits": 3}, row_norm="none")  # fmt: skip
    np.testing.assert_allclose(data.features[:, 0], 2 * np.log([1, 2, 9, 9, 2]) / np.log(9) - 1, atol=1e-12)
    assert data.features[:, 1].tolist() == [0, 0, 0, 0, 1]
    assert data.leaks == ()
