"""Build the pages of every tagged version side by side: `python release/versions.py [FOLDER]`, default: site.

FOLDER/VERSION holds the site of a tag `vVERSION`, FOLDER/next that of what is committed, and FOLDER/index.html leads to
each of them, the newest first. What is built already is left as it is, but for `next`.
"""

from __future__ import annotations

import html
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEXT = "next"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def versions() -> list[str]:
    """Tagged versions, the newest first."""
    tags = git("tag", "--list", "v[0-9]*", "--sort=-version:refname").decode().split()
    return [tag.removeprefix("v") for tag in tags]


def build(commit: str, place: Path) -> None:
    """The site of one commit."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place.absolute())]
        subprocess.run(
            command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": folder, "NO_MKDOCS_2_WARNING": "1"}
        )


def index(names: list[str]) -> str:
    """A page that leads to each version."""
    items = "".join(f'<li><a href="{html.escape(n)}/index.html">{html.escape(n)}</a></li>' for n in names)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark"><title>coterie</title><h1>Versions</h1><ul>{items}</ul>\n'
    )


def main(out: Path) -> None:
    """Build what is missing, and the list."""
    out.mkdir(parents=True, exist_ok=True)
    names = versions()
    for name in names:
        if not (out / name / "index.html").exists():
            build(f"v{name}", out / name)
    shutil.rmtree(out / NEXT, ignore_errors=True)
    build("HEAD", out / NEXT)
    (out / "index.html").write_text(index([*names, NEXT]), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
