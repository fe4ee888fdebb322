"""Many parties for many rounds while processes are killed, outsiders flood the ports and certificates run out.

    python -m tests.faults.soak FOLDER --parties 20 --rounds 10000 [--kills N] [--floods N] [--certificates SECONDS]

Prints one JSON object: what was done, what was measured, and `wrong`, a list that must be empty. `make soak`.

Every party is a process of its own on the loopback address, with the algorithm pr-admm, which needs every message: a
party that is down holds up the ring, and nothing can be made up for afterwards. The first three parties are never
killed: they are watched for growth. A run of the same parties that nobody disturbs, before and after, is the yardstick
of speed. Certificates end `--certificates` seconds after they were made and are replaced at half of that time: whoever
went on with an old one would be cut off.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509

from coterie.deploy.keys import install, load_party, sign_request, write_request
from coterie.deploy.trial import Trial, make_trial, start_agent
from coterie.deploy.watch import read_status
from coterie.errors import InputError
from coterie.names import host_and_port
from coterie.plan import Plan, validate
from tests.deploy.flood import flooding
from tests.faults import soak_checks

WITNESSES = 3  # parties that are never killed, if there are so many
PORTS = range(20000, 32000)  # below those that the system gives to callers: nobody takes one while its owner is down
MODULE = "tests.faults.soaked_agent"
KINDS = ("silent", "hello", "drip")


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    parties: int
    rounds: int
    kills: int
    floods: int
    connections: int  # of each flood
    hold: float  # seconds that a flood lasts
    certificates: float  # seconds that one is valid
    sample: float  # seconds between two looks at all processes
    tick: float = 0.0  # deploy.tick: seconds between two rounds; 0: as fast as it goes
    seed: int = 1

    @property
    def witnesses(self) -> int:
        """How many of the first parties are never killed."""
        return min(WITNESSES, self.parties - 1)


@dataclass
class Story:
    """What was done to the parties, and what was seen of them meanwhile; times are seconds since the epoch."""

    kills: list[tuple[str, float]] = field(default_factory=list)  # who, when
    floods: list[tuple[str, str, float, float]] = field(default_factory=list)  # whom, how, from, to
    rotations: list[tuple[str, float]] = field(default_factory=list)  # who, when
    shown: list[tuple[str, bool]] = field(default_factory=list)  # who, and whether it showed its new certificate
    samples: list[dict[str, Any]] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Soak:
    """The parties of one agreement, and what happens to them."""

    def __init__(self, size: Size, folder: Path, rounds: int | None = None):
        self.size, self.folder, self.rounds = size, folder, rounds or size.rounds
        self.random, self.story = random.Random(size.seed), Story()
        self.trial: Trial = make_trial(soak_plan(size, self.rounds), folder)
        self.sites = {site.name: site for site in self.trial.sites}
        self.names = list(self.sites)
        assert self.trial.plan.deploy is not None
        self.address = {p.name: str(p.address) for p in self.trial.plan.deploy.parties}
        self.renewed: dict[str, float] = {}
        self.processes: dict[str, subprocess.Popen] = {}
        (folder / "tap").mkdir()

    def start(self, name: str) -> None:
        os.environ["COTERIE_TAP"] = str(self.folder / "tap")
        self.processes[name] = start_agent(self.trial.agreement, self.sites[name], MODULE)

    def round(self, name: str) -> int:
        """How far a party has come."""
        try:
            return int(read_status(self.sites[name].state)["round"])
        except (InputError, KeyError):
            return 0

    # ---- what happens ----

    def renew(self, name: str) -> None:
        """A new certificate for the same keys, from the same authority, while the agent runs or is down."""
        site, root = self.sites[name], self.folder / "authority"
        home, lifetime = site.data.parent, dt.timedelta(seconds=self.size.certificates)
        write_request(name, site.keys, home / "request.json")
        now = dt.datetime.now(dt.UTC)
        sign_request(home / "request.json", root, 1, start=now, lifetime=lifetime).write(home / "new.pem")
        new = install(name, site.keys, home / "new.pem", root / "ca.json").certificate
        self.renewed[name] = time.time()
        self.story.rotations.append((name, time.time()))
        if name in self.processes and (serial := self.shows(name)) is not None:
            self.story.shown.append((name, serial == new.serial_number))

    def shows(self, name: str) -> int | None:
        """The serial number of the certificate with which a party answers a call; None if it is down or flooded."""
        caller = next(site for site in self.trial.sites if site.name != name)
        context = ssl.create_default_context(cafile=None, cadata=load_party(caller.keys).authority.pem.decode())
        context.load_cert_chain(caller.keys / "certificate.pem", caller.keys / "tls.key")
        host, port = host_and_port(self.address[name])
        try:
            with (
                socket.create_connection((host, port), 5) as plain,
                context.wrap_socket(plain, server_hostname=name) as link,
            ):
                der = link.getpeercert(binary_form=True)
        except OSError:
            return None
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number

    def kill(self, number: int) -> None:
        """One party, or every fifth time two at once, which may be neighbours; they come back after a while."""
        killable = self.names[self.size.witnesses :]
        victims = self.random.sample(killable, min(1 + (number % 5 == 4), len(killable)))
        for name in victims:
            self.processes[name].kill()
            self.processes[name].wait()
            self.story.kills.append((name, time.time()))
        time.sleep(self.random.uniform(0, 2))
        for name in victims:
            self.start(name)

    def flood(self) -> None:
        """Strangers open connections to one party and hold them for a while."""
        name, kind = self.random.choice(self.names), self.random.choice(KINDS)
        begin, source = time.time(), f"127.0.0.{self.random.randrange(2, 250)}"
        with flooding(self.address[name], self.size.connections, kind, source):
            time.sleep(self.size.hold)
        self.story.floods.append((name, kind, begin, time.time()))

    def look(self) -> None:
        """Memory, descriptors and disk of everybody."""
        for name, process in self.processes.items():
            if process.poll() is None and (seen := soak_checks.look(process.pid, self.sites[name])):
                self.story.samples.append({"name": name, "time": time.time(), "round": self.round(name), **seen})

    # ---- the whole of it ----

    def run(self, disturbed: bool) -> Story:
        """Until all are done, or one has ended as none should."""
        size, story = self.size, self.story
        for name in self.names:
            self.renew(name)
            self.start(name)
        kills, floods = (self._times(count if disturbed else 0) for count in (size.kills, size.floods))
        next_look, wet, number = 0.0, threading.Thread(), 0
        try:
            while any(p.poll() is None for p in self.processes.values()):
                if self._broken():
                    break
                at = self.round(self.names[0])
                for name in self.names:
                    if time.time() > self.renewed[name] + size.certificates * self.random.uniform(0.45, 0.55):
                        self.renew(name)
                if kills and at >= kills[0]:
                    self.kill(number)
                    kills, number = kills[1:], number + 1
                if floods and at >= floods[0] and not wet.is_alive():
                    floods, wet = floods[1:], threading.Thread(target=self.flood)
                    wet.start()
                if time.time() > next_look:
                    next_look = time.time() + size.sample
                    self.look()
                time.sleep(0.1)
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            if wet.ident is not None:
                wet.join()
        story.codes = {name: process.returncode for name, process in self.processes.items()}
        return story

    def _times(self, count: int) -> list[int]:
        """Rounds at which something happens: spread over the run, each at a random place in its stretch."""
        first, last = 0.05 * self.rounds, 0.92 * self.rounds
        return [int(first + (last - first) * (i + self.random.random()) / count) for i in range(count)]

    def _broken(self) -> bool:
        for name, process in self.processes.items():
            if process.poll() not in (None, 0):
                said = (self.sites[name].data.parent / "errors.txt").read_text()[-500:]
                self.story.wrong.append(f"{name} ended with exit code {process.returncode}: {said}")
        return bool(self.story.wrong)


def soak_plan(size: Size, rounds: int) -> Plan:
    """A small logistic model over a ring, every message of which is needed."""
    ports = random.Random(os.getpid() + rounds).sample(PORTS, size.parties)
    parties = [{"name": f"p{i}", "address": f"127.0.0.1:{port}"} for i, port in enumerate(ports)]
    return validate(
        {
            "name": "soak",
            "data": {"source": "clinics"},
            "partition": {"kind": "iid", "agents": size.parties, "records": 40},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic", "ridge": 0.01},
            "algorithm": {"name": "pr-admm"},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {"parties": parties, "deadline": 60.0, "patience": 1800.0, "tick": size.tick},
        }
    )


def soak(size: Size, folder: Path, reference: int) -> dict[str, Any]:
    """Undisturbed, disturbed, undisturbed; and everything that is wrong with the second."""
    calm = []
    for name in ("before", "after"):
        if name == "after":
            main = Soak(size, folder / "main")
            story = main.run(disturbed=True)
        if reference:
            quiet = Soak(size, folder / name, reference)
            calm.append(soak_checks.pace(quiet.run(disturbed=False), quiet.sites))
    report = soak_checks.judge(story, main.trial, folder / "main" / "tap", size.witnesses, calm)
    (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in story.samples))
    return {"size": asdict(size), **report}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    defaults = {"parties": 5, "rounds": 500, "kills": 10, "floods": 5, "connections": 300, "seed": 1, "reference": 200}
    for key, value in defaults.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    for key, seconds in {"hold": 5.0, "certificates": 900.0, "sample": 5.0, "tick": 0.0}.items():
        parser.add_argument(f"--{key}", type=float, default=seconds)
    given = vars(parser.parse_args())
    where, calm_rounds = given.pop("folder"), given.pop("reference")
    where.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # and the parties end with it
    found = soak(Size(**given), where, calm_rounds)
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["wrong"]))
