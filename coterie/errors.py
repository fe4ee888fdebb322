"""The one exception a user's mistake raises; the command line prints it as one line and exits with 2."""

__all__ = ["InputError"]


class InputError(ValueError):
    """A value that the user gave is wrong: the message names it and says what was expected."""
