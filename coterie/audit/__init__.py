"""Attacks on our own implementation: every privacy claim is tested on transcripts."""

from coterie.audit.audit import Setting, Verdict, audit, make_setting

__all__ = ["Setting", "Verdict", "audit", "make_setting"]
