"""Write locks/*.txt from constraints.txt and pyproject.toml: exact versions, with the SHA-256 of every file of each.

    .venv/bin/python release/lock.py          `make lock`

`pip install --require-hashes -r locks/…` then takes nothing that is not listed here, whatever the index serves. Each
lock holds what its extras need on any of `PLACES`; what only some of these need carries the condition. Hashes come from
the package index that pip is configured for: run this where you trust it, and read the difference before committing.
"""

from __future__ import annotations

import html
import importlib.metadata
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from functools import cache
from pathlib import Path

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FIRST = "agent"  # what an agent needs; the others begin with it, but for the installer's
INSTALLER = "installer"  # what `make` installs the others with, in a tenth of pip's time
LOCKS = {
    FIRST: ("deploy",),
    "dev": ("deploy", "report", "parquet", "dev"),
    "docs": ("deploy", "docs"),
    "extras": ("deploy", "onnx", "flax", "tensorboard", "mlflow", "wandb"),
    INSTALLER: (),
}
ALONE = (FIRST, INSTALLER)  # locks that begin with no other
BUILD = "setuptools"  # with it the project itself is installed, and its wheel built, without asking the index
PLACES = [
    {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0", "sys_platform": system,
     "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system], "platform_machine": machine, "os_name": "posix"}
    for minor in (11, 12, 13, 14)
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]  # fmt: skip


def pins(path: Path = ROOT / "constraints.txt") -> dict[str, str]:
    """Name → version."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def roots(lock: str) -> list[Requirement]:
    """What pyproject.toml asks for, and the tool that builds the project; for the installer's lock, the installer."""
    if lock == INSTALLER:
        return [Requirement("uv")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(r for e in LOCKS[lock] for r in project["optional-dependencies"][e]), BUILD]
    return [Requirement(text) for text in asked]


def closure(wanted: Iterable[Requirement], requires: dict[str, list[Requirement]], place: dict[str, str]) -> set[str]:
    """Names of all that these need at one place."""
    found: set[tuple[str, str]] = set()
    todo = [(r, "") for r in wanted]
    while todo:
        requirement, extra = todo.pop()
        environment: dict[str, str] = {**default_environment(), **place, "extra": extra}  # type: ignore[dict-item]
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        name = canonical(requirement.name)
        for part in ("", *sorted(requirement.extras)):
            if (name, part) not in found:
                found.add((name, part))
                todo += [(r, part) for r in requires[name]]
    return {name for name, _ in found}


class Requires(dict[str, list[Requirement]]):
    """What each pinned package asks for: from the installed one of that version, else from its wheel."""

    def __init__(self, versions: dict[str, str]):
        self.versions = versions

    def __missing__(self, name: str) -> list[Requirement]:
        if name not in self.versions:
            raise SystemExit(f"{name} is needed, and has no version in constraints.txt")
        try:
            installed = importlib.metadata.distribution(name)
            stated = installed.requires if installed.version == self.versions[name] else None
        except importlib.metadata.PackageNotFoundError:
            installed, stated = None, None
        if installed is None or installed.version != self.versions[name]:
            stated = _from_wheel(name, self.versions[name])
        self[name] = [Requirement(text) for text in stated or []]
        return self[name]


def _from_wheel(name: str, version: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, f"{name}=={version}"]
        subprocess.run(command, check=True)
        (file,) = Path(folder).iterdir()
        with zipfile.ZipFile(file) as wheel:
            (path,) = (n for n in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
            return HeaderParser().parsestr(wheel.read(path).decode()).get_all("Requires-Dist") or []


def index() -> str:
    """The index that pip uses."""
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    if asked.returncode == 0:
        return asked.stdout.strip()
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


@cache
def hashes(name: str, version: str, base: str) -> list[str]:
    """SHA-256 of every file of one release."""
    with urllib.request.urlopen(f"{base.rstrip('/')}/{name}/") as answer:
        page = answer.read().decode()
    found = {
        digest
        for file, digest in re.findall(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"', html.unescape(page))
        if version_of(file) == Version(version)
    }
    if not found:
        raise SystemExit(f"the index has no file of {name} {version}")
    return sorted(found)


def version_of(file: str) -> Version | None:
    """The version in a file's name; None for what pip would not install."""
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[1]
        return parse_sdist_filename(file)[1]
    except ValueError:
        return None


def condition(where: list[bool]) -> str:
    """For a package that some places do not need: those that do, as a marker."""
    if all(where):
        return ""
    needed = [p for p, yes in zip(PLACES, where, strict=True) if yes]
    parts = sorted({f"(sys_platform == '{p['sys_platform']}' and python_version == '{p['python_version']}')"
                    for p in needed})  # fmt: skip
    systems = {p["sys_platform"] for p in needed}
    if len(systems) == 1 and all(where[i] for i, p in enumerate(PLACES) if p["sys_platform"] in systems):
        parts = [f"sys_platform == '{systems.pop()}'"]
    return " ; " + str(Marker(" or ".join(parts)))


def lines(lock: str, versions: dict[str, str], requires: Requires, base: str) -> Iterator[str]:
    """One lock."""
    yield "# Made by `make lock` from constraints.txt and pyproject.toml; not to be edited."
    needed = [closure(roots(lock), requires, place) for place in PLACES]
    if lock not in ALONE:
        yield f"-r {FIRST}.txt"
        first = set.union(*(closure(roots(FIRST), requires, place) for place in PLACES))
        needed = [place - first for place in needed]
    for name in sorted(set.union(*needed)):
        yield f"{name}=={versions[name]}{condition([name in place for place in needed])} \\"
        *most, last = hashes(name, versions[name], base)
        yield from (f"    --hash=sha256:{digest} \\" for digest in most)
        yield f"    --hash=sha256:{last}"


if __name__ == "__main__":
    pinned, source = pins(), index()
    known = Requires(pinned)
    for each in LOCKS:
        content = "\n".join(lines(each, pinned, known, source)) + "\n"
        (ROOT / "locks" / f"{each}.txt").write_text(content, encoding="utf-8")
