"""From one agreement to the one that amends it: the account goes on, and what was spent is not forgotten.

Parties leave, join, move or get new keys. The plan of the next agreement names the hashes of all that it amends
(`deploy.follows`, written by `coterie plan amend`); its budget is in addition to what was spent under them. When a
party begins it, in this order, each step durable and each harmless to repeat after a crash:

    note       the key folder says that the old agreements are replaced: they do not run again, nor does a second heir
    finish     the old ledger, the latest one as the key folder knows it, is closed for good
    set aside  it goes to `earlier/HASH` of the state folder, with its model and its certificate
    begin      the new ledger is made with every earlier run's charges in it, hashed into its chain

A party that took part must bring its account: one whose key folder knows of a run that is not there is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from coterie.algorithms.base import find
from coterie.deploy.agreement import AGREEMENT, Agreement, unverified
from coterie.deploy.anchor import Anchor, note_amended, refuse_amended, started
from coterie.deploy.files import private_folder
from coterie.deploy.journal import log
from coterie.deploy.ledger import DurableLedger
from coterie.deploy.reading import look, read
from coterie.deploy.records import Book, EarlierRun
from coterie.deploy.storage import sync_folder
from coterie.errors import InputError
from coterie.plan import Plan
from coterie.privacy.accountants import account
from coterie.privacy.codec import from_json
from coterie.privacy.events import Event, Free, NonPrivate
from coterie.privacy.ledger import Budget

__all__ = ["ASIDE", "carry_over", "check_amended", "in_all", "plan_of", "pooled", "refuse_more_curious"]

ASIDE = "earlier"  # folder in the state folder
LEDGER = "ledger.db"
MOVED = (LEDGER, *(f"{LEDGER}-{end}" for end in ("wal", "state0", "state1", "frames")), "model.npz", "certificate.json",
         AGREEMENT, "report.html")  # fmt: skip


def in_all(runs: Sequence[EarlierRun]) -> Budget:
    """What several runs cost a record that was in all of them: their ε at the sum of their δ.

    The sum of their ε always holds; all events together, by the tightest accountant, are less where they can be added.
    """
    delta = sum(run.budget.delta for run in runs)
    plain = sum(run.used for run in runs)
    events = [from_json(row) for run in runs for row in run.events]  # type: ignore[arg-type]
    with contextlib.suppress(InputError):  # of different adjacency
        return Budget(min(plain, account(events, delta, fast=True).epsilon), delta)
    return Budget(plain, delta)


def _refuse_other_neighbours(runs: Sequence[EarlierRun], charges: Iterable[Event]) -> None:
    """One account is of one kind of neighbours: what hides a record says nothing of what hides a function."""
    brought = [from_json(row) for run in runs for row in run.events]  # type: ignore[arg-type]
    was, now = ({e.adjacency for e in events if not isinstance(e, Free | NonPrivate)} for events in (brought, charges))
    if was and now and was != now:
        raise InputError(
            f"the account so far is for neighbours by {', '.join(sorted(was))}, and this agreement for "
            f"{', '.join(sorted(now))}: the two are never added; sign a new agreement that amends none, with another "
            "--state"
        )


def _refuse_other_claim(state: Path, found: Book, runs: Sequence[EarlierRun], agreed: Agreement) -> None:
    """One account is of one unit, as what a record has paid does not say what a person with several has; and against
    one adversary."""
    if not any(run.events for run in runs):
        return
    there = found.meta.plan_hash
    plan = plan_of(found, state)
    if plan is None:
        raise InputError(
            f"{state / AGREEMENT}, which says for whom and against whom {there.hex()[:16]} was priced, is not there: "
            "put that agreement back"
        )
    refuse_more_curious(plan, agreed.plan)
    if plan.by_person != agreed.plan.by_person:
        a, b = (("record", "person")[one.by_person] for one in (plan, agreed.plan))
        raise InputError(
            f"the account so far is for each {a}, and this agreement (data.unit) for each {b}: the two are never "
            "added; sign a new agreement that amends none, with another --state"
        )


def plan_of(found: Book, state: Path) -> Plan | None:
    """The plan that a ledger is for, if its agreement is still there."""
    places = (state, state / ASIDE / found.meta.plan_hash.hex())
    known = [unverified(place / AGREEMENT) for place in places if (place / AGREEMENT).exists()]
    return next((one.plan for one in known if one.plan_hash == found.meta.plan_hash), None)


def pooled(plan: Plan) -> int | None:
    """How many parties may pool what they know, where a plan's claim rests on noise that parties share; None: all."""
    if plan.exchange.central:
        assert plan.deploy is not None
        assert plan.exchange.sums is not None
        assert plan.exchange.sums.honest is not None  # or the plan was refused
        return len(plan.deploy.parties) - plan.exchange.sums.honest
    shared = find(plan.algorithm.name).against is not None
    return int(plan.algorithm.config().curious) if shared else None  # type: ignore[attr-defined]


def refuse_more_curious(before: Plan, after: Plan) -> None:
    """What noise that parties share has cost is its price against so many curious parties: against more it is not
    known, so nothing that is claimed against more is added to it."""
    was, now = pooled(before), pooled(after)
    if was is not None and (now is None or now > was):
        whom = "everybody" if now is None else f"{now}"
        how = "exchange.honest" if before.exchange.central else "algorithm.curious"
        raise InputError(
            f"the account so far is against {was} curious part{'y' if was == 1 else 'ies'} ({how}), and this agreement "
            f"against {whom}: the two are never added; sign a new agreement that amends none, with another --state"
        )


def check_amended(
    keys: Path, state: Path, agreed: Agreement, me: str, charges: Sequence[Event] = ()
) -> tuple[EarlierRun, ...]:
    """What this party brings into an agreement that it has not begun; refuses one that cannot follow. Only reads.

    `charges`: of the agreement, if they are known already.
    """
    own, follows = agreed.plan_hash.hex(), agreed.deploy.follows or []
    refuse_amended(keys, own, follows)
    found = _latest(state, follows)
    if found is not None and found.meta.plan_hash == agreed.plan_hash:
        return ()  # its ledger has them
    if found is not None:
        _follows(found, state, own, follows, me)
        with contextlib.closing(Anchor(keys, found.meta.plan_hash)) as anchor:  # it is the latest, and not in use
            anchor.refuse(state / LEDGER, found.meta.identity, [row.hash for row in found.rows])
    runs = () if found is None or not follows else (*found.earlier, found.run)
    brought = {run.plan_hash for run in runs}
    for known in follows:
        if known not in brought and (place := started(keys, known)) is not None:
            raise InputError(
                f"agreement {own[:16]} amends {known[:16]}, which this party has begun with the ledger at {place}: "
                f"give its folder as --state, {state} does not hold it"
            )
    _refuse_other_neighbours(runs, charges)
    if found is not None:
        _refuse_other_claim(state, found, runs, agreed)
    return runs


def carry_over(
    keys: Path, state: Path, agreed: Agreement, me: str, charges: Sequence[Event] = ()
) -> tuple[EarlierRun, ...]:
    """The same, with the ledger of the agreement before closed for good and set aside."""
    runs = check_amended(keys, state, agreed, me, charges)
    if not agreed.deploy.follows:
        return runs
    own = agreed.plan_hash.hex()
    path = state / LEDGER
    if path.exists() and read(path).meta.plan_hash == agreed.plan_hash:
        return ()
    note_amended(keys, own, agreed.deploy.follows)
    if path.exists():
        _finish(keys, path, own)
        runs = check_amended(keys, state, agreed, me)  # as it was closed
    if runs:
        _set_aside(state, runs[-1].plan_hash)
        spent = in_all(runs)
        log.info("follows agreement %s: ε %.4g at δ %g is spent so far, in %d earlier run%s", runs[-1].plan_hash[:16],
                 spent.epsilon, spent.delta, len(runs), "s" if len(runs) > 1 else "")  # fmt: skip
    return runs


def _latest(state: Path, follows: Sequence[str]) -> Book | None:
    """The ledger in a state folder; where a crash has left none, the one that was set aside last."""
    if (state / LEDGER).exists():
        return read(state / LEDGER)
    for known in reversed(follows):
        if (state / ASIDE / known / LEDGER).exists():
            return read(state / ASIDE / known / LEDGER)
    return None


def _follows(found: Book, state: Path, own: str, follows: Sequence[str], me: str) -> None:
    """Refuse an agreement that does not go on from this ledger's."""
    meta, path = found.meta, state / LEDGER
    if meta.agent != me:
        raise InputError(f"ledger {path} is the account of {meta.agent}, not of {me}")
    there = meta.plan_hash.hex()
    if there in follows:
        return
    past = {run.plan_hash for run in found.earlier}
    if own in past:
        raise InputError(f"agreement {own[:16]} was amended: {path} goes on under {there[:16]}; give that agreement")
    if both := past & set(follows):
        raise InputError(
            f"agreement {own[:16]} amends {both.pop()[:16]}, but {path} goes on from there under {there[:16]}: amend "
            f"{there[:16]} instead"
        )
    raise InputError(
        f"ledger {path} was made for agreement {there[:16]}, which {own[:16]} does not amend: give another --state, or "
        "amend that one (coterie plan amend)"
    )


def _finish(keys: Path, path: Path, own: str) -> None:
    """Close a ledger for good. It must be the latest, and nobody may be at work on it."""
    book, running = look(path)
    if running:
        raise InputError(f"ledger {path} is in use by another process")
    meta = book.meta
    with (
        contextlib.closing(Anchor(keys, meta.plan_hash)) as anchor,
        DurableLedger(
            path, budget=meta.budget, plan_hash=meta.plan_hash, agent=meta.agent, plan=meta.events(), anchor=anchor
        ) as ledger,
    ):
        ledger.finish(f"agreement {own[:16]} follows")


def _set_aside(state: Path, known: str) -> None:
    """Move a closed ledger, and what belongs to it, into a folder of its own.

    All of it is there before anything is gone here, the ledger first. What a crash has left here goes too: the next
    ledger's states have the same names, and would be written into the old ones.
    """
    folder = state / ASIDE / known
    private_folder(state / ASIDE)
    private_folder(folder)
    if (state / LEDGER).exists():
        for name in MOVED:
            if (state / name).exists() and not (folder / name).exists():
                os.link(state / name, folder / name)
        sync_folder(folder)
        sync_folder(state / ASIDE)
    for name in MOVED:
        (state / name).unlink(missing_ok=True)
        if name == LEDGER:
            sync_folder(state)
    sync_folder(state)
