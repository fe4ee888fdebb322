"""Attacks on our own implementation: every privacy claim is tested on transcripts."""

from coterie.audit.audit import Verdict, audit
from coterie.audit.checks import Evidence, Finding, examine, gather
from coterie.audit.losses import Pair
from coterie.audit.sequential import Sequential, sequential
from coterie.audit.setting import Setting, make_setting

__all__ = [
    "Evidence",
    "Finding",
    "Pair",
    "Sequential",
    "Setting",
    "Verdict",
    "audit",
    "examine",
    "gather",
    "make_setting",
    "sequential",
]
