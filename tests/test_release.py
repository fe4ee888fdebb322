"""What is installed, and what is handed out: locks, the bill of materials, the wheel."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

ROOT = Path(__file__).parents[1]


def script(name: str) -> ModuleType:
    """release/NAME.py."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock, sbom, licences = script("lock"), script("sbom"), script("licences")


def locked(name: str) -> dict[str, str]:
    """Versions in a lock, with those of the lock that it begins with."""
    own = {package: version for package, (version, _) in sbom.locked(ROOT / "locks" / f"{name}.txt").items()}
    return own if name in lock.ALONE else locked(lock.FIRST) | own


@pytest.mark.parametrize("name", list(lock.LOCKS))
def test_a_lock_holds_the_tested_versions_of_all_that_is_asked_for(name: str) -> None:
    found, tested = locked(name), lock.pins()
    assert found == {package: tested[package] for package in found}
    asked = {canonical(requirement.name): requirement.specifier for requirement in lock.roots(name)}
    assert all(found[package] in versions for package, versions in asked.items())
    assert {lock.BUILD} & set(found) == ({lock.BUILD} if name != lock.INSTALLER else set())


def test_a_lock_is_closed_for_what_is_installed_here() -> None:
    """Whatever a locked package asks for at any place is locked too, for `pip --require-hashes` would refuse it."""
    found, looked_at, here_and_now = locked("dev"), 0, default_environment()
    places = [{**here_and_now, **place} for place in lock.PLACES]
    for package, version in found.items():
        try:
            here = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if here.version != version:
            continue
        looked_at += 1
        asked = [Requirement(text) for text in here.requires or [] if "extra ==" not in text]
        for place in places:
            needed = {canonical(r.name) for r in asked if r.marker is None or r.marker.evaluate(place)}
            assert needed <= set(found), f"{package} at {place}"
    assert looked_at > 30


def test_every_line_of_a_lock_is_a_pin_with_hashes_or_one_of_its_hashes() -> None:
    for name in lock.LOCKS:
        text = (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")
        entries = sbom.locked(ROOT / "locks" / f"{name}.txt")
        hashes = re.findall(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$", text, re.MULTILINE)
        pins = re.findall(r"^\S+==\S+(?: ; [^\\]*)? \\$", text, re.MULTILINE)
        other = [line for line in text.splitlines() if not line.startswith(("#", "    --hash", f"-r {lock.FIRST}"))]
        assert len(hashes) == sum(len(digests) for _, digests in entries.values())
        assert len(pins) == len(entries) == len(other)
        assert "://" not in text  # no index addresses: where to install from is for whoever installs


def test_what_only_some_places_need_is_marked() -> None:
    """A package for one system only, and one that is needed everywhere."""
    asked = {"tool": [Requirement("mac; sys_platform == 'darwin'"), Requirement("always")], "mac": [], "always": []}
    needed = [lock.closure([Requirement("tool")], asked, place) for place in lock.PLACES]
    conditions = {name: lock.condition([name in place for place in needed]) for name in asked}
    assert conditions == {"tool": "", "always": "", "mac": ' ; sys_platform == "darwin"'}


def test_the_bill_of_materials_lists_the_lock_and_is_the_same_every_time() -> None:
    bill, entries = sbom.bill(), sbom.locked(ROOT / "locks" / "agent.txt")
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert {(c["name"], c["version"]) for c in bill["components"]} == {(n, v) for n, (v, _) in entries.items()}
    assert all(len(h["content"]) == 64 for c in bill["components"] for h in c["hashes"])
    refs = {c["bom-ref"] for c in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {d["ref"] for d in bill["dependencies"]} == refs
    assert {ref for d in bill["dependencies"] for ref in d["dependsOn"]} <= refs
    assert bill["metadata"]["component"]["name"] == "coterie"
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert json.dumps(sbom.bill()) == json.dumps(bill)


def test_the_make_file_installs_by_hash_alone() -> None:
    text = (ROOT / "Makefile").read_text()
    assert text.count("pip install ") == 2  # PIP and UV, which say nothing of what
    calls = re.findall(r"\$\((?:PIP|UV)\)(.*?)(?=\|\||$)", text, re.MULTILINE)
    assert len(calls) == 6
    assert all(("--require-hashes -r locks/" in c) != ("--no-deps --no-build-isolation" in c) for c in calls)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_the_wheel_is_the_same_bytes_whoever_builds_it(tmp_path: Path) -> None:
    """Another folder, umask, time zone, language and hash seed."""
    built = importlib.metadata.version(lock.BUILD)
    if built != lock.pins()[lock.BUILD]:
        pytest.skip(f"{lock.BUILD} {built} is installed, not the locked one")
    digests = []
    for number, (umask, zone) in enumerate([(0o022, "UTC"), (0o077, "Asia/Tokyo")]):
        command = [sys.executable, str(ROOT / "release" / "build_wheel.py"), str(tmp_path / str(number))]
        outside = {**os.environ, "TZ": zone, "PYTHONHASHSEED": str(number)}
        subprocess.run(command, cwd=tmp_path, env=outside, umask=umask, check=True, capture_output=True)
        (built_wheel,) = (tmp_path / str(number)).iterdir()
        digests.append(hashlib.sha256(built_wheel.read_bytes()).hexdigest())
    assert digests[0] == digests[1]


def test_the_licences_page_has_every_locked_package_as_its_metadata_say() -> None:
    told = licences.known(licences.PAGE.read_text("utf-8"))
    pinned = locked("dev")
    assert dict(told.keys()) == pinned, "python release/licences.py"
    here = {key: found for key in told if (found := licences.licence(*key)) is not None}
    assert len(here) > 30
    assert {key: told[key] for key in here} == here
    assert not [key for key, stated in told.items() if "GPL" in stated]  # Apache-2.0 could not be kept beside them


def test_the_citation_names_this_version() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == importlib.metadata.version("coterie")
    assert {"message", "title", "authors", "license"} <= set(cited)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_wheel_and_sdist_install_in_a_clean_environment(tmp_path: Path) -> None:
    """What is committed, built, installed with the locked packages and nothing else, and used from elsewhere."""
    made = [script("build_wheel").build(tmp_path / "dist", sdist=sdist) for sdist in (False, True)]
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python, coterie = str(home / "bin" / "python"), str(home / "bin" / "coterie")
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def call(*command: str, code: int = 0) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, "--require-hashes", "-r", str(ROOT / "locks" / "agent.txt"))
    for package in made:
        call(*pip, "--no-deps", "--no-build-isolation", "--force-reinstall", str(package))
        call(python, "-m", "pip", "check")
        assert call(coterie, "--version").strip() == f"coterie {importlib.metadata.version('coterie')}"
        assert "40 parties" in call(coterie, "plan", "check")  # plans are in the package
    told = call(
        coterie, "run", "clinics", "--set", "run.rounds=2", "--references", "none", "--seeds", "1", "--out", "a"
    )
    assert "report.html" not in told  # jinja2 is an extra …
    assert "coterie[report]" in call(coterie, "report", "a", code=2)  # … that explains itself
    call(*pip, "--require-hashes", "-r", str(ROOT / "locks" / "dev.txt"))
    call(coterie, "report", "a")  # templates are in the package
    assert "holds" in call(coterie, "verify", "a/certificate.json")
