"""Faults of an algorithm's rounds: noise, messages, sensitivities, charges, randomness, and the noise of the wire."""

from __future__ import annotations

from coterie.graphs import make_graph
from tests.audit.seeded.fault import Fault
from tests.audit.seeded.lines import ADMM, DSGD, GD, HMV, KEPT, NOISE, PAID, SENT, STEP, UNGREETED, noise_by, wider

__all__ = ["ROUNDS"]

ROUNDS = (
    # -- the noise itself
    Fault("half the noise", GD, "noise", noise_by("sigma(cfg, place, t) / 2")),
    Fault("noise 5 % short", GD, "noise", noise_by("0.95 * sigma(cfg, place, t)")),
    Fault("variance where the deviation belongs", GD, "noise", noise_by("sigma(cfg, place, t) ** 2 / 4")),
    Fault(
        "noise on the mean of the records, as if it were their sum",
        GD,
        "noise",
        noise_by("place.unit * sigma(cfg, place, t)"),
    ),
    Fault("one draw for all coordinates", GD, "replay", ((NOISE, 'draw["noise"][0], sigma(cfg, place, t))'),)),
    Fault(
        "noise cut off at one standard deviation",
        GD,
        "noise",
        (
            (NOISE, 'jnp.clip(draw["noise"], -1, 1), sigma(cfg, place, t))'),
            ("import equinox as eqx", "import equinox as eqx\nimport jax.numpy as jnp"),
        ),
    ),
    Fault("noise of one sign", GD, "replay", ((NOISE, 'abs(draw["noise"]), sigma(cfg, place, t))'),)),
    Fault("float32 noise", GD, "noise", ((NOISE, 'draw["noise"].astype("float32"), sigma(cfg, place, t))'),)),
    Fault(
        "schedule charged but not applied",
        GD,
        "noise",
        noise_by("place.noise * sensitivity(cfg, place, t)"),
        options={"shape": [3.0, 3.0, 3.0, 1.0, 1.0, 1.0]},
    ),
    Fault(
        "noise scaled to the records that are not zero",
        GD,
        "noise",
        noise_by("sigma(cfg, place, t) * (abs(shard.features).sum(1) > 0).sum() / place.count"),
    ),
    # -- noise that depends on where the agent stands, or how long it has run
    Fault(
        "half the noise where there are more than two neighbours",
        ADMM,
        "noise",
        noise_by("sigma(cfg, place, t) / (1 + (place.degree > 2))"),
        options={"graph": make_graph("star", 5)},
    ),
    Fault(
        "half the noise for many records",
        GD,
        "noise",
        noise_by("sigma(cfg, place, t) / (1 + (place.count > 50))"),
        options={"records": 60},
    ),
    Fault(
        "no noise after the twelfth round",
        GD,
        "replay",
        noise_by("sigma(cfg, place, t) * (t < 12)"),
        options={"rounds": 15},
    ),
    Fault(
        "Laplace noise for the wrong step size",
        HMV,
        "noise",
        (('x, draw["noise"], scale(cfg, place, t)', 'x, draw["noise"], scale(cfg, place, t + 1) / 2'),),
    ),
    # -- messages that leave without noise
    Fault("first message without noise", GD, "replay", noise_by("sigma(cfg, place, t) * (t > 0)")),
    Fault("last message without noise", GD, "replay", noise_by("sigma(cfg, place, t) * (t < place.rounds - 1)")),
    Fault(
        "the same draw in every round",
        GD,
        "noise",
        (
            *wider("kept", "0 * place.start"),
            (
                STEP,
                'kept = draw["noise"] * (t == 0) + state.kept * (t > 0)\n    '
                + STEP.replace(NOISE, "kept, sigma(cfg, place, t))"),
            ),
            (SENT, "return State(x, state.mean, kept), Message(x)"),
        ),
    ),
    Fault(
        "data in a round that only averages",
        "dp-consensus-gd",
        "replay",
        (("y = jax.lax.cond(t < stage_one(cfg, place), descend, agree)", "y = descend()"),),
    ),
    Fault("coordinates to send chosen by the gradient", "sdm", "replay", (('draw["mask"] < cfg.keep', "slope < 0"),)),
    Fault(
        "the gradient in the message beside the point",
        GD,
        "replay",
        (
            (
                'x: Float[Array, " d"]\n\n\ndef needs',
                'x: Float[Array, " d"]\n    slope: Float[Array, " d"]\n\n\ndef needs',
            ),
            ("Message(x)\n", "Message(x, shard.slope(state.mean))\n"),
            UNGREETED,
        ),
    ),
    Fault(
        "a label count in the message's header",
        GD,
        "replay",
        (
            ('x: Float[Array, " d"]\n\n\ndef needs', 'x: Float[Array, " d"]\n    size: Array\n\n\ndef needs'),
            ("Message(x)\n", "Message(x, (shard.features[:, 0] > 0).sum())\n"),
            UNGREETED,
        ),
    ),
    Fault(
        "silence where the gradient is small",
        GD,
        "abort",
        (
            ("Message(x)\n", "Maybe(Message(x), shard.slope(state.mean)[0] > 0)\n"),
            ("import Auto, Erratum,", "import Auto, Erratum, Maybe,"),
        ),
    ),
    # -- sensitivities
    Fault(
        "sensitivity without the factor 2",
        GD,
        "replay",
        (("return cfg.step * 2 * place.lipschitz * place.unit", "return cfg.step * place.lipschitz * place.unit"),),
    ),
    Fault(
        "sensitivity with another agent's degree",
        ADMM,
        "replay",
        (
            (
                "2 * cfg.penalty * place.degree)\n\n\ndef sens",
                "2 * cfg.penalty * place.degree)\n\n\ndef wrong(cfg: Config, place: Place, t: Round) -> Array:\n"
                "    return step_weight(cfg, t) + 4 * cfg.penalty * place.degree\n\n\ndef sens",
            ),
            ("place.unit / convexity(cfg, place, t)", "place.unit / wrong(cfg, place, t)"),
        ),
    ),
    Fault(
        "the mean is clipped, not every record",
        DSGD,
        "replay",
        (
            (
                "return place.unit * shard.gradient(x, clip=cfg.clip)\n",
                "g = place.unit * shard.gradient(x)\n"
                "        return g * jnp.minimum(1.0, cfg.clip / jnp.linalg.norm(g))\n",
            ),
        ),
        {"clip": 0.3},
    ),
    Fault(
        "Laplace noise for one coordinate's move",
        HMV,
        "replay",
        (("return place.dim**0.5 * reach", "return reach"), ("size = place.dim**0.5 * 2", "size = 2")),
    ),
    Fault(
        "half the tilt of an objective",
        "dvp",
        "replay",
        (("else scale\n\n", "else Tilt(scale.linear / 2, scale.ridge, scale.output)\n\n"),),
        slow=True,
    ),
    # -- private values that are carried on
    Fault(
        "the point before its noise is carried on",
        ADMM,
        "replay",
        ((KEPT, "return eqx.tree_at(lambda s: s.x, state, moved / convexity(cfg, place, t)), Message(x)"),),
    ),
    Fault(
        "the dual before its noise in the message",
        ADMM,
        "replay",
        (
            (
                'x: Float[Array, " d"]\n\n\ndef needs',
                'x: Float[Array, " d"]\n    dual: Float[Array, " d"]\n\n\ndef needs',
            ),
            (
                KEPT,
                "dual = state.dual + cfg.penalty * place.degree * moved / convexity(cfg, place, t)\n"
                "        return eqx.tree_at(lambda s: s.x, state, x), Message(x, dual)",
            ),
            ("return Message(place.start)", "return Message(place.start, 0 * place.start)"),
        ),
    ),
    Fault(
        "momentum of gradients without noise",
        DSGD,
        "replay",
        (("return State(s.x, s.x, s.mean), Message", "return State(s.x, s.x + cfg.step * slope, s.mean), Message"),),
    ),
    Fault(
        "the answer is the point before its noise",
        GD,
        "answer",
        (
            *wider("bare", "place.start"),
            (SENT, "return State(x, state.mean, state.mean - cfg.step * shard.slope(state.mean)), Message(x)"),
            ('"""x̄."""\n    return state.mean', '"""x̄."""\n    return state.bare'),
        ),
    ),
    Fault(
        "the answer is a tail average of points before their noise",
        ADMM,
        "answer",
        (
            (
                KEPT,
                "late = tail_mean(cfg.tail, place, t, state.mean, moved / convexity(cfg, place, t))\n"
                "        return State(x, state.dual, state.near, late), Message(x)",
            ),
            (
                "mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + total) / (1 + place.degree))\n"
                "        return State(state.x, dual, total, mean)",
                "return State(state.x, dual, total, state.mean)",
            ),
        ),
    ),
    # -- charges
    Fault("a dropped charge", GD, "ledger", ((PAID, PAID[:-1] + ", times=1 * (t != 2))"),)),
    Fault(
        "one round too few is charged",
        ADMM,
        "ledger",
        (("else 1\n    return Gaussian", "else 1 * (t < place.rounds - 1)\n    return Gaussian"),),
    ),
    Fault(
        "a fresh draw for a message sent again, not charged",
        GD,
        "ledger",
        (
            (PAID, PAID[:-1] + ", times=1 * (t % 2 == 0))"),
            (
                "return State(state.x, place.project((state.x + inbox.total.x) / (1 + place.degree)))",
                "every = place.project((state.x + inbox.total.x) / (1 + place.degree))\n"
                "    return State(state.x, state.mean + (t % 2) * (every - state.mean))",
            ),
        ),
    ),
    Fault(
        "two epochs for the price of one",
        "priv-rcd",
        "ledger",
        (("1 * (t % place.dim == 0)", "1 * (t % (2 * place.dim) == 0)"),),
    ),
    Fault(
        "recycled rounds that look at the data again",
        "r-admm",
        "ledger",
        (("_recycled.emit(cfg, place, t, cfg", "_recycled.emit(cfg, place, t - t % 2, cfg"),),
        slow=True,
    ),
    Fault(
        "one release more than is charged",
        "ipp-admm",
        "ledger",
        (("passed & (state.count < cfg.broadcasts)", "passed & (state.count <= cfg.broadcasts)"),),
        {"broadcasts": 1, "threshold": -1.0},
        slow=True,
    ),
    Fault(
        "a charge by the message's own size",
        GD,
        "ledger",
        (
            (
                PAID,
                "z = 1.0 if message is None else 1 + 1e-3 * abs(message.x[0])\n"
                "    return Gaussian(sensitivity(cfg, place, t), z * sigma(cfg, place, t))",
            ),
        ),
    ),
    # -- randomness of agents and hidden states
    Fault(
        "all agents draw the same noise",
        "drivers.program",
        "driver",
        (("own = fold_in(round_key, number)", "own = fold_in(round_key, 0 * number)"),),
        put=("drivers.simulate.Program",),
    ),
    Fault(
        "every round draws the same noise",
        "drivers.program",
        "driver",
        (
            (
                "draws(cfg, arrays.place)\n        round_key = fold_in(key, t)",
                "draws(cfg, arrays.place)\n        round_key = fold_in(key, 0 * t)",
            ),
        ),
        put=("drivers.simulate.Program",),
    ),
    Fault(
        "a hidden state that gets half the noise",
        "qdpsgd1",
        "replay",
        (('draw["noise"], sigma(cfg, place, t, size))', 'draw["noise"], sigma(cfg, place, t, size) / 2)'),),
        slow=True,
    ),
    # -- the noise of deployed parties
    Fault(
        "half the noise on the deployed grid",
        "deploy.noise",
        "wire",
        (
            (
                "Grid(_gaussian().sample(law.shape, keyed), GAUSSIAN_UNIT)",
                "Grid(_gaussian().sample(law.shape, keyed) // 2, GAUSSIAN_UNIT)",
            ),
        ),
    ),
    Fault(
        "the last deployed message without noise",
        "deploy.noise",
        "wire",
        (
            (
                "return {name: _draw(law) for name, law in laws.items()}",
                "return {n: Grid((z := _draw(law)).steps * (round < 5), z.unit) for n, law in laws.items()}",
            ),
        ),
    ),
)
