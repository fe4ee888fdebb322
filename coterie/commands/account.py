"""`coterie account`: what a plan costs, without data."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from coterie.commands import PROVE, PlanArgument, SetOption, console
from coterie.errors import InputError

__all__ = ["PANEL", "app"]

PANEL = PROVE
app = typer.Typer()
SHOWN = ("algorithm", "rounds", "private", "claim", "epsilon", "delta", "accountant", "adjacency", "adversary",
         "paper_claim")  # fmt: skip


@app.command()
def command(
    plan: PlanArgument = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """What a plan costs every agent, by every valid accountant, without reading any data.

    Sizes are public and fix the noise: the plan must state them (partition.sizes, or agents and records).
    """
    from coterie.plan import read_plan

    asked = read_plan(plan, set_)  # a mistake in it is told before the rest is loaded
    from coterie.contracts import check_contract
    from coterie.data import find_source
    from coterie.experiment import needs_dimension, price, public_network
    from coterie.report.result import privacy_block

    check_contract(asked)
    network = public_network(asked)
    if needs_dimension(asked, network):
        raise InputError(f"the price of {asked.algorithm.name} depends on the dimension: state problem.dim in the plan")
    priced = price(asked, network)
    paid = privacy_block(asked, network.problem, priced)
    if paid is None:
        raise InputError(f"{priced.algorithm.slug} is not private: there is nothing to account for")
    block = {"algorithm": priced.algorithm.slug, "rounds": priced.rounds, **paid}
    if as_json:
        console.print_json(json.dumps(block))
        return
    handed = find_source(asked.data.source).handed and asked.deploy is None
    shown = Table(box=None, show_header=False)
    for key in SHOWN:
        value = block[key]
        text = "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        text = {"True": "yes", "False": "cannot tell" if handed else "no"}.get(text, text)
        shown.add_row(key.replace("_", " "), text)
    for name, value in paid["all_accountants"].items():
        shown.add_row(f"  by {name}", "∞" if value is None else f"{value:.6g}")
    for other in paid["other_claims"]:
        epsilon = "∞" if other["epsilon"] is None else f"{other['epsilon']:.6g}"
        shown.add_row(other["name"], f"ε = {epsilon} against one who {other['adversary']}")
    epsilons = paid["per_agent"]
    for i, (e, z) in enumerate(zip(epsilons[:12], paid["noise_multiplier"], strict=False)):
        shown.add_row(f"agent {i}", f"ε = {'∞' if e is None else f'{e:.6g}'}, noise multiplier {z:.6g}")
    if len(epsilons) > 12:
        shown.add_row("", f"… and {len(epsilons) - 12} more")
    console.print(shown)
    for warning in priced.warnings:
        console.print(f"[yellow]warning:[/] {warning}")
