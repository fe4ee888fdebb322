"""A party's numbers in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from coterie.deploy.tally import BUCKETS, RoundTimes

if TYPE_CHECKING:
    from coterie.deploy.watch import WholeFacts

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def exposition(facts: WholeFacts, pace: RoundTimes) -> str:
    """The metrics of one party, from what `Watch.everything` says and how long its rounds took."""
    waiting = set(facts["waiting"])
    return "".join(
        (
            _family("coterie_round", "gauge", "rounds sent and charged", facts["round"]),
            _family("coterie_rounds", "gauge", "rounds of the plan", facts["rounds"]),
            _histogram("coterie_round_seconds", "from one message sent to the next", pace),
            _family("coterie_seconds_since_progress", "gauge", "since a message was sent or came", facts["idle"]),
            _family("coterie_waiting", "gauge", "1: this party is waited for; of a sum also one that is no neighbour",
                    [({"party": n}, n in waiting) for n in dict.fromkeys((*facts["neighbours"], *facts["waiting"]))]),
            _family("coterie_neighbour_connected", "gauge", "1: this neighbour is connected",
                    [({"neighbour": n}, up) for n, up in facts["neighbours"].items()]),
            _family("coterie_refusals_total", "counter", "who was refused, and why",
                    [({"about": r["about"], "reason": r["reason"]}, r["count"]) for r in facts["refusals"]]),
            _family("coterie_certificate_days_left", "gauge", "of this party and of neighbours, as last shown",
                    [({"party": n}, days) for n, days in facts["certificate_days"].items()]),
            _family("coterie_agreement_days_left", "gauge", "until the agreement ends", facts["agreement_days"]),
            _family("coterie_epsilon_spent", "gauge", "ε spent, at δ", facts["epsilon"]),
            _family("coterie_epsilon_rounds", "gauge", "rounds that ε spent is for", facts["priced"]),
            _family("coterie_epsilon_left", "gauge", "ε left, at δ", max(0.0, facts["budget"] - facts["epsilon"])),
            _family("coterie_epsilon_budget", "gauge", "ε that was agreed on", facts["budget"]),
            _family("coterie_delta", "gauge", "δ that was agreed on", facts["delta"]),
            _family("coterie_ledger_bytes", "gauge", "the ledger and the states beside it", facts["ledger_bytes"]),
        )
    )  # fmt: skip


def _family(name: str, kind: str, about: str, values: float | Sequence[Sample]) -> str:
    samples = [({}, values)] if isinstance(values, int | float) else values
    return _head(name, kind, about) + "".join(_line(name, *sample) for sample in samples)


def _histogram(name: str, about: str, pace: RoundTimes) -> str:
    out, below = _head(name, "histogram", about), 0
    for edge, count in zip((*BUCKETS, math.inf), pace.counts, strict=True):
        below += count
        out += _line(f"{name}_bucket", {"le": _number(edge)}, below)
    return out + _line(f"{name}_sum", {}, pace.total) + _line(f"{name}_count", {}, below)


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}\n" if shown else f"{name} {_number(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))
