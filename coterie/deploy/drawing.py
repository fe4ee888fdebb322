"""A deployed party draws on its data set's account: the agreement's whole charge, once, before its first release.

The draw's key is the agreement's hash and the party's name, so a restart finds it paid. An agreement that amends others
goes on where they ended: they are settled at what their ledgers have sent, closed for good as those are, and the new
plan is drawn, in one transaction. What they sent before there was an account is drawn then too.

Where parties share noise, one account pays for one of them: what a person moves at two adds up before it is hidden, and
an account adds draws as if each had noise of its own. An account against everybody is drawn for that own noise.

The key folder notes, beside the agreement's ledger, which account was drawn on. From then on the agreement, and those
that follow it, do not start without that account, with another one, or with an old copy that does not hold the draw.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coterie.data.fingerprint import fingerprint, grouping
from coterie.deploy.accounts import DataAccount, Draw, RolledBack, Settled, agreement_key, unit_of
from coterie.deploy.agreement import Agreement
from coterie.deploy.anchor import FOLDER
from coterie.deploy.apart import apart
from coterie.deploy.files import write_bytes
from coterie.deploy.keys import PartyKeys
from coterie.deploy.records import EarlierRun
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import sync_folder
from coterie.deploy.succession import pooled
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.plan import Plan
from coterie.privacy.codec import from_json
from coterie.privacy.events import Event
from coterie.privacy.lifetime import Lifetime

__all__ = ["Drawing", "need_account", "need_one_end"]

NOTE = ".account"


class Drawing(NamedTuple):
    """What a party is about to draw; `check` says whether it would be refused, `draw` does it."""

    account: DataAccount
    agreement: Agreement
    keys: PartyKeys
    turns: Turns
    mark: bytes  # of the records
    whose: bytes  # and of which are one person's, where people are the unit

    @classmethod
    def of(cls, account: DataAccount, agreed: Agreement, keys: PartyKeys, turns: Turns, data: Path) -> Drawing:
        """Reads the records, for their fingerprint, in a process of its own."""
        key, plan = account.key(), agreed.plan

        def marks() -> tuple[bytes, bytes]:
            whose = grouping(key, data, plan.data.person or "people") if plan.by_person else b""
            return fingerprint(key, data), whose

        return cls(account, agreed, keys, turns, *apart(marks))

    @property
    def key(self) -> str:
        """One draw for each party of an agreement."""
        return agreement_key(self.agreement.plan_hash.hex(), self.keys.name)

    def check(self, earlier: Sequence[EarlierRun]) -> Draw | None:
        """Refuse what `draw` would, before anything is written; the draw, if it was made before."""
        rules = self._rules()
        return self.account.check(
            self._events(rules), key=self.key, by=self._names, mark=self.mark, unit=unit_of(self.agreement.plan),
            settle=self._settled(rules, earlier), whose=self.whose,
        )  # fmt: skip

    def draw(self, earlier: Sequence[EarlierRun]) -> Draw:
        """Draw, and note it in the key folder; when this returns, rounds may be released."""
        plan, rules = self.agreement.plan, self._rules()
        made = self.account.charge(
            self._events(rules), what=f"agreement {self.agreement.plan_hash.hex()[:16]}, {plan.name}",
            kind="agreement", key=self.key, by=self._names, mark=self.mark, unit=unit_of(plan),
            settle=self._settled(rules, earlier), whose=self.whose,
        )  # fmt: skip
        self._rules()  # again: the other end may have drawn in the same moment
        identity = self.account.contents().meta.identity
        _note(self.keys.folder, self.agreement.plan_hash.hex(), identity, self.account.path)
        return made

    def _rules(self) -> Lifetime:
        """The account's, if it may pay for this party."""
        need_one_end(self.account, self.agreement.plan, self.agreement.plan_hash.hex(), self.keys.name)
        return self.account.contents().rules

    @property
    def _names(self) -> list[str]:
        return [self.keys.name, self.keys.identity.frame_key.hex()]

    def _events(self, rules: Lifetime) -> list[Event]:
        """The whole charge, against whom the account is."""
        sharing, alone = self.turns.sharing, self.turns.alone
        if rules.against == "everybody" and alone is not None:
            return alone
        if rules.against == "everybody" and sharing is not None and sharing.central:
            dearest = max(sharing.local, key=lambda event: rules.price([event], unit_of(self.agreement.plan)))
            return [*sharing.local, *[dearest] * sharing.again]
        return [event for round in self.turns.charges for event in round]

    def _settled(self, rules: Lifetime, earlier: Sequence[EarlierRun]) -> list[Settled]:
        own = self.agreement.plan_hash.hex()[:16]
        if rules.against == "everybody":  # a ledger's charges are for what the agreement claims, which may be less
            drawn = self.account.contents().draws
            for run in earlier:
                if agreement_key(run.plan_hash, self.keys.name) not in drawn:
                    raise InputError(
                        f"agreement {run.plan_hash[:16]} was run before account {self.account.path}, whose total is "
                        "against everybody: what its rounds cost then is not in its ledger"
                    )
            return []
        return [
            Settled(
                agreement_key(run.plan_hash, self.keys.name),
                [from_json(row) for row in run.events],  # type: ignore[arg-type]
                f"agreement {run.plan_hash[:16]}", f"agreement {own} follows",
            )
            for run in earlier
        ]  # fmt: skip


def need_one_end(account: DataAccount, plan: Plan, plan_hash: str, me: str) -> None:
    """Refuse an account that has paid for another party of the same agreement, where parties share noise."""
    found, start = account.contents(), agreement_key(plan_hash, "")
    if found.rules.against == "everybody" or pooled(plan) is None:
        return
    paid = {key.partition(start)[2] for key in found.draws if start in key}  # those of a closed account bear its name
    if other := sorted(paid - {me}):
        raise InputError(
            f"account {account.path} has paid for {other[0]} in agreement {plan_hash[:16]}, whose parties share noise: "
            f"what a person moves at two costs more than both draws; {me} needs another account, or one against "
            "everybody"
        )


def need_account(keys: PartyKeys, agreed: Agreement, account: DataAccount | None) -> None:
    """Refuse to start without the account that this agreement, or one it amends, has drawn on; or with another."""
    for known in (agreed.plan_hash.hex(), *(agreed.deploy.follows or ())):
        path = keys.folder / FOLDER / f"{known}{NOTE}"
        if not path.exists():
            continue
        try:
            noted = json.loads(path.read_bytes())
            identity, place = str(noted["account"]), str(noted["place"])
        except (OSError, ValueError, KeyError, TypeError):
            raise Damaged(f"{path} is damaged: it says on which account the agreement draws") from None
        if account is None:
            raise InputError(f"agreement {known[:16]} has drawn on the account at {place}: give it as --account")
        found = account.contents()
        if found.meta.identity != identity:
            raise InputError(
                f"agreement {known[:16]} has drawn on the account at {place}, and {account.path} is another one"
            )
        if agreement_key(known, keys.name) not in found.draws:
            raise RolledBack(
                f"account {account.path} does not hold the draw of agreement {known[:16]}, which was made: it was "
                "restored from an old copy, or is another copy; put the latest one back"
            )


def _note(keys: Path, plan_hash: str, identity: str, place: Path) -> None:
    folder = keys / FOLDER
    path = folder / f"{plan_hash}{NOTE}"
    if path.exists():
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        content = json.dumps({"format": "coterie draw 1", "account": identity, "place": str(place)})
        write_bytes(path, content.encode(), private=True)
        sync_folder(folder)
        sync_folder(keys)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None
