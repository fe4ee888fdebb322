"""Parties of secret sums as processes over mutual TLS, some of which are killed; what their ledgers must show then.

    python -m tests.faults.summed FOLDER [--parties 20] [--rounds 6] [--kills 5] [--graph regular] [--seed 0] …

Prints one JSON object: what was done, seconds of every round, and `wrong`, a list that must be empty.

Victims die by SIGKILL at random moments: while secrets are dealt, within a round, at the end. Some come back after a
while, some do not. Up to D of the parties are killed, so the others must open every round.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.cli import main
from coterie.deploy.agent import MEETING
from coterie.deploy.kept import read_value
from coterie.deploy.ledger import read
from coterie.deploy.trial import Trial, make_trial, start_agent
from coterie.deploy.watch import read_status
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy.codec import to_json
from coterie.privacy.events import Free
from coterie.sums.messages import Answered, SumFrame, read_words
from coterie.sums.terms import SharedTerms
from coterie.sums.words import to_signed
from tests.faults import summed_agent
from tests.faults.soak_checks import look

MODULE = "tests.faults.summed_agent"
PORTS = range(20000, 32000)  # below those that the system gives to callers: nobody takes one while its owner is down


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    parties: int = 20
    honest: int = 11
    threshold: int = 15
    rounds: int = 6
    kills: int = 5
    back: float = 0.6  # the part of the killed that come back
    graph: str = "regular"
    deadline: float = 60.0
    seed: int = 0


@dataclass
class Story:
    """What was done to the parties, and what became of them; times are seconds since the epoch."""

    kills: list[tuple[str, float, int]] = field(default_factory=list)  # who, when, in which round it was then
    back: list[tuple[str, float]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # back when all others were done and gone: they can open nothing more
    codes: dict[str, int] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def summed_plan(size: Size) -> Plan:
    """A small logistic model, trained by sums with shared noise."""
    ports = random.Random(os.getpid() + size.seed).sample(PORTS, size.parties)
    parties = [{"name": f"p{i}", "address": f"127.0.0.1:{port}"} for i, port in enumerate(ports)]
    degree = {"degree": 4, "seed": size.seed} if size.graph == "regular" else {}
    return validate(
        {
            "name": "summed",
            "data": {"source": "clinics"},
            "partition": {"kind": "iid", "agents": size.parties, "records": 40},
            "graph": {"kind": size.graph, **degree},
            "problem": {"loss": "logistic", "ridge": 0.01},
            "algorithm": {"name": "dp-dsgd"},
            "exchange": {
                "kind": "secret-sum", "noise": "central", "honest": size.honest, "threshold": size.threshold,
            },
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"rounds": size.rounds},
            "deploy": {"parties": parties, "deadline": size.deadline, "patience": 600.0},
        }
    )  # fmt: skip


class Summed:
    """The parties of one agreement, and what happens to them."""

    def __init__(self, size: Size, folder: Path, plan: Plan | None = None):
        self.size, self.random, self.story = size, random.Random(size.seed), Story()
        self.trial: Trial = make_trial(plan or summed_plan(size), folder)
        self.sites = {site.name: site for site in self.trial.sites}
        self.tap = folder / "tap"
        self.tap.mkdir()
        self.processes: dict[str, subprocess.Popen] = {}

    def start(self, name: str) -> None:
        os.environ["COTERIE_TAP"] = str(self.tap)
        self.processes[name] = start_agent(self.trial.agreement, self.sites[name], MODULE)

    def kill(self, name: str) -> None:
        self.story.kills.append((name, time.time(), self.round(name)))
        self.processes[name].kill()
        self.processes[name].wait()

    def round(self, name: str) -> int:
        """How far a party has come; −1 before it is there at all."""
        try:
            return int(read_status(self.sites[name].state)["round"])
        except (InputError, KeyError):
            return -1

    def phase(self, name: str) -> str:
        """What a party says that it does."""
        try:
            return str(read_status(self.sites[name].state)["phase"])
        except (InputError, KeyError):
            return ""

    def speaks(self, name: str, event: str) -> int:
        """How often an event is in a party's log."""
        try:
            return (self.sites[name].state / "log.jsonl").read_text().count(f'"event": "{event}"')
        except OSError:
            return 0

    def until(self, condition: Callable[[], bool], seconds: float = 400.0) -> None:
        """Wait for something."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"nothing for {seconds:g} s"
            time.sleep(0.05)

    def furthest(self) -> int:
        """How far any has come."""
        return max(self.round(name) for name in self.sites)

    def run(self, seconds: float = 1200.0, sample: float = 5.0) -> Story:
        """Until all that were not killed for good are done, or one has ended as none should."""
        size, story, names = self.size, self.story, list(self.sites)
        victims = self.random.sample(names, size.kills)
        later = round(size.back * size.kills)  # these come back
        due = [(self.random.randrange(size.rounds), self.random.uniform(0, 3), v) for v in victims]
        returning: dict[str, float] = {}
        for name in names:
            self.start(name)
        until, reached, looked = time.time() + seconds, dict[int, float](), 0.0
        try:
            while any(p.poll() is None for p in self.processes.values()) or returning:
                now, at = time.time(), self.furthest()
                for t in range(at + 1):
                    reached.setdefault(t, now)
                for when in [w for w in due if w[0] in reached and now >= reached[w[0]] + w[1]]:
                    due.remove(when)
                    self.kill(when[2])
                    if victims.index(when[2]) < later:
                        returning[when[2]] = now + self.random.uniform(0.5, 10)
                for name in [n for n, then in returning.items() if now >= then]:
                    del returning[name]
                    story.back.append((name, now))
                    self.start(name)
                if now >= looked + sample:
                    looked = now
                    self.look()
                self._send_home()
                if self._broken() or now >= until:
                    break
                time.sleep(0.1)
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
        story.codes = {name: process.returncode for name, process in self.processes.items()}
        gone = {name for name, _, _ in story.kills} - ({name for name, _ in story.back} - set(story.late))
        story.wrong += [f"{n} ended with exit code {c}" for n, c in story.codes.items() if c and n not in gone]
        return story

    def _send_home(self) -> None:
        """End those that came back after everybody else was done: nobody is left to tell them how it ended."""
        running = {name for name, process in self.processes.items() if process.poll() is None}
        alone = running <= {name for name, _ in self.story.back}
        if alone and all(self.phase(name) == MEETING for name in running):
            for name in running:
                self.story.late.append(name)
                self.processes[name].kill()
                self.processes[name].wait()

    def look(self) -> None:
        """Memory, descriptors and disk of everybody."""
        for name, process in self.processes.items():
            if process.poll() is None and (seen := look(process.pid, self.sites[name])):
                self.story.samples.append({"name": name, "time": time.time(), "round": self.round(name), **seen})

    def _broken(self) -> bool:
        killed = {name for name, _, _ in self.story.kills}
        for name, process in self.processes.items():
            if process.poll() not in (None, 0) and not (name in killed and process.returncode == -9):
                said = (self.sites[name].data.parent / "errors.txt").read_text()[-500:]
                self.story.wrong.append(f"{name} ended with exit code {process.returncode}: {said}")
        return bool(self.story.wrong)

    def finished(self) -> list[str]:
        """Who came to the end."""
        return [name for name, code in self.story.codes.items() if code == 0]


# ---- what must hold --------------------------------------------------------------------------------------------------


class Books:
    """What lies in the ledgers, and what the test build noted."""

    def __init__(self, trial: Trial, tap: Path):
        from coterie.deploy.agreement import read_agreement
        from coterie.deploy.keys import load_party
        from coterie.deploy.party import Terms
        from coterie.deploy.work import Turns

        self.trial, self.names = trial, [site.name for site in trial.sites]
        terms = Terms.of(trial.plan)
        self.rounds, self.charges = terms.rounds, [terms.charges(node) for node in range(len(self.names))]
        turns = Turns.of(terms, 0)
        assert turns.sharing is not None
        agreement = read_agreement(trial.agreement, load_party(trial.sites[0].keys).authority)
        self.shared: SharedTerms = turns.sharing.terms(agreement, turns.count)
        self.kept = {site.name: _kept(site.state / "ledger.db") for site in trial.sites}
        self.drawn = {name: summed_agent.draws(tap, name) for name in self.names}
        self.given = {name: summed_agent.given(tap, name) for name in self.names}

    def opened(self, name: str, t: int) -> tuple[SumFrame, np.ndarray] | None:
        """The final SET of a round and its total in grid steps, if the party has both."""
        rows = self.kept[name]
        final, total = rows.get(("final", str(t))), rows.get(("total", str(t)))
        if final is None or total is None:
            return None
        assert isinstance(final, bytes)
        assert isinstance(total, bytes)
        value = rows["frame", f"'{final.hex()}"]
        assert isinstance(value, SumFrame)
        return value, to_signed(read_words(total))


def _kept(path: Path) -> dict[tuple[str, str], object]:
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return {(kind, key): read_value(value) for kind, key, value in db.execute("SELECT kind, key, value FROM kept")}


def totals(books: Books, finished: list[str]) -> list[str]:
    """One set and one total per round, everywhere; the integer sum of the set's vectors and the layers that stay."""
    wrong = []
    for t in range(books.rounds):
        found = {name: pair for name in books.names if (pair := books.opened(name, t))}
        wrong += [f"{n} has finished and has no total of round {t}" for n in finished if n not in found]
        if not found:
            continue
        value, total = next(iter(found.values()))
        for name, (other, its) in found.items():
            if other.digest != value.digest or not np.array_equal(its, total):
                wrong.append(f"round {t}: {name} has another set or total")
        members = Answered.read(value.body, books.shared).members
        layers = books.shared.noise(t)
        stay = 2 + layers.keep(books.shared.parties - len(members))
        parts = [books.drawn[books.names[i]].get((t, value.slot)) for i in members]
        if any(part is None for part in parts):
            wrong.append(f"round {t}: a member of the set drew nothing for slot {value.slot}")
        elif not np.array_equal(np.sum([np.sum(part[:stay], axis=0) for part in parts if part], axis=0), total):
            wrong.append(f"round {t}: the total is not the sum of what {len(members)} members put in")
    return wrong


def committed(path: Path) -> list[SumFrame]:
    """The COMMITs in a ledger, one for every masked vector that left."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return [SumFrame.unpack(frame) for (frame,) in db.execute("SELECT frame FROM release ORDER BY round")]


def charged(books: Books) -> list[str]:
    """Every round that a party committed to is charged once, as the plan says, and every further vector is noted."""
    wrong = []
    for node, site in enumerate(books.trial.sites):
        path = site.state / "ledger.db"
        if not path.exists():
            continue
        paid: dict[int, int] = {}
        frames, rows = committed(path), read(path).rows
        for frame, row in zip(frames, rows, strict=True):
            t = frame.round
            if all(isinstance(event, Free) for event in row.events):
                continue
            paid[t] = paid.get(t, 0) + 1
            if [to_json(e) for e in row.events] != [to_json(e) for e in books.charges[node][t]]:
                wrong.append(f"{site.name}: round {t} is charged otherwise than agreed")
        wrong += [f"{site.name}: round {t} is charged {n} times" for t, n in paid.items() if n != 1]
        for t in range(books.rounds):
            found = next((pair for n in books.names if (pair := books.opened(n, t))), None)
            if found and node in Answered.read(found[0].body, books.shared).members and t not in paid:
                wrong.append(f"{site.name}: in the sum of round {t} without a charge")
        if len(frames) != len({frame.slot for frame in frames}):
            wrong.append(f"{site.name}: a slot was masked twice")
    return wrong


def shares(books: Books) -> list[str]:
    """Shares of a slot leave for one set, those of a round too, and for the one that is final."""
    wrong, by_slot = [], dict[int, set[str]]()
    for name, slots in books.given.items():
        for slot, values in slots.items():
            by_slot.setdefault(slot, set()).update(values)
            wrong += [f"{name} gave shares of slot {slot} for {len(values)} sets"] * (len(values) > 1)
    wrong += [f"shares of slot {s} were given for {len(v)} sets" for s, v in by_slot.items() if len(v) > 1]
    final = {pair[0].digest.hex() for n in books.names for t in range(books.rounds) if (pair := books.opened(n, t))}
    wrong += [f"shares of slot {s} were given for a set that is not final" for s, v in by_slot.items() if v - final]
    for name, rows in books.kept.items():
        for t in range(books.rounds):
            if pair := books.opened(name, t):
                left = [key for kind, key in rows if kind == "secret" and key == str(pair[0].slot)]
                wrong += [f"{name} still has its secret of slot {pair[0].slot}"] * bool(left)
    return wrong


def models(trial: Trial, finished: list[str]) -> list[str]:
    """The same model everywhere, and certificates that hold and count the vectors that their party sent again."""
    sites = [site for site in trial.sites if site.name in finished]
    points = np.stack([np.load(site.state / "model.npz")["point"] for site in sites])
    wrong = [f"models differ by {np.ptp(points, axis=0).max():.3g}"] * bool(np.ptp(points, axis=0).max() > 1e-12)
    for site in sites:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = main(["verify", str(site.state / "certificate.json")])
        wrong += [f"{site.name}: the certificate does not hold: {said.getvalue()}"] * bool(code)
        rounds = [frame.round for frame in committed(site.state / "ledger.db")]
        stated, node = json.loads((site.state / "certificate.json").read_text())["agents"], trial.sites.index(site)
        again = next(group["sent_again"] for group in stated if any(a <= node <= b for a, b in group["members"]))
        if again != len(rounds) - len(set(rounds)):
            wrong.append(
                f"{site.name}: the certificate counts {again} vectors sent again, the ledger {len(rounds)} in all"
            )
    return wrong


def judge(run: Summed) -> list[str]:
    """All that is not as it must be."""
    books, finished = Books(run.trial, run.tap), run.finished()
    return [*run.story.wrong, *totals(books, finished), *charged(books), *shares(books), *models(run.trial, finished)]


def apart(books: Books) -> float:
    """How far models are from a simulation with the same draws, relative to its largest number; all must have answered
    in every round. The totals must be the same integers: else infinity."""
    import jax

    from coterie.deploy.noise import noise_scales
    from coterie.deploy.party import Terms
    from coterie.drivers.simulate import Run, simulate
    from coterie.exchange.planned import exchange_of

    trial = books.trial
    terms = Terms.of(trial.plan)
    priced, network, grid = terms.priced, terms.network, 2.0**-books.shared.code.fraction_bits
    sigma = noise_scales(priced.algorithm, priced.cfg, priced.places).T[..., None]
    drawn = np.zeros((books.rounds, len(books.names), books.shared.size))
    sums = []
    for t in range(books.rounds):
        opened = books.opened(books.names[0], t)
        assert opened is not None
        sums.append(opened[1])
        for node, name in enumerate(books.names):
            drawn[t, node] = np.sum(books.drawn[name][t, opened[0].slot][1:2], axis=0)
    exchange = exchange_of(trial.plan, priced.algorithm, network.graph, network.mixing, priced.terms)
    trace = simulate(
        priced.algorithm, trial.experiment.layout(books.rounds, priced.shape), [Run(0, priced.cfg, priced.noise)],
        rounds=books.rounds, replay={"noise": drawn * grid / sigma}, exchange=exchange, record=True,
    )  # fmt: skip
    said = np.rint(np.asarray(jax.tree.leaves(trace.messages)[0][0]) / grid).sum(axis=1).astype(np.int64)
    if not np.array_equal(said, np.array(sums)):
        return float("inf")
    found = np.stack([np.load(site.state / "model.npz")["point"] for site in trial.sites])
    return float(np.abs(found - trace.points[0]).max() / np.abs(trace.points[0]).max())


def growth(run: Summed) -> dict[str, float]:
    """Memory early and late, and what the ledger keeps of a round, at parties that were never killed; the median."""
    killed = {name for name, _, _ in run.story.kills}
    out: dict[str, list[float]] = {}
    for name, site in run.sites.items():
        if name in killed:
            continue
        mine = [s for s in run.story.samples if s["name"] == name and s["round"] >= 0]
        for word, part in (("early", 0.15), ("late", 0.95)):
            near = min(mine, key=lambda s: abs(s["round"] - part * run.size.rounds))
            for key in ("rss", "fds"):
                out.setdefault(f"{key} {word}", []).append(near[key])
        with contextlib.closing(sqlite3.connect(f"file:{site.state / 'ledger.db'}?mode=ro", uri=True)) as db:
            for kind, size in db.execute("SELECT kind, sum(length(value) + length(key)) FROM kept GROUP BY kind"):
                out.setdefault(f"kept bytes per round: {kind}", []).append(size / run.size.rounds)
        disk = sum(p.stat().st_size for p in site.state.glob("ledger.db*"))
        out.setdefault("ledger bytes per round", []).append(disk / run.size.rounds)
    return {key: float(np.median(values)) for key, values in out.items()}


def times(run: Summed) -> dict[str, list[float]]:
    """Seconds that each round took, by party."""
    out: dict[str, list[float]] = {}
    for name, site in run.sites.items():
        with contextlib.suppress(OSError), (site.state / "log.jsonl").open() as lines:
            facts = [json.loads(line) for line in lines if '"opened"' in line]
            out[name] = [f["seconds"] for f in facts if f.get("event") == "opened"]
    return out


def facts(run: Summed, wrong: list[str]) -> dict[str, Any]:
    """What was done, how it ended, and how long rounds took."""
    story = run.story
    done = {"kills": story.kills, "back": story.back, "late": story.late, "codes": story.codes, "wrong": wrong}
    return {**done, "seconds": times(run), "growth": growth(run)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for key, value in asdict(Size()).items():
        parser.add_argument(f"--{key}", type=type(value), default=value)
    options = vars(parser.parse_args())
    run = Summed(Size(**{k: v for k, v in options.items() if k != "folder"}), options["folder"])
    run.run()
    print(json.dumps(facts(run, judge(run) if run.finished() else run.story.wrong)))
