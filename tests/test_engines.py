"""Engines of sweeps: the same results wherever tasks run, in whatever order they end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
