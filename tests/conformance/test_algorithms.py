"""What every algorithm inherits by being found: no list to keep, no way to be left out.

The audit among the checks is `tests/audit/test_matrix.py`, which covers losses and ways of running as well.
"""

from __future__ import annotations

import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.testing.algorithms import ALGORITHM_CHECKS

# They solve the same subproblems, which are dear to compile; run every day by their own tests and by the audit.
LIKE_PVP = ("admm", "dvp", "m-admm", "mr-admm", "pp-admm", "r-admm")
EVERYDAY = ("protocol", "contract", "cost")  # of them
# A run with the draws of another is a second program: every day of a solver, random batches, masks, noise that is
# shared, silence, memory of edges, coordinates, rounding and a release.
REPLAYED = ("pvp", "dp-dsgd", "sdm", "decor", "ipp-admm", "pr-admm", "priv-rcd", "qdpsgd2", "release")
BY_REPLAY = ("replay", "first round")


def marks(slug: str, check: str) -> tuple[pytest.MarkDecorator, ...]:
    unlike = check in EVERYDAY if slug in LIKE_PVP else check not in BY_REPLAY or slug in REPLAYED
    return () if unlike else (pytest.mark.slow,)


EACH = [  # those of one algorithm in one worker: they share a recorded run
    pytest.param(slug, check, id=f"{check}@{slug}", marks=marks(slug, check))
    for slug in (*all_algorithms(), "release", "gossip-mean")
    for check in ALGORITHM_CHECKS
    if check != "audit"
]


@pytest.mark.parametrize(("slug", "check"), EACH)
def test_conforms(slug: str, check: str) -> None:
    ALGORITHM_CHECKS[check](find(slug))
