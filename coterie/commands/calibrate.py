"""`coterie calibrate`: noise for a budget, without a plan."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from coterie.commands import PROVE, console
from coterie.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PANEL", "app"]

PANEL = PROVE
app = typer.Typer()


@app.command()
def command(
    rounds: Annotated[int, typer.Option(min=1, max=10**7, help="number of releases")],
    epsilon: Annotated[float, typer.Option(help="ε of all of them together")],
    delta: Annotated[float, typer.Option(help="δ; 0: Laplace noise, for a pure guarantee")],
    sensitivity: Annotated[float, typer.Option(help="L2 sensitivity of one release (L1 if δ = 0)")] = 1.0,
    schedule: Annotated[str, typer.Option(help="how it is spread over rounds: a wrong name lists all")] = "uniform",
    option: Annotated[list[str] | None, typer.Option(help="schedule parameter, e.g. rate=0.9")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """Noise for a budget: from (ε, δ), rounds and sensitivity to the σ of Gaussian noise in every round.

    With δ = 0 it is the scale b of Laplace noise, of density exp(−|x|/b)/(2b) in every coordinate.

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
    if delta == 0:
        _pure(rounds, epsilon, sensitivity, schedule, params, as_json)
        return
    sigma = noise_for(rounds, epsilon, delta, sensitivity, schedule, **params)
    mu = float(np.sqrt(np.sum((sensitivity / sigma) ** 2)))
    spent = float(gdp.epsilon_of(mu, delta))
    if as_json:
        content = {"sigma": sigma.tolist(), "mu": mu, "epsilon": spent, "delta": delta, "schedule": schedule}
        console.print_json(json.dumps(content))
        return
    shown = Table(box=None, show_header=False)
    shown.add_row("total", f"μ = {mu:.6f}, ε = {spent:.6f} at δ = {delta:g} (exact Gaussian)")
    _by_round(shown, "σ", sigma)


def _pure(
    rounds: int, epsilon: float, sensitivity: float, schedule: str, params: dict[str, float], as_json: bool
) -> None:
    """Laplace noise for a pure budget."""
    from coterie.privacy.calibration import pure_noise_for

    scale = pure_noise_for(rounds, epsilon, sensitivity, schedule, **params)
    spent = float((sensitivity / scale).sum())
    if as_json:
        content = {"scale": scale.tolist(), "epsilon": spent, "delta": 0.0, "schedule": schedule}
        console.print_json(json.dumps(content))
        return
    shown = Table(box=None, show_header=False)
    shown.add_row("total", f"ε = {spent:.6f} at δ = 0 (Laplace noise, pure)")
    _by_round(shown, "b", scale)


def _by_round(shown: Table, name: str, noise: NDArray[np.float64]) -> None:
    shown.add_row("first round", f"{name} = {noise[0]:.6g}")
    if len(noise) > 1:
        shown.add_row("last round", f"{name} = {noise[-1]:.6g}")
        shown.add_row("root mean square", f"{name} = {float((noise**2).mean() ** 0.5):.6g}")
    console.print(shown)
