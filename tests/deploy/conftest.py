"""What the tests of the deployed agent share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.prepared import prepared_once


@pytest.fixture(scope="session", autouse=True)
def _prepared_once() -> Iterator[None]:
    with prepared_once():
        yield
