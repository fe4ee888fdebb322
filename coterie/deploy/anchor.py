"""What a party's key folder remembers of an agreement: which ledger serves it, and how far that one came.

A ledger alone cannot know that it is the second one: without this, an agreement whose state folders were deleted, or
put back from a backup, at every party would run again, with fresh noise on the same rounds, and ε would be paid twice.
So before its first release a ledger is written into `agreements/` of the key folder, by its random identity, for good;
and after each release, before its bytes may be sent, so are the round and the head of the hash chain. A ledger of
another identity is refused, and so is one that ends before that round or holds another row there.

An agreement may amend others (`deploy.follows`). From the moment that a party begins it, the folder says so in a file
`.follows`: the others do not run again, nor does one that amends them in another way (`refuse_amended`).

Restoring the key folder together with the ledger is noticed by neighbours alone (`DurableLedger.reconcile`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from coterie.deploy.binding import Binding, RolledBack, Words, bound_place
from coterie.deploy.files import write_bytes
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import refuse_network, sync_folder
from coterie.errors import InputError

__all__ = ["Anchor", "RolledBack", "note_amended", "refuse_amended", "started"]

FOLDER = "agreements"
AMENDS = ".follows"


def _words(plan: str) -> Words:
    return Words(
        "ledger", "round", "released", "it says which ledger serves the agreement",
        f"agreement {plan} is in use by another process of this party", ", or sign a new agreement",
    )  # fmt: skip


class Anchor(Binding):
    """The key folder's word on one agreement. Held by one ledger, in one process, at a time.

    Args:
        keys: the party's key folder.
        plan_hash: the agreement's.
    """

    def __init__(self, keys: Path, plan_hash: bytes):
        self._plan = plan_hash.hex()[:16]
        super().__init__(keys / FOLDER / f"{plan_hash.hex()}.ledger", _words(self._plan))
        if not self.identity and keys.is_dir():
            folder = self.path.parent
            if not _is_writable(folder if folder.is_dir() else keys):
                raise InputError(f"{keys} cannot be written: which ledger serves an agreement is noted there")

    def _another(self, file: Path, there: bool) -> str:
        what = "is another one" if there else "does not exist"
        return (
            f"agreement {self._plan} has been started with ledger {self.identity[:8]} at {self.place}, and {file} "
            f"{what}: a second ledger would pay its ε again; give that one, or sign a new agreement"
        )


# ---- agreements that amend others ------------------------------------------------------------------------------------


def started(keys: Path, plan_hash: str) -> str | None:
    """Where the ledger lies of an agreement under which these keys have released something; None: there is none."""
    return bound_place(keys / FOLDER / f"{plan_hash}.ledger", _words(plan_hash[:16]))


def refuse_amended(keys: Path, plan_hash: str, follows: Sequence[str]) -> None:
    """Refuse an agreement that another one, which this party has begun, has replaced; and a second one of its kind."""
    for path in sorted((keys / FOLDER).glob(f"*{AMENDS}")):
        try:
            other, chain = path.stem, [str(known) for known in json.loads(path.read_bytes())]
        except (OSError, ValueError, TypeError):
            raise Damaged(f"{path} is damaged: it says which agreements were amended") from None
        if plan_hash in chain:
            raise InputError(
                f"agreement {plan_hash[:16]} was amended, and this party has begun {other[:16]}, which follows it: "
                "give that agreement"
            )
        if other != plan_hash and other not in follows and (both := set(chain) & set(follows)):
            raise InputError(
                f"agreement {plan_hash[:16]} amends {both.pop()[:16]}, and so does {other[:16]}, which this party has "
                f"begun: two ways on from one agreement; amend {other[:16]} instead"
            )


def note_amended(keys: Path, plan_hash: str, follows: Sequence[str]) -> None:
    """Note, durably, that this agreement takes the place of those that it follows."""
    folder = keys / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        refuse_network(folder)
        write_bytes(folder / f"{plan_hash}{AMENDS}", json.dumps(list(follows)).encode(), private=True)
        sync_folder(folder)
        sync_folder(keys)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
