"""Faults of what is released once: too little noise, sums that are larger than what is charged, a second release."""

from __future__ import annotations

from coterie.audit.fault import Fault

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
)  # fmt: skip
