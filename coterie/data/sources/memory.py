"""Memory: records that were handed over in Python, to `coterie.train`; no file holds them."""

from pathlib import Path

from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.errors import InputError

__all__ = ["HANDED", "load", "origins"]

HANDED = True


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    classes: list[str | int | float] | None = None,
    bounds: list[list[float]] | None = None,
    radius: float | None = None,
    named: list[str] | None = None,
) -> Dataset:
    """Nothing can be loaded; the options say how labels and features were written, for those who use the model."""
    raise InputError("data.source = 'memory': these records were handed over in Python, and no file holds them")


def origins(**options: object) -> Origins:
    """Whoever handed the records over said it (`HANDED`)."""
    return ALL_PUBLIC
