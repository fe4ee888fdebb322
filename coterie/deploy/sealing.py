r"""Checks on the bytes of an SQLite database in write-ahead mode: no bit changes unseen, no commit vanishes unseen.

SQLite's own checks stop at structure. Unused bytes of the database file carry no checksum, and a damaged frame of the
log silently ends it: every commit after the damage is dropped. Two rules close both gaps.

**Seal.** The header field `user_version` (which SQLite leaves to the application) holds CRC-32 over the CRC-32 of every
page, with the field itself and the change counter (kept twice by SQLite, and compared) left out. CRC-32 detects every
single flipped bit, first in its page, then in the list of pages. The seal is written in a transaction of its own and
the log folded in right after it, at no other time. So the file matches its seal, or a crash came while the log was
being folded in: then file and log together match the seal in the log.

**Log.** Frames are appended and carry a running checksum. A killed process leaves valid frames without a commit and
perhaps a part of one more; nothing else is legal. A whole frame with a wrong checksum is damage, not a torn write.
(A file system that keeps a later part of an append and loses an earlier one in a power cut would look the same, and is
refused too: the safe side.)

Formats: the SQLite documents "Database File Format", sections 1.3 and 4, and "WAL-mode File Format".
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

from coterie.errors import InputError

__all__ = ["PAGE", "VOLATILE", "Damaged", "LogPages", "filesystem", "intact", "is_sealed", "network_filesystem",
           "or_damaged", "overlaid", "page_sum", "page_sums", "scan_log", "seal_of"]  # fmt: skip

PAGE = 4096
_COUNTER, _SEAL, _COUNTER_AGAIN, _WRITER = slice(24, 28), slice(60, 64), slice(92, 96), slice(96, 100)
_PAGES_IN_HEADER = slice(28, 32)
_LOG_HEADER, _FRAME_HEADER = 32, 24
_FRAME = _FRAME_HEADER + PAGE
VOLATILE = ("tmpfs", "ramfs")  # file systems that a reboot empties
_NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "ceph", "lustre", "beegfs", "glusterfs", "gfs2",
    "ocfs2", "orangefs", "virtiofs", "vboxsf", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.cephfs", "fuse.s3fs",
    "fuse.rclone", "fuse.davfs",
)  # fmt: skip


class Damaged(InputError):
    """A ledger whose bytes are not what was written."""


P = ParamSpec("P")
T = TypeVar("T")


def or_damaged(load: Callable[P, T]) -> Callable[P, T]:
    """`load`, of a file that only we write: whatever goes wrong in it is damage."""

    @wraps(load)
    def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return load(*args, **kwargs)
        except Damaged:
            raise
        except (sqlite3.Error, OSError, ValueError, TypeError, LookupError, ArithmeticError, StopIteration) as error:
            raise Damaged(f"cannot be read: {error}") from error

    return whole


class LogPages(NamedTuple):
    """What a write-ahead log holds: the newest committed copy of every page in it, and the database's size after."""

    data: bytes
    newest: dict[int, int]  # page number -> index of its frame
    pages: int
    end: int  # in bytes: what follows was never committed

    def page(self, number: int) -> memoryview:
        """The newest committed copy of a page."""
        start = _LOG_HEADER + self.newest[number] * _FRAME + _FRAME_HEADER
        return memoryview(self.data)[start : start + PAGE]


def _powers(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The checksum is s ← A s + B x over pairs x of words, modulo 2³²: A^steps, and the weight of every word in s."""
    a, b = np.array([[1, 1], [1, 2]], object), np.array([[1, 0], [1, 1]], object)
    power, weights = np.eye(2, dtype=object), []
    for _ in range(steps):
        weights.append((power @ b) % 2**32)
        power = (power @ a) % 2**32
    rows = np.array(weights[::-1]).astype(np.uint32).transpose(1, 0, 2).reshape(2, -1)
    return power.astype(np.uint32), np.ascontiguousarray(rows)


_HEADER_POWERS = _powers(3)
_FRAME_POWERS = _powers((8 + PAGE) // 8)


def _checksums(words: list[np.ndarray], before: np.ndarray, powers: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The checksum after each row of words (in parts, side by side), from the one before it; it has two columns."""
    power, weights = powers
    ends = np.cumsum([part.shape[1] for part in words])
    pieces = zip([before, *words], [power, *np.split(weights, ends[:-1], axis=1)], strict=True)
    after = np.zeros((1, 2), np.uint32)
    for part, factors in pieces:  # row by row and in place: a log is large
        after = after + np.stack([np.einsum("rw,w->r", part, f) for f in np.ascontiguousarray(factors)], axis=1)
    return after


def scan_log(data: bytes) -> LogPages:
    """Read a write-ahead log; `Damaged` unless it is committed frames and at most one torn transaction."""
    if len(data) < _LOG_HEADER:
        return LogPages(data, {}, 0, 0)
    header = np.frombuffer(data, ">u4", 8)
    magic, version, page = (int(x) for x in header[:3])
    order = ">u4" if magic & 1 else "<u4"
    words = np.frombuffer(data, order, 6)[None].astype(np.uint32)
    first = _checksums([words], np.zeros((1, 2), np.uint32), _HEADER_POWERS)
    if magic & ~1 != 0x377F0682 or version != 3007000 or page != PAGE or np.any(first != header[6:]):
        raise Damaged("the header of its log has changed")
    count = (len(data) - _LOG_HEADER) // _FRAME
    newest: dict[int, int] = {}
    pages, end, before, begun = 0, 0, first, {}  # type: ignore[var-annotated]
    for start in range(0, count, 1024):
        rows = min(1024, count - start)
        raw = np.frombuffer(data, np.uint8, rows * _FRAME, _LOG_HEADER + start * _FRAME).reshape(rows, _FRAME)
        heads = np.ascontiguousarray(raw[:, :_FRAME_HEADER]).view(">u4").astype(np.uint32)
        parts = [part.view(order).astype(np.uint32, copy=False) for part in (raw[:, :8], raw[:, _FRAME_HEADER:])]
        chain = np.concatenate([before, heads[:-1, 4:]])
        good = (_checksums(parts, chain, _FRAME_POWERS) == heads[:, 4:]).all(1) & (heads[:, 2:4] == header[4:6]).all(1)
        if not good.all():
            raise Damaged(f"frame {start + int(np.argmin(good)) + 1} of {count} in its log has changed")
        before = heads[-1:, 4:]
        for index, (number, size) in enumerate(heads[:, :2].tolist(), start):
            begun[number] = index
            if size:
                newest |= begun
                pages, end, begun = size, _LOG_HEADER + (index + 1) * _FRAME, {}
    return LogPages(data, newest, pages, end)


def page_sums(fd: int) -> np.ndarray:
    """CRC-32 of every page of the open database file."""
    sums: list[int] = []
    while chunk := os.pread(fd, 256 * PAGE, len(sums) * PAGE):
        parts = memoryview(chunk)
        sums += [page_sum(parts[at : at + PAGE], not sums and at == 0) for at in range(0, len(chunk), PAGE)]
    return np.array(sums, np.uint32)


def page_sum(page: bytes | memoryview, first: bool) -> int:
    """CRC-32 of one page; of the first, without the fields a seal leaves out."""
    if first:
        head = bytearray(page)
        for part in (_COUNTER, _SEAL, _COUNTER_AGAIN):
            head[part] = bytes(4)
        page = bytes(head)
    return zlib.crc32(page)


def overlaid(sums: np.ndarray, log: LogPages) -> np.ndarray:
    """The sums of the pages as SQLite sees them: those in the log count before those in the file."""
    if not log.newest:
        return sums
    result = np.zeros(log.pages, np.uint32)
    result[: min(len(sums), log.pages)] = sums[: log.pages]
    for number in log.newest:
        if number <= log.pages:
            result[number - 1] = page_sum(log.page(number), number == 1)
    return result


def seal_of(sums: np.ndarray, first: bytes | memoryview | None = None) -> int:
    """The seal of pages with these sums, as the signed number SQLite stores.

    `first`: the first page before the transaction that will write the seal; SQLite then notes its own version in it.
    """
    if first is not None:
        head = bytearray(first)
        head[_WRITER] = _library_version().to_bytes(4, "big")
        sums = np.concatenate([np.array([page_sum(bytes(head), True)], np.uint32), sums[1:]])
    return int(np.uint32(zlib.crc32(sums.astype("<u4").tobytes())).astype(np.int32))


def _library_version() -> int:
    major, minor, patch = sqlite3.sqlite_version_info
    return major * 1_000_000 + minor * 1_000 + patch


def is_sealed(first: bytes | memoryview, sums: np.ndarray, size: int) -> bool:
    """Whether the first page's header matches these sums and this size in bytes."""
    return (
        len(first) == PAGE
        and first[_COUNTER] == first[_COUNTER_AGAIN]
        and size == PAGE * int.from_bytes(first[_PAGES_IN_HEADER], "big") == PAGE * len(sums)
        and int.from_bytes(first[_SEAL], "big", signed=True) == seal_of(sums)
    )


def intact(fd: int, log: LogPages) -> np.ndarray:
    """The sums of the file's pages; `Damaged` unless file, or file and log, are what was sealed."""
    sums, size, first = page_sums(fd), os.fstat(fd).st_size, os.pread(fd, PAGE, 0)
    if is_sealed(first, sums, size):
        return sums
    both = overlaid(sums, log)
    if 1 in log.newest and is_sealed(log.page(1), both, PAGE * log.pages):
        return sums
    raise Damaged("bytes have changed since it was sealed")


def network_filesystem(path: str | os.PathLike[str]) -> str | None:
    """The type of the network file system a path lies on; None if it is local, or if the system does not say."""
    kind = filesystem(path)
    return kind if kind in _NETWORK else None


def filesystem(path: str | os.PathLike[str]) -> str | None:
    """The type of the file system a path lies on; None if the system does not say."""
    device = os.stat(path).st_dev
    try:
        with open("/proc/self/mountinfo") as mounts:
            lines = [line.split(" - ") for line in mounts]
    except OSError:
        return None
    for left, right in lines:
        if left.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return right.split()[0]
    return None
