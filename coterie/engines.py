"""Where independent tasks run: in this process, in a pool of processes on this machine, or on a Ray cluster.

Every engine takes a function and a list of arguments and yields (place in the list, result) as results come in, so
that whoever asks can store each at once. Function and arguments travel by pickle, which is for one's own cluster only.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Protocol, TypeVar, TypeVarTuple

from coterie.errors import InputError

__all__ = ["make_engine"]

T = TypeVar("T")
Given = TypeVarTuple("Given")


class Engine(Protocol):
    """Runs a function on each of many arguments."""

    def __call__(self, task: Callable[[*Given], T], arguments: Sequence[tuple[*Given]], /) -> Iterator[tuple[int, T]]:
        """(place in the list, result) of each, as results come in."""


CORES_EACH = 2  # a compiled run keeps about so many busy: below, a second process only gets in the way


def make_engine(text: str) -> Engine:
    """The engine that `local`, `local:N`, `ray` or `ray://ADDRESS` names.

    `local` uses half as many processes as there are cores (this one alone where that is less than two), `local:N`
    exactly N, `ray` the cluster that Ray finds (or starts one on this machine).

    >>> list(make_engine("local:1")(abs, [(-1,), (-2,)]))
    [(0, 1), (1, 2)]
    """
    kind, _, rest = text.partition(":")
    if kind == "local" and not rest and ":" not in text:
        return lambda task, arguments: _local(task, arguments, min(len(arguments), _cores() // CORES_EACH))
    if kind == "local" and rest.isdecimal() and int(rest) > 0:
        return lambda task, arguments: _local(task, arguments, int(rest))
    if text == "ray" or (text.startswith("ray://") and len(text) > 6):
        return _ray(text if rest else None)
    raise InputError(f"--engine must be local, local:N, ray or ray://HOST:PORT, got {text!r}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _local(task: Callable[[*Given], T], arguments: Sequence[tuple[*Given]], workers: int) -> Iterator[tuple[int, T]]:
    if workers < 2:
        yield from ((k, task(*each)) for k, each in enumerate(arguments))
        return
    # Processes are started anew, not forked: JAX has threads, and a fork copies their locks.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(task, *each): k for k, each in enumerate(arguments)}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _ray(address: str | None) -> Engine:
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'coterie[cluster]'") from None

    def run(task: Callable[[*Given], T], arguments: Sequence[tuple[*Given]], /) -> Iterator[tuple[int, T]]:
        started = not ray.is_initialized()
        if started:
            ray.init(address, log_to_driver=False)
        try:
            remote = ray.remote(task)
            waiting = {remote.remote(*each): k for k, each in enumerate(arguments)}
            while waiting:
                (first,), _ = ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(first), ray.get(first)
        finally:
            if started:
                ray.shutdown()

    return run
