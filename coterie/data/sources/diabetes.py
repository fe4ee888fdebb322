"""Readmission of diabetic patients. Clore, Cios, DeShazo & Strack, Diabetes 130-US Hospitals for 1999-2008, UCI, 2014.

Groups of diagnoses are those of Strack et al. 2014, table 2. Ranges are constants of this file, rounded to plausible
administrative limits; values outside are clipped. Some equal published extremes of the data (14 days in hospital, 16
diagnoses), so they are public here but cannot be said to be free of the data. For records of your own, state limits
that do not come from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from coterie.data.bins import Bins
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.download import digest, locate
from coterie.data.encode import Book, Category, Number, RowNorm, class_indices, encode, normalise_rows, words
from coterie.data.tables import read_table, site_numbers, site_origin
from coterie.errors import InputError
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["BOOK", "book", "load", "origins"]

_COUNTS = words("number_outpatient number_emergency number_inpatient")
_TAKEN = words("metformin repaglinide nateglinide glimepiride glipizide glyburide pioglitazone rosiglitazone acarbose")
BOOK: Book = {
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


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    target: Literal["any", "early"] = "any",
    encounters: Literal["first", "all"] = "first",
    counts: Literal["linear", "log"] = "linear",
    site: str | None = None,
    sites: Sequence[object] | None = None,
    centre: bool = True,
    row_norm: RowNorm = "unit",
    bins: Bins | None = None,
) -> Dataset:
    """Is a diabetic patient readmitted? One record per patient by default; patients who died are left out.

    `target`: `any` readmission, or an `early` one (within 30 days). `encounters="all"` keeps every stay and fills
    `people`, so that splits keep a patient on one side and privacy can be accounted per patient. `counts="log"` scales
    the visits of the year before by their logarithm, within the same public range; numbers lie in [−1, 1], or in [0, 1]
    without `centre`. The data has no hospital identifier; `site` may name a raw column that groups the records, such as
    `medical_specialty`, and `sites` states its values (a missing one is `unknown`), which are otherwise read from the
    data, as `leaks` reports.
    """
    files = locate("diabetes", path)
    (file,) = files.values()
    raw = read_table(file, na_values="?", keep_default_na=False, low_memory=False)
    if site is not None and site not in raw:
        raise InputError(f"data set 'diabetes' has no column {site!r} to group records by")
    raw = raw[~raw["discharge_disposition_id"].isin(_GONE)]
    if encounters == "first":
        raw = raw.sort_values("encounter_id").drop_duplicates("patient_nbr")
    raw = raw.sort_values("encounter_id", ignore_index=True)
    table = _attributes(raw)
    z, names, largest = encode(table, book(counts=counts), flags=("race",), centre=centre)
    if bins is not None:
        z, names, row_norm = bins.rows(table), bins.feature_names, "none"
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
        notes=(f"public code book and ranges, {encounters} encounters, counts {counts}, row norm {row_norm!r}",),
        origins=origins(site=site, sites=sites),
    )


def people(*, encounters: str = "first", **_: object) -> bool:
    """Whether records say whose they are: of one record per patient nothing needs to be said."""
    return encounters == "all"


def book(*, counts: str = "linear", **_: object) -> Book:
    """The public code book, by the options."""
    return {**BOOK, **({name: Number(0, 10, log=True) for name in _COUNTS} if counts == "log" else {})}


def origins(*, site: str | None = None, sites: Sequence[object] | None = None, **_: object) -> Origins:
    """Where things come from, by the options alone."""
    return replace(ALL_PUBLIC, sites=site_origin(site, sites))


def _attributes(raw: pd.DataFrame) -> pd.DataFrame:
    """The raw table in the terms of `BOOK`."""

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
