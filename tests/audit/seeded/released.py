"""Faults of what is released once: too little noise, sums that are larger than what is charged, a second release."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault

__all__ = ["RELEASED"]

SENT = "add(shard.gradient(place.start) / cfg.records, noise, scale)"
MOMENTS: tuple[str, ...] = ("moments",)

RELEASED = (
    Fault("a release with half of its noise", "release", "noise", ((SENT, SENT.replace("scale", "scale / 2")),),
          losses=MOMENTS),
    Fault("a party's own mean is released at the price of its part of everybody's", "release", "replay",
          ((SENT, SENT.replace("/ cfg.records", "/ place.count")),), losses=MOMENTS),
    Fault("a release again in every round, paid once", "release", "replay",
          (("jax.lax.cond(t == 0, release", "jax.lax.cond(t >= 0, release"),), losses=MOMENTS),
    Fault("pairs of second moments counted twice", "released.moments", "replay",
          (("return jnp.concatenate([jnp.diag(products), 2**0.5 * products[row, column], labelled])",
            "return jnp.concatenate([jnp.diag(products), 2.0 * products[row, column], 2 * labelled])"),),
          runs="release", problem="Moments(2)"),
    Fault("a score's counts weigh twice what is charged", "released.scores", "replay",
          (("b * cell], axis=1)", "2 * b * cell], axis=1)"),), runs="release", problem="Scores(4, 2)"),
    Fault("a chance that a model states counts however large it is", "released.scores", "replay",
          (("chance = xp.clip(xp.where(xp.isfinite(stated), stated, 0.0), 0.0, 1.0)",
            "chance = 8 * xp.where(xp.isfinite(stated), stated, 0.0)"),), runs="release", problem="Scores(4, 1)"),
    Fault("a table's counts weigh twice what is charged", "released.table_sums", "replay",
          (("blocks.append(h * jax.nn.one_hot(at, cells, dtype=kind))",
            "blocks.append(2 * h * jax.nn.one_hot(at, cells, dtype=kind))"),),
          runs="release", problem="TableSums((0, 3), (True, False), 4)"),
    Fault("counts for quantiles of two columns at the price of one", "released.table_sums", "replay",
          (("return 0.5 * (2 * self.columns * h**2 + rest) ** 0.5", "return 0.5 * (2 * h**2 + rest) ** 0.5"),),
          runs="release", problem="TableSums((0, 0), (True, True), 8, False)"),
    Fault("numbers of a table are not cut to their range", "released.table_sums", "replay",
          (("inside = xp.clip(kept, 0, 1) if not many", "inside = 9 * kept if not many"),),
          runs="release", problem="TableSums((0, 3), (True, False), 4)"),
)  # fmt: skip
