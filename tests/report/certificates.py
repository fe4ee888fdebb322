"""Certificates for tests: plans, sealed certificates, and what an adversary makes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coterie.cli import main
from coterie.experiment import public_network
from coterie.plan import validate
from coterie.pricing import price
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.verification import Refuted, parse, verify

PLAN = """
name = "small"
[data]
source = "clinics"
options = { records = 160, features = 3, sites = 4 }
[algorithm]
name = "dp-dsgd"
[privacy]
epsilon = [1.0, 2.0, 1.0, 1.0]
schedule = "periodic"
schedule_options = { rate = 0.9, period = 1 }
[run]
rounds = 6
seeds = 2
"""
STATED = {
    "problem": {"loss": "logistic", "dim": 3},
    "partition": {"kind": "iid", "sizes": [40, 40, 60]},
    "graph": {"kind": "path"},
    "data": {"source": "adult"},
    "privacy": {"epsilon": 1.0},
    "run": {"rounds": 4},
}


def finished(where: Path) -> Path:
    """The folder of a finished run of `PLAN`."""
    (where / "plan.toml").write_text(PLAN)
    assert main(["run", str(where / "plan.toml"), "--out", str(where / "run"), "--quiet", "--references", "none"]) == 0
    return where / "run"


def make(tree: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A sealed certificate of a plan that states its sizes."""
    plan = validate(tree)
    network = public_network(plan)
    return roundtrip(sealing.seal(c.certificate(plan, network, price(plan, network), **more)))


def roundtrip(content: dict[str, Any]) -> dict[str, Any]:
    return parse(json.dumps(content))


def resealed(content: dict[str, Any], key: Path | None = None) -> dict[str, Any]:
    """What an adversary who can compute a digest makes of a changed certificate."""
    return roundtrip(
        sealing.seal({k: v for k, v in content.items() if k not in ("digest", "signature", "signer")}, key)
    )


def claimed(content: dict[str, Any]) -> dict[str, Any]:
    """The claim that the listed events support, whatever the plan asks for."""
    return c.claims(content["agents"], content["central"], content["cap"], content["claim"]["delta"], False, [])[0]


def whom(content: dict[str, Any]) -> Any:
    """And whom it is for."""
    paid = content["agents"], content["central"], content["cap"], content["claim"]["delta"]
    return c.protects(*paid, by_person=content["plan"]["data"].get("unit") == "person")


def rejection(content: dict[str, Any], **more: Any) -> str | None:
    try:
        verify(content, **more)
    except Refuted as reason:
        return str(reason)
    return None


def walk(tree: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all fields, tables and lists included."""
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from walk(tree[key], (*path, key))


def changed(tree: dict[str, Any], path: tuple, change: Callable[[Any], Any]) -> dict[str, Any]:
    out = copy.deepcopy(tree)
    at = out
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = change(at[path[-1]])
    return out
