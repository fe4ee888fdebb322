"""The exception that a user's mistake raises; the command line prints a line for each mistake and exits with 2."""

import contextlib
from collections.abc import Iterator, Sequence

__all__ = ["InputError", "InputErrors", "naming_extras"]

EXTRAS = {"grpc": "deploy", "cryptography": "deploy", "nacl": "deploy", "jinja2": "report", "pyarrow": "parquet",
          "pymetis": "cluster", "ray": "cluster"}  # fmt: skip


class InputError(ValueError):
    """A value that the user gave is wrong: the message names it and says what was expected."""

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Each mistake, one line."""
        return (" ".join(str(self).split()),)


class InputErrors(InputError):
    """Several mistakes that were found at once, so that they can be mended at once."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self._mistakes = tuple(mistakes)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Each mistake, one line."""
        return self._mistakes

    def __reduce__(self) -> tuple[type["InputErrors"], tuple[tuple[str, ...]]]:
        return InputErrors, (self._mistakes,)  # processes hand errors to each other


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
