"""A certificate is worked out in a process of its own: where that one dies, the party says so in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coterie.deploy import certify
from coterie.errors import InputError
from coterie.plan import validate

DEATHS = {"SIGKILL": "import os; os.kill(os.getpid(), 9)", "exit code 5": "exit(5)"}


@pytest.mark.parametrize(("said", "ends"), DEATHS.items())
def test_a_process_that_dies_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, ends: str) -> None:
    dying = tmp_path / "python"
    dying.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{ends}"\n')
    dying.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(dying))
    with pytest.raises(InputError, match=said) as told:
        certify.unsigned_certificate(validate({}), 0, [], 0, {})
    assert len(told.value.mistakes) == 1
