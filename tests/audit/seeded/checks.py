"""Checks of what surrounds an agent: its loader, its certificate, the sums it takes part in.

Each takes nothing and returns a `Finding`; `hunting` looks with them for faults in those parts.
"""

from __future__ import annotations

import copy
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from coterie.audit.checks import Finding
from coterie.audit.exchange import opened
from coterie.errors import InputError

__all__ = ["certificate", "exchange", "loader"]

ROWS = [("50", "a", "no"), ("90", "b", "yes"), ("75", "a", "no"), ("60", "b", "yes"), ("80", "a", "no")]
WORLDS = (  # the last record: gaps in it must not change what the others look like either
    ("70", "b", "yes"), ("70", "b", "rare"), ("70", "c", "yes"), ("1e6", "b", "yes"), ("", "", "yes")
)  # fmt: skip
STATED: dict[str, Any] = {
    "bounds": {"weight": [50, 100]},
    "categories": {"ward": ["a", "b", "c"]},
    "classes": ["no", "yes", "rare"],
}
LEFT_OUT: tuple[dict[str, object], ...] = ({}, {"classes": None}, {"categories": "data"})


def exchange() -> Finding:
    """A central claim, through plan, price and driver."""
    wrong = opened()
    return Finding("exchange", "refuted" if wrong else "holds", wrong or "opened sums carry the noise that is declared")


def loader() -> Finding:
    """What one record changes of all others' features, classes or columns is in `leaks`, in all worlds alike."""
    from coterie.data import load

    with tempfile.TemporaryDirectory() as folder:
        for options in LEFT_OUT:
            made = []
            for k, last in enumerate(WORLDS):
                path = Path(folder) / f"{k}.csv"
                path.write_text("\n".join(["weight,ward,sick", *map(",".join, [*ROWS, last])]) + "\n", "utf-8")
                try:
                    made.append(load("csv", path=path, label="sick", **STATED | {"task": "classification"} | options))
                except InputError as error:  # it refuses data that says otherwise than was announced
                    return Finding("loader", "refuted", str(error))
            shapes = {
                json.dumps([d.classes, d.feature_names, d.features[:-1].tolist(), d.targets[:-1].tolist()])
                for d in made
            }
            if len({d.leaks for d in made}) > 1:
                return Finding("loader", "refuted", f"what is said to be read depends on a record, with {options}")
            if len(shapes) > 1 and not made[0].leaks:
                return Finding("loader", "refuted", f"one record changes the others' numbers, unsaid, with {options}")
    return Finding("loader", "holds", "what a record changes of the others is said")


def certificate() -> Finding:
    """Our own certificate holds, and those of a run that hides a round, a leak or what noise it drew do not."""
    from coterie.experiment import public_network
    from coterie.plan import validate
    from coterie.pricing import price
    from coterie.report import certificate as c
    from coterie.report import sealing, verification

    tree = {
        "problem": {"loss": "logistic", "dim": 3},
        "partition": {"kind": "iid", "sizes": [40, 40, 60]},
        "graph": {"kind": "path"},
        "data": {"source": "adult"},
        "algorithm": {"name": "dp-dsgd", "mixing": 1},
        "privacy": {"epsilon": 1.0},
        "run": {"rounds": 4},
    }

    def made(tree: dict[str, Any], by: float = 1.0) -> dict[str, Any]:
        """With `by` times the noise that was drawn, and everything that follows from it."""
        plan = validate(tree)
        network = public_network(plan)
        priced = price(plan, network)
        with jax.enable_x64(True):
            places = eqx.tree_at(lambda p: p.noise, priced.places, by * jnp.asarray(priced.noise))
        priced = replace(priced, noise=by * priced.noise, places=places)
        return verification.parse(json.dumps(sealing.seal(c.certificate(plan, network, priced))))

    def accepted(content: dict[str, object]) -> str | None:
        """None if it is, else why not."""
        body = {k: v for k, v in content.items() if k not in ("digest", "signature", "signer")}
        try:
            verification.verify(verification.parse(json.dumps(sealing.seal(body))), strict=True)
        except verification.Refuted as error:
            return str(error)
        return None

    honest = made(tree)
    if why := accepted(honest):
        return Finding("certificate", "refuted", f"our own certificate is rejected: {why}")
    frequency = {"source": "adult", "options": {"coding": "frequency"}}
    for name, content in {
        "a round is missing": _fewer(honest),
        "half the noise": _quieter(honest),
        "noise that nobody drew": made(tree, by=1.2),
        "a loader that reads the records": made({**tree, "data": frequency}),
    }.items():
        if accepted(content) is None:
            return Finding("certificate", "refuted", f"one of a run is accepted, though: {name}")
    return Finding("certificate", "holds", "it holds, and what hides a round, a leak or noise is rejected")


def _fewer(content: dict[str, Any]) -> dict[str, Any]:
    """Every agent's events without the last one's last charge, and totals that fit."""
    from coterie.report.certificate import protects, totals

    out = copy.deepcopy(content)
    for group in out["agents"]:
        event = group["events"][-1]
        times = event["times"]
        event["times"] = [*times[:-1], times[-1] - 1] if isinstance(times, list) else times - 1
        group.update(totals(group["events"], out["claim"]["delta"]))
    worst = max(out["agents"], key=lambda g: float(g["epsilon"]))
    out["claim"].update(epsilon=worst["epsilon"], accountant=worst["accountant"])
    out["protects"] = protects(out["agents"], out["central"], out["cap"], out["claim"]["delta"], by_person=False)
    return out


def _quieter(content: dict[str, Any]) -> dict[str, Any]:
    """The same claim with half the noise multiplier stated."""
    out = copy.deepcopy(content)
    for group in out["agents"]:
        group["noise_multiplier"] /= 2
    return out
