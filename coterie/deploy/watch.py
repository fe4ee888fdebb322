"""What a party's owner sees while it runs: a status line and file, the time that rounds take, who is waited for.

All of it stays on this machine, and none of it comes from a record: rounds, names, times, ε, sizes of files.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

from coterie.deploy.agent import MEETING, Agent
from coterie.deploy.journal import Recent, log
from coterie.deploy.sum_agent import SumAgent
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deploy.grpc_transport import GrpcPost, GrpcTransport

__all__ = ["Facts", "Watch", "WholeFacts", "line", "read_status"]

EVERY = 1.0  # seconds between two writings of status.json
EFFORT = 200  # ε, for a party that runs, is worked out anew after so many times the processor time that it takes
PATIENCE = (5.0, 300.0)  # seconds of waiting after which it is said for the first time, and at least how often then
REPORT = 60.0  # seconds between two words on progress, and on refusals


class Facts(TypedDict):
    """status.json; `ended` and `running` are there where the file is written and read."""

    round: int
    rounds: int
    epsilon: float
    budget: float
    waiting: tuple[str, ...]
    phase: str
    priced: NotRequired[int]  # absent from the file of an agent that is older, as is `trouble`
    party: str
    pid: int
    neighbours: dict[str, bool]
    trouble: NotRequired[dict[str, str]]
    updated: float
    ended: NotRequired[bool]
    running: NotRequired[bool | None]


class RefusedParty(TypedDict):
    """Whom it has refused."""

    about: str
    reason: str
    count: int


class WholeFacts(Facts):
    """What the metrics and the page show."""

    plan: str
    plan_hash: str
    parties: list[str]
    edges: list[list[int]]
    delta: float
    idle: float
    round_seconds: list[float]
    refusals: list[RefusedParty]
    certificate_days: dict[str, float]
    agreement_days: float
    ledger_bytes: int
    log: list[dict[str, str]]


class Watch:
    """Looks at an agent from time to time.

    Args:
        agent: the one that runs.
        transport: how it talks.
        state: its folder.
        recent: the latest lines of its log.
        show: called with the status line.
    """

    def __init__(
        self, agent: Agent | SumAgent, transport: GrpcPost | GrpcTransport, state: Path, recent: Recent,
        show: Callable[[str], None] | None = None,
    ):  # fmt: skip
        self.agent, self.transport, self.state, self.recent, self.show = agent, transport, state, recent, show
        self._priced, self._again = (-1, 0.0), 0.0
        self._speak, self._report, self._refused = PATIENCE[0], time.monotonic() + REPORT, 0

    def facts(self, ended: bool = False) -> Facts:
        """What is in status.json."""
        status, ledger = self.agent.status, self.agent.ledger
        if self._priced[0] != ledger.last and (ended or time.monotonic() >= self._again):
            began = time.thread_time()  # of this thread: on a busy machine the clock on the wall says little
            self._priced = (ledger.last, ledger.spent())
            self._again = time.monotonic() + EFFORT * (time.thread_time() - began)
        alive, waiting = self.transport.alive, status.waiting
        if status.phase == MEETING:
            waiting = tuple(name for name in waiting if not alive.get(name))
        return {
            "round": status.round, "rounds": status.rounds, "budget": status.budget, "phase": status.phase,
            "waiting": waiting, "epsilon": self._priced[1], "priced": self._priced[0] + 1,
            "party": self.agent.name, "pid": os.getpid(), "neighbours": alive, "trouble": self.transport.trouble,
            "updated": time.time(),
        }  # fmt: skip

    def everything(self) -> WholeFacts:
        """What the metrics and the page show."""
        agreement, pace, now = self.agent.agreement, self.agent.pace, dt.datetime.now(dt.UTC)
        days = {name: (end - now).total_seconds() / 86400 for name, end in self._certificates().items()}
        return {
            **self.facts(),
            "plan": agreement.plan.name,
            "plan_hash": agreement.plan_hash.hex(),
            "parties": [p.name for p in agreement.parties],
            "edges": [list(edge) for edge in agreement.edges],
            "delta": self.agent.ledger.budget.delta,
            "idle": pace.idle,
            "round_seconds": list(pace.recent),
            "refusals": [{"about": a, "reason": r, "count": n} for (a, r), n in self._refusals().items()],
            "certificate_days": days,
            "agreement_days": (agreement.valid_until - now).total_seconds() / 86400,
            "ledger_bytes": self._ledger_bytes(),
            "log": list(self.recent.lines),
        }

    def write(self, ended: bool = False) -> None:
        """Renew status.json, in one step."""
        with contextlib.suppress(OSError):
            new = self.state / "status.json.new"
            new.write_text(json.dumps({**self.facts(ended), "ended": ended}), encoding="utf-8")
            new.replace(self.state / "status.json")

    async def forever(self) -> None:
        """Renew file and line, and say what is waited for, from time to time."""
        while True:
            self.write()
            if self.show is not None:
                self.show(line(self.facts()))
            self.tell()
            await asyncio.sleep(EVERY)

    def tell(self) -> None:
        """Into the log: who is waited for, less and less often; how far the run is; whom it has refused."""
        idle, facts = self.agent.pace.idle, self.facts()
        if idle < PATIENCE[0]:
            self._speak = PATIENCE[0]
        if facts["waiting"] and idle >= self._speak:
            self._speak = idle + min(idle, PATIENCE[1])
            log.info("waits for %s since %.0f s; %s", _whom(facts), idle, self._then(), extra={"paced": True})
        if time.monotonic() < self._report:
            return
        self._report = time.monotonic() + REPORT
        if facts["round"] and not facts["waiting"]:
            log.info("round %d of %d, %s", facts["round"], facts["rounds"], _spent(facts))
        self.tell_refusals()

    def _then(self) -> str:
        """What the party does when it has waited for long enough."""
        agent = self.agent
        if agent.leaving:
            return f"leaves when it has waited for {agent.deploy.deadline:g} s (deploy.deadline)"
        if agent.reuse and agent.status.phase != MEETING:
            return f"goes on without it after {agent.deploy.deadline:g} s (deploy.deadline)"
        if isinstance(agent, SumAgent) and (most := agent.sums.terms.dropouts) and agent.status.phase != MEETING:
            return f"goes on without up to {most} parties within {agent.deploy.deadline:g} s (deploy.deadline)"
        return f"gives up after {agent.deploy.patience:g} s (deploy.patience)"

    def tell_refusals(self) -> None:
        """Whom it has refused, how often and why, if there is news of it."""
        refusals = self._refusals()
        if (count := sum(refusals.values())) != self._refused:
            self._refused = count
            self.agent.note("refusals", counts=[f"{a}: {r} ({n})" for (a, r), n in refusals.items()])

    def _refusals(self) -> dict[tuple[str, str], int]:
        return dict(self.transport.refusals.counts)

    def _certificates(self) -> dict[str, dt.datetime]:
        """Until when certificates are valid: the own one, and those that neighbours have shown."""
        own = {self.agent.name: self.transport.keys.identity.certificate.not_valid_after_utc}
        return own | {n: p.expires for n, p in self.transport.peers.items() if p.expires is not None}

    def _ledger_bytes(self) -> int:
        """Size of the ledger and the files beside it, without opening them, which would drop SQLite's locks."""
        path = self.agent.ledger.path
        names = (path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "state0", "state1", "frames")))
        return sum(name.stat().st_size for name in names if name.exists())


def _whom(facts: Facts) -> str:
    trouble = facts.get("trouble", {})
    return ", ".join(f"{name} ({trouble[name]})" if name in trouble else name for name in facts["waiting"])


def _spent(facts: Facts) -> str:
    """ε, with the rounds that it covers if these are not all: it must not look like less than was spent."""
    priced = facts.get("priced", facts["round"])  # absent from the file of an agent that is older
    upto = f" (by round {priced})" if priced < facts["round"] else ""
    return f"ε {facts['epsilon']:.3f} of {facts['budget']:g}{upto}"


def line(facts: Facts) -> str:
    """The status in one line."""
    alive = facts["neighbours"]
    late = f", waiting for {_whom(facts)}" if facts["waiting"] else ""
    return (
        f"{facts['party']}: round {facts['round']}/{facts['rounds']}, {_spent(facts)}, "
        f"{sum(alive.values())}/{len(alive)} neighbours, {facts['phase']}{late}"
    )


def read_status(state: Path) -> Facts:
    """The status of a party that runs, or ran, in this folder; `running` says which, None that it cannot be known."""
    try:
        facts: Facts = json.loads((state / "status.json").read_text(encoding="utf-8"))
    except PermissionError:
        raise InputError(f"cannot read {state}: whether an agent runs there is for its owner to ask") from None
    except (OSError, ValueError):
        raise InputError(f"no agent has run in {state}: there is no status.json") from None
    try:
        os.kill(facts["pid"], 0)
        facts["running"] = not facts["ended"]
    except PermissionError:  # there is such a process, of another user
        facts["running"] = False if facts.get("ended") else None
    except (OSError, KeyError):
        facts["running"] = False
    return facts
