"""Faults of random batches: who is in them, and what decides it."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault
from tests.audit.seeded.lines import DSGD

__all__ = ["BATCHES"]

COINS = 'first_of_permutation(draw["coins"]'
FLIPPED = 'first_of_permutation(jnp.where({}, draw["coins"], 1 - draw["coins"])'
POISSON = 'rows, mask = poisson(draw["coins"], place.count, size / place.count, poisson_cap(cfg.batch, place.rows))'
# one more vector in the state of `dp-dsgd`: the coins that it keeps
KEEP = (
    ('mean: Float[Array, " d"]\n\n\nclass Message', 'mean: Float[Array, " d"]\n    kept: Array\n\n\nclass Message'),
    (
        "return State(place.start, place.start, place.start)",
        "return State(place.start, place.start, place.start, jnp.zeros(place.rows))",
    ),
    ("return State(s.x, s.x, s.mean), Message", "return State(s.x, s.x, s.mean, _coins(s, t, draw)), Message"),
    (
        "return State(message.y, state.before, state.mean), message",
        "return State(message.y, state.before, state.mean, state.kept), message",
    ),
    ("state.mean + (x - state.mean) / averaged)", "state.mean + (x - state.mean) / averaged, state.kept)"),
    (
        "_gradient(cfg, place, shard, s.x, draw)",
        '_gradient(cfg, place, shard, s.x, {**draw, "coins": _coins(s, t, draw)}, t)',
    ),
    ("shard: Shard, x: Array, draw: dict) -> Array:", "shard: Shard, x: Array, draw: dict, t: Any = 0) -> Array:"),
)


def _keeps(rule: str) -> tuple[tuple[str, str], ...]:
    """Coins that are kept by a rule."""
    head = "def _gradient(cfg: Config"
    return (
        *KEEP,
        (
            head,
            "def _coins(s: Any, t: Any, draw: dict) -> Array:\n"
            f'    return jnp.where({rule}, draw["coins"], s.kept)\n\n\n{head}',
        ),
    )


BATCHES = (
    Fault(
        "batches in a fixed order",
        DSGD,
        "sampling",
        (('first_of_permutation(draw["coins"]', "first_of_permutation(jnp.arange(place.rows) / place.rows"),),
        {"batch": 1},
    ),
    Fault(
        "a rate that is squared",
        DSGD,
        "sampling",
        (
            (
                "return SampledGaussian(place.noise_at(t), rate, times=times)",
                "return SampledGaussian(place.noise_at(t), rate**2, times=times)",
            ),
        ),
        {"batch": 1},
    ),
    Fault("one secret batch for all rounds", DSGD, "sampling", _keeps("t == 0"), {"batch": 2}),
    Fault("a batch that is used twice", DSGD, "sampling", _keeps("t % 4 == 0"), {"batch": 2}),
    Fault(
        "an epoch's shuffle where Poisson batches are charged",
        DSGD,
        "sampling",
        (
            *_keeps("t % 4 == 0"),
            (
                POISSON,
                'rank = jnp.argsort(jnp.argsort(draw["coins"]))\n'
                "        part = jnp.asarray(t // 2 % 2)\n"
                "        rows, mask = jnp.arange(place.rows), rank // cfg.batch == part",
            ),
        ),
        {"batch": 2, "scheme": "poisson"},
    ),
    Fault(
        "batches of a fixed size where Poisson batches are charged",
        DSGD,
        "sampling",
        (
            (
                POISSON,
                'rows, mask = first_of_permutation(draw["coins"], place.count, size, cfg.batch)',
            ),
        ),
        {"batch": 2, "scheme": "poisson"},
    ),
    Fault(
        "coins flipped by a record's sign",
        DSGD,
        "sampling",
        ((COINS, FLIPPED.format("shard.features[:, 0] > 0")),),
        {"batch": 2},
    ),
    Fault(
        "coins flipped by a record's label",
        DSGD,
        "sampling",
        ((COINS, FLIPPED.format("shard.targets > 0")),),
        {"batch": 2},
    ),
    Fault(
        "coins flipped by a record's gradient",
        DSGD,
        "sampling",
        ((COINS, FLIPPED.format("shard.features @ x > 0")),),
        {"batch": 2},
    ),
    Fault(
        "neighbouring records drawn together",
        DSGD,
        "sampling",
        ((COINS, 'first_of_permutation(draw["coins"] + 0.8 * jnp.roll(draw["coins"], 1)'),),
        {"batch": 2},
    ),
)
