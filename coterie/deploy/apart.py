"""Work whose memory and libraries are not wanted afterwards: done in a process of its own that ends with it.

Pricing a plan and compiling a round take twice the memory of a party that runs, and no C library gives it back.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

from coterie.errors import InputError

__all__ = ["apart", "give_back", "keep_buffers"]

PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc
LONGEST = 1 << 25  # bytes of one buffer: the most that glibc takes
KEPT = 1 << 28
T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    """What `work` returns, from a fork of this process; an InputError in there is raised here.

    Only a process of one thread can be forked, and none in which JAX has begun to compute: in any other (a test, a
    notebook) the work is done right here. The result lies in memory that both processes have: it may hold records, so
    it passes through no file, pipe or socket.
    """
    if not _can_fork():
        return _unpack(_pack(work), work)
    shared = os.memfd_create("apart", os.MFD_CLOEXEC)
    try:
        child = os.fork()
        if not child:
            _work_and_end(work, shared)
        status = _status(child)
        if status or not os.fstat(shared).st_size:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                raise InputError(
                    f"the process that prepares a run was ended by {signal.Signals(-code).name}: where nobody did it, "
                    "memory ran out; nothing was sent or spent"
                )
            raise RuntimeError(f"the preparation ended with status {code}, without a result")
        with mmap.mmap(shared, 0, access=mmap.ACCESS_READ) as content:
            return _unpack(content[:], work)
    finally:
        os.close(shared)


def give_back() -> None:
    """Give back to the system the memory that starting has used and freed, which the C library would keep."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc has it
        trim(0)


def keep_buffers() -> None:
    """Keep freed buffers for the next round: to get and clear fresh pages costs more than all else that is done with
    them. At most `KEPT` bytes in all stay unused.

    All threads share them, if none but this one has run yet: what a thread's own heap frees goes back to the system.
    """
    if (option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # glibc has it
        option(M_MMAP_THRESHOLD, LONGEST)
        option(M_TRIM_THRESHOLD, KEPT)
        option(M_ARENA_MAX, 1)


def _status(child: int) -> int:
    """How a child has ended; it is ended where this process is asked to stop."""
    try:
        return os.waitpid(child, 0)[1]
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def _can_fork() -> bool:
    from jax._src import xla_bridge

    return sys.platform == "linux" and threading.active_count() == 1 and not xla_bridge.backends_are_initialized()


def _work_and_end(work: Callable[[], T], shared: int) -> None:
    """The child's life. It has its parent's locks, files and handlers: it must not return, nor tidy up."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a terminal and systemd ask both; the parent ends this one
        result = _pack(work)
        os.ftruncate(shared, len(result))
        with mmap.mmap(shared, len(result)) as content:
            content[:] = result
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _pack(work: Callable[[], T]) -> bytes:
    try:
        return pickle.dumps((work(), None))
    except InputError as error:
        return pickle.dumps((None, error))


def _unpack(content: bytes, work: Callable[[], T]) -> T:
    """What `_pack` packed of this work."""
    result, error = pickle.loads(content)
    if error is not None:
        raise error
    return result
