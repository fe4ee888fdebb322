"""Faults that hide: private values that a state keeps, and what a party does because of its records."""

from __future__ import annotations

from coterie.audit.fault import Fault
from coterie.audit.fault_lines import GD, NOISE, SENT, STEP, wider

__all__ = ["STATES"]

STATES = (
    # -- private values that a state keeps
    Fault(
        "the gradient of the round before, without noise, beside a second leaf",
        GD,
        "replay",
        (
            *wider("kept", "0 * place.start"),
            (
                STEP,
                "slope = shard.slope(state.mean)\n    x = add(state.mean - cfg.step * (slope + state.kept), " + NOISE,
            ),
            (SENT, "return State(x, state.mean, slope), Message(x, x + 0 * slope)"),
            (
                'x: Float[Array, " d"]\n\n\ndef needs',
                'x: Float[Array, " d"]\n    twin: Float[Array, " d"]\n\n\ndef needs',
            ),
        ),
    ),
    Fault(
        "the noise of a round is taken back in the next",
        GD,
        "replay",
        (
            *wider("owed", "0 * place.start"),
            (
                STEP,
                "bare = state.mean - cfg.step * shard.slope(state.mean)\n    x = add(bare + state.owed, " + NOISE,
            ),
            (SENT, "return State(x, state.mean, bare - x), Message(x)"),
        ),
    ),
    Fault(
        "noise that is the last one with its sign turned, every second round",
        GD,
        "noise",
        (
            *wider("kept", "0 * place.start"),
            (
                STEP,
                'kept = draw["noise"] * (t % 2 == 0) - state.kept * (t % 2 == 1)\n    '
                + STEP.replace(NOISE, "kept, sigma(cfg, place, t))"),
            ),
            (SENT, "return State(x, state.mean, kept), Message(x)"),
        ),
    ),
    Fault(
        "a step size from gradients without noise, as AdaGrad takes it",
        GD,
        "replay",
        (
            *wider("squares", "0 * place.start"),
            (
                STEP,
                "slope = shard.slope(state.mean)\n    squares = state.squares + slope**2\n    "
                "x = add(state.mean - cfg.step * slope / (1e-3 + squares) ** 0.5, " + NOISE,
            ),
            (SENT, "return State(x, state.mean, squares), Message(x)"),
        ),
    ),
    Fault(
        "a momentum without noise that shows in the last round only",
        GD,
        "replay",
        (
            *wider("sum_", "0 * place.start"),
            (
                STEP,
                "slope = shard.slope(state.mean)\n    late = 1 * (t == place.rounds - 1)\n    "
                "x = add(state.mean - cfg.step * (slope + late * state.sum_), " + NOISE,
            ),
            (SENT, "return State(x, state.mean, state.sum_ + slope), Message(x)"),
        ),
    ),
    Fault(
        "noise that shrinks with the loss so far",
        GD,
        "replay",
        (
            (
                STEP,
                "scale = sigma(cfg, place, t) * (1 + shard.value(state.mean))\n    "
                + STEP.replace("sigma(cfg, place, t))", "scale)"),
            ),
        ),
    ),
    # -- what a party does because of its records
    Fault(
        "a record near the bound gives no number",
        GD,
        "abort",
        ((STEP, STEP + "\n    x = x + 0 / (shard.features[:, 0] < 0.9).all()"),),
    ),
    Fault(
        "an agent that is done repeats itself",
        GD,
        "replay",
        ((STEP, STEP + "\n    done = abs(shard.slope(state.mean)[0]) < 0.2\n    x = x * ~done + state.x * done"),),
    ),
    Fault(
        "silence once the private loss has stopped to fall",
        GD,
        "abort",
        (
            ("Message(x)\n", "Maybe(Message(x), (shard.losses(state.mean) > 0.7).any())\n"),
            ("import Auto, Erratum,", "import Auto, Erratum, Maybe,"),
        ),
    ),
    Fault(
        "a test before speaking whose noise is forgotten",
        "ipp-admm",
        "abort",
        (('passed = add(fall, draw["test"], over) >=', 'passed = fall + 0 * add(fall, draw["test"], over) >='),),
        slow=True,
    ),
)
