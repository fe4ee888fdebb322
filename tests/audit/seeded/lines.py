"""Lines of the algorithms that faults change, and ways to change them."""

from __future__ import annotations

__all__ = [
    "ADMM",
    "DSGD",
    "GD",
    "HMV",
    "KEPT",
    "NOISE",
    "PAID",
    "SENT",
    "STEP",
    "UNGREETED",
    "leaf",
    "noise_by",
    "wider",
]

GD, ADMM, DSGD, HMV = "gauss-avg-gd", "dp-admm", "dp-dsgd", "hmv-dgd"
STEP = 'x = add(state.mean - cfg.step * shard.slope(state.mean), draw["noise"], sigma(cfg, place, t))'
NOISE = 'draw["noise"], sigma(cfg, place, t))'
SENT = "return State(x, state.mean), Message(x)"
PAID = "return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t))"
UNGREETED = (
    "def greeting(",
    "def not_said(",
)  # a wider message: what stands before the first one is zeros of its shape
KEPT = "return eqx.tree_at(lambda s: s.x, state, x), Message(x)"


def noise_by(by: str) -> tuple[tuple[str, str], ...]:
    """Noise of another scale."""
    return ((NOISE, f'draw["noise"], {by})'),)


def wider(slot: str, start: str) -> tuple[tuple[str, str], ...]:
    """One more number in the state of `gauss-avg-gd`, passed on by `absorb`."""
    return (
        ('mean: Float[Array, " d"]\n', f'mean: Float[Array, " d"]\n    {slot}: Float[Array, " d"]\n'),
        ("return State(place.start, place.start)", f"return State(place.start, place.start, {start})"),
        ("/ (1 + place.degree)))", f"/ (1 + place.degree)), state.{slot})"),
    )


def leaf(name: str, value: str) -> tuple[tuple[str, str], ...]:
    """One more vector in the message of `gauss-avg-gd`."""
    slot = 'x: Float[Array, " d"]\n'
    return (
        (f"{slot}\n\ndef needs", f'{slot}    {name}: Float[Array, " d"]\n\n\ndef needs'),
        ("Message(x)\n", f"Message(x, {value})\n"),
        UNGREETED,
    )
