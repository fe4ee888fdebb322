"""The experiments of `tests.faults.ledger_faults` on a data set's account; the twins are those of its worker."""

from __future__ import annotations

import sys
from pathlib import Path

from coterie.deploy.accounts import DataAccount
from tests.deploy.account_worker import account_violations, draw
from tests.deploy.ledger_worker import REFUSED
from tests.faults.ledger_faults import Subject, run

ACCOUNT = Subject(
    lambda folder, wire, stop, size, twin: draw(folder, wire, stop, twin),
    account_violations,
    lambda folder: len(DataAccount(folder / "c.account", folder / "keeper").contents().draws),
    "96k",
    (REFUSED,),
)

if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(exist_ok=True)
    run(ACCOUNT, sys.argv[1:])
