"""Write docs/licences.md: the licence of everything in the locks, from the metadata of what is installed here.

    .venv/bin/python release/licences.py          after `make lock`

A package that is not installed here (one for another system) keeps the line that it had; without one it says so.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
HEAD = """# Licences

coterie is under [Apache-2.0](../LICENSE). What it is installed with has licences of its own, as the packages' metadata
state them. Nothing of theirs is copied into coterie's wheel. `python release/licences.py` writes this page.
"""
PARTS = {"agent": "Every installation and every deployed party", "dev": "Reports, tables, tests and checks"}
UNKNOWN = "not installed where this page was written"
NAMES = {  # what metadata of before SPDX expressions say → SPDX
    "MIT License": "MIT", "Apache Software License": "Apache-2.0", "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0", "Apache License, Version 2.0": "Apache-2.0", "BSD License": "BSD",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "Python Software Foundation License": "PSF-2.0",
}  # fmt: skip


def licence(name: str, version: str) -> str | None:
    """What the metadata of an installed package state; None where this version is not installed."""
    try:
        found = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if found["Version"] != version:
        return None
    stated = found.get("License-Expression") or ""
    classified = [c.rpartition(" :: ")[2] for c in found.get_all("Classifier") or [] if c.startswith("License ::")]
    named = [c for c in classified if c != "OSI Approved"]
    if not stated and named:
        stated = " and ".join(NAMES.get(c, c) for c in named)
    text = (found.get("License") or "").strip()
    if not stated and text:
        stated = text.splitlines()[0] if len(text.splitlines()[0]) < 60 else "see its files"
    return NAMES.get(stated, stated) or "none stated: see its files"


def pins(lock: Path) -> dict[str, str]:
    """Name → version."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text("utf-8"), re.MULTILINE))


def known(page: str) -> dict[tuple[str, str], str]:
    """(name, version) → licence, as the page has them."""
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (\d\S*) \| (.*) \|$", page, re.MULTILINE)
    return {(name, version): stated for name, version, stated in rows}


def page() -> str:
    """The whole page."""
    before = known(PAGE.read_text("utf-8")) if PAGE.exists() else {}
    lines, told = [HEAD], set[str]()
    for part, title in PARTS.items():
        lines += [f"## {title}\n", "| package | version | licence |", "| --- | --- | --- |"]
        for name, version in sorted(pins(ROOT / "locks" / f"{part}.txt").items()):
            if name not in told:
                stated = licence(name, version) or before.get((name, version), UNKNOWN)
                lines.append(f"| {name} | {version} | {' '.join(stated.split()).replace('|', '/')} |")
                told.add(name)
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
