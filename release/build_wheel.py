"""Build wheel or sdist from what is committed; of the wheel everybody who builds this commit gets the same bytes.

    .venv/bin/python release/build_wheel.py [--sdist] [FOLDER] [COMMIT]          `make wheel`; default: dist, HEAD

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


def build(out: Path, commit: str = "HEAD", sdist: bool = False) -> Path:
    """The wheel, or the sources that one is built from, of one commit, in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    when = git("show", "-s", "--format=%ct", commit).decode().strip()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "made"
        with tarfile.open(fileobj=io.BytesIO(git("-c", "tar.umask=0022", "archive", commit))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # the first versions of 3.11 lack it
            archive.extractall(source)
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
                 "--no-build-isolation", "--no-cache-dir", "-w", str(made), str(source)]  # fmt: skip
        hook = f"from setuptools import build_meta; build_meta.build_sdist({str(made)!r})"
        made.mkdir()
        subprocess.run(
            [sys.executable, "-c", hook] if sdist else wheel, check=True, cwd=source,
            stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": when},
        )  # fmt: skip
        (built,) = made.iterdir()
        (out / built.name).write_bytes(built.read_bytes())
    return out / built.name


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--sdist"]
    built = build(Path(given[0] if given else "dist"), *given[1:2], sdist="--sdist" in sys.argv)
    print(f"{hashlib.sha256(built.read_bytes()).hexdigest()}  {built}")
