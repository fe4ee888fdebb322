"""Whether two runs of the figures came to the same verdicts: on a CPU and a GPU, or before and after a change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import InputError

__all__ = ["Difference", "compare", "load"]


@dataclass(frozen=True)
class Difference:
    """One claim of which two runs say different things, or which one of them does not have."""

    figure: str
    claim: str
    first: str
    second: str


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """The verdicts in a run's folder, or beside the pages (docs/papers/verdicts), by figure."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            read = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from None
        if isinstance(read, dict) and read.get("figure") == path.stem:
            found[path.stem] = read
    if not found:
        raise InputError(f"{folder} holds no verdicts: it should have one NAME.json for each figure")
    return found


def compare(first: Path, second: Path) -> tuple[int, int, list[Difference]]:
    """(figures that both have, claims that both have, what differs); a figure that only one of them has differs."""
    one, other = load(first), load(second)
    both = sorted(one.keys() & other.keys())
    missing = [
        Difference(slug, "", *("made" if slug in where else "not made" for where in (one, other)))
        for slug in sorted(one.keys() ^ other.keys())
    ]
    claims = sum(len(_words(one[slug]).keys() & _words(other[slug]).keys()) for slug in both)
    return len(both), claims, [*missing, *(d for slug in both for d in _differ(slug, one[slug], other[slug]))]


def _differ(slug: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[Difference]:
    first, second = _words(one), _words(other)
    for claim in dict.fromkeys([*first, *second]):
        said = first.get(claim, "no such claim"), second.get(claim, "no such claim")
        if said[0] != said[1]:
            yield Difference(slug, claim, *said)


def _words(verdict: dict[str, Any]) -> dict[str, str]:
    """The verdict on every claim, by its text and the version that it is about."""
    return {c["claim"] + (f" ({c['version']})" if c["version"] else ""): c["verdict"] for c in verdict["claims"]}
