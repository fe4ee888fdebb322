"""A code book for a table, proposed by looking at its records: for its owner to check, and private until then.

Everything here is read from the records, so the book says so (`read_from_records`), and nothing that is made with it
claims privacy until its owner has compared it with public knowledge and removed that key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.data.files import blanked
from coterie.data.stated import Stated
from coterie.data.survey import DATES, MANY, absent, are_numbers, examine, mistaken, numbers, text
from coterie.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Proposal", "Seen", "propose"]

LEVELS = 50  # a text column with more different values is no category
LABELS = ("label", "target", "outcome", "class", "y", "diagnosis", "response")
SITES = ("site", "clinic", "hospital", "centre", "center", "institution", "bank", "branch")
PEOPLE = ("person", "patient", "subject", "customer", "client", "user", "participant")
GAPS = ("?", "NA", "N/A", "n/a", "nan", "NaN", "NULL", "null")


class Seen(NamedTuple):
    """What a column looks like."""

    name: str
    kind: str
    different: int
    gaps: int
    use: str


@dataclass(frozen=True)
class Proposal:
    """What each column is for, the code book, and what its owner should know."""

    columns: list[Seen]
    label: str
    site: str | None
    book: Mapping[str, object]
    said: list[str]

    def toml(self, source: str) -> str:
        """The code book as a file, with comments for whoever corrects it."""
        lines = [
            f"# Code book of {source}, proposed by `coterie init`. EVERY line was read from the records, and what one",
            "# record can change protects nobody. Compare each with public knowledge (physiology, regulations, a",
            "# questionnaire, the range of an instrument), correct it, and remove the next key: until then every run",
            "# says that no privacy can be claimed.",
            "read_from_records = true",
            "",
        ]
        for key, value in self.book.items():
            if isinstance(value, dict):
                lines += ["", f"# {WORDS[key]}", f"[{key}]"]
                lines += [f"{_toml(name)} = {_toml(entry)}" for name, entry in value.items()]
            else:
                lines += [f"# {WORDS[key]}", f"{key} = {_toml(value)}"]
        return "\n".join(lines) + "\n"


WORDS = {
    "person": "whose record it is: one person's records stay together, and ε is per person",
    "features": "what is learned from",
    "classes": "labels that can occur, in this order",
    "task": "the label is a quantity",
    "sites": "all sites that take part",
    "optional": "columns that may have gaps: each adds a feature that says so",
    "missing_values": "gaps, besides empty fields",
    "constant": "a feature that is 1: without categories nothing else carries the base rate",
    "bounds": "smallest and largest value that can occur, rounded outwards: values beyond are moved to the end",
    "categories": 'names that can occur; other = true (above the tables) makes all else a level "other"',
}


def propose(
    frame: pd.DataFrame, label: str | None, site: str | None, person: str | None,
    bounds: Mapping[str, Sequence[float]],
) -> Proposal:  # fmt: skip
    """A code book for these records; `site` "" says that there is none. `bounds` are stated, and stand as they are."""
    for name in (label, site, person, *bounds):
        if name and name not in frame:
            raise InputError(absent(name, list(frame.columns)))
    words = _gap_words(frame)
    frame = blanked(frame, words)
    kinds = {name: _kind(frame[name], name) for name in frame.columns}
    said = [] if not words else [f"{', '.join(words)} are taken for gaps: missing_values lists them"]
    label = label or _label(frame, kinds, said)
    site = _by_name(frame, SITES, {label}, "site", said) if site is None else site or None
    person = person or _by_name(frame, PEOPLE, {label, site}, "person", said)
    roles = {label: "label", site: "site", person: "person"}
    features = [n for n, kind in kinds.items() if n not in roles and (kind in ("number", "category") or n in bounds)]
    book: dict[str, object] = {} if person is None else {"person": person}
    book["features"] = features
    ranges: dict[str, Sequence[float]] = {}
    quantity = label in bounds or (kinds[label] == "number" and not _codes(frame[label]))
    if quantity:
        book["task"], ranges[label] = "regression", bounds.get(label) or _outwards(frame[label])
    else:
        book["classes"] = _names(frame[label])
    if site is not None:
        book["sites"] = _names(frame[site])
    book["optional"] = [name for name in features if frame[name].isna().any()]
    if words:
        book["missing_values"] = words
    numeric = [name for name in features if kinds[name] == "number" or name in bounds]
    if len(numeric) == len(features):
        book["constant"] = True
    ranges |= {name: bounds.get(name) or _outwards(frame[name]) for name in numeric}
    book["bounds"] = ranges
    book["categories"] = {name: _names(frame[name]) for name in features if name not in numeric}
    given = {"label": label, "site": site, **book}
    said += _doubts(frame, kinds, features, [name for name in roles if name is not None], bounds)
    said += [f"to mend: {problem}" for problem in examine(frame, Stated.of(given)).problems]
    columns = [
        Seen(name, kinds[name], int(frame[name].nunique()), int(frame[name].isna().sum()),
             roles.get(name, "feature" if name in features else "left out"))
        for name in frame.columns
    ]  # fmt: skip
    return Proposal(columns, label, site, book, said)


def _gap_words(frame: pd.DataFrame) -> list[str]:
    """Words for a gap: a question mark, and what stands in columns that have numbers otherwise."""
    found: dict[str, None] = {}
    for name in frame.columns:
        values = text(frame[name]).dropna()
        words = [word for word in GAPS if (values == word).any()]
        rest = values[~values.isin(words)]
        found |= dict.fromkeys(word for word in words if word == "?" or are_numbers(rest))
    return list(found)


def _kind(values: pd.Series, name: str) -> str:
    present, different = int(values.notna().sum()), int(values.nunique())
    if different < 2:
        return "empty" if not different else "constant"
    if are_numbers(values):
        coded = name.lower() in ("id", "nr", "no") or name.lower().endswith(("_id", " id", "_nr", "_nbr"))
        return "identifier" if coded and different == present else "number"
    if values.dropna().astype("string").str.fullmatch(DATES).all():
        return "date"
    if different == present and present > MANY:
        return "identifier"
    return "text" if different > LEVELS else "category"


def _doubts(
    frame: pd.DataFrame, kinds: Mapping[str, str], features: Sequence[str], groups: Sequence[str],
    bounds: Mapping[str, Sequence[float]],
) -> list[str]:  # fmt: skip
    """What its owner would want to know of a column before it is used as proposed, or left out."""
    found = []
    for name, kind in kinds.items():
        values = frame[name]
        if kind in ("text", "category", "identifier") and name not in bounds:
            found += [f"to mend: {problem}" for problem in mistaken(values, name)]
        if (name in features or name in groups) and kind == "category":
            found += [f"to check: column {name!r}: {', '.join(map(repr, same))} look like one name"
                      for same in _alike(values)]  # fmt: skip
        if name in features and kind == "number" and name not in bounds:
            found += [f"to check: column {name!r} has {value:g} in {count} rows, far from all others: if it stands "
                      f"for a gap, add it to missing_values" for value, count in _sentinels(values)]  # fmt: skip
    left = [f"{name} ({kinds[name]})" for name in kinds if name not in features and name not in groups]
    return found + ([f"left out: {', '.join(left)}"] if left else [])


def _alike(values: pd.Series) -> list[list[str]]:
    """Names that differ in capitals, spaces and underscores only."""
    groups: dict[str, list[str]] = {}
    for name in _names(values):
        groups.setdefault("".join(name.casefold().replace("_", " ").split()), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _sentinels(values: pd.Series) -> list[tuple[float, int]]:
    """Numbers of nines, or −1, that come again and again and lie far outside the range of all others."""
    column = numbers(values)
    found, counts = np.unique(column[np.isfinite(column)], return_counts=True)
    out = []
    for end in (0, -1):
        value, rest = float(found[end]), np.delete(found, end)
        coded = value == -1 or set(f"{abs(value):g}") == {"9"}
        if coded and counts[end] > 1 and len(rest) > 1:
            far = abs(value - rest[end]) > (rest[-1] - rest[0]) / 4
            if far or value < 0 <= rest[0]:
                out.append((value, int(counts[end])))
    return out


def _codes(values: pd.Series) -> bool:
    """Whether these numbers are classes: a few whole ones, however they are written."""
    present = numbers(values.dropna())
    return _few(values) and bool((present % 1 == 0).all())


def _few(values: pd.Series) -> bool:
    return 2 <= int(values.nunique()) <= MANY


def _label(frame: pd.DataFrame, kinds: Mapping[str, str], said: list[str]) -> str:
    """The label where it is obvious: one column with such a name, or a last column with two values."""
    fit = [name for name in frame.columns if kinds[name] in ("number", "category") and _few(frame[name])]
    last = str(frame.columns[-1])
    if len(named := [name for name in frame.columns if name.lower() in LABELS and name in fit]) == 1:
        said.append(f"the label is taken to be {named[0]!r}, by its name: --label chooses another")
        return str(named[0])
    if frame[last].nunique() == 2:
        said.append(f"the label is taken to be {last!r}, the last column, with two values: --label chooses another")
        return last
    few = f"these have few values: {', '.join(fit)}" if fit else f"it has {', '.join(map(str, frame.columns))}"
    raise InputError(f"--label is needed, the column to predict; {few}")


def _by_name(
    frame: pd.DataFrame, names: Sequence[str], taken: set[str | None], role: str, said: list[str]
) -> str | None:
    """The one column that is called so, and whose values come again and again."""
    ends = ("", "_id", " id", "id", "_nr", "_nbr", "_name", "_number")
    known = {f"{name}{end}" for name in names for end in ends}
    fit = [c for c in frame.columns if c not in taken and c.lower() in known and 1 < frame[c].nunique() < len(frame)]
    if len(fit) != 1:
        return None
    no = "--site '' says that there is none" if role == "site" else "--person chooses another"
    said.append(f"the {role} is taken to be {fit[0]!r}, by its name: {no}")
    return str(fit[0])


def _names(values: pd.Series) -> list[str]:
    found = text(values).dropna().unique().tolist()
    numeric = are_numbers(values) and all(name.lower() not in ("true", "false") for name in found)
    return sorted(found, key=float) if numeric else sorted(found)


def _outwards(values: pd.Series) -> list[float]:
    """A range around the values with round ends, so that it does not quote the extreme records."""
    found = numbers(values)
    finite = found[np.isfinite(found)]
    low, high = float(finite.min()), float(finite.max())
    step = 10.0 ** math.floor(math.log10((high - low) or 1.0))
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return [float(f"{end:.6g}") for end in (low, max(high, low + step))]


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
