"""What is checked before a draw on an account is written, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coterie.deploy.account_rows import Contents, Draw
from coterie.errors import InputError
from coterie.privacy.events import Event, Free
from coterie.privacy.ledger import Allowance, BudgetExceeded
from coterie.privacy.lifetime import DrawCost, Unit

__all__ = ["DrawStep", "Settled", "checked_name", "need_keeper", "need_open", "same_draw", "steps_of", "taken_over"]


class Settled(NamedTuple):
    """What was released for a draw that has ended for good."""

    key: str
    events: Sequence[Event]
    what: str  # words for people
    why: str


def checked_name(name: object) -> str:
    """The name of somebody who may draw, if it is one line of text."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise InputError(f"who may draw is named by text of one line, got {name!r}")
    return name


def same_draw(
    found: Contents, key: str, events: Sequence[Event], path: Path, by: Sequence[str], mark: str, unit: Unit,
    whose: str = "",
) -> Draw | None:  # fmt: skip
    """The draw of this key, if there is one; refused where it was for anything else, so that it pays for nothing more.

    Whoever drew may no longer be allowed to, and the account may be closed: what was drawn stays drawn.
    """
    draw = found.draws.get(key)
    if draw is None:
        return None
    if draw.settled is not None:
        raise InputError(f"account {path}: {draw.what} has ended for good ({draw.settled}), and draws nothing any more")
    if draw.by not in by:
        raise InputError(f"account {path}: {draw.what} was drawn by {draw.by}, not by {' or '.join(by)}")
    if draw.unit != unit:
        raise InputError(f"account {path}: {draw.what} was drawn for each {draw.unit}, not for each {unit}")
    if draw.mark != mark:
        raise InputError(f"account {path}: {draw.what} was drawn for other records, and pays for none but those")
    _need_same_people(draw, path, whose)
    if draw.epoch < found.start:
        raise InputError(
            f"account {path}: {draw.what} was drawn in epoch {draw.epoch}, whose records are not drawn for any more "
            f"since epoch {found.start}"
        )
    paid = [event for event in events if not isinstance(event, Free)]
    try:  # the numbers may have been computed anew, with another rounding
        Allowance(draw.events, found.rules.budget.delta).price(paid)
    except BudgetExceeded as error:
        raise InputError(f"account {path}: {draw.what} was drawn for other events: {error}") from None
    return draw


def need_keeper(found: Contents, path: Path, by: str) -> None:
    """Only whoever opened an account, or may draw on it, may change it."""
    if found.closed is not None:
        raise InputError(f"account {path} is closed for good: {found.closed}")
    if by != (keeper := found.epochs[0].by) and by not in found.holders:
        raise InputError(f"account {path} is kept by {keeper}, not by {by}")


def _need_same_people(draw: Draw, path: Path, whose: str) -> None:
    """Refuse to say otherwise whose records these are: a price for each person is right for one of the two."""
    if whose and draw.whose not in ("", whose):
        raise InputError(
            f"account {path}: {draw.what} was drawn with the same records being other people's, and one of the two is "
            "wrong: whose a record is does not change"
        )


def need_open(found: Contents, path: Path, by: Sequence[str], mark: str, whose: str = "") -> None:
    """Refuse a draw on a closed account, by somebody who may not draw, or for other records or people."""
    if found.closed is not None:
        raise InputError(f"account {path} is closed for good: {found.closed}")
    if not set(by) & set(found.holders):
        raise InputError(f"account {path}: {' or '.join(by)} may not draw; {', '.join(found.holders) or 'nobody'} may")
    if mark not in found.known:
        known = ", ".join(found.known.values())
        raise InputError(
            f"account {path} is for other records ({known}): if they have changed, say so by `coterie account epoch`, "
            "in Python by `epoch`"
        )
    for draw in found.draws.values():
        if draw.mark == mark:
            _need_same_people(draw, path, whose)


class DrawStep(NamedTuple):
    """One part of a charge: a draw, or a draw that is settled."""

    key: str
    events: list[Event]
    cost: DrawCost
    settles: bool = False
    what: str = ""
    why: str = ""


def steps_of(
    found: Contents, key: str, events: Sequence[Event], unit: Unit, settle: Sequence[Settled]
) -> list[DrawStep]:  # fmt: skip
    """What a charge writes; `BudgetExceeded` if it does not fit."""
    rules, steps, spent = found.rules, [], found.spent
    for ended in settle:
        used = [event for event in ended.events if not isinstance(event, Free)]
        known = found.draws.get(ended.key)
        if known is None:  # released before it was told of the account
            cost = rules.price(used, unit)
            spent = spent + cost
            steps.append(DrawStep(ended.key, used, cost, False, ended.what, ended.why))
        elif known.settled is None:
            price = rules.price(used, known.unit)
            cost = DrawCost(min(price.units, known.cost.units), min(price.slack, known.cost.slack))
            if known.epoch >= found.start:
                spent = DrawCost(
                    spent.units - known.cost.units + cost.units, spent.slack - known.cost.slack + cost.slack
                )
            steps.append(DrawStep(ended.key, used, cost, True, ended.what, ended.why))
    paid = [event for event in events if not isinstance(event, Free)]
    own = rules.price(paid, unit)
    rules.need(spent, own, found.meta.limit)
    return [*steps, DrawStep(key, paid, own)]


def taken_over(found: Contents, old: Contents, path: Path) -> list[tuple[Draw, DrawCost]]:
    """What an account that was closed has paid for records that are drawn for here: it stays paid.

    Priced by the rules of this account; an InputError where it does not fit, or cannot be compared.
    """
    if found.rules.against == "everybody" != old.rules.against:
        raise InputError(
            f"{path} is to hold against everybody, and the closed account {old.meta.name}, of the same records, did not"
        )
    taken, spent = [], found.spent
    for draw in old.draws.values():
        try:
            cost = found.rules.price(draw.events, draw.unit)
            found.rules.need(spent, cost, found.meta.limit)
        except (InputError, BudgetExceeded) as error:
            raise InputError(
                f"the closed account {old.meta.name} has paid for these very records, and that counts here: "
                f"{draw.what}: {error}"
            ) from None
        spent = spent + cost
        taken.append((draw, cost))
    return taken
