"""Own: a function that was handed to `ct.train(adaptive=…)`; a plan names one as package.module."""

from __future__ import annotations

from coterie.errors import InputError
from coterie.privacy.adaptive import Rule


def make() -> Rule:
    """There is none here."""
    raise InputError("privacy.adaptive = 'own' is a function given to ct.train: in a plan name it as package.module")
