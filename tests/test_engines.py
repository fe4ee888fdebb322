"""Engines of sweeps: the same results wherever tasks run, in whatever order they end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coterie import engines
from coterie.comparison import compare, methods_of
from coterie.engines import make_engine
from coterie.errors import InputError
from coterie.plan import read_plan
from tests.support import CLINICS


def cube(x: int) -> tuple[int, int]:
    """x³ and the process it was computed in."""
    return x**3, os.getpid()


@pytest.mark.slow
def test_a_pool_runs_every_task_elsewhere() -> None:
    found = dict(make_engine("local:2")(cube, [(k,) for k in range(5)]))
    assert {k: v for k, (v, _) in found.items()} == {k: k**3 for k in range(5)}
    assert os.getpid() not in {pid for _, pid in found.values()}
    assert [v for _, (v, pid) in make_engine("local:1")(cube, [(2,), (3,)]) if pid == os.getpid()] == [8, 27]


def first_dies(x: int) -> int:
    if x == 1:
        os._exit(1)
    time.sleep(2)
    return x


def test_a_process_that_is_killed_is_told_in_one_line_and_what_others_do_is_kept() -> None:
    found = []
    with pytest.raises(InputError, match=r"one of 2 processes was killed.*--engine local:1"):  # noqa: PT012
        for _, value in make_engine("local:2")(first_dies, [(1,), (2,), (3,), (4,)]):
            found.append(value)
    assert found == [2]


def threads(_: int) -> list[str]:
    """The threads that XLA computes with, once it has computed something."""
    import jax

    jax.block_until_ready(jax.numpy.ones((300, 300)) @ jax.numpy.ones((300, 300)))
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if "Eigen" in name]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_process_of_a_pool_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPROC", raising=False)
    for cores, each in ((2, 1), (6, 3)):
        monkeypatch.setattr(engines, "_cores", lambda cores=cores: cores)
        assert [len(found) for _, found in make_engine("local:2")(threads, [(0,), (1,)])] == [each] * 2


@pytest.mark.parametrize(
    ("cores", "tasks", "processes"), [(1, 40, 1), (2, 5, 1), (2, 6, 2), (16, 3, 3), (16, 21, 8), (16, 48, 16)]
)
def test_processes_are_started_where_they_pay(
    cores: int, tasks: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_cores", lambda: cores)
    monkeypatch.setattr(engines, "_room", lambda: 100)
    assert engines._workers(tasks) == processes


def test_processes_find_room_in_the_memory_and_a_gpu_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    assert 1 <= engines._room() < 10_000  # of this machine, whatever it is
    monkeypatch.setattr(engines, "_cores", lambda: 16)
    monkeypatch.setattr(engines, "_room", lambda: 5)
    assert engines._workers(48) == 5
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert engines._workers(48) == 1


def test_engines_that_there_are_not() -> None:
    for text in ("local:0", "local:", "dask", "ray:", "ray://", ""):
        with pytest.raises(InputError, match="--engine must be local, local:N, ray or ray://HOST:PORT"):
            make_engine(text)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"coterie\[cluster\]"):
        make_engine("ray://head:10001")


# Ray starts its own processes by fork and exec, and lets go of those that outlive the driver
FORKS = pytest.mark.filterwarnings(
    "ignore:os.fork:RuntimeWarning",
    "ignore:subprocess:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local:2", pytest.param("ray", marks=FORKS)])
def test_a_comparison_is_the_same_on_every_engine(engine: str, tmp_path: Path) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is in the extra cluster, and not installed here")
    methods = methods_of([("default", read_plan(CLINICS, ["run.rounds=5"]))], ["dp-dsgd", "dgd"])
    here, _ = compare(methods, [1.0, 10.0], 2)
    there, _ = compare(methods, [1.0, 10.0], 2, tmp_path, engine=engine)
    same = ("method", "epsilon", "score", "loss", "gap")
    assert [[c[k] for k in same] for c in there] == [[c[k] for k in same] for c in here]
    heard: list[str] = []
    compare(methods, [1.0, 10.0], 2, tmp_path, heard.append, engine)
    assert len(heard) == 3
    assert all(line.endswith("stored") for line in heard)
