"""The command line. Each of a user's mistakes is one line on standard error, and the exit code is 2."""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from coterie.commands import COMMANDS, PANELS
from coterie.compiler import one_thread
from coterie.errors import InputError, naming_extras
from coterie.programs import forget_old, keep

__all__ = ["app", "main", "run_app"]

OTHERS = "Others"  # the panel of commands that name none
# typer brings its own copy of click, or uses the installed one: BadParameter < UsageError < ClickException in both
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


class _Commands(Mapping[str, object]):
    """Every command that is found, by name; it is loaded when it is asked for."""

    def __getitem__(self, name: str) -> object:
        if name not in COMMANDS.names:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS.names)

    def __len__(self) -> int:
        return len(COMMANDS.names)


@cache
def _command(name: str) -> object:
    """One command; a stranger's that cannot be loaded is there too, and says why when it is run."""
    panel = OTHERS
    try:
        ours = COMMANDS.ours(name)  # whoever else may bring one of that name
        module = import_module(str(COMMANDS.names[name])) if ours else COMMANDS.load(name, "app")
        command, panel = typer.main.get_command(module.app), str(getattr(module, "PANEL", panel))
    except Exception as error:
        if COMMANDS.ours(name):
            raise
        made, why = typer.Typer(add_completion=False), str(error)

        @made.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
        def broken() -> None:
            raise InputError(why)

        command = typer.main.get_command(made)
        command.help = f"Cannot be loaded: {why}"
    command.params = [p for p in command.params if p.name not in ("install_completion", "show_completion")]
    command.name, command.rich_help_panel = name, panel  # type: ignore[attr-defined]
    return command


class _Panels(TyperGroup):
    """Commands by panel, ours first."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: object) -> list[str]:
        def place(name: str) -> tuple[int, str]:
            panel = self.commands[name].rich_help_panel  # type: ignore[attr-defined]
            return (PANELS.index(panel) if panel in PANELS else len(PANELS)), panel

        return sorted(self.commands, key=place)


app = typer.Typer(
    cls=_Panels,
    help="Train one model over data that stays where it is: parties on a graph, no server, every message paid for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"coterie {version('coterie')}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="say which version this is")
    ] = False,
) -> None:
    """Train one model over data that stays where it is."""
    forget_old()
    if context.invoked_subcommand != "agent":  # a deployed party keeps none
        keep()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, arguments)


def run_app(app: typer.Typer, arguments: list[str] | None) -> int:
    """Run commands; a user's mistake is one line and exit code 2, Ctrl-C is 130."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        with naming_extras():
            return int(app(args=arguments, standalone_mode=False) or 0)
    except (InputError, USAGE_ERROR) as error:
        told = error.mistakes if isinstance(error, InputError) else [_plain(error.format_message())]  # type: ignore[attr-defined]
        for text in filter(None, told):  # empty where `coterie` alone has shown its help
            errors.print(f"[bold red]error:[/] {escape(text)}", highlight=False)
        return 2
    except OSError as error:
        if error.filename is None or error.errno not in (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM):
            raise  # what a path is can be asked in a hundred places: these two answers are the same in all of them
        name = str(error.filename)
        name = f"{name[:60]}…" if error.errno == errno.ENAMETOOLONG else name
        errors.print(f"[bold red]error:[/] {error.strerror}: {escape(name)}", highlight=False)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        errors.print("interrupted: nothing was written")
        return 130


def _plain(told: str) -> str:
    """A usage error in one line, without the words of the library that found it."""
    line = " ".join(told.split())
    line = line.replace(
        "Input should be a valid integer, unable to parse string as an integer", "expected a whole number"
    )
    line = line.replace("Input should be a valid number, unable to parse string as a number", "expected a number")
    return line.replace("Input should be", "expected something")


def script() -> None:
    """Entry point of the `coterie` command."""
    one_thread()
    gc.set_threshold(50_000)  # tracing makes many objects that stay: a comparison looked through them a thousand times
    code = main()
    gc.freeze()  # the process ends: to look through all that was loaded for what is garbage would take half a second
    sys.exit(code)


if __name__ == "__main__":
    script()
