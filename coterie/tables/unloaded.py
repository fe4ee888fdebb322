"""Settings of an algorithm or a loss without the thing itself: what is wrong with a plan is said before JAX is loaded.

A file of one cannot be imported without JAX, which takes a second. The class of its settings needs none of it: here
that class, and what it is made of in this file and others, is run by itself. It checks what a plan says, and is then
forgotten: the settings that are used are those of the file itself.
"""

from __future__ import annotations

import ast
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict

from coterie.losses.settings import LossSettings
from coterie.settings import Written

__all__ = ["algorithm_settings", "before_jax", "loss_settings"]

# modules that are imported as they are
LIGHT = ("pydantic", "typing", "math", "coterie.errors", "coterie.settings", "coterie.losses.settings")
OURS = ("coterie.algorithms", "coterie.coupled", "coterie.fair", "coterie.losses", "coterie.released")
ROOT = Path(__file__).parents[2]


class _Settings(Written):
    """In place of `coterie.algorithms._config.Config`, which is known to JAX."""

    model_config = ConfigDict(frozen=True, extra="forbid")


STAND_INS: dict[str, dict[str, object]] = {
    "coterie.algorithms.base": {"Config": _Settings, "Auto": float | None, "AutoInt": int | None},
    "coterie.losses.base": {"LossSettings": LossSettings},
}
W = TypeVar("W", bound=Written)


def before_jax() -> bool:
    """Whether JAX is not loaded yet; afterwards there is nothing to be spared."""
    return "jax" not in sys.modules


def algorithm_settings(module: str) -> type[Written] | None:
    """The class `Config` of an algorithm's module of ours; None: it cannot be told apart from the rest of its file."""
    return _made(module, "Config", Written)


def loss_settings(module: str) -> type[LossSettings] | None:
    """The class `Settings` of a loss's module of ours, or what stands for it if it has none; None: as above."""
    return _made(module, "Settings", LossSettings, LossSettings)


def _made(module: str, name: str, kind: type[W], usual: type[W] | None = None) -> type[W] | None:
    """A class of a module, `usual` if it has none of that name; None: there is no text of it, or it needs the rest."""
    try:
        parts = _Parts(module)
        made = getattr(parts, name) if name in parts or usual is None else usual
    except (AttributeError, KeyError, NameError, OSError, TypeError):
        return None
    return made if isinstance(made, type) and issubclass(made, kind) else None


@cache
class _Parts:
    """A module of which those statements run that something is asked of."""

    def __init__(self, module: str):
        file = (ROOT / module.replace(".", "/")).with_suffix(".py")  # to ask for it by name would import its package
        self._known: dict[str, object] = {"__name__": module}
        self._bound: dict[str, ast.stmt] = {}
        for statement in ast.parse(file.read_bytes()).body:
            for name in _binds(statement):
                self._bound[name] = statement

    def __contains__(self, name: str) -> bool:
        return name in self._bound or name in self._known

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._known:
            statement = self._bound.pop(name)  # so that two that need each other do not wait for ever
            if isinstance(statement, ast.ImportFrom):
                self._known[name] = _imported(statement, name)
            else:
                self._run(statement)
        return self._known[name]

    def _run(self, statement: ast.stmt) -> None:
        """Run one statement, after those that it needs; what they need that is heavy is missed when it is used."""
        for part in ast.walk(statement):
            if isinstance(part, ast.FunctionDef):  # what a method takes and returns may be the class itself
                part.returns = None
                for argument in (*part.args.args, *part.args.kwonlyargs):
                    argument.annotation = None
        for part in ast.walk(statement):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in self._bound:
                with suppress(AttributeError, KeyError):
                    getattr(self, part.id)
        code = compile(ast.Module([statement], []), str(self._known["__name__"]), "exec", dont_inherit=True)
        exec(code, self._known)


def _binds(statement: ast.stmt) -> list[str]:
    """The names that a statement gives a meaning to."""
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
    return []


def _imported(statement: ast.ImportFrom, name: str) -> object:
    """What a line `from … import …` means by a name; of ours only the parts that are asked for."""
    home = statement.module or ""
    original = next(alias.name for alias in statement.names if name in (alias.asname, alias.name))
    if home in STAND_INS:
        return STAND_INS[home][original]
    if home in LIGHT:
        return getattr(import_module(home), original)
    if not home.startswith(OURS):
        raise AttributeError(home)
    return _Parts(f"{home}.{original}") if home in OURS else getattr(_Parts(home), original)
