"""The census loader on made records of the extract's schema: nobody may pass real ones on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.data import load
from coterie.data.sources.census import BOOK, INCOME, SCHEMA, schema_of
from coterie.errors import InputError
from coterie.experiment import prepare
from coterie.plan import validate

LEVELS = {"SEX": 2, "MARST": 4, "EDATTAIN": 4, "DISABLED": 2, "NATIVITY": 2, "OWNERSHIP": 2}


def extract(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = {name: rng.integers(1, LEVELS.get(name, 8), rows, endpoint=True) for name in BOOK}
    made |= {"AGE": rng.integers(16, 90, rows), "NCHILD": rng.integers(0, 9, rows), "AUTOS": rng.integers(0, 7, rows)}
    made[INCOME] = rng.integers(0, 80_000, rows)
    return pd.DataFrame({"COUNTRY": 840, "YEAR": 2000, "SERIAL": np.arange(rows), "PERWT": 100.0} | made)


def written(folder: Path, frame: pd.DataFrame, name: str = "ipums-us.csv") -> Path:
    frame.to_csv(folder / name, index=False)
    return folder / name


def test_records_are_coded_by_the_public_book(tmp_path: Path) -> None:
    frame = extract()
    found = load("census", path=written(tmp_path, frame))
    assert found.features.shape == (200, 6 + 2 + 4 + 4 + 2 + 2 + 2)
    assert np.linalg.norm(found.features, axis=1) == pytest.approx(np.ones(200))
    assert found.targets.tolist() == (frame[INCOME] > 25_000).astype(int).tolist()
    assert not found.leaks
    row = found.features[7] / found.features[7, found.feature_names.index("AGE")] * frame["AGE"][7] / 100
    level = found.feature_names.index(f"MARST={frame['MARST'][7]}")
    assert row[level] == pytest.approx(1.0)
    assert row[found.feature_names.index("AUTOS")] == pytest.approx(frame["AUTOS"][7] / 7)


def test_brazil_has_its_own_file_and_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = extract().assign(**{INCOME: np.arange(200) * 10})
    written(tmp_path, frame, "ipums-brazil.csv")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    found = load("census", country="brazil")
    assert found.classes == ("<=300", ">300")
    assert int(found.targets.sum()) == 200 - 31
    assert int(load("census", country="brazil", limit=1000.0).targets.sum()) == 99
    with pytest.raises(InputError, match=r"ipums-us\.csv is not there\. Ask international\.ipums\.org"):
        load("census")


def test_gaps_are_left_out_and_unknown_codes_refused(tmp_path: Path) -> None:
    frame = extract()
    frame.loc[3, "MARST"], frame.loc[4, INCOME], frame.loc[5, "AGE"], frame.loc[6, "AUTOS"] = 9, 9_999_999, 999, 8
    assert len(load("census", path=written(tmp_path, frame)).targets) == 196
    frame.loc[9, "SEX"] = 3
    with pytest.raises(InputError, match="'SEX' has the unknown category '3'"):
        load("census", path=written(tmp_path, frame))
    with pytest.raises(InputError, match="'AGE' must be a code or a number, but has 'old'"):
        load("census", path=written(tmp_path, extract().astype({"AGE": object}).assign(AGE=["old", *[30] * 199])))


def test_the_schema_is_checked_by_its_checksum(tmp_path: Path) -> None:
    frame = extract()
    assert schema_of(frame.columns) == SCHEMA == schema_of(reversed([c.lower() for c in frame.columns]))
    assert schema_of([*frame.columns, "RACE"]) != SCHEMA
    with pytest.raises(InputError, match="it lacks AUTOS; it has RACE"):
        load("census", path=written(tmp_path, frame.rename(columns={"AUTOS": "RACE"})))
    shuffled = frame[sorted(frame.columns, reverse=True)].rename(columns=str.lower)
    assert np.array_equal(
        load("census", path=written(tmp_path, shuffled, "other.csv")).features,
        load("census", path=written(tmp_path, frame)).features,
    )


def test_without_a_file_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    with pytest.raises(InputError, match="COTERIE_DATA is not set"):
        load("census")


def test_a_plan_takes_it(tmp_path: Path) -> None:
    plan = validate(
        {
            "data": {"source": "census", "path": str(written(tmp_path, extract())), "options": {"country": "us"}},
            "partition": {"kind": "iid", "agents": 4, "records": 30},
            "problem": {"loss": "logistic"},
            "privacy": {"epsilon": 1.0},
        }
    )
    assert prepare(plan).features.shape[1] == 22
