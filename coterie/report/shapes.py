"""The pictures of an additive model: one curve for each attribute, the one that moves most first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from coterie.api.curves import Outputs, ToldCurves
from coterie.report import charts

__all__ = ["shapes"]


LEVELS = 16  # of a category that are drawn
BAND = 2  # standard deviations of noise, either way


def shapes(told: ToldCurves | None) -> dict[str, object] | None:
    """The pictures of an additive model, the curves that move most first; None where there is none to draw.

    `told` is what `Curves.as_json` gives, with `at_home.shares` of records where they may be shown, or with
    `released.shares`, which have been paid for.
    """
    if told is None or isinstance(told["intercept"], list):  # a curve for each of many classes is no picture
        return None
    noise = told["noise"]
    values = [[_single(value) for value in (*one["values"], one["missing"])] for one in told["attributes"]]
    bands = [[BAND * s for s in one.get("noise") or [noise or 0.0] * len(v)]
             for one, v in zip(told["attributes"], values, strict=True)]  # fmt: skip
    both = [(v, s) for each, band in zip(values, bands, strict=True) for v, s in zip(each, band, strict=True)]
    ends = min(0.0, *(v - s for v, s in both)), max(0.0, *(v + s for v, s in both))
    held_by = told.get("at_home") or told.get("released")
    shares, start, found = None if held_by is None else held_by.get("shares"), 0, []
    for k, (one, each) in enumerate(zip(told["attributes"], values, strict=True)):
        held, band = None if shares is None else shares[start : start + len(each)], bands[k]
        start += len(each)
        number_ = one["kind"] == "number"
        labels = [*(_between(one["edges"]) if number_ else one["levels"]), "missing"]
        if not number_ and len(each) > LEVELS:
            kept = sorted(sorted(range(len(each)), key=lambda j: -abs(each[j]))[:LEVELS])
            labels, each, band = [labels[j] for j in kept], [each[j] for j in kept], [band[j] for j in kept]
            held = None if held is None else [held[j] for j in kept]
        title = one["name"] + (f" ({len(labels)} of {len(values[k])} levels)" if len(labels) < len(values[k]) else "")
        marks = [_short(edge) for edge in one["edges"]] if number_ else None
        chart = charts.curve_chart(
            f"shape-{k}", title, "adds to the score", labels, each, ends, marks=marks, shares=held,
            noise=band if any(band) else None,
        )  # fmt: skip
        found.append((max(each) - min(each), chart))
    ordered = [chart for _, chart in sorted(found, key=lambda pair: -pair[0])]
    return {
        "charts": ordered, "noise": noise, "band": BAND, "shares": shares is not None, "pairs": told["pairs"],
        "released": "released" in told, "refitted": "pair_noise" in told,
    }  # fmt: skip


def _single(value: Outputs) -> float:
    assert not isinstance(value, list)  # refused above: the intercept is one too
    return value


def _short(value: float) -> str:
    """A number in few letters.

    >>> _short(56234.1), _short(0.25), _short(1e7)
    ('56k', '0.25', '10M')
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.2g}{unit}"
    return f"{value:.3g}"


def _between(edges: Sequence[float]) -> list[str]:
    ends = [f"{edge:.6g}" for edge in edges]
    return [f"below {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"from {ends[-1]}"]
