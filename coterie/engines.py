"""Where independent tasks run: in this process, in a pool of processes on this machine, or on a Ray cluster.

Every engine takes a function and a list of arguments and yields (place in the list, result) as results come in, so
that whoever asks can store each at once. Function and arguments travel by pickle, which is for one's own cluster only.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from coterie.errors import InputError

__all__ = ["make_engine"]

T = TypeVar("T")
Given = TypeVarTuple("Given")


class Engine(Protocol):
    """Runs a function on each of many arguments."""

    def __call__(
        self, task: Callable[[*Given], T], arguments: Sequence[tuple[*Given]], /, alike: Sequence[Hashable] = ()
    ) -> Iterator[tuple[int, T]]:
        """(place in the list, result) of each, as results come in; tasks that are `alike` share what they compile."""


CORES_EACH = 2  # a compiled run keeps about so many busy …
MANY = 3  # … but takes less time in all on one, which pays where there are so many tasks for each process to start


def make_engine(text: str) -> Engine:
    """The engine that `local`, `local:N`, `ray` or `ray://ADDRESS` names.

    `local` uses as many processes as there are cores where tasks are many, else half as many, as memory allows, and
    this one alone where that is less than two or where it computes on a GPU; `local:N` exactly N, `ray` the cluster
    that Ray finds (or starts one on this machine).

    >>> list(make_engine("local:1")(abs, [(-1,), (-2,)]))
    [(0, 1), (1, 2)]
    """
    kind, _, rest = text.partition(":")
    if kind == "local" and not rest and ":" not in text:
        return lambda task, arguments, alike=(): _local(task, arguments, _workers(len(arguments)), alike)
    if kind == "local" and rest.isdecimal() and int(rest) > 0:
        return lambda task, arguments, alike=(): _local(task, arguments, int(rest), alike)
    if text == "ray" or (text.startswith("ray://") and len(text) > 6):
        return _ray(text if rest else None)
    raise InputError(f"--engine must be local, local:N, ray or ray://HOST:PORT, got {text!r}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers(tasks: int) -> int:
    """How many processes are worth starting for so many tasks."""
    jax = sys.modules.get("jax")  # who has not loaded it has nothing on a GPU
    if jax is not None and jax.default_backend() != "cpu":
        return 1
    cores = _cores()
    return min(tasks, cores if tasks >= MANY * cores else cores // CORES_EACH, _room())


def _room() -> int:
    """How many processes as large as this one was at most fill half of the memory."""
    try:
        import resource

        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, ValueError, OSError):  # a system that does not say
        return sys.maxsize
    with suppress(OSError, ValueError):  # a container has less; "max" is no number
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(memory // (2 * largest))


def _alone(threads: int) -> None:
    """In a new process, before XLA starts: so many threads, as every core has a process that keeps it busy.

    Two that share one matrix product meet several times in each of its steps, and wait for each other.
    """
    os.environ.setdefault("NPROC", str(threads))


def _local(
    task: Callable[[*Given], T], arguments: Sequence[tuple[*Given]], workers: int, alike: Sequence[Hashable] = ()
) -> Iterator[tuple[int, T]]:
    workers = min(workers, len(arguments))
    if workers < 2:
        yield from ((k, task(*each)) for k, each in enumerate(arguments))
        return
    left: dict[Hashable, list[int]] = {}
    for k, kind in enumerate(alike or range(len(arguments))):
        left.setdefault(kind, []).append(k)
    # Processes are started anew, not forked: JAX has threads, and a fork copies their locks. A pool for each, so that
    # like tasks meet in one: it has compiled their program.
    anew, threads = multiprocessing.get_context("spawn"), max(1, _cores() // workers)
    with ExitStack() as closing:
        broken = False
        pools = [
            closing.enter_context(ProcessPoolExecutor(1, anew, initializer=_alone, initargs=(threads,)))
            for _ in range(workers)
        ]
        doing: dict[Future[T], tuple[ProcessPoolExecutor, Hashable, int]] = {}

        def start(pool: ProcessPoolExecutor, last: Hashable = None) -> None:
            if not left:
                return
            others = {kind for _, kind, _ in doing.values()}
            kind = last if last in left else next((kind for kind in left if kind not in others), next(iter(left)))
            k = left[kind].pop(0)
            if not left[kind]:
                del left[kind]
            doing[pool.submit(task, *arguments[k])] = pool, kind, k

        try:
            for pool in pools:
                start(pool)
            while doing:
                for done in wait(doing, return_when=FIRST_COMPLETED).done:
                    pool, kind, k = doing.pop(done)
                    if isinstance(done.exception(), BrokenProcessPool):
                        broken = True
                        left.clear()  # no more is begun, and what the others are at is not lost
                        continue
                    if done.exception() is None:
                        start(pool, kind)
                    yield k, done.result()
            if broken:
                raise BrokenProcessPool
        except BaseException as error:
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):  # also of a process that died between two tasks
                raise InputError(
                    f"one of {len(pools)} processes was killed, perhaps as memory ran out, or could not start: run it "
                    "again with fewer, such as --engine local:1; what was stored is kept"
                ) from None
            raise


def _ray(address: str | None) -> Engine:
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'coterie[cluster]'") from None

    def run(
        task: Callable[[*Given], T], arguments: Sequence[tuple[*Given]], /, alike: Sequence[Hashable] = ()
    ) -> Iterator[tuple[int, T]]:
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
