"""The account of a data set in calls from Python: what may be given as one, and what a fit draws from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from coterie.api.given import of
from coterie.deploy.accounts import DataAccount, Draw
from coterie.errors import InputError
from coterie.privacy.events import Event
from coterie.privacy.lifetime import Unit

__all__ = ["ACCOUNT", "as_account", "draw_fit", "need_unseeded"]

ACCOUNT = of("a ct.DataAccount or the path of one", DataAccount, str, os.PathLike)


def as_account(given: DataAccount | str | Path | None) -> DataAccount | None:
    """The account that was given, by itself or by its path."""
    if not (given is None or ACCOUNT.fits(given)):
        raise InputError(f"account must be {ACCOUNT.words}, got {given!r}")
    return given if given is None or isinstance(given, DataAccount) else DataAccount(given)


def need_unseeded(account: DataAccount | None, seed: object, name: str = "seed") -> None:
    """Refuse a release that an account is to pay for with noise that somebody may know."""
    if account is not None and seed is not None:
        raise InputError(
            f"{name} = {seed!r}: whoever knows the seed can take the noise off, and no account can pay for that; leave "
            "it out, and it comes from the operating system"
        )


def draw_fit(
    account: DataAccount, several: Sequence[Sequence[Event]], data: object, what: str, unit: Unit, *,
    apart: bool = False, people: object = None,
) -> Draw:  # fmt: skip
    """Draw what a fit costs whoever it costs most.

    A record is at one party, so its price is that of the party that pays most. A person may be at all of them, and then
    pays at each; `apart`: the call has dealt people out itself, each to one. `people`: whose each record is.
    """
    alone = unit == "record" or apart
    rules = account.contents().rules
    events = rules.dearest(several, unit) if alone else [event for events in several for event in events]
    return account.charge(events, what=what, kind="fit", data=data, unit=unit, people=people)
