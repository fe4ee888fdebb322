"""Two ways of writing a name are one person, wherever people are named; a record that is nobody's is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.api.sites import people_of_sites, person_numbers
from coterie.cli import main
from coterie.data.fingerprint import grouping
from coterie.data.people import person_names
from coterie.errors import InputError

KEY = bytes(32)
TABLE = np.arange(8.0).reshape(4, 2)
ONE = [7, 7.0, "7", " 7 ", "7.0", np.int64(7), np.float64(7), "７"]  # the last is a wide digit
GAPS: list[Any] = [None, float("nan"), "", "  ", pd.NA, pd.NaT, np.nan]


@pytest.mark.parametrize("form", ONE)
def test_one_person_in_two_forms(form: Any) -> None:
    mixed = np.array([7, form, 8, 9], object)
    assert len(set(person_numbers(mixed, 4, "here").tolist())) == 3
    assert grouping(KEY, TABLE, mixed) == grouping(KEY, TABLE, ["a", "a", "b", "c"])
    first, second = people_of_sites([np.array([7, 8]), np.array([form, "9"], object)], [2, 2])
    assert first[0] == second[0]


@pytest.mark.parametrize(("one", "other"), [("é", "e\u0301"), ("Å", "\u212b"), ("José ", "José")])
def test_forms_of_unicode(one: str, other: str) -> None:
    assert len(set(person_numbers([one, other], 2, "here").tolist())) == 1


@pytest.mark.parametrize(("one", "other"), [("7", "07"), ("7", "7.5"), ("a", "A"), (2**53, 2**53 + 1), ("nan", "None")])
def test_other_people_stay_others(one: Any, other: Any) -> None:
    names = np.array([one, other, one, other], object)
    assert person_numbers(names, 4, "here").tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert grouping(KEY, TABLE, names) == grouping(KEY, TABLE, ["x", "y", "x", "y"])


@pytest.mark.parametrize("gap", GAPS)
def test_a_record_that_is_nobodys(gap: Any) -> None:
    for names in ([gap, "b", gap, "c"], pd.Series([gap, "b", gap, "c"], dtype=object)):
        given = np.array(names, object)
        with pytest.raises(InputError, match="here: people must name a person for every record, and 2 are missing"):
            person_numbers(given, 4, "here")
        with pytest.raises(InputError, match="and 2 are missing"):
            grouping(KEY, TABLE, given)


def test_a_gap_in_a_table_is_one_line(tmp_path: Path, capfd: Any) -> None:
    rows = [f"{20 + k},{'' if k == 5 else k // 2},{'yes' if k % 3 else 'no'}" for k in range(60)]
    (tmp_path / "all.csv").write_text("\n".join(["age,patient,ill", *rows]))
    (tmp_path / "plan.toml").write_text(
        f'[data]\nsource = "csv"\npath = "{tmp_path}/all.csv"\nlabel = "ill"\nperson = "patient"\n[data.options]\n'
        'bounds = {age = [0, 100]}\nclasses = ["no", "yes"]\n[partition]\nkind = "iid"\nagents = 3\n'
        "[privacy]\nepsilon = 1.0\n[run]\nrounds = 2\n"
    )
    assert main(["run", str(tmp_path / "plan.toml")]) == 2
    said = capfd.readouterr().err
    assert "column 'patient' is missing in 1 rows, and it is the person" in " ".join(said.split())
    assert "Traceback" not in said


def test_numbers_and_their_text() -> None:
    assert person_names([3, 4], "x").tolist() == person_names(["3", "4.0"], "x").tolist() == ["3", "4"]
