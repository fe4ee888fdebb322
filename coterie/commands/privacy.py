"""`coterie account` and `coterie calibrate`: prices without data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from coterie.errors import InputError

__all__ = ["account_plan", "calibrate"]

SHOWN = ("algorithm", "rounds", "private", "claim", "epsilon", "delta", "accountant", "adjacency", "adversary",
         "paper_claim")  # fmt: skip


def account_plan(path: Path | None, changes: list[str], as_json: bool, console: Console) -> None:
    """What every agent spends, by every valid accountant."""
    from coterie.plan import read_plan

    plan = read_plan(path, changes)  # a mistake in it is told before the rest is loaded
    from coterie.contracts import check_contract
    from coterie.experiment import needs_dimension, price, public_network
    from coterie.report.result import privacy_block

    check_contract(plan)
    network = public_network(plan)
    if needs_dimension(plan, network):
        raise InputError(f"the price of {plan.algorithm.name} depends on the dimension: state problem.dim in the plan")
    priced = price(plan, network)
    block = privacy_block(plan, network.problem, priced)
    if block is None:
        raise InputError(f"{priced.algorithm.slug} is not private: there is nothing to account for")
    block = {"algorithm": priced.algorithm.slug, "rounds": priced.rounds, **block}
    if as_json:
        console.print_json(json.dumps(block))
        return
    shown = Table(box=None, show_header=False)
    for key in SHOWN:
        value = block[key]
        text = "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        text = {"True": "yes", "False": "no"}.get(text, text)
        shown.add_row(key.replace("_", " "), text)
    for name, value in block["all_accountants"].items():
        shown.add_row(f"  by {name}", "∞" if value is None else f"{value:.6g}")
    for other in block["other_claims"]:
        epsilon = "∞" if other["epsilon"] is None else f"{other['epsilon']:.6g}"
        shown.add_row(other["name"], f"ε = {epsilon} against one who {other['adversary']}")
    epsilons = block["per_agent"]
    for i, (e, z) in enumerate(zip(epsilons[:12], block["noise_multiplier"], strict=False)):
        shown.add_row(f"agent {i}", f"ε = {'∞' if e is None else f'{e:.6g}'}, noise multiplier {z:.6g}")
    if len(epsilons) > 12:
        shown.add_row("", f"… and {len(epsilons) - 12} more")
    console.print(shown)
    for warning in priced.warnings:
        console.print(f"[yellow]warning:[/] {warning}")


def calibrate(
    rounds: int, epsilon: float, delta: float, sensitivity: float, schedule: str, options: list[str], as_json: bool,
    console: Console,
) -> None:  # fmt: skip
    """Noise per round for a budget."""
    from coterie.privacy import gdp
    from coterie.privacy.calibration import noise_for

    if not sensitivity > 0:
        raise InputError(f"sensitivity must be > 0, got {sensitivity}")
    params = {}
    for text in options:
        key, _, value = text.partition("=")
        try:
            params[key.strip()] = float(value)
        except ValueError:
            raise InputError(f"--option needs name=number such as rate=0.9, got {text!r}") from None
    sigma = noise_for(rounds, epsilon, delta, sensitivity, schedule, **params)
    mu = float(np.sqrt(np.sum((sensitivity / sigma) ** 2)))
    spent = float(gdp.epsilon_of(mu, delta))
    if as_json:
        content = {"sigma": sigma.tolist(), "mu": mu, "epsilon": spent, "delta": delta, "schedule": schedule}
        console.print_json(json.dumps(content))
        return
    shown = Table(box=None, show_header=False)
    shown.add_row("total", f"μ = {mu:.6f}, ε = {spent:.6f} at δ = {delta:g} (exact Gaussian)")
    shown.add_row("first round", f"σ = {sigma[0]:.6g}")
    if rounds > 1:
        shown.add_row("last round", f"σ = {sigma[-1]:.6g}")
        shown.add_row("root mean square", f"σ = {float(np.sqrt(np.mean(sigma**2))):.6g}")
    console.print(shown)
