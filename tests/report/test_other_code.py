"""A certificate names the code of others that its plan names, and is rejected where that is not the installed one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.report.derivation import derive
from tests.report.certificates import make, rejection, resealed
from tests.support import forget_algorithms, forget_losses

OURS = Path(coterie.__file__).parent
KINDS = {  # by the key that names one: the group of entry points, and the file of ours that a stranger has copied
    "data.source": ("coterie.data.sources", "data/sources/heart.py"),
    "graph.kind": ("coterie.graphs.kinds", "graphs/kinds/ring.py"),
    "graph.mixing": ("coterie.graphs.rules", "graphs/rules/metropolis.py"),
    "problem.loss": ("coterie.losses", "losses/squared.py"),
    "algorithm.name": ("coterie.algorithms", "algorithms/dp_dsgd.py"),
    "exchange.kind": ("coterie.exchange.kinds", "exchange/kinds/broadcast.py"),
}
NAMES = {key: "their-" + key.replace(".", "-") for key in KINDS}


def anew() -> None:
    forget_algorithms()
    forget_losses()
    derive.cache_clear()
    for name in [name for name in sys.modules if name.startswith("their_code")]:
        del sys.modules[name]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with one kind of each sort."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions of a file within one second
    package = tmp_path / "their_code"
    package.mkdir()
    (package / "__init__.py").write_text("")
    points = ""
    for key, (group, file) in KINDS.items():
        place(package, key).write_text((OURS / file).read_text("utf-8"), "utf-8")
        points += f"[{group}]\n{NAMES[key]} = their_code.{place(package, key).stem}\n"
    installed(tmp_path, "1.0", points)
    anew()
    yield package
    monkeypatch.undo()
    anew()


def place(package: Path, key: str) -> Path:
    return package / f"{key.replace('.', '_')}.py"


def installed(folder: Path, version: str, points: str) -> None:
    info = folder / "their_code-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: their-code\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)


def sealed() -> dict[str, Any]:
    tree: dict[str, Any] = {
        "partition": {"kind": "iid", "sizes": [40, 40, 60]}, "problem": {"dim": 3}, "algorithm": {"clip": 1.0},
        "privacy": {"epsilon": 1.0}, "run": {"rounds": 4},
    }  # fmt: skip
    for key, name in NAMES.items():
        table, _, own = key.partition(".")
        tree.setdefault(table, {})[own] = name
    return make(tree)


def test_every_kind_that_is_not_ours_is_named_and_compared(home: Path) -> None:
    true = sealed()
    assert {one["key"]: one["name"] for one in true["other_code"]} == NAMES
    for one in true["other_code"]:
        assert (one["distribution"], one["version"]) == ("their-code", "1.0")
        assert one["sha256"] == hashlib.sha256(place(home, one["key"]).read_bytes()).hexdigest()
        assert any(repr(one["name"]) in said["statement"] for said in true["statements"])
    assert rejection(true, strict=True) is None
    for key, name in NAMES.items():
        text = place(home, key).read_text("utf-8")
        place(home, key).write_text(text + "\n# changed\n", "utf-8")
        anew()
        found = rejection(true) or ""
        assert found.startswith(f"{key}: the certificate is for other code: {name!r} is their_code.")
        assert "\n" not in found
        place(home, key).write_text(text, "utf-8")
    anew()
    assert rejection(true) is None


def test_another_version_or_none_is_a_rejection_that_says_so(home: Path) -> None:
    true, info = sealed(), home.parent / "their_code-1.0.dist-info"
    installed(home.parent, "1.1", (info / "entry_points.txt").read_text())
    anew()
    assert "the certificate is for other code" in (rejection(true) or "")
    assert "their-code 1.1" in (rejection(true) or "")
    (info / "entry_points.txt").write_text("")
    anew()
    words = "'their-data-source' is not installed here under that name; it is their_code.data_source (their-code 1.0"
    assert words in (rejection(true) or "")


def test_who_made_it_with_other_code_of_ours_is_compared_all_the_same(home: Path) -> None:
    """There the derivation only warns."""
    true = sealed()
    old = resealed({**true, "made_with": {**true["made_with"], "code_sha256": "0" * 64}})
    assert rejection(old) is None
    file = place(home, "algorithm.name")
    file.write_text(file.read_text("utf-8") + "\n", "utf-8")
    anew()
    assert "algorithm.name: the certificate is for other code" in (rejection(old) or "")


@pytest.mark.parametrize("change", ["left out", "another name", "one more", "no hash"])
def test_what_is_named_is_what_the_plan_names(home: Path, change: str) -> None:
    true = sealed()
    named = [dict(one) for one in true["other_code"]]
    if change == "left out":
        named.pop(1)
    elif change == "another name":
        named[0]["name"] = "heart"
    elif change == "no hash":
        named[0]["sha256"] = None
    else:
        named.append({**named[0], "key": "graph.seed"})
    assert rejection(resealed({**true, "other_code": named})) is not None


def test_a_module_is_named_but_not_verified(home: Path) -> None:
    """To look it up would run it: a certificate comes from others."""
    place(home, "graph.kind").rename(home / "circle.py")
    anew()
    true = make({
        "partition": {"kind": "iid", "sizes": [40, 40, 60]}, "problem": {"loss": "logistic", "dim": 3},
        "data": {"source": "heart"}, "privacy": {"epsilon": 1.0}, "run": {"rounds": 4}, "algorithm": {"clip": 1.0},
        "graph": {"kind": "their_code.circle"},
    })  # fmt: skip
    (named,) = true["other_code"]
    assert (named["module"], named["sha256"]) == (
        "their_code.circle", hashlib.sha256((home / "circle.py").read_bytes()).hexdigest()
    )  # fmt: skip
    (home / "circle.py").write_text("raise SystemExit('imported')\n")
    anew()
    assert "graph kind 'their_code.circle' is not installed here under that name" in (rejection(true) or "")
