"""Where the real data sets are, for the tests that need them."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with the real files, made the one that loaders search."""
    for place in (os.environ.get("COTERIE_DATA"), Path(__file__).parents[3] / "shared" / "data"):
        if place and (Path(place) / "adult_train.csv.gz").is_file():
            monkeypatch.setenv("COTERIE_DATA", str(place))
            return Path(place)
    pytest.skip("needs the real data: set COTERIE_DATA to its directory")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No data anywhere: COTERIE_DATA unset, an empty cache (returned)."""
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "coterie"
