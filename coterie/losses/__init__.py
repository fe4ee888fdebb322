"""Every loss, one file each, found by walking this package; `base` says what a loss is."""

from coterie.found import Kinds

__all__ = ["BY_LABELS", "LOSSES", "by_labels"]

LOSSES = Kinds(
    "loss",
    __name__,
    parts=("base", "settings"),
    apart=(
        ("fair", "coterie.fair.moments"),
        ("fair-logistic", "coterie.fair.penalised"),
        ("coupled", "coterie.coupled.functions"),
        ("moments", "coterie.released.moments"),
        ("scores", "coterie.released.scores"),
        ("statistics", "coterie.released.table_sums"),
    ),
)
"""Every loss, by name; what is released and not minimised is not among those that are listed."""
BY_LABELS = ("logistic", "softmax", "squared")
"""What a plan without a loss may come to."""


def by_labels(classes: int | None) -> str:
    """The loss of a plan that states none: for two classes, for more, or for a number (None)."""
    logistic, softmax, squared = BY_LABELS
    return squared if classes is None else logistic if classes == 2 else softmax
