"""Two medical data sets from UCI: heart disease at four hospitals, and readmission of diabetic patients.

Janosi, Steinbrunn, Pfisterer & Detrano, Heart Disease, 1989. Clore, Cios, DeShazo & Strack, Diabetes 130-US
Hospitals for Years 1999-2008, 2014; groups of diagnoses as in Strack et al. 2014, table 2. Ranges are
constants of this file, rounded to plausible physiological or administrative limits; values outside are clipped. Some
equal published extremes of the data sets (14 days in hospital, 16 diagnoses, a heart rate of 60), so they are public
here but cannot be said to be free of the data. For records of your own, state limits that do not come from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.arguments import choose
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.download import digest, locate
from coterie.data.encode import Book, Category, Number, class_indices, encode, normalise_rows, words
from coterie.data.tables import read_table, site_numbers, site_origin
from coterie.errors import InputError
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["DIABETES_BOOK", "HEART_BOOK", "diabetes_origins", "load_diabetes", "load_heart"]

HEART_SITES = ("cleveland", "hungarian", "switzerland", "va")
HEART_COLUMNS = words("age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num")
HEART_BOOK: Book = {
    "age": Number(20, 90),
    "sex": Number(0, 1),
    "cp": Category(("1", "2", "3", "4")),
    "trestbps": Number(80, 220),
    "chol": Number(100, 600),
    "fbs": Number(0, 1),
    "restecg": Category(("0", "1", "2")),
    "thalach": Number(60, 220),
    "exang": Number(0, 1),
    "oldpeak": Number(-3, 7),
    "slope": Category(("1", "2", "3")),
    "ca": Number(0, 3),
    "thal": Category(("3", "6", "7")),
}
HEART_GAPS = ("trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal")


def load_heart(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    missing: str = "flag",
    row_norm: str = "unit",
    constant: bool = True,
) -> Dataset:
    """Heart disease (any, `num` > 0) at four hospitals, which are the sites: 920 records.

    Much is missing, differently at each hospital (a blood pressure or cholesterol of 0 means missing too).
    `missing="flag"` keeps all records: a missing value is 0 and a feature says so. `missing="drop"` leaves out
    slope, ca and thal, which three hospitals hardly measured, and chol, which one never did, then every record
    with a gap.
    """
    choose("missing", missing, ("flag", "drop"))
    files = locate("heart", path)
    frame = pd.concat([_heart_table(name, file) for name, file in files.items()], ignore_index=True)
    for column in ("trestbps", "chol"):
        frame[column] = frame[column].where(frame[column] != 0)
    book = dict(HEART_BOOK)
    if missing == "drop":
        book = {name: rule for name, rule in HEART_BOOK.items() if name not in ("slope", "ca", "thal", "chol")}
        frame = frame.dropna(subset=list(book), ignore_index=True)
    z, names, largest = encode(_integers(frame, book), book, flags=HEART_GAPS if missing == "flag" else ())
    if constant:
        z, names, largest = np.column_stack([np.ones(len(z)), z]), ("constant", *names), np.hypot(largest, 1.0)
    return Dataset(
        name="heart",
        features=normalise_rows(z, row_norm, largest),
        targets=np.minimum(class_indices(frame["num"], "num", words("0 1 2 3 4")), 1),
        classes=("healthy", "diseased"),
        feature_names=names,
        sites=np.array([HEART_SITES.index(site) for site in frame["site"]]),
        site_names=HEART_SITES,
        columns={name: frame[name].to_numpy() for name in ("age", "sex", "num")},
        source=", ".join(map(str, files.values())),
        sha256={name: digest(file) for name, file in files.items()},
        notes=(f"numbers in public ranges, missing values: {missing}, row norm {row_norm!r}",),
        origins=ALL_PUBLIC,
    )


def _heart_table(name: str, file: Path) -> pd.DataFrame:
    if name.startswith("processed."):
        return read_table(file, names=HEART_COLUMNS, na_values="?").assign(site=name.split(".")[1])
    return read_table(file, na_values="?")


def _integers(frame: pd.DataFrame, book: Book) -> pd.DataFrame:
    """Category codes as text without a decimal point."""
    coded = {name: frame[name].astype("Int64").astype("string") for name, r in book.items() if isinstance(r, Category)}
    return frame.assign(**coded)


_TAKEN = words("metformin repaglinide nateglinide glimepiride glipizide glyburide pioglitazone rosiglitazone acarbose")
DIABETES_BOOK: Book = {
    "race": Category(("Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other")),
    "gender": Category(("Female", "Male")),
    "age": Number(0, 100),
    "admission_type": Category(("emergency", "urgent", "elective", "other")),
    "discharge": Category(("home", "transferred", "other")),
    "admission_source": Category(("referral", "emergency room", "transfer", "other")),
    "time_in_hospital": Number(0, 14),
    "num_lab_procedures": Number(0, 120),
    "num_procedures": Number(0, 6),
    "num_medications": Number(0, 60),
    "number_outpatient": Number(0, 10),
    "number_emergency": Number(0, 10),
    "number_inpatient": Number(0, 10),
    "number_diagnoses": Number(0, 16),
    "diagnosis": Category(
        words("circulatory respiratory digestive diabetes injury musculoskeletal genitourinary neoplasms other")
    ),
    "max_glu_serum": Category(("None", "Norm", ">200", ">300")),
    "A1Cresult": Category(("None", "Norm", ">7", ">8")),
    "insulin": Category(("No", "Down", "Steady", "Up")),
    **{name: Number(0, 1) for name in _TAKEN},
    "change": Number(0, 1),
    "diabetesMed": Number(0, 1),
}
_ICD9 = {  # chapter -> ranges of whole codes
    "circulatory": ((390, 459), (785, 785)),
    "respiratory": ((460, 519), (786, 786)),
    "digestive": ((520, 579), (787, 787)),
    "diabetes": ((250, 250),),
    "injury": ((800, 999),),
    "musculoskeletal": ((710, 739),),
    "genitourinary": ((580, 629), (788, 788)),
    "neoplasms": ((140, 239),),
}
_GONE = (11, 13, 14, 19, 20, 21)  # discharged to a hospice, or dead: cannot come back


def load_diabetes(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    target: str = "any",
    encounters: str = "first",
    site: str | None = None,
    sites: Sequence[str] | None = None,
    row_norm: str = "unit",
) -> Dataset:
    """Is a diabetic patient readmitted? One record per patient by default; patients who died are left out.

    `target`: `any` readmission, or an `early` one (within 30 days). `encounters="all"` keeps every stay and fills
    `people`, so that splits keep a patient on one side and privacy can be accounted per patient. The data has no
    hospital identifier; `site` may name a raw column that groups the records, such as `medical_specialty`, and `sites`
    states its values (a missing one is `unknown`), which are otherwise read from the data, as `leaks` reports.
    """
    choose("target", target, ("any", "early"))
    choose("encounters", encounters, ("first", "all"))
    files = locate("diabetes", path)
    (file,) = files.values()
    raw = read_table(file, na_values="?", keep_default_na=False, low_memory=False)
    if site is not None and site not in raw:
        raise InputError(f"data set 'diabetes' has no column {site!r} to group records by")
    raw = raw[~raw["discharge_disposition_id"].isin(_GONE)]
    if encounters == "first":
        raw = raw.sort_values("encounter_id").drop_duplicates("patient_nbr")
    raw = raw.sort_values("encounter_id", ignore_index=True)
    z, names, largest = encode(_diabetes_attributes(raw), DIABETES_BOOK, flags=("race",))
    where, site_names = (None, ()) if site is None else site_numbers(raw[site].fillna("unknown"), site, sites)
    outcome = class_indices(raw["readmitted"], "readmitted", ("NO", ">30", "<30"))
    return Dataset(
        name="diabetes",
        features=normalise_rows(z, row_norm, largest),
        targets=(outcome > (1 if target == "early" else 0)).astype(np.int64),
        classes=("not readmitted", "readmitted") if target == "any" else ("no or later", "within 30 days"),
        feature_names=names,
        sites=where,
        site_names=site_names,
        people=raw["patient_nbr"].to_numpy() if encounters == "all" else None,
        columns={name: raw[name].to_numpy() for name in ("race", "gender", "age", "readmitted")},
        source=str(file),
        sha256={name: digest(path) for name, path in files.items()},
        notes=(f"public code book and ranges, {encounters} encounters, row norm {row_norm!r}",),
        origins=diabetes_origins(site=site, sites=sites),
    )


def diabetes_origins(*, site: str | None = None, sites: Sequence[str] | None = None, **_: object) -> Origins:
    """Where things come from, by the options alone."""
    return replace(ALL_PUBLIC, sites=site_origin(site, sites))


def _diabetes_attributes(raw: pd.DataFrame) -> pd.DataFrame:
    """The raw table in the terms of `DIABETES_BOOK`."""

    def grouped(column: str, groups: dict[str, tuple[int, ...]]) -> pd.Series:
        return raw[column].map({code: name for name, codes in groups.items() for code in codes}).fillna("other")

    code = pd.to_numeric(raw["diag_1"], errors="coerce").fillna(-1).astype(int)  # V and E codes are "other"
    diagnosis = pd.Series("other", index=raw.index)
    for name, spans in _ICD9.items():
        for low, high in spans:
            diagnosis[code.between(low, high)] = name
    return raw.assign(
        gender=raw["gender"].where(raw["gender"] != "Unknown/Invalid"),
        age=raw["age"].str.extract(r"\[(\d+)-", expand=False).astype(float) + 5,
        admission_type=grouped("admission_type_id", {"emergency": (1,), "urgent": (2,), "elective": (3,)}),
        discharge=grouped(
            "discharge_disposition_id", {"home": (1, 6, 8), "transferred": (2, 3, 4, 5, 15, 22, 23, 24, 27, 28)}
        ),
        admission_source=grouped(
            "admission_source_id",
            {"referral": (1, 2, 3), "emergency room": (7,), "transfer": (4, 5, 6, 10, 18, 22, 25, 26)},
        ),
        diagnosis=diagnosis,
        change=(raw["change"] == "Ch").astype(float),
        diabetesMed=(raw["diabetesMed"] == "Yes").astype(float),
        **{name: (raw[name] != "No").astype(float) for name in _TAKEN},
    )
