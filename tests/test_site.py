"""What the site is made of: a docstring for every public name, a notebook that was run, pages that build strictly."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import re
import subprocess
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import coterie

from .report.browser import MISSING, Browser

ROOT = Path(__file__).parents[1]

# ---- docstrings ------------------------------------------------------------------------------------------------------


def undocumented(module: ModuleType) -> list[str]:
    """Public names of a module without a docstring: the module, functions, classes and their methods.

    A method may inherit its docstring, and a property what a base class says of the attribute. Constants count where a
    package offers them: a string stands below the assignment.
    """
    missing = [] if module.__doc__ else [module.__name__]
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        if inspect.isclass(thing):
            missing += [name] if not thing.__doc__ else []
            missing += [f"{name}.{k}" for k, v in list(vars(thing).items()) if _is_method(k, v) and not _said(thing, k)]
        elif inspect.isroutine(thing):
            missing += [name] if not inspect.getdoc(thing) else []
        elif hasattr(module, "__path__") and not name.startswith("_"):
            missing += [name] if not _constant_said(Path(module.__path__[0]), name) else []
    return [f"{module.__name__}: {name}" for name in missing]


def _is_method(name: str, value: Any) -> bool:
    kinds = (property, classmethod, staticmethod)
    return not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))


def _constant_said(folder: Path, name: str) -> bool:
    for file in folder.glob("*.py"):
        body = ast.parse(file.read_text("utf-8")).body
        for node, after in pairwise([*body, ast.Pass()]):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    return True  # it comes from elsewhere


def _said(kind: type, name: str) -> bool:
    above = any(name in getattr(base, "__annotations__", {}) for base in kind.__mro__)
    return above or bool(inspect.getdoc(inspect.getattr_static(kind, name)) or inspect.getdoc(getattr(kind, name)))


def test_every_public_name_is_documented() -> None:
    names = [m.name for m in pkgutil.walk_packages(coterie.__path__, "coterie.")]
    found = [importlib.import_module(name) for name in names if "._" not in name]
    assert len(found) > 100
    assert [name for module in (coterie, *found) for name in undocumented(module)] == []


def test_a_missing_docstring_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").write_text(
        '__all__ = ["A", "B", "K", "f", "g"]\nA = 1\nB = {\n}\n"""what B is"""\n'
        'def f():\n    "good"\ndef g():\n    pass\nclass K:\n    "good"\n    def h(self): ...\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    missing = undocumented(importlib.import_module("bare"))
    assert missing == ["bare: bare", "bare: A", "bare: K.h", "bare: g"]


# ---- site and notebook -----------------------------------------------------------------------------------------------

NOTEBOOK = ROOT / "docs" / "five-hospitals.ipynb"


def test_the_notebook_is_kept_as_it_was_run() -> None:
    """On data that may be shown, without errors, and without a word about the machine."""
    cells = [c for c in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert len(cells) == 10
    assert [c["execution_count"] for c in cells] == list(range(1, 11))
    outputs = [o for c in cells for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert sum("image/png" in o.get("data", {}) for o in outputs) == 3
    text = json.dumps([{k: v for k, v in o.get("data", o).items() if k != "image/png"} for o in outputs])
    assert "clinics" in text
    assert not re.search(r"/(home|root|tmp|work|usr)/", text)


@pytest.mark.slow
def test_the_notebook_runs() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    shown = "".join(o.get("text", "") for c in book.cells if c.cell_type == "code" for o in c.outputs)
    assert re.findall(r"exit code (\d)", shown) == ["0", "0", "1", "0"]  # run, verify, the forged one, audit


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = {p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*.html")}
    assert {"i-have-data.html", "i-do-research.html", "i-must-approve.html", "versions.html", "changelog.html"} <= built
    assert "coterie 0." in (tmp_path / "site" / "index.html").read_text("utf-8")
    for name in ("index", "quickstart", "add-an-algorithm", "performance", "five-hospitals", "api/estimators"):
        page = (tmp_path / "site" / f"{name}.html").read_text("utf-8")
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]* src=\"(https?:[^\"]*)|<link[^>]*stylesheet[^>]*href=\"(https?:[^\"]*)", page
        )
        assert loaded == [], name
    assert "PrivateConsensusClassifier" in (tmp_path / "site" / "api" / "estimators.html").read_text("utf-8")
    if MISSING is None:
        search_from_a_disk(tmp_path / "site")


def wait_for(browser: Browser, script: str) -> None:
    """Until a script says yes, for at most 20 seconds."""
    until = time.monotonic() + 20
    while not browser.run(script):
        assert time.monotonic() < until, script
        time.sleep(0.5)


def search_from_a_disk(site: Path) -> None:
    """The built site as files: it searches, and switches to dark, at both widths; nothing comes from elsewhere."""
    shots = Path(os.environ.get("COTERIE_SHOTS") or site)
    with Browser() as browser:
        for width, dark in itertools.product((390, 1280), (False, True)):
            browser.open(site / "index.html", width, dark=dark)
            browser.run("localStorage.clear()")  # what was chosen before
            browser.open(site / "index.html", width, dark=dark)
            assert browser.run("return document.documentElement.scrollWidth") <= width
            scheme = browser.run("return document.body.getAttribute('data-md-color-scheme')")
            assert scheme == ("slate" if dark else "default")
            browser.picture(shots / f"site-{width}-{'dark' if dark else 'light'}.png")
        browser.run("localStorage.clear()")
        browser.open(site / "index.html", 1280)
        wait_for(  # a click before the scripts listen is lost
            browser,
            "if (document.body.getAttribute('data-md-color-scheme') === 'slate') return true;"
            "document.querySelector('label[for=__palette_1]').click(); return false",
        )
        browser.run(
            "const box = document.querySelector('.md-search__input'); box.focus(); box.value = 'epsilon';"
            "box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); box.dispatchEvent(new Event('input'))"
        )
        wait_for(browser, "return document.querySelectorAll('.md-search-result__item').length > 0")
        fetched = browser.run("return performance.getEntriesByType('resource').map((e) => e.name)")
        assert not [name for name in fetched if name.startswith("http")]
