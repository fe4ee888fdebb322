"""The list of seeded faults: which lines of which module become what, and which check finds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """One bug: which lines of which module become what, and which check finds it."""

    name: str
    module: str  # an algorithm by its slug, or another module below `coterie`
    check: str  # one of those of `coterie.audit.checks`; driver, wire, contract, certificate, loader
    patches: tuple[tuple[str, str], ...]
    changes: dict[str, Any] = field(default_factory=dict)  # of the configuration
    options: dict[str, Any] = field(default_factory=dict)  # of `make_setting`
    losses: tuple[str, ...] = ("logistic",)  # on which it is looked for; (): on all that the contract accepts
    runs: str = ""  # the algorithm that is run, if the module is none
    problem: str = ""  # of a module of problems: the one to learn, as it is made there
    put: tuple[str, ...] = ()  # names below `coterie` that are taken from the changed module meanwhile
    slow: bool = False  # its algorithm takes long to compile


GD, ADMM, DSGD, HMV = "gauss-avg-gd", "dp-admm", "dp-dsgd", "hmv-dgd"
STEP = 'x = add(state.mean - cfg.step * shard.slope(state.mean), draw["noise"], sigma(cfg, place, t))'
NOISE = 'draw["noise"], sigma(cfg, place, t))'
SENT = "return State(x, state.mean), Message(x)"
PAID = "return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t))"
LINEARISED = 'x = add(moved / convexity(cfg, place, t), draw["noise"], sigma(cfg, place, t))'
KEPT = "return eqx.tree_at(lambda s: s.x, state, x), Message(x)"


def _noise(by: str) -> tuple[tuple[str, str], ...]:
    return ((NOISE, f'draw["noise"], {by})'),)


def _wider(slot: str, start: str) -> tuple[tuple[str, str], ...]:
    """One more number in the state of `gauss-avg-gd`, passed on by `absorb`."""
    return (
        ('mean: Float[Array, " d"]\n', f'mean: Float[Array, " d"]\n    {slot}: Float[Array, " d"]\n'),
        ("return State(place.start, place.start)", f"return State(place.start, place.start, {start})"),
        ("/ (1 + place.degree))", f"/ (1 + place.degree), state.{slot})"),
    )


FAULTS = (
    # -- the noise itself
    Fault("half the noise", GD, "noise", _noise("sigma(cfg, place, t) / 2")),
    Fault("noise 5 % short", GD, "noise", _noise("0.95 * sigma(cfg, place, t)")),
    Fault("variance where the deviation belongs", GD, "noise", _noise("sigma(cfg, place, t) ** 2 / 4")),
    Fault(
        "noise on the mean of the records, as if it were their sum",
        GD,
        "noise",
        _noise("place.unit * sigma(cfg, place, t)"),
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
        _noise("place.noise * sensitivity(cfg, place, t)"),
        options={"shape": [3.0, 3.0, 3.0, 1.0, 1.0, 1.0]},
    ),
    Fault(
        "noise scaled to the records that are not zero",
        GD,
        "noise",
        _noise("sigma(cfg, place, t) * (abs(shard.features).sum(1) > 0).sum() / place.count"),
    ),
    Fault(
        "Laplace noise for the wrong step size",
        HMV,
        "noise",
        (('x, draw["noise"], scale(cfg, place, t)', 'x, draw["noise"], scale(cfg, place, t + 1) / 2'),),
    ),
    # -- messages that leave without noise
    Fault("first message without noise", GD, "replay", _noise("sigma(cfg, place, t) * (t > 0)")),
    Fault("last message without noise", GD, "replay", _noise("sigma(cfg, place, t) * (t < place.rounds - 1)")),
    Fault(
        "the same draw in every round",
        GD,
        "noise",
        (
            *_wider("kept", "0 * place.start"),
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
        (("y = jax.lax.cond(t < stage_one(cfg, place), descend, lambda: state.mixed)", "y = descend()"),),
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
        ),
    ),
    Fault(
        "a label count in the message's header",
        GD,
        "replay",
        (
            ('x: Float[Array, " d"]\n\n\ndef needs', 'x: Float[Array, " d"]\n    size: Array\n\n\ndef needs'),
            ("Message(x)\n", "Message(x, (shard.features[:, 0] > 0).sum())\n"),
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
                "2 * cfg.penalty * place.degree)\n\n\ndef wrong(cfg: Any, place: Place, t: Number) -> Array:\n"
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
            *_wider("bare", "place.start"),
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
                "return State(state.x, (state.x + inbox.total.x) / (1 + place.degree))",
                "every = (state.x + inbox.total.x) / (1 + place.degree)\n"
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
    # -- randomness of batches, agents and hidden states
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
    Fault(
        "all agents draw the same noise",
        "drivers.program",
        "driver",
        (("own = jax.random.fold_in(round_key, agent)", "own = jax.random.fold_in(round_key, 0 * agent)"),),
        put=("drivers.simulate.Program",),
    ),
    Fault(
        "every round draws the same noise",
        "drivers.program",
        "driver",
        (
            (
                "draws(cfg, arrays.place)\n        round_key = jax.random.fold_in(key, t)",
                "draws(cfg, arrays.place)\n        round_key = jax.random.fold_in(key, 0 * t)",
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
                "Grid(_gaussian().sample(law.shape), GAUSSIAN_UNIT)",
                "Grid(_gaussian().sample(law.shape) // 2, GAUSSIAN_UNIT)",
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
    # -- private values that a state keeps
    Fault(
        "the gradient of the round before, without noise, beside a second leaf",
        GD,
        "replay",
        (
            *_wider("kept", "0 * place.start"),
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
            *_wider("owed", "0 * place.start"),
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
            *_wider("kept", "0 * place.start"),
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
            *_wider("squares", "0 * place.start"),
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
            *_wider("sum_", "0 * place.start"),
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
    # -- contracts: a proof that is used beyond what it covers
    Fault(
        "gradient steps on a loss that is not convex",
        "pr-admm",
        "contract",
        (("return Needs(convex=True, smooth=True, bounded=True, steps=True)", "return Needs(steps=True)"),),
        losses=(),
        slow=True,
    ),
    Fault(
        "gradients without a bound that are not clipped",
        GD,
        "replay",
        (("return Needs(bounded=True)", "return Needs()"), ("2 * place.lipschitz * place.unit", "2.0 * place.unit")),
        losses=(),
    ),
    Fault(
        "a bound on gradients that is half the true one",
        "problems.glm",
        "replay",
        (
            (
                'return float("inf") if self.loss == "squared" else self.bound',
                'return float("inf") if self.loss == "squared" else self.bound / 2',
            ),
        ),
        runs=GD,
        problem="Linear(2)",
    ),
    Fault(
        "a softmax gradient's bound without its root of two",
        "problems.glm",
        "replay",
        (("return 2**0.5 * self.bound", "return self.bound"),),
        runs=GD,
        problem="Softmax(2, 3)",
    ),
    Fault(
        "a mean's records one coordinate apart",
        "problems.mean",
        "replay",
        (("return self.radius * self.dim**0.5", "return self.radius"),),
        runs=GD,
        problem="Mean(2, boxed=False)",
    ),
    Fault(
        "records that nobody holds to the bound",
        "problems.base",
        "replay",
        (
            (
                "return rows if bound is None else xp.where(norms > limit, rows * (bound / xp.maximum(norms, 1e-30)), rows)",
                "return rows",
            ),
        ),
        runs=GD,
        put=("problems.base.bounded_rows",),
    ),
    Fault(
        "a gradient that is no number is not clipped",
        "problems.base",
        "abort",
        (
            (
                "return jnp.where(jnp.isfinite(norms)[:, None], vectors, 0.0) * clip_factor(norms, clip)[:, None]",
                "return vectors * jnp.minimum(1.0, clip / norms)[:, None]",
            ),
        ),
        runs=DSGD,
        losses=("own, wild",),
        put=("problems.network.rescale",),
    ),
    # -- solvers
    Fault(
        "a solver that is given up early",
        "problems.base",
        "solver",
        (
            ("solver = surely(gradient, -linear / low, far, low, high, solver, tolerance, how.fixed)", "pass"),
            (
                "solver = newton_like(gradient, lambda x: self.hessian(x) + curvature * eye, solver, how, tolerance)",
                "solver = newton_like(gradient, lambda x: self.hessian(x) + curvature * eye, solver, how, 1e-3)",
            ),
        ),
        runs="m-admm",
        put=("problems.base.HeldShard.argmin",),
        slow=True,
    ),
    Fault(
        "a solver asked for a tenth of the care that is charged",
        "algorithms._objective",
        "solver",
        (
            (
                "x, solver = shard.argmin(linear, curvature + scale.ridge, state.solver, cfg.tolerance)",
                "x, solver = shard.argmin(linear, curvature + scale.ridge, state.solver, 1e6 * cfg.tolerance)",
            ),
        ),
        runs="m-admm",
        put=("algorithms._objective.solve",),
        slow=True,
    ),
    Fault(
        "as many gradient steps as the records ask for",
        "pr-admm",
        "replay",
        (
            (
                "bare = shard.descend(state.x, *asked(cfg.penalty, place, state), cfg.steps)",
                "bare = shard.argmin(*asked(cfg.penalty, place, state), shard.solver(state.x), 0.1)[0]",
            ),
        ),
        slow=True,
    ),
)
