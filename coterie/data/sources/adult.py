"""UCI Adult (census income): does a person earn more than 50,000 dollars a year?

Becker & Kohavi, Adult, UCI Machine Learning Repository, 1996. Levels are those of the public description of the
data. Ranges are constants of this file, rounded to plausible public limits; being published for decades, some equal
the extremes of the data set itself (age 17 to 90, capital-loss 4,356, hours 1 to 99), so they are public here but were
not found without the data. For records of your own, state limits that do not come from them. Papers scale columns by
their maximum in the data and code categories by their frequency in it: both read the records at hand, so neither is
the default.
"""

from __future__ import annotations

from dataclasses import replace
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

__all__ = ["BOOK", "COLUMNS", "book", "load", "origins"]

COLUMNS = words(
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
)

BOOK: Book = {
    "age": Number(17, 90),
    "workclass": Category(
        words("Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked")
    ),
    "fnlwgt": Number(0, 1_500_000),
    "education": Category(
        words(
            "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm Bachelors "
            "Masters Prof-school Doctorate"
        )
    ),
    "education-num": Number(1, 16),
    "marital-status": Category(
        words("Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse")
    ),
    "occupation": Category(
        words(
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
            "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
            "Armed-Forces"
        )
    ),
    "relationship": Category(words("Wife Own-child Husband Not-in-family Other-relative Unmarried")),
    "race": Category(words("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black")),
    "sex": Category(("Female", "Male")),
    "capital-gain": Number(0, 99_999),
    "capital-loss": Number(0, 4_356),
    "hours-per-week": Number(1, 99),
    "native-country": Category(
        words(
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece "
            "South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
            "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
            "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
        )
    ),
}


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    coding: Literal["onehot", "ordinal", "frequency"] = "onehot",
    missing: Literal["drop", "keep"] = "drop",
    money: Literal["linear", "log"] = "linear",
    centre: bool | None = None,
    row_norm: RowNorm = "unit",
    fnlwgt: bool = False,
    constant: bool = False,
    bins: Bins | None = None,
) -> Dataset:
    """Adult: 45,222 complete records, 104 features by default; class 0 is `<=50K`, class 1 `>50K`.

    `coding`: `onehot` (104 features), `ordinal` (13; the code book's order) or `frequency` (13; the papers' coding,
    which reads frequencies from the data: for reproduction only, reported in `leaks`). `missing`: `drop` the 3,620
    incomplete records or `keep` them, a missing category being all zeros. `money="log"` scales capital gain and
    loss by their logarithm. `fnlwgt=True` adds the census weight (14 features in the short codings). `centre` maps
    numbers to [−1, 1], else they lie in [0, 1]; left out, it is true for `onehot` and false for the papers' codings.
    `constant` adds a feature 1 before rows are normalised. Raw attributes are in `columns`; `test` marks the official
    test set.
    """
    centre = coding == "onehot" if centre is None else centre
    files = locate("adult", path)
    frame = pd.concat([read(file).assign(test="test" in name) for name, file in files.items()], ignore_index=True)
    if missing == "drop":
        frame = frame.dropna(ignore_index=True)
    rules = book(money=money, fnlwgt=fnlwgt)
    z, names, largest = encode(frame, rules, coding="onehot" if coding == "onehot" else "ordinal", centre=centre)
    if coding == "frequency":
        for column, rule in rules.items():
            if isinstance(rule, Category):
                share = frame[column].value_counts(normalize=True)
                z[:, names.index(column)] = frame[column].map(share).fillna(0.0)
    if constant:
        z, names, largest = np.column_stack([np.ones(len(z)), z]), ("constant", *names), np.hypot(largest, 1.0)
    if bins is not None:
        z, names, row_norm = bins.rows(frame), bins.feature_names, "none"
    income = frame["income"].astype("string").str.rstrip(".")
    return Dataset(
        name="adult",
        features=normalise_rows(z, row_norm, largest),
        targets=class_indices(income, "income", ("<=50K", ">50K")),
        classes=("<=50K", ">50K"),
        feature_names=names,
        test=frame["test"].to_numpy(bool),
        columns={name: frame[name].to_numpy() for name in COLUMNS[:-1]},
        source=", ".join(map(str, files.values())),
        sha256={name: digest(file) for name, file in files.items()},
        notes=(f"numbers in public ranges, {coding} coding of public categories, row norm {row_norm!r}",),
        origins=origins(coding=coding),
    )


def book(*, money: str = "linear", fnlwgt: bool = False, **_: object) -> Book:
    """The public code book, by the options."""
    rules = {name: rule for name, rule in BOOK.items() if fnlwgt or name != "fnlwgt"}
    if money == "log":
        rules |= {"capital-gain": Number(0, 99_999, log=True), "capital-loss": Number(0, 4_356, log=True)}
    return rules


def origins(*, coding: str = "onehot", **_: object) -> Origins:
    """Where things come from, by the options alone."""
    if coding != "frequency":
        return ALL_PUBLIC
    return replace(ALL_PUBLIC, scale=("categories are coded by their frequency in the data",))


def read(file: Path) -> pd.DataFrame:
    """A table with the columns of `COLUMNS`, from the official form or from a CSV with a header."""
    plain = file.suffix in {".data", ".test"}
    return read_table(file, names=COLUMNS if plain else None, comment="|" if plain else None, na_values="?")
