"""What a party was charged, written down for others: in a process of its own, since it prices the whole plan again.

    python -m coterie.deploy.certify < what was charged > the certificate, not yet signed

It is given public things only: the plan, the party's node, its ledger's charges and the hash of its model. The party
itself signs, with a key that never leaves its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coterie.errors import InputError
from coterie.plan import Plan
from coterie.privacy.ledger import Entry

__all__ = ["unsigned_certificate"]


def unsigned_certificate(
    plan: Plan, node: int, entries: Sequence[Entry], again: int, files: Mapping[str, str]
) -> dict[str, object]:
    """The content of a deployed party's certificate.json (`coterie.report.certificate`), worked out elsewhere.

    `again`: with secret sums, the masked vectors beyond one per round that it sent.
    """
    given = pickle.dumps((plan, node, list(entries), again, dict(files)))
    # -P: no module from the folder that the party was started in; this very package instead
    here = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
    command = [sys.executable, "-P", "-m", "coterie.deploy.certify"]
    with _undisturbed():
        done = subprocess.run(command, input=given, stdout=subprocess.PIPE, check=False, env=surroundings)
    if done.returncode:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        raise InputError(
            f"the process that works out the certificate ended by {how}; the model is stored, and nothing more is "
            "sent: start the agent again for its certificate"
        )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Processes started in here are not asked to stop: a terminal and systemd ask all of them, and this one is soon
    done. The party has its model, and is to end as one that is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> None:
    """Read what was charged from standard input, write the certificate to standard output."""
    from coterie.deploy.terms import Terms
    from coterie.report.certificate import SECURE, certificate

    plan, node, entries, again, files = pickle.load(sys.stdin.buffer)
    terms = Terms.of(plan)
    if terms.sum is not None and terms.sum.shared:  # all rounds, whether the party was in each sum or not
        body = certificate(plan, terms.network, terms.priced, noise=SECURE, retried={node: again}, files=files)
    else:
        charged = {node: terms.charged(entries)}
        body = certificate(plan, terms.network, terms.priced, noise=SECURE, charged=charged, files=files)
    json.dump(body, sys.stdout)


if __name__ == "__main__":
    main()
