"""Sources of records, one file each, found and never listed.

A source has `load(path, seed, *, …)`, a `Dataset` (`path` is None unless one is stated, `seed` is for what is drawn),
and `origins(*, …)`: what it reads from the records with the same options, known before one is read. There is no default
for it, as a source that says nothing cannot be taken for public. The keyword arguments are its options, typed.

    MADE = True         made here from public numbers: it can be loaded at any time, as nobody's records are read
    NEEDS_PATH = True   it cannot be found without data.path
    SITED = True        its records say to which site they belong, without being asked
    HANDED = True       somebody hands the records over in Python, and says what was read to make them

A source with `stream(path)` in place of both is a `Store`, read piece by piece, which says by itself what was read.
"""

from coterie.found import Kinds

__all__ = ["SOURCES"]

SOURCES = Kinds("data set", __name__)
"""Every source, by name."""
