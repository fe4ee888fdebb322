"""A rehearsal on one machine: all parties' keys, records and agreement in one folder, made from a plan.

For trials only: whoever holds this folder holds everybody's keys and data. In earnest every party makes its own keys
and keeps its own file (docs/deploy.md).
"""

from __future__ import annotations

import datetime as dt
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.data import split
from coterie.deploy.agreement import sign_agreement
from coterie.deploy.keys import init_authority, init_party, install, load_authority, sign_request, write_request
from coterie.deploy.party import Records, Terms, write_records
from coterie.errors import InputError
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, validate

__all__ = ["Site", "Trial", "deployed_plan", "make_trial"]

DAYS = 30


@dataclass(frozen=True)
class Site:
    """One party's files."""

    name: str
    keys: Path
    data: Path
    state: Path


@dataclass(frozen=True)
class Trial:
    """A folder in which every party can be started."""

    agreement: Path
    sites: tuple[Site, ...]
    experiment: Experiment
    plan: Plan


def deployed_plan(plan: Plan, experiment: Experiment, listen: str = "127.0.0.1") -> Plan:
    """The plan with everything stated that a deployment must state: sizes, dimension, parties; and without seeds."""
    tree: dict[str, Any] = plan.model_dump(mode="json", exclude_none=True)
    sizes = [int(n) for n in experiment.network.sizes]
    tree["partition"] = {"kind": "iid", "sizes": sizes}
    classes = experiment.dataset.classes
    loss = plan.problem.loss or ("squared" if classes is None else "logistic" if len(classes) == 2 else "softmax")
    tree["problem"] |= {"loss": loss, "dim": int(experiment.features.shape[1])}
    if classes is not None and loss in ("softmax", "mlp"):
        tree["problem"]["classes"] = len(classes)
    tree["run"] = {k: v for k, v in tree["run"].items() if k not in ("seed", "seeds")}
    if plan.deploy is None:
        names = [_slug(n, i) for i, n in enumerate(experiment.network.names)]
        ports = _free_ports(len(names))
        parties = [{"name": n, "address": f"{listen}:{p}"} for n, p in zip(names, ports, strict=True)]
        tree["deploy"] = {"parties": parties}
    return validate(tree)


def make_trial(plan: Plan, folder: Path) -> Trial:
    """Split the plan's data over its parties, make their keys and certificates, and sign the plan between them."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: a trial starts in a new folder, or goes on with --resume")
    experiment = prepare(plan)
    deployed = deployed_plan(plan, experiment)
    Terms.of(deployed)  # refuse before anything is made
    assert deployed.deploy is not None
    authority = init_authority("trial", folder / "authority")
    root = folder / "authority" / "ca.json"
    train, _ = split(experiment.dataset, plan.data.test_fraction, seed=plan.data.seed)
    labels, sites, identities = experiment.dataset.targets[train], [], []
    for party, rows in zip(deployed.deploy.parties, experiment.parts, strict=True):
        home = folder / party.name
        init_party(party.name, home / "keys")
        write_request(party.name, home / "keys", home / "request.json")
        identity = sign_request(home / "request.json", folder / "authority", DAYS)
        identity.write(home / "certificate.pem")
        identities.append(install(party.name, home / "keys", home / "certificate.pem", root))
        write_records(home / "data.npz", Records(experiment.features[rows], labels[rows], experiment.dataset.classes))
        sites.append(Site(party.name, home / "keys", home / "data.npz", home / "state"))
    _, key = load_authority(folder / "authority")
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=DAYS)
    sign_agreement(deployed, identities, authority, key, until).write(folder / "agreement.json")
    return Trial(folder / "agreement.json", tuple(sites), experiment, deployed)


def _slug(name: str, node: int) -> str:
    kept = "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower()).strip("-")
    return kept[:60] or f"party-{node}"


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
