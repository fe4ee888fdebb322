"""Store: a folder of encoded records that need not fit in memory, one file per agent."""

from coterie.data.store import open_store as stream

__all__ = ["NEEDS_PATH", "stream"]

NEEDS_PATH = True
