"""Mistakes in a CSV of one's own: told in lines that name them, with exit code 2, and nothing is lost in silence."""

from __future__ import annotations

import gzip
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.data.planned import load_planned
from coterie.plan import read_plan

HEAD = "age,size,ward,clinic,sick"
ROWS = [f"{20 + 3 * k},{1.5 + k / 10},{'AB'[k % 2]},{'ns'[k // 2 % 2]},{'no' if k % 3 else 'yes'}" for k in range(24)]
GOOD = "\n".join([HEAD, *ROWS]) + "\n"
BOOK: dict[str, Any] = {
    "classes": ["no", "yes"], "sites": ["n", "s"], "bounds": {"age": [0, 120], "size": [0, 9]},
    "categories": {"ward": ["A", "B"]},
}  # fmt: skip


def value(x: Any) -> str:
    """TOML, all on one line."""
    if isinstance(x, dict):
        return "{" + ", ".join(f'"{k}" = {value(v)}' for k, v in x.items()) + "}"
    if isinstance(x, list):
        return "[" + ", ".join(map(value, x)) + "]"
    return str(x).lower() if isinstance(x, bool | float) else repr(x) if isinstance(x, int) else f'"{x}"'


def write(
    folder: Path, content: str | bytes, options: dict[str, Any], data: dict[str, Any], name: str = "t.csv"
) -> Path:
    """A plan for such a table, with other options than the good book's (None: without)."""
    if content:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    book = {k: v for k, v in (BOOK | options).items() if v is not None}
    table = {"source": "csv", "path": name, "label": "sick", "site": "clinic", "options": book} | data
    lines = ["[data]", *(f"{k} = {value(v)}" for k, v in table.items())]
    plan = folder / "plan.toml"
    plan.write_text("\n".join([*lines, '[algorithm]\nname = "dgd"\n[run]\nrounds = 2\n']), "utf-8")
    return plan


def run(*given: Any) -> int:
    """`coterie run` on such a table."""
    return main(["run", str(write(*given)), "--quiet"])


def with_row(row: str) -> str:
    return GOOD + row + "\n"


def column(position: int, made: Any, name: str | None = None) -> str:
    """The good table with another column in place of one."""
    rows = [row.split(",") for row in GOOD.splitlines()]
    for k, row in enumerate(rows):
        row[position] = (name or row[position]) if k == 0 else made(k - 1)
    return "\n".join(map(",".join, rows)) + "\n"


# what is wrong: the file, options of the book, keys of [data], words of the message
MISTAKES: dict[str, tuple[str | bytes, dict[str, Any], dict[str, Any], str]] = {
    "no such file": ("", {}, {"path": "none.csv"}, "none.csv: No such file"),
    "a folder": ("", {}, {"path": "."}, "is a folder"),
    "empty file": ("\n\n", {}, {}, "is empty: expected a header"),
    "header only": (HEAD + "\n", {}, {}, "it has 0 records"),
    "header only, with words for gaps": (HEAD + "\n", {"missing_values": ["?"]}, {}, "it has 0 records"),
    "no header": ("1,2,3,4,5\n" * 3, {}, {}, "its first line holds numbers"),
    "semicolons": (GOOD.replace(",", ";"), {}, {}, "separated by semicolons"),
    "tabs": (GOOD.replace(",", "\t"), {}, {}, "separated by tabs"),
    "decimal commas in quotes": (column(1, lambda k: "X").replace(",X,", ',"1,5",'), {}, {},
                                 "'size' must be numeric, but has '1,5' (in 24 rows); decimal numbers have a point"),
    "decimal commas without": (with_row("20,1,5,A,n,no"), {}, {}, "line 26 has 6 fields, the header has 5"),
    "short row": (with_row("20,1.5,A,n"), {}, {}, "line 26 has 4 fields"),
    "comment at the top": ("# made by hand\n" + GOOD, {}, {}, "is a comment"),
    "comment below": (with_row("# end"), {}, {}, "looks like a comment"),
    "open quote": (with_row('20,1.5,"A,n,no'), {}, {}, "a quote is never closed"),
    "latin-1": (with_row("20,1.5,Ä,n,no").encode("latin-1"), {}, {}, "is not UTF-8 text: line 26"),
    "utf-16": (GOOD.encode("utf-16"), {}, {}, "text in UTF-16"),
    "binary": (b"\x01\x02\0\0" * 9, {}, {}, "is no text"),
    "gzip without its name": (gzip.compress(GOOD.encode()), {}, {}, "must end with .gz"),
    "zip or Excel": (b"PK\x03\x04" + b"x" * 9, {}, {}, "a zip archive or an Excel file"),
    "Parquet without its name": (b"PAR1" + b"x" * 9, {}, {}, "must end with .parquet"),
    "column missing": (GOOD.replace("age", "years"), {}, {}, "there is no column 'age': it has years, size"),
    "column in capitals": (GOOD.replace("age", "Age"), {}, {}, "is it 'Age'?"),
    "column twice": (GOOD.replace("size", "age"), {}, {}, "2 columns are called 'age'"),
    "column without a name": (GOOD.replace("age,", ",", 1), {}, {}, "column 1 has no name"),
    "text in a number": (with_row("old,1.5,A,n,no"), {}, {}, "'age' must be numeric, but has 'old' (in 1 rows)"),
    "NA in a number": (with_row("NA,1.5,A,n,no"), {}, {}, "missing_values = ['NA'] makes it a gap"),
    "nan in a number": (with_row("nan,1.5,A,n,no"), {}, {}, "but has 'nan'"),
    "text in an undeclared number": (with_row("old,1.5,A,n,no"), {"bounds": {}}, {}, "'age' must be numeric"),
    "logarithm without a range": (GOOD, {"log": ["ward"]}, {}, "log names 'ward', which is not a feature with bounds"),
    "logarithm twice": (GOOD, {"log": ["age", "age"]}, {}, "log must be different names, and 'age' comes twice"),
    "infinite": (with_row("inf,1.5,A,n,no"), {}, {}, "'age' is infinite in 1 rows"),
    "too large for a number": (with_row("1" + "0" * 400 + ",1.5,A,n,no"), {}, {}, "'age' is infinite in 1 rows"),
    "dates": (column(0, lambda k: f"2024-03-{k + 1:02}"), {}, {}, "a date is no number"),
    "dates, undeclared": (column(0, lambda k: f"{k + 1}.3.2024"), {"bounds": {}}, {}, "it holds dates"),
    "identifier": (column(0, lambda k: f"p{k}"), {"bounds": {}}, {}, "as in an identifier"),
    "text, undeclared": (GOOD, {"categories": {}}, {}, "'ward' is text: declare its categories"),
    "all missing, undeclared": (column(0, lambda k: ""), {"bounds": {}}, {}, "'age' has no value"),
    "gap in a complete column": (with_row(",1.5,A,n,no"), {"optional": ["size"]}, {}, "optional, which"),
    "gap with error": (with_row(",1.5,A,n,no"), {"missing": "error"}, {}, "'age' is missing in 1 rows: missing ="),
    "all dropped": (column(0, lambda k: ""), {"missing": "drop"}, {}, "it has 0 records without a gap"),
    "label missing": (with_row("20,1.5,A,n,"), {}, {}, "'sick' is missing in 1 rows, and it is the label"),
    "site missing": (with_row("20,1.5,A,,no"), {}, {}, "'clinic' is missing in 1 rows, and it is the site"),
    "person missing": (column(0, lambda k: "" if k == 3 else str(k)), {"person": "age", "bounds": {}}, {},
                       "'age' is missing in 1 rows, and it is the person"),
    "category not in the book": (with_row("20,1.5,C,n,no"), {}, {}, "expected A, B; other = ['ward'] makes"),
    "category in small letters": (with_row("20,1.5,a,n,no"), {}, {}, "small and capital letters"),
    "category 1.0 for 1": (column(2, lambda k: "1.0"), {"categories": {"ward": [1, 2]}}, {}, "written the same"),
    "category NA": (with_row("20,1.5,NA,n,no"), {}, {}, "missing_values = ['NA']"),
    "class not in the book": (with_row("20,1.5,A,n,maybe"), {}, {}, "'sick' has 'maybe' and the like in 1 rows"),
    "site not in the book": (with_row("20,1.5,A,west,no"), {}, {}, "'clinic' has 'west' and the like in 1 rows"),
    "negative label": (column(4, lambda k: "-1" if k % 2 else "1"), {"classes": [0, 1]}, {}, "'sick' has '-1'"),
    "float label of few values": (column(4, lambda k: f"{k % 2}.0"), {"classes": None}, {}, "classes = ['0.0', '1.0']"),
    "one class in the records": (column(4, lambda k: "no"), {"classes": None}, {}, "the single class ['no']"),
    "one class in the book": (GOOD, {"classes": ["no"]}, {}, "has the single class ['no']"),
    "label is an identifier": (column(4, lambda k: f"p{k}"), {"classes": None}, {}, "a different value in every row"),
    "label is text, not a number": (GOOD, {"classes": None, "task": "regression"}, {}, "cannot be a regression"),
    "bounds reversed": (GOOD, {"bounds": {"age": [9, 1]}}, {}, "low < high, got [9.0, 1.0]"),
    "bounds equal": (GOOD, {"bounds": {"age": [1, 1]}}, {}, "low < high, got [1.0, 1.0]"),
    "bounds nan": (GOOD, {"bounds": {"age": [0, float("nan")]}}, {}, "should be a finite number (got nan)"),
    "three bounds": (GOOD, {"bounds": {"age": [0, 1, 2]}}, {}, "must be two finite numbers"),
    "bounds as text": (GOOD, {"bounds": {"age": ["a", "b"]}}, {}, "data.options.bounds.age.0"),
    "bounds of a category": (GOOD, {"bounds": {"ward": [0, 1]}}, {}, "both bounds and categories"),
    "categories repeated": (GOOD, {"categories": {"ward": ["A", "A"]}}, {}, "'A' comes twice"),
    "no categories": (GOOD, {"categories": {"ward": []}}, {}, "categories of 'ward' are empty"),
    "classes repeated": (GOOD, {"classes": ["no", "no"]}, {}, "'no' comes twice"),
    "features list the label": (GOOD, {"features": ["age", "size", "ward", "sick"]}, {}, "which is the label"),
    "features list the site": (GOOD, {"features": ["age", "size", "ward", "clinic"]}, {}, "which is the site"),
    "no features": (GOOD, {"features": []}, {}, "features is empty"),
    "label is the site": (GOOD, {}, {"site": "sick"}, "must be different columns"),
    "impute outside": (GOOD, {"impute": {"age": 200}}, {}, "value 200, which is not in its bounds"),
    "impute a complete column": (GOOD, {"impute": {"age": 2}, "optional": []}, {}, "optional does not list"),
    "optional without keep": (GOOD, {"optional": ["age"], "missing": "drop"}, {}, "optional is for missing = 'keep'"),
    "optional column missing": (GOOD, {"optional": ["weight"]}, {}, "there is no column 'weight'"),
    "other without categories": (GOOD, {"other": ["age"]}, {}, "other names 'age', which has no categories"),
    "unknown option": (GOOD, {"misssing": "drop"}, {}, "unknown key data.options.misssing"),
    "book of another column": (GOOD, {"features": ["age"], "bounds": {"age": [0, 9]}}, {}, "categories names 'ward'"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_lines_that_name_it(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, options, data, words = MISTAKES[name]
    assert run(tmp_path, content, options, data) == 2
    said = capsys.readouterr().err
    assert words in said, said
    assert all(line.startswith("error: ") for line in said.splitlines())
    assert "Traceback" not in said


FINE: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "as it should be": (GOOD, {}, ""),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), {}, ""),
    "other line ends": (GOOD.replace("\n", "\r\n"), {}, ""),
    "spaces": (GOOD.replace(",", " , "), {}, ""),
    "quotes": (GOOD.replace("A", '"A"').replace("age", '"age"'), {}, ""),
    "blank lines": (GOOD.replace("\n", "\n\n"), {}, ""),
    "large whole number": (with_row("123456789012345678901,1.5,A,n,no"), {}, "1 of 25 values lie outside [0, 120]"),
    "constant column": (column(2, lambda k: "A"), {}, "'ward' has one value in all records"),
    "a gap": (with_row(",1.5,A,n,no"), {}, "1 of 25 values are missing: 60 stands for them"),
    "an other": (with_row("20,1.5,C,n,no"), {"other": True}, "1 of 25 values are not in the code book"),
    "a gap left out": (with_row(",1.5,A,n,no"), {"missing": "drop"}, "leaves out 1 of 25 records, with gaps in age"),
    "all missing": (column(0, lambda k: ""), {}, "24 of 24 values are missing"),
}


@pytest.mark.parametrize("name", FINE)
def test_what_can_be_meant_is_taken_and_said(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content, options, words = FINE[name]
    load_planned(read_plan(write(tmp_path, content, options, {})))
    assert words in caplog.text
    assert bool(caplog.messages) == bool(words)


def test_all_mistakes_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, with_row("old,1.5,C,west,maybe"), {}, {}) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_archives_and_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_planned(read_plan(write(tmp_path, gzip.compress(GOOD.encode()), {}, {}, "t.csv.gz")))
    assert run(tmp_path, gzip.compress(GOOD.encode())[:50], {}, {}, "t.csv.gz") == 2
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t.csv", GOOD)
    assert run(tmp_path, "", {}, {}, "t.zip") == 2
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(tmp_path, b"PAR1", {}, {"source": "parquet"}, "t.parquet") == 2
    said = capsys.readouterr().err.splitlines()
    expected = "cannot read", "a zip archive", "needs pyarrow: install coterie[parquet]"
    for line, words in zip(said, expected, strict=True):
        assert words in line
