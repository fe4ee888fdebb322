"""Every algorithm, one file each, found by walking this package; `base` says what an algorithm is."""

from coterie.found import Kinds

__all__ = ["ALGORITHMS"]

ALGORITHMS = Kinds(
    "algorithm",
    __name__,
    parts=("base", "batches", "gossip_mean", "inbox", "laws", "quantize", "release"),
    apart=(
        ("fair-release", "coterie.fair.holders"),
        ("coupled-admm", "coterie.coupled.between"),
        ("release", "coterie.algorithms.release"),
        ("gossip-mean", "coterie.algorithms.gossip_mean"),
    ),
)
"""Every algorithm, by name; those that minimise nothing are not among those that are listed and compared."""
