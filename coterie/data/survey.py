"""What is wrong with a table, all of it at once, and what will be changed in it: words for its owner alone.

They come from the records, so a deployed party shows them to nobody else.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.data.files import blanked, read_fields
from coterie.data.stated import OTHER, Stated
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = [
    "GAP_WORDS", "Examined", "Remark", "absent", "are_numbers", "examine", "mistaken", "numbers", "survey", "text",
    "whole",
]  # fmt: skip

MANY = 20  # an integer label with more values than this is a quantity, not a class
SHOWN = 12  # names that a message lists
GAP_WORDS = ("?", "NA", "N/A", "n/a", "na", "nan", "NaN", "NULL", "null", "None", "none", "-", ".", "missing")
DATES = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}.*"


class Remark(NamedTuple):
    """What happens to values of a column (of all: ""), without quoting one; `quoted` does, so it enters no log."""

    column: str
    words: str
    quoted: str = ""


class Examined(NamedTuple):
    """A table as it will be used: its rows and features, what is wrong, and what will be changed."""

    frame: pd.DataFrame
    features: list[str]
    problems: list[str]
    remarks: list[Remark]


def survey(path: Path, options: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Problems, and what will be changed, in a table that is read with these options of `load_table`."""
    found = examine(read_fields(path), Stated.of(options))
    return found.problems, [f"{one.words}{one.quoted}" for one in found.remarks]


def examine(frame: pd.DataFrame, stated: Stated) -> Examined:
    """Everything that is wrong with a table, read with these options, and what will be changed."""
    frame = blanked(frame, stated.missing_values)
    groups = stated.groups
    chosen = [c for c in frame.columns if c not in groups] if stated.features is None else list(stated.features)
    expected = dict.fromkeys([*groups, *chosen, *stated.bounds, *stated.levels, *(stated.optional or ())])
    problems = [absent(name, list(frame.columns)) for name in expected if name not in frame]
    if not chosen:
        problems.append("there are 0 feature columns: expected some beside label, site, person and protected")
    used = [name for name in expected if name in frame]
    if stated.features is None and any(name not in frame for name in groups):  # one of the others is misspelt
        used = [name for name in used if name in {*groups, *stated.bounds, *stated.levels}]
    remarks: list[Remark] = []
    if stated.missing == "drop":
        frame = _dropped(frame, used, remarks)
    if frame.empty:
        problems.append("it has 0 records" + (" without a gap" if remarks else ""))
        return Examined(frame, chosen, problems, remarks)
    for name in used:
        wrong, changed = _column(frame[name], name, stated)
        problems += wrong
        remarks += changed
    return Examined(frame, chosen, problems, remarks)


# -- values ------------------------------------------------------------------------------------------------------------


def text(values: pd.Series) -> pd.Series:
    """A column as text; whole numbers without a decimal point, since a gap makes them floats in Parquet."""
    if pd.api.types.is_float_dtype(values) and (values.dropna() % 1 == 0).all():
        values = values.astype("Int64")
    return values.astype("string")


def numbers(values: pd.Series) -> np.ndarray:
    """A column as floats, NaN where there is no value or no number; truth values are 0 and 1."""
    if pd.api.types.is_string_dtype(values):
        lower = values.str.lower()
        if values.notna().any() and lower.dropna().isin(["true", "false"]).all():
            values = lower.map({"true": 1.0, "false": 0.0})
    return pd.to_numeric(values, errors="coerce").astype("Float64").to_numpy(float, na_value=np.nan)


def are_numbers(values: pd.Series) -> bool:
    """Whether every value is a number, and there is one."""
    present = values.notna().to_numpy()
    return bool(present.any() and not np.isnan(numbers(values)[present]).any())


# -- checks ------------------------------------------------------------------------------------------------------------


def absent(name: str, columns: list[str]) -> str:
    """That a table lacks a column, and which one may be meant."""
    near = difflib.get_close_matches(name.lower(), [c.lower() for c in columns], 1)
    meant = next((f"; is it {c!r}?" for c in columns if near and c.lower() == near[0]), "")
    return f"there is no column {name!r}: it has {_list(columns)}{meant}"


def _dropped(frame: pd.DataFrame, used: Sequence[str], remarks: list[Remark]) -> pd.DataFrame:
    gaps = {name: int(n) for name in used if (n := frame[name].isna().sum())}
    kept = frame.dropna(subset=list(used), ignore_index=True)
    if gaps:
        where = _list([f"{name} ({n})" for name, n in gaps.items()])
        count = f"{len(frame) - len(kept)} of {len(frame)} records"
        remarks.append(Remark("", f"missing = 'drop' leaves out {count}, with gaps in {where}"))
    return kept


def _column(values: pd.Series, name: str, stated: Stated) -> tuple[list[str], list[Remark]]:
    """What is wrong with one column, and what will be changed in it."""
    gaps, of = int(values.isna().sum()), f"of {len(values)} values"
    problems, remarks = _gaps(gaps, name, stated), list[Remark]()
    if name in (stated.site, stated.person):
        known = stated.sites if name == stated.site else None
        return problems + ([] if known is None else _unknown(values, name, known)), remarks
    if name == stated.protected:
        return problems + _unknown(values, name, stated.levels[name]), remarks
    if name == stated.label:
        ends = stated.bounds.get(name)
        return problems + _label(values, stated), [] if ends is None else _outside(values, name, *ends)
    if gaps and stated.may_miss(name):
        place = f"'{name}=missing' says so"
        if name not in stated.levels and (gaps == len(values) or are_numbers(values)):
            rule = stated.range(name)
            fill = stated.impute.get(name, 0.0) if rule is None else rule.fill
            place = f"{fill:g} stands for them, and {place}"
        remarks.append(Remark(name, f"column {name!r}: {gaps} {of} are missing: {place}"))
    if name in stated.levels:
        wrong = _unknown(values, name, stated.levels[name], "other")
        if stated.takes_others(name):
            if count := int((~text(values).isin(list(map(str, stated.levels[name]))) & values.notna()).sum()):
                words = f"column {name!r}: {count} {of} are not in the code book: {OTHER!r} stands for them"
                remarks.append(Remark(name, words))
        else:
            problems += wrong
    elif (bounds := stated.bounds.get(name)) is not None:
        problems += _not_numbers(values, name)
        remarks += _outside(values, name, *bounds)
    elif stated.categories != "data" or are_numbers(values):
        problems += _undeclared(values, name)
    if values.nunique() == 1:
        remarks.append(Remark(name, f"column {name!r} has one value in all records: nothing is learned from it"))
    return problems, remarks


def _gaps(gaps: int, name: str, stated: Stated) -> list[str]:
    if not gaps or (stated.may_miss(name) and name not in stated.groups):
        return []
    missing = f"column {name!r} is missing in {gaps} rows"
    if name in stated.groups:
        role = next(role for role in ("label", "site", "person", "protected") if getattr(stated, role) == name)
        return [f"{missing}, and it is the {role}: missing = 'drop' leaves them out"]
    if stated.missing == "keep":
        return [f"{missing}, and optional, which lists the columns that may have gaps, does not name it"]
    return [f"{missing}: missing = 'keep' gives gaps a place of their own, 'drop' leaves them out"]


def _unknown(values: pd.Series, name: str, levels: Sequence[object], option: str = "") -> list[str]:
    known, written = list(map(str, levels)), text(values)
    wrong = written[~written.isin(known) & values.notna()]
    if wrong.empty:
        return []
    value, why = str(wrong.iloc[0]), ""
    if value in GAP_WORDS:
        why = f"; missing_values = [{value!r}] makes it a gap"
    elif value.lower() in [level.lower() for level in known]:
        why = "; small and capital letters are different"
    elif any(_same_number(value, level) for level in known):
        why = "; the same number must be written the same"
    elif option:
        why = f"; {option} = [{name!r}] makes all others one level"
    return [f"column {name!r} has {value!r} and the like in {len(wrong)} rows: expected {_list(known)}{why}"]


def _same_number(one: str, two: str) -> bool:
    try:
        return float(one) == float(two)
    except ValueError:
        return False


def _not_numbers(values: pd.Series, name: str) -> list[str]:
    found, numeric = [], numbers(values)
    wrong = np.isnan(numeric) & values.notna().to_numpy()
    if wrong.any():
        value, why = str(values[wrong].iloc[0]), ""
        if value in GAP_WORDS:
            why = f"; missing_values = [{value!r}] makes it a gap"
        elif _same_number(value.replace(",", ".", 1), value.replace(",", ".", 1)):
            why = "; decimal numbers have a point"
        elif (~np.isnan(numeric)).sum() == 0 and _dates(values):
            why = "; a date is no number: write days or years"
        found.append(f"column {name!r} must be numeric, but has {value!r} (in {wrong.sum()} rows){why}")
    if wild := int(np.isinf(numeric).sum()):
        found.append(f"column {name!r} is infinite in {wild} rows")
    return found


def _undeclared(values: pd.Series, name: str) -> list[str]:
    """A column of which only its name is known: numbers are used as they are."""
    present = int(values.notna().sum())
    if not present:
        return [f"column {name!r} has no value: declare its bounds or categories, or leave it out of the features"]
    if wrong := mistaken(values, name):
        return wrong
    if are_numbers(values):
        return []
    why = "declare its categories, or leave it out of the features"
    if _dates(values):
        why = "it holds dates: write days or years as numbers, or leave it out of the features"
    elif present > MANY and values.nunique() == present:
        why = "every value is different, as in an identifier: leave it out of the features"
    return [f"column {name!r} is text: {why}"]


def mistaken(values: pd.Series, name: str) -> list[str]:
    """What is wrong with a column of numbers in which some are not written as such; nothing of other columns."""
    present, right = int(values.notna().sum()), int((~np.isnan(numbers(values))).sum())
    comma = present and not right and values.dropna().astype("string").str.fullmatch(r"[+-]?\d+,\d+").all()
    return _not_numbers(values, name) if 2 * right > present or comma else []


def _dates(values: pd.Series) -> bool:
    return bool(values.dropna().astype("string").str.fullmatch(DATES).all())


def _label(values: pd.Series, stated: Stated) -> list[str]:
    name, kind = stated.label, stated.kind
    numeric, different = are_numbers(values), int(values.nunique())
    if stated.classes is not None:
        return _unknown(values, name, stated.classes)
    if kind == "regression":
        if not numeric and different:
            return [f"label {name!r} is text such as {values.dropna().iloc[0]!r}: it cannot be a regression target"]
        return _not_numbers(values, name)
    if kind == "auto" and numeric:
        if wrong := _not_numbers(values, name):
            return wrong
        few = different <= MANY and different < len(values)
        if few and not whole(values) and (numbers(values.dropna()) % 1 == 0).all():
            names = sorted(text(values).dropna().unique())
            return [
                f"label {name!r} holds {_list(names)}: say classes = {names} if these are classes, task = 'regression' "
                "if they are quantities"
            ]
        if not (whole(values) and different <= MANY):
            return []
    if different < 2:
        return [f"label {name!r} has the single class {list(text(values).dropna().unique())}: nothing to learn"]
    if different > MANY and different == len(values):
        return [f"label {name!r} has a different value in every row, as an identifier has: expected classes"]
    return []


def whole(values: pd.Series) -> bool:
    """Whether values are written as whole numbers or truth values, as codes of classes are."""
    if pd.api.types.is_string_dtype(values):
        return bool(values.dropna().str.fullmatch(r"[+-]?\d+|true|false", case=False).all())
    return bool(pd.api.types.is_integer_dtype(values) or pd.api.types.is_bool_dtype(values))


def _outside(values: pd.Series, name: str, low: float, high: float) -> list[Remark]:
    numeric = numbers(values)
    count = int(np.sum((numeric < low) | (numeric > high)))
    if not count:
        return []
    where = f"{count} of {len(numeric)} values lie outside [{low:g}, {high:g}]"
    words = f"column {name!r}: {where} and are moved to its ends"
    return [Remark(name, words, f" (they go from {np.nanmin(numeric):g} to {np.nanmax(numeric):g})")]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")
