"""Faults around the agent: contracts, facts of problems, solvers, exchanges, certificates, loaders."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault
from tests.audit.seeded.lines import DSGD, GD

__all__ = ["AROUND"]

AROUND = (
    # -- contracts: a proof that is used beyond what it covers
    Fault(
        "gradient steps on a loss that is not convex",
        "pr-admm",
        "contract",
        (("return Needs(convex=True, smooth=True, bounded=True, steps=True, ", "return Needs(steps=True, "),),
        losses=(),
        slow=True,
    ),
    Fault(
        "a tilted objective of a loss that is not convex",
        "algorithms._objective",
        "solver",
        (("return Needs(convex=True, smooth=True,", "return Needs(smooth=True,"),),
        losses=(),
        runs="dvp",
        put=("algorithms._objective.needs",),
        slow=True,
    ),
    Fault(
        "gradients without a bound that are not clipped",
        GD,
        "replay",
        (("return Needs(bounded=True, ", "return Needs("), ("2 * place.lipschitz * place.unit", "2.0 * place.unit")),
        losses=(),
    ),
    Fault(
        "a bound on gradients that is half the true one",
        "losses.logistic",
        "replay",
        (("return self.bound\n", "return self.bound / 2\n"),),
        runs=GD,
        problem="Logistic(2)",
    ),
    Fault(
        "a softmax gradient's bound without its root of two",
        "losses.softmax",
        "replay",
        (("return 2**0.5 * self.bound", "return self.bound"),),
        runs=GD,
        problem="Softmax(2, 3)",
    ),
    Fault(
        "a mean's records one coordinate apart",
        "losses.mean",
        "replay",
        (("return self.radius * self.dim**0.5", "return self.radius"),),
        runs=GD,
        problem="Mean(2, boxed=False)",
    ),
    Fault(
        "records that nobody holds to the bound",
        "problems.records",
        "replay",
        (
            (
                "xp.where(norms > limit, rows * shorter.astype(kind), rows)",
                "rows",
            ),
        ),
        runs=GD,
        put=("problems.base.bounded_rows",),
    ),
    Fault(
        "a gradient that is no number is not clipped",
        "problems.records",
        "abort",
        (
            (
                "return jnp.where(jnp.isfinite(norms)[:, None], vectors, 0.0) * clip_factor(norms, clip)[:, None]",
                "return vectors * jnp.minimum(1.0, clip / norms)[:, None]",
            ),
        ),
        runs=DSGD,
        losses=("own, wild",),
        put=("problems.custom.rescale",),
    ),
    # -- solvers
    Fault(
        "a solver that is given up early",
        "problems.shards",
        "solver",
        (
            ("solver = surely(gradient, -linear / low, far, low, high, solver, tolerance, how.fixed, project)", "pass"),
            (
                "solver = newton_like(gradient, hessian, solver, how, tolerance)",
                "solver = newton_like(gradient, hessian, solver, how, 1e-3)",
            ),
        ),
        runs="m-admm",
        put=("problems.shards.HeldShard.argmin",),
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
    # -- exchanges
    Fault(
        "everybody's noise counted where few are honest",
        "exchange.central",
        "exchange",
        (
            (
                "others = np.sort(np.delete(sigma, owner, axis=0), axis=0)[: honest - 1]",
                "others = np.sort(np.delete(sigma, owner, axis=0), axis=0) * 1.5",
            ),
        ),
        put=("exchange.planned.shared_events", "exchange.central.shared_events"),
    ),
    Fault(
        "noise shared out twice",
        "exchange.planned",
        "exchange",
        (
            (
                "return share * multiplier, terms",
                "return 0.6 * share * multiplier, terms",
            ),
        ),
        put=("experiment.central_noise",),
    ),
    Fault(
        "an own message kept where only the sum may be read",
        GD,
        "reads",
        (
            (
                "place.project((state.x + inbox.total.x) / (1 + place.degree))",
                "place.project((1.5 * state.x + inbox.total.x) / (1.5 + place.degree))",
            ),
        ),
    ),
    # -- certificates
    Fault(
        "a certificate of half the rounds",
        "report.certificate",
        "certificate",
        (
            (
                "cost(place, rounds)",
                "cost(place, rounds // 2)",
            ),
        ),
        put=("report.certificate.certificate",),
    ),
    Fault(
        "a verifier that does not compare events",
        "report.verification",
        "certificate",
        (('        equal(f"agents[{k}].events", stated["events"], derived["events"], EVENTS)\n', ""),),
        put=("report.verification._derivation",),
    ),
    Fault(
        "a verifier that takes any noise for drawn",
        "report.derivation",
        "certificate",
        (('                equal(f"agents[{k}].noise_multiplier", multiplier, made, near)\n', ""),),
        put=("report.verification.derive",),
    ),
    Fault(
        "a claim in spite of what a loader read",
        "report.certificate",
        "certificate",
        (
            (
                "sound = delta is not None and not printed and not leaks",
                "sound = delta is not None and not printed",
            ),
        ),
        put=("report.certificate.claims",),
    ),
    # -- loaders
    Fault(
        "labels read from the records, unsaid",
        "data.stated",
        "loader",
        (
            (
                '"classification": (f"{label}: its classes are read from the data",) '
                "if self.classes is None else PUBLIC,",
                '"classification": PUBLIC,',
            ),
        ),
        put=("data.stated.Stated.origins",),
    ),
    Fault(
        "a range that stretches to the largest value",
        "data.encode",
        "loader",
        (
            (
                "shifted, width = np.clip(values, self.low, self.high) - self.low, self.high - self.low",
                "shifted, width = values - self.low, values.max() - self.low",
            ),
        ),
        put=("data.encode.Number.scale",),
    ),
)
