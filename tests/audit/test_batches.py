"""Batches are drawn by fresh coins alone and have the charged law; whatever else decides them is found."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.base import Algorithm, find
from coterie.audit.batches import _surprise, batches, drawn, explained
from coterie.audit.setting import make_setting
from tests.audit.seeded.batches import BATCHES
from tests.audit.seeded.fault import Fault
from tests.audit.seeded.hunting import config_of, plant

# by what they are found without any statistics, or by which part of the law
WORDS = {
    "one secret batch for all rounds": "round 2: the batch depends on more than the round's own coins",
    "an epoch's shuffle where Poisson batches are charged": "round 2: the batch depends on more",
    "coins flipped by a record's sign": "round 0: with the same draws, the batch depends on what the records say",
    "coins flipped by a record's label": "round 0: with the same draws, the batch depends on what the records say",
    "batches of a fixed size where Poisson batches are charged": "a batch of 0 is drawn",
    "neighbouring records drawn together": "round 0: the batch [",
}


EVERYDAY = (
    "one secret batch for all rounds",
    "coins flipped by a record's sign",
)


def marked(fault: Fault) -> object:
    return pytest.param(fault, id=fault.name, marks=() if fault.name in EVERYDAY else pytest.mark.audit)


@pytest.mark.parametrize("fault", [marked(f) for f in BATCHES if f.name in WORDS])
def test_what_decides_a_batch_is_found(fault: Fault) -> None:
    broken = Algorithm.of(fault.module, plant(fault))
    setting = make_setting(broken, config_of(broken, fault), epsilon=8.0)
    assert WORDS[fault.name] in str(batches(setting))


@pytest.mark.audit
@pytest.mark.parametrize("scheme", ["without-replacement", "poisson"])
def test_our_own_batches_are_as_charged(scheme: str) -> None:
    setting = make_setting(find("dp-dsgd"), find("dp-dsgd").example.replace(batch=2, scheme=scheme), epsilon=8.0)
    assert drawn(setting)
    assert explained(setting)
    assert batches(setting) is None
    assert batches(setting, seed=1) is None


def test_no_batches_are_declared_where_all_records_are_used() -> None:
    assert not drawn(make_setting(find("dp-dsgd"), epsilon=8.0))


def test_chernoff() -> None:
    """A bound on both tails, and none where something is certain."""
    seen = np.array([0.5, 0.55, 0.63, 0.37])
    bound = _surprise(seen, 0.5, 2048)
    assert bound[0] == 1
    assert 1e-6 < bound[1] < 1e-3
    assert bound[2] == pytest.approx(bound[3])
    assert bound[2] < 1e-29
    assert _surprise(np.array([0.0, 1e-3]), 0.0, 10).tolist() == [1.0, 0.0]
