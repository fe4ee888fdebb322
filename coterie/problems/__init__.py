"""Losses and models behind two calls: `shard.argmin` and `shard.gradient`."""

from coterie.problems.base import Ball, Box, Constraint, HeldShard, Problem, Shard
from coterie.problems.glm import Linear, Softmax
from coterie.problems.mean import Mean
from coterie.problems.network import Custom, Perceptron
from coterie.problems.solve import Settings, Solver
from coterie.problems.stored import StoredShard

__all__ = [
    "Ball",
    "Box",
    "Constraint",
    "Custom",
    "HeldShard",
    "Linear",
    "Mean",
    "Perceptron",
    "Problem",
    "Settings",
    "Shard",
    "Softmax",
    "Solver",
    "StoredShard",
]
