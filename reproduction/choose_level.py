"""`python -m reproduction tradeoff`: Zhang and Zhu's choice of a privacy level, from measured losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from coterie.errors import InputError
from coterie.plan import read_plan, refuse_ignored, stated_seeds
from reproduction.tradeoff import Tradeoff, choose_level

__all__ = ["run"]


def run(
    path: Path | None, levels: list[float], seeds: int | None, max_loss: float | None, out: Path | None,
    changes: list[str], console: Console,
) -> None:  # fmt: skip
    """Measure the final loss at each per-round level α, fit it, and show where loss and privacy balance."""
    from coterie.algorithms.batches import rows
    from coterie.drivers.budget import run_events, spending
    from coterie.drivers.simulate import Run, simulate
    from coterie.exchange.planned import exchange_of
    from coterie.experiment import prepare
    from coterie.pricing import price
    from coterie.privacy.base import flat
    from coterie.report.files import check_out, write_atomically, write_json

    if len(levels) < 4 or min(levels) <= 0:
        raise InputError(f"--levels needs at least four positive numbers, got {levels}")
    plan = read_plan(path, ["algorithm.name=dvp", "algorithm.noise=gamma", *changes] if path is None else changes)
    if out is not None:
        check_out(out)
    refuse_ignored(plan, "tradeoff, whose rounds all have the same level", "privacy.schedule")
    if plan.privacy is not None and isinstance(plan.privacy.epsilon, list):
        raise InputError(f"tradeoff gives all agents one level: privacy.epsilon = {plan.privacy.epsilon}")
    seeds = seeds or stated_seeds([plan], 5)
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    with jax.enable_x64(True):
        one = eqx.tree_at(
            lambda p: (p.noise, p.shape), priced.places, (jnp.ones(priced.places.agents), jnp.ones(priced.rounds))
        )
        pure = [float(np.max(flat(e).pure())) for e in run_events(priced.algorithm, priced.cfg, rows(one, 0))]
    if not 0.9 <= sum(pure) <= 1.1:  # at multiplier 1 a pure mechanism's round costs level 1
        slug = priced.algorithm.slug
        raise InputError(
            f"{slug} has no pure per-round level α as set up: use dvp, m-admm or r-admm with noise = 'gamma'"
        )
    priced = replace(priced, shape=np.ones(priced.rounds))
    runs = [Run(plan.run.seed + s, priced.cfg, 1 / a) for a in levels for s in range(seeds)]
    layout = experiment.layout(priced.rounds, priced.shape)
    exchange = exchange_of(plan, priced.algorithm, experiment.network.graph, experiment.network.mixing, priced.terms)
    trace = simulate(
        priced.algorithm, layout, runs, rounds=priced.rounds, every=priced.rounds, test=experiment.test,
        exchange=exchange,
    )  # fmt: skip
    losses = trace.curves["train_loss"][:, -1].reshape(len(levels), seeds)
    chosen = choose_level(np.repeat(levels, seeds), losses.ravel(), max_loss=max_loss)
    with jax.enable_x64(True):
        at = eqx.tree_at(lambda p: p.noise, priced.places, jnp.full(priced.places.agents, 1 / chosen.alpha))
    assert plan.privacy is not None
    total = spending(priced.algorithm, priced.cfg, at, plan.privacy.delta).worst
    for warning in priced.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    shown = Table(box=None, header_style="bold")
    for column in ("level α per round", "train loss", "fit"):
        shown.add_column(column, justify="right")
    for a, row in zip(levels, losses, strict=True):
        shown.add_row(f"{a:g}", f"{row.mean():.4f} ± {row.std():.4f}", f"{float(chosen.fit(a)):.4f}")
    console.print(shown)
    limit = {"none": "an inner optimum", "low": "the smallest level allowed", "high": "the largest level allowed",
             "max_loss": "where the loss reaches --max-loss"}[chosen.binding]  # fmt: skip
    console.print(
        f"chosen level α* = {chosen.alpha:.4g} per round ({limit}); over {priced.rounds} rounds that is "
        f"ε = {total.epsilon:.4g} at δ = {total.delta:g} by {total.accountant}"
    )
    console.print(
        "[yellow]the losses were measured on the data: a level chosen this way on private data is not free[/]"
    )
    if out is not None:
        content = {"alpha": chosen.alpha, "binding": chosen.binding, "levels": levels, "losses": losses.tolist(),
                   "fit": vars(chosen.fit), "epsilon": total.epsilon, "delta": total.delta}  # fmt: skip
        write_json(out / "tradeoff.json", content)
        write_atomically(out / "tradeoff.png", lambda p: draw(chosen, p))
        console.print(f"wrote tradeoff.json and tradeoff.png to {out}", highlight=False)


def draw(chosen: Tradeoff, path: Path) -> None:
    """Measured losses, their fit, the utility of privacy, and the level that balances the two."""
    import matplotlib.pyplot as plt

    from coterie.report.plots import ALONE, INK, RUN, style

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
    grid = np.geomspace(chosen.alphas.min(), chosen.alphas.max(), 200)
    left.plot(chosen.alphas, chosen.losses, "o", color=RUN, ms=4, label="measured")
    left.plot(grid, chosen.fit(grid), color=INK, label="fit c₄ exp(−c₅α) + c₆")
    left.set_ylabel("train loss")
    right.plot(grid, chosen.objective(grid), color=INK, label="loss − utility of privacy")
    right.set_ylabel("objective")
    for axis in (left, right):
        axis.axvline(chosen.alpha, color=ALONE, linestyle="--", label=f"α* = {chosen.alpha:.3g}")
        axis.set_xscale("log")
        axis.set_xlabel("privacy level α of one round")
        axis.legend(frameon=False, fontsize=8)
        style(axis)
    figure.savefig(path, dpi=130, format="png")
    plt.close(figure)
