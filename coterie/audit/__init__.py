"""Attacks on our own implementation: every privacy claim is tested on transcripts."""

from coterie.audit.audit import Verdict, audit
from coterie.audit.losses import Pair
from coterie.audit.setting import Setting, make_setting

__all__ = ["Pair", "Setting", "Verdict", "audit", "make_setting"]
