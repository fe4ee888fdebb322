"""CSV: a table of your own, compressed or not, with a header and a label column."""

from coterie.data.tables import load_table as load
from coterie.data.tables import table_book as book
from coterie.data.tables import table_origins as origins

__all__ = ["NEEDS_PATH", "book", "load", "origins"]

NEEDS_PATH = True
