"""Sums between deployed parties: what is opened, what is charged, and what crashes change of it: nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.deploy.ledger import read
from coterie.privacy.events import Free
from tests.deploy.shared_house import ROUNDS, SharedHouse, SharedSetting, shared_plan

PARTIES = 5


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> SharedSetting:
    plan = shared_plan(PARTIES, exchange={"noise": "central", "honest": 4, "threshold": 4})
    return SharedSetting(plan, tmp_path_factory.mktemp("shared") / "trial")


def test_a_ring_opens_the_sum_of_all_with_their_layers_of_noise(setting: SharedSetting, tmp_path: Path) -> None:
    house = SharedHouse(setting, tmp_path)
    house.run()
    for name, agent in house.agents.items():
        for t in range(ROUNDS):
            outcome = agent.sums.outcome(t)
            assert outcome is not None
            assert outcome.members == tuple(range(PARTIES))
            assert outcome.checked
    models = np.stack([house.models[n] for n in setting.names])
    assert np.array_equal(models, np.broadcast_to(models[0], models.shape))
    for name in setting.names:
        book = read(house.state[name] / "ledger.db")
        assert len(book.rows) == ROUNDS
        assert not any(isinstance(e.event, Free) for e in book.entries)
