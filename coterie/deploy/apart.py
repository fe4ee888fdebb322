"""Work whose memory and libraries are not wanted afterwards: done in a process of its own that ends with it.

Pricing a plan and compiling a round take twice the memory of a party that runs, and no C library gives it back.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from coterie.errors import InputError

__all__ = ["apart"]

PR_SET_PDEATHSIG = 1
T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    """What `work` returns, from a fork of this process; an InputError in there is raised here.

    Only a process of one thread can be forked, and none in which JAX has begun to compute: in any other (a test, a
    notebook) the work is done right here. The result crosses a pipe either way, and never a file.
    """
    if not _can_fork():
        return _unpack(_pack(work))  # type: ignore[no-any-return]
    inlet, outlet = os.pipe()
    child = os.fork()
    if not child:
        _work_and_end(work, outlet)
    try:
        os.close(outlet)
        with os.fdopen(inlet, "rb") as pipe:
            content = pipe.read()
    except BaseException:  # asked to stop
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    if status or not content:
        raise RuntimeError(f"the preparation ended with status {os.waitstatus_to_exitcode(status)}, without a result")
    return _unpack(content)  # type: ignore[no-any-return]


def _can_fork() -> bool:
    from jax._src import xla_bridge

    return sys.platform == "linux" and threading.active_count() == 1 and not xla_bridge.backends_are_initialized()


def _work_and_end(work: Callable[[], T], outlet: int) -> None:
    """The child's life. It has its parent's locks, files and handlers: it must not return, nor tidy up."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a terminal and systemd ask both; the parent ends this one
        with os.fdopen(outlet, "wb") as pipe:
            pipe.write(_pack(work))
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


def _unpack(content: bytes) -> Any:
    result, error = pickle.loads(content)
    if error is not None:
        raise error
    return result
