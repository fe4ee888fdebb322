"""`coterie calibrate`: noise for a budget, without a plan."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer
from rich.table import Table

from coterie.commands import PROVE, console
from coterie.errors import InputError

__all__ = ["PANEL", "app"]

PANEL = PROVE
app = typer.Typer()


@app.command()
def command(
    rounds: Annotated[int, typer.Option(min=1, max=10**7, help="number of releases")],
    epsilon: Annotated[float, typer.Option(help="ε of all of them together")],
    delta: Annotated[float, typer.Option(help="δ")],
    sensitivity: Annotated[float, typer.Option(help="L2 sensitivity of one release")] = 1.0,
    schedule: Annotated[str, typer.Option(help="how it is spread over rounds: a wrong name lists all")] = "uniform",
    option: Annotated[list[str] | None, typer.Option(help="schedule parameter, e.g. rate=0.9")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """Gaussian noise for a budget: from (ε, δ), rounds and sensitivity to the standard deviation of every round.

    Example: coterie calibrate --rounds 50 --epsilon 1 --delta 1e-5 --schedule periodic --option rate=0.9
    """
    import numpy as np

    from coterie.privacy import gdp
    from coterie.privacy.calibration import noise_for
    from coterie.privacy.ledger import Budget

    if not 0 < sensitivity < math.inf:
        raise InputError(f"sensitivity must be > 0 and finite, got {sensitivity}")
    Budget(epsilon, delta).check()
    params = {}
    for text in option or []:
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
