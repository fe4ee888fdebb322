"""Compiled programs between commands: kept where only their owner can read, and not at all by a deployed party.

No program holds a record: whatever is compiled takes records as arguments (tests/test_leaks.py searches for them).
Earlier versions compiled some records in, and stored that where others could read it: `forget_old` removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import sys
import zlib
from pathlib import Path

__all__ = ["forget_old", "keep", "keep_nothing"]

CHECKED = "coterie-checked"  # in a folder of the user's choice: programs of older versions were looked for
FOLDER, FILE = 0o700, 0o600


def _caches() -> list[Path]:
    """This user's cache folders for coterie: the one in force, then the one of a user who has set none."""
    default = Path("~/.cache").expanduser()
    named = Path(os.environ.get("XDG_CACHE_HOME") or default)
    return [p / "coterie" for p in dict.fromkeys((named, default))]


def _own() -> Path:
    return _caches()[0] / "programs"


def keep() -> None:
    """Keep compiled programs, so that only the first run of a shape waits for the compiler; call before JAX is loaded.

    A folder that somebody else owns or may write to is not used: who can write programs can run them as this user.
    """
    folder = _own()
    if os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder)) != str(folder):  # the user has said where, or nowhere
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER)
        if folder.is_symlink() or (hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()):
            return
        _close(folder)
    except OSError:
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # pricing compiles 30 small programs
    atexit.register(_close, folder)  # JAX makes files as the umask says: until now the folder alone hid them


def _close(folder: Path) -> None:
    """Let the owner alone read a folder and what is in it."""
    folder.chmod(FOLDER)
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process tidies up too
            if stat.S_IMODE(path.stat().st_mode) != FILE:
                path.chmod(FILE)


def keep_nothing() -> None:
    """A deployed party: no cache of programs, whatever the environment asks for, and no core dump, piped or not."""
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if "jax" in sys.modules:
        import jax
        from jax.experimental.compilation_cache import compilation_cache

        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()  # whether there is one is asked once in a process
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        PR_SET_DUMPABLE = 4  # a limit of 0 does not stop a core that the kernel hands to a program
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def forget_old() -> None:
    """Remove programs that older versions stored, and say so: their constants may be somebody's records."""
    for caches in _caches():
        old = caches / "jax"
        with contextlib.suppress(PermissionError):  # another user's home, as `sudo -u` may leave it: not ours
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old, ignore_errors=True)
                _say(old, "removed" if not old.exists() else "could not be removed: remove it")
    named = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if named and Path(named) != _own():
        with contextlib.suppress(PermissionError):
            _sift(Path(named))


def _sift(folder: Path) -> None:
    """Remove coterie's own programs, once, from a folder that other programs use too."""
    mark = folder / CHECKED
    if mark.exists() or not folder.is_dir():
        return
    found = [path for path in folder.glob("*-cache") if b"coterie" in _opened(path)]
    with contextlib.suppress(OSError):
        for path in found:
            path.unlink(missing_ok=True)
        mark.touch(FILE)
    if found:
        gone = not any(path.exists() for path in found)
        _say(folder, f"{len(found)} {'removed' if gone else 'could not be removed: empty it'}")


def _opened(path: Path) -> bytes:
    """A stored program; `coterie` itself where it cannot be read, so that it goes too."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x28\xb5\x2f\xfd"):
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj().decompress(content)
        return zlib.decompress(content)
    except (OSError, ImportError, zlib.error):
        return b"coterie"


def _say(where: Path, what: str) -> None:
    print(f"compiled programs of an older coterie, which may hold records in clear, in {where}: {what}",
          file=sys.stderr)  # fmt: skip
