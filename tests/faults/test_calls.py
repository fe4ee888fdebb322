"""What an agent asks of the system, seen by strace: nothing that its service forbids, and no stranger."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_service import Rehearsal, unit


@pytest.mark.faults
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_an_agent_uses_no_system_call_and_calls_nobody_beyond_what_is_allowed(
    tmp_path: Path,
) -> None:
    """One of three agents under strace, against systemd's own list of calls and the agreement's of addresses."""
    rehearsal, trace = Rehearsal(tmp_path), tmp_path / "trace"
    prefix = {"lake": ["strace", "-f", "-qq", "-o", str(trace)]}
    assert rehearsal.run(prefix) == [0, 0, 0], rehearsal.errors()
    used = set(re.findall(r"^\d+\s+(\w+)\(", trace.read_text(), re.MULTILINE))
    assert {"sendto", "fdatasync"} & used
    places = re.findall(r"connect\(\d+, \{sa_family=AF_INET6?, [^}]*htons\((\d+)\).*inet_\w+\(.*?\"([^\"]+)\"",
                        trace.read_text())  # fmt: skip
    called = {(host.removeprefix("::ffff:"), port) for port, host in places}
    assert called == {("127.0.0.1", port) for port in rehearsal.ports.values()}
    groups = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    lists = {
        block.splitlines()[0].strip(): {w for line in block.splitlines()[1:] if (w := line.split("#")[0].strip())}
        for block in groups.split("\n\n") if block.startswith("@")
    }  # fmt: skip

    def calls(name: str) -> set[str]:
        return set().union(*(calls(word) if word.startswith("@") else {word} for word in lists[name]))

    assert unit()["Service"]["SystemCallFilter"] == "@system-service"
    assert used - calls("@system-service") == set()
