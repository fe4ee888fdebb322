"""Generators of pages: blocks are mended where they are stale, types are put in words, errata are counted once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from coterie.algorithms.base import Erratum, all_algorithms
from coterie.coupled import admm as coupled
from coterie.errors import InputError
from coterie.fair import METHODS
from coterie.report import errata, pages

ROOT = Path(__file__).parents[2]


def test_refresh_mends_a_stale_block_and_leaves_the_rest() -> None:
    stale = "before\n<!-- generated: commands -->\n| old |\n<!-- end -->\nafter\n"
    fresh = pages.refresh(stale)
    assert fresh.startswith("before\n<!-- generated: commands -->\n| command |")
    assert fresh.endswith("<!-- end -->\nafter\n")
    assert "| old |" not in fresh
    assert pages.refresh(fresh) == fresh
    with pytest.raises(InputError, match="no-such-block"):
        pages.refresh("<!-- generated: no-such-block -->\n<!-- end -->")


def test_check_names_stale_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("<!-- generated: commands -->\n<!-- end -->\n")
    assert pages.main(["--check", str(tmp_path)]) == 1
    assert "README.md is out of date" in capsys.readouterr().out
    assert pages.main([str(tmp_path)]) == 0
    assert pages.main(["--check", str(tmp_path)]) == 0


def test_same_ignores_time_and_last_digits_only() -> None:
    assert pages.same("run 0.74 s, ε = 0.9999999999999952", "run 12.1 s,  ε = 0.9999999999999999")
    assert not pages.same("accuracy 0.7999", "accuracy 0.7998")
    assert not pages.same("94 rounds", "95 rounds")


def test_console_refuses_what_fails() -> None:
    with pytest.raises(InputError, match="exit code 2"):
        pages.console("coterie graph --set graph.kind=nonsense")
    with pytest.raises(InputError, match="coterie's own"):
        pages.console("rm -r somewhere")


def test_layout_names_every_package_and_only_what_exists() -> None:
    listed = re.findall(r"^\| `([\w/]+)` \|", pages.layout(), re.MULTILINE)
    assert all((ROOT / folder).is_dir() for folder in listed)
    packages = {f"coterie/{f.parent.name}/" for f in (ROOT / "coterie").glob("*/__init__.py")}
    assert packages <= set(listed)


def test_kinds_in_words() -> None:
    class Model(BaseModel):
        share: float = Field(0.5, gt=0, lt=1)
        sizes: list[int] | None = None
        on: bool = False

    words = {k: pages.kind(f.annotation, f.metadata) for k, f in Model.model_fields.items()}
    assert words == {"share": "number > 0, < 1", "sizes": "list of whole numbers", "on": "true or false"}


# ---- errata ----------------------------------------------------------------------------------------------------------


def fake(slug: str, *declared: Erratum) -> errata.ErrataSource:
    """A method with these errata."""
    return errata.ErrataSource(slug, f"paper of {slug}", declared)


def test_errata_are_counted_once_and_shown_worst_first() -> None:
    typo, breach = Erratum("p. 1", "a | b", "c", "typo"), Erratum("Thm 1", "ε", "2ε", "privacy")
    text = errata.errata([fake("one", typo, breach), fake("two", breach), fake("three")])
    assert "**1 of 2 errata break a printed privacy guarantee.**" in text
    assert text.count("| Thm 1 |") == 1
    assert text.index("| Thm 1 |") < text.index("| p. 1 |")
    assert "Shared: Thm 1 (under `one`)" in text
    assert "a \\| b" in text
    assert "## three" not in text


def test_every_declared_erratum_is_on_the_page() -> None:
    every = errata.declared()
    declared = {e for a in every for e in a.errata}
    assert declared >= {*coupled.ERRATA, *all_algorithms()["dvp"].errata}
    assert declared >= {e for m in METHODS.values() for e in m.errata}
    entries = errata.collect(every)
    assert {e.erratum for e in entries} == declared
    assert len(entries) == len(declared)
    assert all(e.severity in errata.MEANING for e in declared)
    rows = [line for line in (ROOT / "docs" / "errata.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    assert sum(re.search(rf"\| ({'|'.join(errata.MEANING)}) \|$", line) is not None for line in rows) == len(declared)
