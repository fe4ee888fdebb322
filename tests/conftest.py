"""What all tests share: compiled programs, kept for all workers and for the next run, and the real data."""

import contextlib
import gc
import importlib
import os
import re
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import is_hypothesis_test, settings
from jax._src import compiler, core
from jax._src.interpreters import mlir
from jax.experimental.compilation_cache import compilation_cache

import coterie  # noqa: F401  # before JAX computes anything

ALIKE = 500  # compiled programs that are kept for others that are alike
_programs = Path(tempfile.gettempdir()) / f"coterie-tests-jax-{jax.__version__}"
_programs.mkdir(mode=0o700, exist_ok=True)
jax.config.update("jax_compilation_cache_dir", str(_programs))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _put_without_a_program() -> None:
    """`jnp.asarray(rows)` compiles a program for every shape, 15 ms each: here it is copied and put."""
    stage = getattr(core, "stage_p", None)
    if stage is None:  # another JAX
        return
    compiled, place = stage.impl, jax.device_put  # a test may replace it

    def put(x: Any) -> Any:
        weak = isinstance(x, jax.Array) or not hasattr(x, "__array__") or getattr(x, "weak_type", False)
        return compiled(x) if weak else place(np.array(x))

    stage.def_impl(put)


def _one_context() -> None:
    """JAX makes a compiler context for every program, 3 ms and a megabyte each: here every thread has one."""
    make, kept = mlir.make_ir_context, threading.local()

    def context() -> Any:
        if not hasattr(kept, "context"):
            kept.context = make()
        return kept.context

    mlir.make_ir_context = context


def _alike_once() -> None:
    """Every seventh program of a worker is alike another one, of a function that was made anew: it is compiled once."""
    compile_anew, made = compiler.backend_compile_and_load, OrderedDict[object, Any]()

    def compile_once(backend: Any, module: Any, devices: Any, options: Any, callbacks: Any) -> Any:
        text = sha256(mlir.module_to_bytecode(module)).digest()
        alike = text, options.SerializeAsString(), backend.platform, tuple(map(str, devices))
        if callbacks or alike not in made or "anew" in os.environ.get("PYTEST_CURRENT_TEST", ""):
            made[alike] = compile_anew(backend, module, devices, options, callbacks)
        made.move_to_end(alike)
        if len(made) > ALIKE:
            made.popitem(last=False)
        return made[alike]

    compiler.backend_compile_and_load = compile_once


_put_without_a_program()
_one_context()
_alike_once()
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)  # the same examples on every machine
settings.load_profile("fixed")


# files whose tests wait: for parties, for processes
WAITING = "tests/deploy/", "tests/sums/", "tests/test_leaks.py"


def _scope(nodeid: str) -> str:
    """What runs in one worker: the tests of a file, or those of a group in it that their ids end in."""
    group = re.search(r"@([\w-]+)\]$", nodeid)
    return group[1] if group else nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _try_fewer_examples(config, items)
    if hasattr(config, "workerinput"):  # what waits comes first, while typed tests and lint have the cores
        sizes = Counter(_scope(item.nodeid) for item in items)
        items.sort(key=lambda item: (not item.nodeid.startswith(WAITING), -sizes[_scope(item.nodeid)]))


def _try_fewer_examples(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every day a third of the examples that hypothesis tries in `make test-all`: the same first ones every time."""
    if "not slow" not in config.getoption("markexpr"):
        return
    for test in {id(t): t for item in items if is_hypothesis_test(t := getattr(item, "obj", None))}.values():
        if (usual := getattr(test, "_hypothesis_internal_use_settings", None)) is not None:  # else a state machine's
            few = min(usual.max_examples, max(10, usual.max_examples // 3))
            test._hypothesis_internal_use_settings = settings(usual, max_examples=few)


@cache
def _imported(config: pytest.Config) -> None:
    """Workers import files of tests beginning at different places, so that each reads what another has compiled.

    To rewrite the asserts of all files and to compile them takes 8 s of processor time.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    root, here, left_out = config.rootpath, config.invocation_params.dir, config.getoption("ignore") or ()
    asked = [here / arg.partition("::")[0] for arg in config.args]
    files = sorted({file for place in asked for file in ([place] if place.is_file() else place.rglob("test_*.py"))})
    files = [file for file in files if not any(file.is_relative_to(here / folder) for folder in left_out)]
    begin = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    for file in files[begin:]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting tells what is wrong with it
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Modules are searched for examples in docstrings; files of tests have none."""
    _imported(parent.config)
    found = yield
    return [c for c in found if not (isinstance(c, DoctestModule) and file_path.name.startswith("test_"))]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported stays, and tracing makes many objects that do too: do not search them for garbage so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file share a worker, and so fixtures and compiled programs; ids that end in @group, by group.

    Groups that a marker names (`--dist loadgroup`) are lost between pytest 9.2 and xdist 3.8.
    """
    if config.getoption("dist") != "load":  # something else was asked for
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    config.option.loadscopereorder = False  # workers have put them in order

    return Together(config, log)


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with the real files, made the one that loaders search."""
    for place in (os.environ.get("COTERIE_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if place and (Path(place) / "adult_train.csv.gz").is_file():
            monkeypatch.setenv("COTERIE_DATA", str(place))
            return Path(place)
    pytest.skip("needs the real data: set COTERIE_DATA to its directory")


@pytest.fixture(autouse=True)
def _data_that_a_mark_asks_for(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("data"):
        request.getfixturevalue("real_data")


@pytest.fixture(autouse=True)
def _programs_as_before() -> Iterator[None]:
    """A party that a test runs in this process keeps no programs from then on: the tests after it do again."""
    yield
    if os.environ.pop("JAX_ENABLE_COMPILATION_CACHE", None) is not None:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()  # whether there is one is asked once in a process


ROOMY = 3 << 30  # bytes that a worker may hold


@pytest.fixture(autouse=True)
def _programs_that_fit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget compiled programs where an audit's worker has grown: JAX keeps every one, ten gigabytes of them."""
    yield
    held = Path("/proc/self/statm")
    if request.node.get_closest_marker("audit") is None or not held.is_file():
        return
    if int(held.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > ROOMY:
        jax.clear_caches()
        gc.collect()
