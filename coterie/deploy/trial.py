"""A rehearsal on one machine: all parties' keys, records and agreement in one folder, made from a plan.

For trials only: whoever holds this folder holds everybody's keys and data. In earnest every party makes its own keys
and keeps its own file (docs/deploy.md).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.data import find_source, split
from coterie.data.planned import leaks_of
from coterie.deploy.agreement import sign_agreement
from coterie.deploy.keys import init_authority, init_party, install, load_authority, sign_request, write_request
from coterie.deploy.noise import check_deployable
from coterie.deploy.party import Records, Terms, write_records
from coterie.errors import InputError
from coterie.experiment import Experiment, prepare
from coterie.losses import by_labels
from coterie.names import is_title
from coterie.plan import Plan, validate
from coterie.problems.labels import ClassNumbers

__all__ = ["Site", "Trial", "deployed_plan", "free_ports", "make_trial", "shards_of", "sign_trial",
           "start_agent"]  # fmt: skip

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


def deployed_plan(plan: Plan, experiment: Experiment) -> Plan:
    """The plan with everything stated that a deployment must state: sizes, dimension, parties; and without seeds."""
    tree, stated = plan.as_json(), lambda table: table.model_dump(mode="json", exclude_none=True)
    sizes = [int(n) for n in experiment.network.sizes]
    tree["partition"] = {"kind": "iid", "sizes": sizes}
    classes = experiment.dataset.classes
    loss = plan.problem.loss or by_labels(None if classes is None else len(classes))
    problem = stated(plan.problem) | {"loss": loss, "dim": int(experiment.features.shape[1])}
    if isinstance(labels := experiment.network.problem.labels, ClassNumbers):
        problem["classes"] = labels.classes
    # what the rehearsal has done already, and no agent does
    data = {k: v for k, v in stated(plan.data).items() if k not in ("path", "site", "test_fraction")}
    if not find_source(plan.data.source).made:
        data["options"] = {k: v for k, v in data["options"].items() if k not in ("site", "sites")}
    run = {k: v for k, v in stated(plan.run).items() if k not in ("seed", "seeds")}
    tree |= {"problem": problem, "data": data, "run": run}
    if plan.deploy is None:
        titles = experiment.network.names
        names = [_slug(n, i) for i, n in enumerate(titles)]
        ports = free_ports(len(names))
        parties = [
            {"name": n, "address": f"127.0.0.1:{p}"} | ({"title": t} if t != n and is_title(t) else {})
            for n, p, t in zip(names, ports, titles, strict=True)
        ]
        tree["deploy"] = {"parties": parties}
    return validate(tree)


def make_trial(plan: Plan, folder: Path) -> Trial:
    """Split the plan's data over its parties and sign the plan between them."""
    if find_source(plan.data.source).stream is not None:
        raise InputError(
            f"a trial gives every party a file of its records, and data.source = {plan.data.source!r} is for streaming"
        )
    check_deployable(plan, rehearsed=True)
    if leaks := leaks_of(plan):
        raise InputError(f"{leaks[0]}: no agent would take such records")
    experiment = prepare(plan)
    deployed = deployed_plan(plan, experiment)
    agreement, sites = sign_trial(deployed, shards_of(experiment), folder)
    return Trial(agreement, sites, experiment, deployed)


def shards_of(experiment: Experiment) -> list[Records]:
    """Each party's own records."""
    plan, dataset = experiment.plan, experiment.dataset
    train, _ = split(dataset, plan.data.test_fraction, seed=plan.data.seed)
    labels = dataset.targets[train]
    whose = (lambda rows: None) if experiment.people is None else experiment.people.__getitem__
    return [
        Records(experiment.features[rows], labels[rows], dataset.classes, dataset.leaks, people=whose(rows))
        for rows in experiment.parts
    ]


def sign_trial(plan: Plan, shards: Sequence[Records], folder: Path) -> tuple[Path, tuple[Site, ...]]:
    """Everybody's keys, certificates and records, and the agreement between them, in a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: a trial starts in a new folder")
    Terms.of(plan)  # refuse before anything is made
    assert plan.deploy is not None
    authority = init_authority("trial", folder / "authority")
    root = folder / "authority" / "ca.json"
    sites, identities = [], []
    for party, records in zip(plan.deploy.parties, shards, strict=True):
        home = folder / party.name
        init_party(party.name, home / "keys")
        write_request(party.name, home / "keys", home / "request.json")
        identity = sign_request(home / "request.json", folder / "authority", DAYS)
        identity.write(home / "certificate.pem")
        identities.append(install(party.name, home / "keys", home / "certificate.pem", root))
        write_records(home / "data.npz", records)
        sites.append(Site(party.name, home / "keys", home / "data.npz", home / "state"))
    _, key = load_authority(folder / "authority")
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=DAYS)
    sign_agreement(plan, identities, authority, key, until).write(folder / "agreement.json")
    return folder / "agreement.json", tuple(sites)


def _slug(name: str, node: int) -> str:
    kept = "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower()).strip("-")
    return kept[:60].strip("-") or f"party-{node}"


PORTS = range(20000, 32768)  # below those that systems give to outgoing connections, which would keep a listener out
_turns = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, none twice for long, each process from a place of its own."""
    found: list[int] = []
    for turn in itertools.islice(_turns, len(PORTS)):
        if len(found) == count:
            break
        port = PORTS[(97 * os.getpid() + turn) % len(PORTS)]
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    if len(found) < count:
        raise InputError(
            f"{count} ports are needed, and of {PORTS.start} to {PORTS.stop - 1} only {len(found)} are free"
        )
    return found


def start_agent(
    agreement: Path, site: Site, module: str | None = None, options: Sequence[str] = ()
) -> subprocess.Popen:
    """One party's process, with one thread of arithmetic since several share the machine; errors go to errors.txt.

    It imports nothing from the folder in which it is started, unless `module` says what to run there.
    """
    program = ["-P", "-m", "coterie.cli"] if module is None else ["-m", module]
    command = [
        sys.executable, *program, "agent", str(agreement), "--me", site.name, "--data", str(site.data),
        "--keys", str(site.keys), "--state", str(site.state), *options,
    ]  # fmt: skip
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    alone = {**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with (site.data.parent / "errors.txt").open("a") as errors:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=alone, start_new_session=True)
