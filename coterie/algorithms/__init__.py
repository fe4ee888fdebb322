"""Every algorithm, one file each, found by walking this package; `base` says what an algorithm is."""

from coterie.found import Kinds

__all__ = ["ALGORITHMS"]

ALGORITHMS = Kinds(
    "algorithm",
    __name__,
    parts=("base", "batches", "inbox", "laws", "quantize"),
    apart=(("fair-release", "coterie.fair.holders"), ("coupled-admm", "coterie.coupled.between")),
)
"""Every algorithm, by name; one that fits a single loss is not among those that are listed and compared."""
