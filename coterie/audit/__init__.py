"""Attacks on our own implementation: every privacy claim is tested on transcripts.

The package can be called: `ct.audit(ct.dp_dsgd(), ct.logistic())` is `coterie.audit.claims.attack_task`.

    >>> import coterie as ct
    >>> ct.audit(ct.dp_dsgd(), ct.logistic(), trials=250).holds  # doctest: +SKIP
    True
"""

import sys
from types import ModuleType

from coterie.audit.audit import Verdict, audit
from coterie.audit.checks import Evidence, Finding, examine, gather
from coterie.audit.claims import Found, attack_task
from coterie.audit.losses import Pair
from coterie.audit.sequential import Sequential, sequential
from coterie.audit.setting import Setting, make_setting

__all__ = [
    "Evidence",
    "Finding",
    "Found",
    "Pair",
    "Sequential",
    "Setting",
    "Verdict",
    "attack_task",
    "audit",
    "examine",
    "gather",
    "make_setting",
    "sequential",
]


class _Callable(ModuleType):
    """`coterie.audit` is this package, which importing any part of it binds to that name: so it answers calls too."""

    __call__ = staticmethod(attack_task)


sys.modules[__name__].__class__ = _Callable
