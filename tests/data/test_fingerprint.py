"""Fingerprints of records: the same however they are given, others for any other record, nothing without the key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.data import make_clinics
from coterie.data.fingerprint import fingerprint
from coterie.errors import InputError

KEY = bytes(range(32))
TABLE = pd.DataFrame({"age": [31, 40, 55, 40], "sex": ["f", "m", None, "m"], "bmi": [21.5, 30.0, np.nan, 30.0]})


def test_a_table_is_the_same_in_every_form(tmp_path: Path) -> None:
    mark = fingerprint(KEY, TABLE)
    TABLE.to_csv(tmp_path / "a.csv", index=False)
    TABLE.iloc[::-1][["bmi", "sex", "age"]].to_csv(tmp_path / "b.csv", index=False)  # other rows' and columns' order
    TABLE.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "c.csv").write_text("bmi,age,sex\n21.50,31.0,f\n3e1,40,m\n,55,\n30,+40,m\n")  # other spelling
    for form in ("a.csv", "b.csv", "a.parquet", "c.csv"):
        assert fingerprint(KEY, tmp_path / form) == mark, form
    assert fingerprint(KEY, [TABLE[:1], TABLE[1:]]) == mark
    (tmp_path / "a.csv").rename(tmp_path / "nameless")
    assert fingerprint(KEY, tmp_path / "nameless") == mark  # as anonymous memory has no suffix


def test_any_other_record_changes_it() -> None:
    mark, seen = fingerprint(KEY, TABLE), set()
    others = [
        TABLE.assign(age=[31, 40, 55, 41]), TABLE.assign(sex=["f", "m", "f", "m"]), TABLE[:3],
        pd.concat([TABLE, TABLE[:1]]), TABLE.rename(columns={"age": "Age"}), TABLE.assign(bmi=[21.5, 30.0, 0.0, 30.0]),
        TABLE.assign(age=[40, 31, 55, 40]),  # columns belong together
        TABLE[["age", "sex"]],
    ]  # fmt: skip
    for other in others:
        seen.add(fingerprint(KEY, other))
    assert len(seen) == len(others)
    assert mark not in seen
    assert fingerprint(bytes(32), TABLE) != mark  # without the key nobody can try a guess


def test_a_twin_that_adds_up_bytes_would_be_noticed() -> None:
    """The sum of unkeyed row sums is the same for rows whose values are exchanged: the hash of a row is not."""
    x, swapped = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 4.0], [3.0, 2.0]])
    assert x.sum() == swapped.sum()
    assert fingerprint(KEY, x) != fingerprint(KEY, swapped)


def test_arrays_sites_and_data_sets() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.integers(0, 2, 20)
    mark = fingerprint(KEY, (x, y))
    assert fingerprint(KEY, [(x[:7], y[:7]), (x[7:], y[7:])]) == mark
    assert fingerprint(KEY, (pd.DataFrame(x, columns=["0", "1", "2"]), list(y))) == mark
    assert fingerprint(KEY, (x, 1 - y)) != mark
    assert fingerprint(KEY, x) != mark
    assert fingerprint(KEY, np.where(x == x[0, 0], -0.0, x)) == fingerprint(KEY, np.where(x == x[0, 0], 0.0, x))
    assert fingerprint(KEY, make_clinics(seed=0)) == fingerprint(KEY, make_clinics(seed=0))
    assert fingerprint(KEY, make_clinics(seed=0)) != fingerprint(KEY, make_clinics(seed=1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (np.zeros((0, 3)), "no records"),
        (np.zeros(3), r"a table \(records, columns\), got shape \(3,\)"),
        ("nowhere.csv", "nowhere.csv is no file"),
        ((np.zeros((3, 2)), np.zeros(2)), "columns of different length: .2, 3."),
    ],
)
def test_what_is_no_table(data: object, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        fingerprint(KEY, data)


def test_one_text_in_two_forms_of_unicode_is_one() -> None:
    one, other = ({"name": np.array([text, "x"], object)} for text in ("é", "e\u0301"))
    assert fingerprint(bytes(32), one) == fingerprint(bytes(32), other)
