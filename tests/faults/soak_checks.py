"""What must hold after a soak, from ledgers, logs and what was seen of the processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
import statistics
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.algorithms.laws import Grid
from coterie.deploy.ledger import read
from coterie.deploy.party import Terms
from coterie.deploy.trial import Site, Trial
from coterie.drivers.simulate import Run, simulate
from coterie.privacy.codec import to_json
from tests.deploy.house import history
from tests.faults import soaked_agent

if TYPE_CHECKING:
    from tests.faults.soak import Story

SLOWER = 0.8  # of the undisturbed rounds per second, outside the times in which a party is down
RESIDENT = 1.05  # memory late in the run, as a multiple of that early in it
STORED = 1.02  # bytes per round in the ledger, likewise
CLOSE = 1e-6  # of the largest number in a model, as in tests/deploy/test_process.py
TICKS = os.sysconf("SC_CLK_TCK")


def look(pid: int, site: Site) -> dict[str, float] | None:
    """Memory (kB), open descriptors, processor seconds and disk of one agent; None if it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        resident = int(status.split("VmRSS:")[1].split()[0])
    except (OSError, IndexError):
        return None
    disk = sum(p.stat().st_size for p in site.state.glob("ledger.db*")) if site.state.exists() else 0
    return {"rss": resident, "fds": descriptors, "cpu": (int(times[11]) + int(times[12])) / TICKS, "disk": disk}


def sent(site: Site) -> list[tuple[float, int]]:
    """When each new round left, from the owner's log."""
    out: list[tuple[float, int]] = []
    with (site.state / "log.jsonl").open() as lines:
        for line in lines:
            if '"sent"' in line:
                facts = json.loads(line)
                if not out or facts["round"] > out[-1][1]:
                    out.append((datetime.fromisoformat(facts["time"]).timestamp(), facts["round"]))
    return out


def pace(story: Story, sites: Mapping[str, Site]) -> dict[str, float]:
    """Rounds per second of the first party outside the times in which somebody is down, and what is said of those."""
    name = next(iter(sites))
    down = downtimes(story, sites)
    times = [when for when, _ in sent(sites[name])]
    times = times[len(times) // 10 :]  # the first rounds are slower: connections, compilation
    rounds, seconds = 0, 0.0
    for a, b in itertools.pairwise(times):
        lost = sum(max(0.0, min(b, end) - max(a, begin)) for begin, end in down)
        if lost == 0:
            rounds, seconds = rounds + 1, seconds + b - a
    seen = [s for s in story.samples if s["name"] == name]
    cpu = (seen[-1]["cpu"] - seen[0]["cpu"]) / max(seen[-1]["round"] - seen[0]["round"], 1) if len(seen) > 1 else 0.0
    return {
        "rounds per second": rounds / seconds if seconds else 0.0,
        "rounds": rounds,
        "seconds": seconds,
        "seconds down": sum(end - begin for begin, end in down),
        "processor ms per round": 1000 * cpu,
    }


def downtimes(story: Story, sites: Mapping[str, Site]) -> list[tuple[float, float]]:
    """From each kill to the first new round of the killed party, joined where they overlap."""
    out: list[tuple[float, float]] = []
    logs = {name: sent(sites[name]) for name in {who for who, _ in story.kills}}
    for who, when in sorted(story.kills, key=lambda kill: kill[1]):
        back = next((t for t, _ in logs[who] if t > when), when)
        if out and when <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], back))
        else:
            out.append((when, back))
    return out


def judge(story: Story, trial: Trial, tap: Path, witnesses: int, calm: list[dict[str, float]]) -> dict[str, Any]:
    """Everything measured, and a list of what is not as it must be."""
    wrong = list(story.wrong)
    sites = {s.name: s for s in trial.sites}
    wrong += [f"{n} ended with exit code {c}" for n, c in story.codes.items() if c]
    report: dict[str, Any] = {
        "kills": len(story.kills), "floods": len(story.floods), "certificates": len(story.rotations),
        "seen in use": len(story.shown),
        "undisturbed": calm,
    }  # fmt: skip
    if not wrong:
        terms = Terms.of(trial.plan)
        wrong += ledgers(trial, terms, tap) + budgets(trial, terms)
        off = apart(trial, terms, tap)
        report["models off the simulation by"] = off
        wrong += [f"the models are off those of a simulation with the same draws by {off:.3g}"] * (off > CLOSE)
        wrong += renewed(story)
        report["disturbed"] = found = pace(story, sites)
        if calm:
            ratio = found["rounds per second"] / statistics.mean(c["rounds per second"] for c in calm)
            report["speed, of undisturbed"] = ratio
            wrong += [f"outside of downtimes only {ratio:.2f} of the undisturbed rounds per second"] * (ratio < SLOWER)
        report["growth"] = {name: growth(story, sites[name], terms.rounds) for name in list(sites)[:witnesses]}
        for name, facts in report["growth"].items():
            wrong += [f"{name}: {what}" for what in too_much(facts)]
    return {**report, "wrong": wrong}


def ledgers(trial: Trial, terms: Terms, tap: Path) -> list[str]:
    """I1-I5: one payload a round, each as its ledger has it, on every link and in every use."""
    wire: dict[tuple[str, int], set[bytes]] = {}
    for site in trial.sites:
        wire |= soaked_agent.frames(tap, site.name)
    found = history({s.name: s.state / "ledger.db" for s in trial.sites}, wire, terms.rounds)
    missing = [f"{s.name} {t}" for s in trial.sites for t in range(terms.rounds) if (s.name, t) not in wire]
    return found + [f"never sent: {missing[:5]}"] * bool(missing)


def budgets(trial: Trial, terms: Terms) -> list[str]:
    """Each round charged once, as the plan says; ε in the end neither less nor more than the agreement's."""
    found = []
    assert trial.plan.privacy is not None
    for node, site in enumerate(trial.sites):
        book = read(site.state / "ledger.db")
        planned = [[to_json(event) for event in events] for events in terms.charges(node)]
        if [[to_json(event) for event in row.events] for row in book.rows] != planned:
            found.append(f"{site.name}: the charges are not those of the plan, round by round")
        if book.allowance.spent != book.allowance.limit:
            found.append(f"{site.name} has spent {book.allowance.spent} of {book.allowance.limit}")
        with np.load(site.state / "model.npz") as model:
            epsilon = float(model["epsilon"])
        if not 0.999 * trial.plan.privacy.epsilon <= epsilon <= trial.plan.privacy.epsilon:  # type: ignore[operator]
            found.append(f"{site.name}: ε is {epsilon}, agreed were {trial.plan.privacy.epsilon}")
    return found


def apart(trial: Trial, terms: Terms, tap: Path) -> float:
    """How far the models are from those of a simulation with the parties' own draws, relative to the largest number."""
    drawn = [soaked_agent.draws(tap, s.name, terms.rounds) for s in trial.sites]

    def column(key: str) -> Any:
        first = drawn[0][0][key]
        rows = np.array([[getattr(d[t][key], "steps", d[t][key]) for d in drawn] for t in range(terms.rounds)])
        return Grid(rows, first.unit) if isinstance(first, Grid) else rows

    layout = trial.experiment.layout(terms.rounds, terms.priced.shape)
    run = [Run(0, terms.priced.cfg, terms.priced.noise)]
    replay = {key: column(key) for key in drawn[0][0]}
    trace = simulate(terms.priced.algorithm, layout, run, rounds=terms.rounds, replay=replay, every=terms.rounds)
    found = np.stack([np.load(s.state / "model.npz")["point"] for s in trial.sites])
    return float(np.abs(found - trace.points[0]).max() / np.abs(trace.points[0]).max())


def renewed(story: Story) -> list[str]:
    """Whoever was called after a rotation showed the new certificate; and some were called."""
    found = [f"{who} showed an old certificate after a rotation" for who, new in story.shown if not new]
    return found or ["nobody was seen with a new certificate"] * (not story.shown)


def growth(story: Story, site: Site, rounds: int) -> dict[str, float]:
    """A late tenth of the run beside an early one, for a party that was never killed."""
    windows = {"early": (0.1 * rounds, 0.2 * rounds), "late": (0.9 * rounds, rounds)}
    out: dict[str, float] = {"log peak": max((s["disk"] for s in story.samples if s["name"] == site.name), default=0)}
    with contextlib.closing(sqlite3.connect(f"file:{site.state / 'ledger.db'}?mode=ro", uri=True)) as db:
        for word, (low, high) in windows.items():
            mine = [s for s in story.samples if s["name"] == site.name]
            seen = [s for s in mine if low <= s["round"] <= high]
            if not seen:  # a short run is soon beyond it: what was seen nearest to it
                seen = [min(mine, key=lambda s: abs(s["round"] - (low + high) / 2))]
            for key in ("rss", "fds"):
                out[f"{key} {word}"] = statistics.median(s[key] for s in seen)
            (stored,) = db.execute(
                "SELECT avg(length(charge) + length(total) + length(held) + length(state_hash) + length(prev_hash) +"
                " length(hash) + length(frame)) FROM release WHERE round BETWEEN ? AND ?", (low, high),
            ).fetchone()  # fmt: skip
            out[f"ledger bytes per round {word}"] = float(stored)
    out["resident bytes per round"] = 1024 * (out["rss late"] - out["rss early"]) / (0.8 * rounds)
    return out


def too_much(facts: Mapping[str, float]) -> list[str]:
    """What has grown that should not."""
    found = []
    if facts["rss late"] > RESIDENT * facts["rss early"]:
        found.append(f"memory grew from {facts['rss early']:.0f} to {facts['rss late']:.0f} kB")
    if facts["fds late"] > facts["fds early"] + 8:
        found.append(f"open descriptors grew from {facts['fds early']:.0f} to {facts['fds late']:.0f}")
    if facts["ledger bytes per round late"] > STORED * facts["ledger bytes per round early"]:
        found.append("a round takes more of the ledger than it did")
    return found
