"""Build the wheel from what is committed, so that everybody who builds this commit gets the same bytes.

    .venv/bin/python release/build_wheel.py [FOLDER] [COMMIT]          `make wheel`; default: dist, HEAD

Dates in it are that of the commit, file modes do not depend on the umask, and nothing that lies about in the working
tree gets in. It is built with the setuptools of locks/agent.txt, which must be installed beside this script.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def build(out: Path, commit: str = "HEAD") -> Path:
    """The wheel of one commit, in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    when = git("show", "-s", "--format=%ct", commit).decode().strip()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "made"
        with tarfile.open(fileobj=io.BytesIO(git("-c", "tar.umask=0022", "archive", commit))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # the first versions of 3.11 lack it
            archive.extractall(source)
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-build-isolation", "--no-cache-dir", "-w", str(made), str(source)],
            check=True, env={**os.environ, "SOURCE_DATE_EPOCH": when},
        )  # fmt: skip
        (wheel,) = made.iterdir()
        (out / wheel.name).write_bytes(wheel.read_bytes())
    return out / wheel.name


if __name__ == "__main__":
    built = build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"), *sys.argv[2:3])
    print(f"{hashlib.sha256(built.read_bytes()).hexdigest()}  {built}")
