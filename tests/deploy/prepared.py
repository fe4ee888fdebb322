"""A party that is opened again and again is priced and compiled once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from coterie.deploy import process
from coterie.deploy.terms import Terms
from coterie.deploy.work import Turns
from coterie.plan import Plan


@contextmanager
def prepared_once() -> Iterator[None]:
    """`open_party` prepares a node from the plan alone, half a second each time: the same plan, the same node, once."""
    kept: dict[tuple[str, int], Turns] = {}

    def compiled(plan: Plan, node: int) -> Turns:
        key = json.dumps(plan.as_json(), sort_keys=True), node
        if key not in kept:
            kept[key] = Turns.of(Terms.of(plan), node).compiled()
        return kept[key]

    def turns(plan: Plan, node: int) -> SimpleNamespace:
        return SimpleNamespace(compiled=lambda: compiled(plan, node))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "Terms", SimpleNamespace(of=lambda plan: plan))
        patch.setattr(process, "Turns", SimpleNamespace(of=turns))
        yield
