r"""Documentation that cannot go stale: blocks of README.md, CONTRIBUTING.md and docs/ made from the code itself.

A page may hold blocks

    <!-- generated: NAME ARGUMENTS -->
    …
    <!-- end -->

whose content is what the generator NAME returns. `python -m coterie.report.pages` (or `make docs`) rewrites all blocks
of the checkout it runs in, and the stub `coterie/__init__.pyi`; `--check` writes nothing and names what is out of date.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import os
import pkgutil
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import coterie
from coterie.algorithms.base import all_algorithms
from coterie.errors import InputError
from coterie.found import Kinds
from coterie.losses.base import LossSettings, all_losses
from coterie.problems.base import FACTS
from coterie.problems.labels import ClassNumbers
from coterie.report.choose import choose
from coterie.report.epsilon import EPSILON_TABLES
from coterie.report.errata import errata
from coterie.report.markdown import code, table
from coterie.report.stub import PLACE, stub
from coterie.settings import Naming

__all__ = ["GENERATORS", "pages", "refresh", "same"]

WIDTH = 100  # of transcripts
BLOCK = re.compile(
    r"(?P<head><!-- generated: (?P<name>\S+)(?: (?P<rest>[^\n]*?))? -->\n)(?P<body>.*?)(?P<tail><!-- end -->)",
    re.DOTALL,
)


# ---- algorithms ------------------------------------------------------------------------------------------------------


def algorithms() -> str:
    """Every algorithm: what it is, whether it is private, its graphs, its paper, its settings."""
    found = all_algorithms()
    rows = [
        (
            f"[`{a.slug}`](#{a.slug})",
            "yes" if a.private else "no",
            " or ".join(a.graphs) or "any",
            a.summary,
        )
        for a in found.values()
    ]
    lines = [table(("name", "private", "graphs", "what it is"), rows), ""]
    lines += ["References, which every run reports and no plan can name as its algorithm:", ""]
    from coterie.tables.algorithm import REFERENCES

    lines += [table(("name", "what it is"), [(code(k), v) for k, v in REFERENCES.items()])]
    for a in found.values():
        known = f"; [errata](errata.md#{a.slug})" if a.errata else ""
        lines += ["", f"## {a.slug}", "", f"{a.summary}", "", f"Reference: {a.reference.rstrip('.')}{known}.", ""]
        fields = a.config.model_fields
        lines += [_fields(fields) if fields else "No settings."]
    return "\n".join(lines)


# ---- losses ----------------------------------------------------------------------------------------------------------


def losses() -> str:
    """Every loss: what it takes and what it states for records in the unit ball (or box), and its own keys."""
    found = all_losses()
    rows = []
    for name, loss in found.items():
        e = loss.example
        stated = [fact for fact in FACTS if getattr(e, fact) is True]
        bounds = [f"{n} {getattr(e, n):.4g}" for n in ("lipschitz", "smoothness") if np.isfinite(getattr(e, n))]
        targets = "class numbers" if isinstance(e.labels, ClassNumbers) else e.labels.words
        rows.append((f"[`{name}`](#{name})", loss.model, targets, ", ".join(bounds + stated) or "nothing"))
    lines = [table(("loss", "what is trained", "targets", "what it states"), rows)]
    for name, loss in found.items():
        common = {k: f.description for k, f in LossSettings.model_fields.items()}
        own = {k: f for k, f in loss.settings.model_fields.items() if f.description != common.get(k)}
        words = " ".join(loss.text.split("\n\n")[0].split())
        lines += ["", f"## {name}", "", words, "", _fields(own) if own else "No keys of its own."]
    return "\n".join(lines)


# ---- the plan --------------------------------------------------------------------------------------------------------


def plan() -> str:
    """Every key of a plan: type, default, meaning, straight from the models that check it."""
    from coterie.plan import Plan

    lines = [_fields({"name": Plan.model_fields["name"]})]
    for name, field in Plan.model_fields.items():
        model = next((k for k in (field.annotation, *get_args(field.annotation)) if _is_model(k)), None)
        if model is None:
            continue
        words = inspect.cleandoc(model.__doc__ or "").split("] ", 1)[-1]
        lines += ["", f"## [{name}]", "", words, "", _fields(model.model_fields)]
        if name != "algorithm" and issubclass(model, Naming):  # algorithms have a page of their own
            for key, kinds in model.choices.items():
                lines += _kinds(key, kinds)
    return "\n".join(lines)


def _kinds(key: str, kinds: Kinds) -> list[str]:
    """What a key of the plan may name, in the words of its files, and the settings that come with it."""
    ours = {name: kinds.load(name) for name in kinds.names if kinds.ours(name)}
    what = [(code(name), inspect.cleandoc(module.__doc__ or "").splitlines()[0]) for name, module in ours.items()]
    lines = ["", table((f"`{key}` =", "what it is"), what)]
    rows = [
        (code(k), code(name), kind(f.annotation, f.metadata), _default(f), f.description or "")
        for name, module in ours.items()
        if hasattr(module, "Settings")
        for k, f in module.Settings.model_fields.items()
    ]
    return lines + (["", table(("key", f"with `{key}` =", "type", "default", "meaning"), rows)] if rows else [])


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _fields(fields: dict[str, FieldInfo]) -> str:
    rows = [(code(k), kind(f.annotation, f.metadata), _default(f), f.description or "") for k, f in fields.items()]
    return table(("key", "type", "default", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(f'"{value}"' if isinstance(value, str) else value)


NAMES: dict[object, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", dict: "table"
}  # fmt: skip
SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def kind(annotation: object, metadata: Sequence[object] = ()) -> str:
    """A type in words, with its range.

    >>> kind(Literal["a", "b"]), kind(list[int] | None), kind(float), kind(tuple[tuple[int, int], ...])
    ('`"a"`, `"b"`', 'list of whole numbers', 'number', 'list of pairs of whole numbers')
    """
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return kind(inner, [*metadata, *more])
    limits = [
        f"{sign} {getattr(m, key):g}" for m in _limits(metadata) for key, sign in SIGNS.items() if hasattr(m, key)
    ]
    tail = f" {', '.join(limits)}" if limits else ""
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(kind(k, metadata) for k in get_args(annotation) if k is not type(None))
    if get_origin(annotation) is Literal:
        return ", ".join(code(f'"{value}"') for value in get_args(annotation))
    if get_origin(annotation) is list:
        (inner,) = get_args(annotation)
        return f"list of {kind(inner).replace('number', 'numbers')}{tail}"
    if get_origin(annotation) is tuple:
        inner, *rest = get_args(annotation)
        if rest == [...]:
            return f"list of {kind(inner)}".replace("pair of", "pairs of")
        return f"pair of {kind(inner)}s"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"tables with {', '.join(annotation.model_fields)}"
    return f"{NAMES[get_origin(annotation) or annotation]}{tail}"


def _limits(metadata: Sequence[object]) -> Iterator[object]:
    for m in metadata:
        yield from m.metadata if isinstance(m, FieldInfo) else (m,)


# ---- the command line ------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command and the first line of its help."""
    import typer
    from typer.core import TyperGroup
    from typer.main import get_command

    from coterie.cli import app

    rows = []
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    for name in whole.list_commands(typer.Context(whole)):
        one = whole.commands[name]
        below = {f"{name} {part}": command for part, command in getattr(one, "commands", {}).items()}
        for words, command in (below or {name: one}).items():
            rows.append((code(f"coterie {words}"), inspect.cleandoc(command.help or "").splitlines()[0]))
    return table(("command", "what it does"), rows)


def console(command: str) -> str:
    """A command of ours and what it prints, run in an empty folder."""
    from rich.console import Console

    from coterie import cli, commands
    from coterie.commands import plan as agreements

    program, *arguments = command.split()
    if program != "coterie":
        raise InputError(f"only coterie's own commands are run for a page, got {command!r}")
    screen, consoles = io.StringIO(), (commands.console, agreements.console)
    before = [vars(console).copy() for console in consoles]
    for console in consoles:  # in place, as every command has imported it by name
        vars(console).update(vars(Console(file=screen, width=WIDTH, color_system=None)))
    try:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            code_ = cli.main(arguments)
    finally:
        for console, kept in zip(consoles, before, strict=True):
            vars(console).update(kept)
    if code_:
        raise InputError(f"{command!r} failed with exit code {code_}")
    shown = "\n".join(line.rstrip() for line in screen.getvalue().splitlines())
    return f"```console\n$ {command}\n{shown}\n```"


# ---- the API ---------------------------------------------------------------------------------------------------------


def api(package: str) -> str:
    """Directives that mkdocstrings replaces by docstrings: of the package's public names, or of its modules'.

    Of an algorithm's module only the text at its top is shown: all of them define the same names.
    """
    parent = importlib.import_module(package)
    if hasattr(parent, "__all__"):
        return f"::: {package}"
    lines = []
    for name in sorted(m.name for m in pkgutil.iter_modules(parent.__path__) if not m.name.startswith("_")):
        if name.replace("_", "-") in all_algorithms():
            lines.append(f"::: {package}.{name}\n    options:\n      members: false")
        elif hasattr(importlib.import_module(f"{package}.{name}"), "__all__"):
            lines.append(f"::: {package}.{name}")
    return "\n\n".join(lines)


# ---- the checkout ----------------------------------------------------------------------------------------------------

BESIDE = {
    "tests/": "Mirrors coterie/; tests/conformance holds what every algorithm and every loss inherits.",
    "examples/": "Small studies to read and run.",
    "reproduction/": "Figures and claims of the papers, as printed and as corrected: a package of its own.",
    "benchmarks/": "Ratios to peers measured in the same run.",
    "deploy/": "An agent as a service: systemd unit, container, compose file.",
    "locks/": "Versions and hashes of all that is installed.",
    "release/": "Scripts that make the locks, the bill of materials and the wheel.",
    "docs/": "What you are reading.",
}
TARGET = r"^([a-z-]+):[^#\n]*## (.*)$"


def facts() -> str:
    """What there is, counted in the sources; tests by the hundred, so that it seldom goes stale."""
    root, found = Path(coterie.__file__).parents[1], all_algorithms()
    tests = sum(len(re.findall(r"^ *def test_", p.read_text("utf-8"), re.M)) for p in (root / "tests").rglob("*.py"))
    loops = ast.parse((root / "benchmarks" / "peer_loops.py").read_text("utf-8"))
    peers = {
        call.args[0].value
        for call in ast.walk(loops)
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "Loop"
        and isinstance(call.args[0], ast.Constant)
    }
    private = sum(a.private for a in found.values())
    wrong = len({(e.where, e.printed) for a in found.values() for e in a.errata})
    return (
        f"**{len(found)} algorithms**, {private} of them private, with {wrong} errors of their papers corrected · "
        f"**{tests // 100 * 100:,}+ tests** · **{len(all_losses())} losses** · "
        f"**{len(peers) + 1} other packages** measured side by side"
    )


def layout() -> str:
    """Folders of the checkout and what is in them, packages in the words of their own docstrings."""
    rows = {}
    for package in sorted(Path(coterie.__file__).parent.glob("*/__init__.py")):
        words = (ast.get_docstring(ast.parse(package.read_text("utf-8"))) or "").split("\n\n")[0]
        name = package.parent.name
        rows[f"coterie/{name}/"] = " ".join(words.split())
    return table(("folder", "what is in it"), [(code(k), v) for k, v in (rows | BESIDE).items()])


def targets() -> str:
    """What `make` can do, from the comments in the Makefile."""
    text = (Path(coterie.__file__).parents[1] / "Makefile").read_text("utf-8")
    return table(("target", "what it does"), [(code(f"make {t}"), w) for t, w in re.findall(TARGET, text, re.M)])


# ---- pages -----------------------------------------------------------------------------------------------------------

GENERATORS: dict[str, Callable[..., str]] = {
    "algorithms": algorithms,
    "api": api,
    "choose": choose,
    "commands": commands,
    "console": console,
    "errata": errata,
    "facts": facts,
    "layout": layout,
    "losses": losses,
    "plan": plan,
    "targets": targets,
    **EPSILON_TABLES,
}
"""Name in a page → function that returns the block's text; a block's arguments, if any, are passed as one string."""


def refresh(text: str) -> str:
    """The page with every block made anew; a block that says the same is left as it is."""

    def anew(block: re.Match[str]) -> str:
        name, rest = block["name"], block["rest"]
        if name not in GENERATORS:
            raise InputError(f"a page asks for the block {name!r}; there are {', '.join(GENERATORS)}")
        made = GENERATORS[name](*([rest] if rest else [])) + "\n"
        return block[0] if same(made, block["body"]) else block["head"] + made + block["tail"]

    return BLOCK.sub(anew, text)


def same(one: str, other: str) -> bool:
    """Whether two texts agree but for how long things took and for the last digits of long numbers."""
    return _essence(one) == _essence(other)


def _essence(text: str) -> str:
    timeless = re.sub(r"\d+(\.\d+)? s\b", "… s", " ".join(text.split()))
    timeless = re.sub(r"… s in all: (… s [a-z ]+, )+… s report ", "", timeless)  # said by a slow machine only
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.4g}", timeless)


def pages(root: Path) -> list[Path]:
    """The pages of a checkout."""
    front = (root / "README.md", root / "CONTRIBUTING.md")
    return [p for p in (*front, *sorted((root / "docs").rglob("*.md"))) if p.exists()]


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the pages, or with --check say which are out of date."""
    parser = argparse.ArgumentParser(prog="python -m coterie.report.pages", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="the checkout; default: here")
    given = parser.parse_args(arguments)
    found = pages(given.root)
    if not found:
        raise InputError(f"{given.root.absolute()} holds no pages: run this in a checkout")
    stale = 0
    if (given.root / PLACE).parent.is_dir():
        found.append(given.root / PLACE)
    for page in found:
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        fresh = stub() if page.name == PLACE.name else refresh(text)
        if fresh == text:
            continue
        stale += 1
        if given.check:
            print(f"{page} is out of date")
        else:
            page.write_text(fresh, encoding="utf-8")
            print(f"wrote {page}")
    return int(given.check and stale > 0)


if __name__ == "__main__":
    os.environ.setdefault("TERM", "dumb")
    sys.exit(main())
