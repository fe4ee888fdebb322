"""Faults that hide: private values that a state keeps, and what a party does because of its records."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault
from tests.audit.seeded.lines import GD, NOISE, PAID, SENT, STEP, UNGREETED, leaf, wider

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
            UNGREETED,
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
    # -- what a small look does not see
    Fault(
        "somebody else's record in the message",
        GD,
        "replay",
        (*leaf("row", "shard.features[1]"),),
    ),
    Fault(
        "a record that counts three times",
        GD,
        "replay",
        (
            (
                STEP,
                "again = 2 * place.unit * shard.gradient(state.mean, rows=jnp.array([1]))\n    "
                "slope = shard.slope(state.mean) + again\n    " + STEP.replace("shard.slope(state.mean)", "slope"),
            ),
            ("import equinox as eqx", "import equinox as eqx\nimport jax.numpy as jnp"),
        ),
    ),
    Fault(
        "little noise in silent rounds, told in rounds that are free",
        GD,
        "replay",
        (
            ('READS = "total"\n', ""),
            (
                STEP,
                "even = t % 2 == 0\n    "
                + STEP.replace("sigma(cfg, place, t)", "sigma(cfg, place, t) / 100")
                + "\n    x = jnp.where(even, x, state.x)",
            ),
            ("Message(x)\n", "Maybe(Message(x), ~even)\n"),
            ("import Auto, Erratum,", "import Auto, Erratum, Maybe,"),
            ("import equinox as eqx", "import equinox as eqx\nimport jax.numpy as jnp"),
            (PAID, PAID[:-1] + ", times=1 * (t % 2 == 0))"),
        ),
    ),
    Fault(
        "a price for the plan and another for the message",
        GD,
        "ledger",
        (
            ('draw["noise"], sigma(cfg, place, t))', 'draw["noise"], sigma(cfg, place, t) / 100)'),
            (
                PAID,
                "if message is not None:\n        return SampledGaussian(place.noise_at(t) / 100, 1.0 + 0 * t)\n    "
                + PAID,
            ),
            ("import Event, Gaussian", "import Event, Gaussian, SampledGaussian"),
        ),
    ),
    Fault(
        "a small number without noise",
        GD,
        "replay",
        (*leaf("tiny", "1e-8 * shard.slope(state.mean)"),),
    ),
    Fault(
        "a weight taken for one over the records",
        GD,
        "replay",
        (
            (
                "return cfg.step * 2 * place.lipschitz * place.unit",
                "return cfg.step * 2 * place.lipschitz / place.count",
            ),
        ),
    ),
    Fault(
        "noise cut off far out",
        GD,
        "noise",
        (
            (NOISE, 'jnp.clip(draw["noise"], -4.5, 4.5), sigma(cfg, place, t))'),
            ("import equinox as eqx", "import equinox as eqx\nimport jax.numpy as jnp"),
        ),
    ),
    Fault(
        "a normal law that is not",
        GD,
        "noise",
        (
            (
                'return {"noise": Normal(place.dim)}',
                'return {"noise": type("Narrow", (Normal,), {"__module__": __name__})(place.dim)}',
            ),
        ),
    ),
    Fault(
        "a leaf that is left out of what is revealed",
        GD,
        "replay",
        (
            *leaf("slope", "shard.slope(state.mean)"),
            (
                "def estimate(",
                'INCONCLUSIVE = {"replay": "two leaves"}\n\n\n'
                "def reveals(cfg: Config, place: Place, state: State, message: Message) -> Array:\n"
                "    return message.x\n\n\ndef estimate(",
            ),
        ),
    ),
)
