"""The one exception a user's mistake raises; the command line prints it as one line and exits with 2."""

import contextlib
from collections.abc import Iterator

__all__ = ["InputError", "naming_extras"]

EXTRAS = {"grpc": "deploy", "cryptography": "deploy", "nacl": "deploy", "jinja2": "report", "pyarrow": "parquet",
          "pymetis": "cluster", "ray": "cluster"}  # fmt: skip


class InputError(ValueError):
    """A value that the user gave is wrong: the message names it and says what was expected."""


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Where a package of an extra is missing, say what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in EXTRAS:
            raise
        raise InputError(f"this needs {package}: pip install 'coterie[{EXTRAS[package]}]'") from None
