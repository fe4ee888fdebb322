"""Compiled programs between commands: a private folder, none for deployed parties, and none of older versions."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from coterie import programs

COMPILE = "import jax, jax.numpy as jnp; jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones(7))\n"
LATE = "import jax, jax.numpy as jnp\ndef late(x): return jnp.cos(x) @ x\njax.jit(late)(jnp.ones(7))\n"
NOTHING = "from coterie import programs; programs.keep_nothing()\n"


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home; returns coterie's folder in its cache."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = "COMPILATION_CACHE_DIR", "PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "ENABLE_COMPILATION_CACHE"
    for name in (f"JAX_{n}" for n in names):
        monkeypatch.setenv(name, "0")  # so that it is put back whatever happens to it here
        monkeypatch.delenv(name)
    return tmp_path / "cache" / "coterie"


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_private(caches: Path) -> None:
    folder = caches / "programs"
    folder.mkdir(parents=True, mode=0o755)
    (folder / "old").touch(0o644)
    done = python("import os; os.umask(0o022)\nfrom coterie import programs; programs.keep()\n" + COMPILE)
    assert done.returncode == 0, done.stderr
    assert mode(folder) == 0o700
    stored = list(folder.iterdir())
    assert len(stored) > 1
    assert {mode(path) for path in stored} == {0o600}


def test_a_folder_of_somebody_else_is_not_used(caches: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    caches.mkdir(parents=True)
    (caches / "programs").symlink_to(tmp_path / "theirs")
    programs.keep()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    (caches / "programs").unlink()
    if os.getuid() == 0:
        (caches / "programs").mkdir()
        os.chown(caches / "programs", 65534, 65534)
        programs.keep()
        assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


@pytest.mark.parametrize(("code", "stored"), [(COMPILE, True), (NOTHING, False), (COMPILE + NOTHING, False)])
def test_a_deployed_party_stores_no_program(code: str, stored: bool, caches: Path, tmp_path: Path) -> None:
    asked = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "asked"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    done = python(code + LATE, **asked)
    assert done.returncode == 0, done.stderr
    assert bool(list((tmp_path / "asked").glob("jit_late-*"))) == stored


@pytest.mark.skipif(sys.platform != "linux", reason="how a core dump is forbidden depends on the system")
def test_a_deployed_party_leaves_no_core_dump() -> None:
    asks = "import ctypes, resource; print(resource.getrlimit(4), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)\n"
    done = python(NOTHING + asks + "import os; os.abort()")
    assert done.returncode == -signal.SIGABRT
    assert done.stdout.strip() == "(0, 0) 0"


def test_programs_of_older_versions_go(caches: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for old in (caches / "jax", tmp_path / "home" / ".cache" / "coterie" / "jax"):
        old.mkdir(parents=True)
        (old / "jit__compute_turn-cache").write_bytes(zlib.compress(b"records"))
    programs.forget_old()
    assert not (caches / "jax").exists()
    assert not (tmp_path / "home" / ".cache" / "coterie" / "jax").exists()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].endswith(f"in {caches / 'jax'}: removed")
    programs.forget_old()
    assert capsys.readouterr().err == ""


def test_a_folder_that_others_use_loses_coteries_programs_once(
    caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(shared))
    code = "import jax, coterie.problems.records as b, jax.numpy as jnp; jax.jit(b.clip_factor)(jnp.ones(7), 1.0)"
    kept = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "10"}  # JAX's own
    assert python(code, **kept).returncode == 0
    (shared / "jit_foreign-0-cache").write_bytes(zlib.compress(b"somebody else's"))
    (shared / "jit_broken-0-cache").write_bytes(b"cut off")
    assert list(shared.glob("jit_clip_factor-*-cache"))
    programs.forget_old()
    assert [
        p.name for p in shared.glob("*-cache") if "foreign" in p.name or "clip" in p.name or "broken" in p.name
    ] == ["jit_foreign-0-cache"]
    assert "removed" in capsys.readouterr().err
    (shared / "jit_later-0-cache").write_bytes(zlib.compress(b"a coterie program without records"))
    programs.forget_old()
    assert (shared / "jit_later-0-cache").exists()


def test_a_home_that_is_closed_to_this_user_stops_nothing(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo -u` may leave HOME as it was: whoever may not look there has nothing there."""
    caches.mkdir(parents=True)
    owner = os.geteuid()
    caches.chmod(0)
    try:
        os.seteuid(65534 if owner == 0 else owner)
        programs.forget_old()
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(caches / "theirs"))
        programs.forget_old()
    finally:
        os.seteuid(owner)
        caches.chmod(0o700)
