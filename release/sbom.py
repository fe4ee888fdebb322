"""A bill of materials (CycloneDX 1.5, JSON) of what an agent is installed with, from locks/agent.txt.

    .venv/bin/python release/sbom.py [FILE]          `make sbom`; standard output without FILE

The same lock gives the same bytes: there is no date in it, and its serial number is a hash of the rest. Which component
depends on which is taken from the packages installed beside this script, where their version is the locked one.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

ROOT = Path(__file__).parents[1]
_ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+)((?:[^\n]*\\\n)(?:\s+--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def locked(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Name → version and the SHA-256 of each of its files."""
    text = path.read_text(encoding="utf-8")
    return {n: (v, re.findall(r"sha256:([0-9a-f]{64})", rest)) for n, v, rest in _ENTRY.findall(text)}


def bill(lock: Path = ROOT / "locks" / "agent.txt") -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = locked(lock)
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    refs = {name: f"pkg:pypi/{name}@{version}" for name, (version, _) in packages.items()}
    components = [
        {
            "type": "library", "bom-ref": refs[name], "name": name, "version": version, "purl": refs[name],
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        }
        for name, (version, digests) in packages.items()
    ]  # fmt: skip
    direct = [*project["dependencies"], *project["optional-dependencies"]["deploy"]]
    dependencies = [{"ref": own, "dependsOn": sorted(refs[canonical(Requirement(r).name)] for r in direct)}]
    dependencies += [{"ref": refs[n], "dependsOn": _needs(n, v, refs)} for n, (v, _) in packages.items()]
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": own, "name": project["name"], "version": project["version"],
                "purl": own, "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": dependencies,
    }  # fmt: skip
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "serialNumber": f"urn:uuid:{serial}", **body}


def _needs(name: str, version: str, refs: dict[str, str]) -> list[str]:
    try:
        installed = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return []
    asked = [Requirement(text) for text in installed.requires or []] if installed.version == version else []
    here: dict[str, str] = {**default_environment(), "extra": ""}  # type: ignore[dict-item]
    names = {canonical(r.name) for r in asked if r.marker is None or r.marker.evaluate(here)}
    return sorted(refs[n] for n in names if n in refs)


if __name__ == "__main__":
    text = json.dumps(bill(), indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
