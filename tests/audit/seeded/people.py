"""Faults of what a person adds to a sum: found between worlds that differ in a person with many records."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault
from tests.audit.seeded.lines import DSGD, GD

__all__ = ["PEOPLE"]

ONE = "    one = of.share == 1  # a person's only record: clipped as every record is\n"
EACH = "    return problem.weighted_gradient(x, of.features, of.targets, of.weights[of.owner] * (of.share > 0), clip)\n"
SUM = ("problems.shards.clipped_sum",)

PEOPLE = (
    Fault(
        "every record of a person is clipped, and all are added up",
        "problems.people",
        "replay",
        ((ONE, EACH + ONE),),
        {"clip": 0.3},
        runs=DSGD,
        put=SUM,
        person=True,
    ),
    Fault(
        "a person counts as often as it has records",
        "problems.people",
        "replay",
        (("of.weights[of.owner] * of.share, None)", "of.weights[of.owner] * (of.share > 0), None)"),),
        runs=GD,
        put=SUM,
        person=True,
    ),
    Fault(
        "only people with several records are clipped",
        "problems.people",
        "replay",
        (("jnp.where(one, clip, LONGEST * clip)", "jnp.where(one, jnp.inf, LONGEST * clip)"),),
        {"clip": 0.3},
        runs=DSGD,
        put=SUM,
        person=True,
    ),
    Fault(
        "the clip looks at a fortieth of a person",
        "problems.people",
        "replay",
        (
            (
                "clip_factor(_lengths(problem, x, of, LONGEST * clip), clip)",
                "clip_factor(_lengths(problem, x, of, LONGEST * clip) / 40, clip)",
            ),
        ),
        {"clip": 0.3},
        runs=DSGD,
        put=SUM,
        person=True,
    ),
)
