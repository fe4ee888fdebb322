"""What losses are made of, and shards: an algorithm knows two calls, `shard.argmin` and `shard.gradient`."""

from coterie.problems.base import Problem
from coterie.problems.custom import Custom
from coterie.problems.glm import Linear
from coterie.problems.people import People, of_people
from coterie.problems.sets import Ball, Box, Constraint, Simplex, try_set
from coterie.problems.shards import HeldShard, Shard
from coterie.problems.solve import Solver, SolverSettings
from coterie.problems.stored import StoredShard

__all__ = [
    "Ball",
    "Box",
    "Constraint",
    "Custom",
    "HeldShard",
    "Linear",
    "People",
    "Problem",
    "Shard",
    "Simplex",
    "Solver",
    "SolverSettings",
    "StoredShard",
    "of_people",
    "try_set",
]
