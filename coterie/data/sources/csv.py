"""CSV: a table of your own, compressed or not, with a header and a label column."""

from coterie.data import tables
from coterie.data.dataset import Origins
from coterie.data.encode import Book
from coterie.data.tables import load_table as load

__all__ = ["NEEDS_PATH", "book", "load", "origins"]

NEEDS_PATH = True


def origins(**options: object) -> Origins:
    """What a table is read for, by its options."""
    return tables.table_origins(**options)


def book(**options: object) -> Book:
    """The code book that its options state."""
    return tables.table_book(**options)
