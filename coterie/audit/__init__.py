"""Attacks on our own implementation: every privacy claim is tested on transcripts."""

from coterie.audit.audit import Verdict, audit
from coterie.audit.setting import Attack, Setting, make_setting

__all__ = ["Attack", "Setting", "Verdict", "audit", "make_setting"]
