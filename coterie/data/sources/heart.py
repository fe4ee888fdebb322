"""Heart disease at four hospitals. Janosi, Steinbrunn, Pfisterer & Detrano, Heart Disease, UCI, 1989.

Ranges are constants of this file, rounded to plausible physiological limits; values outside are clipped. Some equal
published extremes of the data (a heart rate of 60), so they are public here but cannot be said to be free of the data.
For records of your own, state limits that do not come from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from coterie.data.bins import Bins
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.download import digest, locate
from coterie.data.encode import Book, Category, Number, RowNorm, class_indices, encode, normalise_rows, words
from coterie.data.tables import read_table
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["BOOK", "SITED", "book", "load", "origins"]

SITED = True
SITES = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = words("age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num")
BOOK: Book = {
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
GAPS = ("trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal")


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    missing: Literal["flag", "drop"] = "flag",
    centre: bool = True,
    row_norm: RowNorm = "unit",
    constant: bool = True,
    bins: Bins | None = None,
) -> Dataset:
    """Heart disease (any, `num` > 0) at four hospitals, which are the sites: 920 records.

    Much is missing, differently at each hospital (a blood pressure or cholesterol of 0 means missing too).
    `missing="flag"` keeps all records: a missing value is 0 and a feature says so. `missing="drop"` leaves out
    slope, ca and thal, which three hospitals hardly measured, and chol, which one never did, then every record
    with a gap. Numbers lie in [−1, 1], or in [0, 1] without `centre`.
    """
    files = locate("heart", path)
    frame = pd.concat([_table(name, file) for name, file in files.items()], ignore_index=True)
    for column in ("trestbps", "chol"):
        frame[column] = frame[column].where(frame[column] != 0)
    rules = book(missing=missing)
    if missing == "drop":
        frame = frame.dropna(subset=list(rules), ignore_index=True)
    table = _integers(frame, rules)
    z, names, largest = encode(table, rules, flags=GAPS if missing == "flag" else (), centre=centre)
    if constant:
        z, names, largest = np.column_stack([np.ones(len(z)), z]), ("constant", *names), np.hypot(largest, 1.0)
    if bins is not None:
        z, names, row_norm = bins.rows(table), bins.feature_names, "none"
    return Dataset(
        name="heart",
        features=normalise_rows(z, row_norm, largest),
        targets=np.minimum(class_indices(frame["num"], "num", words("0 1 2 3 4")), 1),
        classes=("healthy", "diseased"),
        feature_names=names,
        sites=np.array([SITES.index(site) for site in frame["site"]]),
        site_names=SITES,
        columns={name: frame[name].to_numpy() for name in ("age", "sex", "num")},
        source=", ".join(map(str, files.values())),
        sha256={name: digest(file) for name, file in files.items()},
        notes=(f"numbers in public ranges, missing values: {missing}, row norm {row_norm!r}",),
        origins=origins(),
    )


def book(*, missing: str = "flag", **_: object) -> Book:
    """The public code book, by the options."""
    gone = ("slope", "ca", "thal", "chol") if missing == "drop" else ()
    return {name: rule for name, rule in BOOK.items() if name not in gone}


def _table(name: str, file: Path) -> pd.DataFrame:
    if name.startswith("processed."):
        return read_table(file, names=COLUMNS, na_values="?").assign(site=name.split(".")[1])
    return read_table(file, na_values="?")


def _integers(frame: pd.DataFrame, book: Book) -> pd.DataFrame:
    """Category codes as text without a decimal point."""
    coded = {name: frame[name].astype("Int64").astype("string") for name, r in book.items() if isinstance(r, Category)}
    return frame.assign(**coded)


def origins(**_: object) -> Origins:
    """Nothing is read: ranges, categories and hospitals are known."""
    return ALL_PUBLIC
