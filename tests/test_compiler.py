"""Compiled programs are right and the same every time: the known wrong ones, and the same bytes again under load."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest

from coterie import compiler
from coterie.compiler import FLAG

AGAIN = [sys.executable, "-m", "tests.drivers.same_again"]
broken = pytest.mark.skipif(
    jaxlib.version.__version__ not in ("0.10.2", "0.11.0"), reason="this version of jaxlib may have been mended"
)


def squares(x: jax.Array) -> jax.Array:
    return jax.vmap(lambda row: jnp.sum((jnp.eye(3, dtype=x.dtype) @ row) ** 2))(x)


def level(x: jax.Array) -> jax.Array:
    return jnp.sum(x @ jnp.full((x.shape[-1], 10), 0.3, x.dtype), axis=-1)


def steepest(x: jax.Array) -> jax.Array:
    return jnp.max(x @ jnp.zeros((x.shape[-1], 10), x.dtype), axis=-1)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("program", "shape"), [(squares, (40_000, 3)), (level, (5, 288, 64)), (steepest, (5, 288, 64))]
)  # fmt: skip
def test_programs_that_came_out_wrong_anew(program: Callable, shape: tuple[int, ...], kind: type) -> None:
    values = np.random.default_rng(0).uniform(size=shape)
    want = {
        squares: lambda x: np.sum(x**2, axis=-1), level: lambda x: 3.0 * np.sum(x, axis=-1),
        steepest: lambda x: 0 * x[..., 0],
    }[program](values)  # fmt: skip
    with jax.enable_x64(True):
        for _ in range(5):
            got = jax.jit(lambda x: program(x))(jnp.asarray(values, kind))
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4 if kind is np.float32 else 1e-12)


def again(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*AGAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str]) -> list[str]:
    said, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-2000:]
    return said.splitlines()


@pytest.mark.parametrize(("times", "loads"), [(1, 0), pytest.param(2, os.cpu_count() or 2, marks=pytest.mark.slow)])
def test_the_same_bytes_again_under_load(times: int, loads: int) -> None:
    """Two processes side by side, each compiling anew every time, while others keep the cores busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loads)]
    try:
        both = [again(str(times)), again(str(times))]
        found = [line for process in both for line in lines(process)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert len(found) == 2 * times
    assert len(set(found)) == 1, found
    assert found[0].endswith("True")


@pytest.mark.slow
@broken
def test_with_the_cause_put_back_they_differ() -> None:
    assert not any(line.endswith("True") for line in lines(again("1", "on")))


@broken
@pytest.mark.parametrize(
    ("before", "flags", "refused"),
    [
        pytest.param("", "", False, marks=pytest.mark.slow),  # as every other process of these tests
        ("import jax", "", False),
        ("import jax.numpy as jnp; jnp.ones(3) + 1", "", True),
        ("import jax.numpy as jnp; jnp.ones(3) + 1", FLAG, False),
        pytest.param("", f"{FLAG}dot", False, marks=pytest.mark.slow),
    ],
)
def test_a_jax_that_started_without_it_is_refused(before: str, flags: str, refused: bool) -> None:
    code = f"{before}\nimport coterie, jax, jax.numpy as jnp\nfrom coterie.compiler import need_mended\n"
    code += "jnp.ones(3) + 1\nneed_mended()"
    env = os.environ | {"XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == refused, done.stderr
    assert not refused or "import coterie first" in done.stderr.splitlines()[-1]


def test_options_that_this_xla_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come and go with its versions, and one that it does not know is an error of its own."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(compiler, "BRIEF", {"xla_of_another_version": True, "xla_cpu_prefer_vector_width": "256"})
    monkeypatch.setattr(compiler, "WIDE", {"xla_of_another_version": "512"})
    assert compiler.quickly() == {"xla_cpu_prefer_vector_width": "256"}
    assert compiler.of_runs(2, math.inf, False) == compiler.of_runs(1, math.inf, False) == {}
    assert compiler.of_runs(1, 0, False) == compiler.quickly()
    assert compiler.brief(lambda x, y: x + y)(1.0, y=jnp.ones(2)).tolist() == [2, 2]
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_of_another_version"):
        jax.jit(lambda x: x, compiler_options=compiler.BRIEF)(1.0)
    assert compiler.by_size([1.0, np.ones(3)]) == compiler.quickly()
    assert compiler.by_size(np.empty(compiler.MUCH, np.int8)) == {}


@pytest.mark.parametrize(
    ("runs", "solves", "most"),
    [
        (1, False, compiler.OF_ONE), (1, True, compiler.OF_ONE), (8, False, compiler.OF_MANY),
        (8, True, compiler.OF_MANY_SOLVED),
    ],
)  # fmt: skip
def test_a_short_loop_is_compiled_the_quick_way_and_a_batch_for_wide_registers(
    runs: int, solves: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    wide = compiler.WIDE if runs > 1 else {}
    assert compiler.of_runs(runs, most // runs - 1, solves) == {**wide, **compiler.BRIEF}
    assert compiler.of_runs(runs, most // runs, solves) == wide


def test_what_somebody_has_set_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = compiler.BRIEF.items()
    monkeypatch.setenv("XLA_FLAGS", f"--{one[0]}=0 {FLAG}")
    assert compiler.quickly() == dict([other])
    assert compiler.of_runs(2, math.inf, False) == compiler.WIDE


def test_the_command_factors_small_matrices_by_one_thread() -> None:
    """NumPy reads the number of threads as it is loaded: the command must set it before. Who asked for more gets it."""
    told = (
        "import os, sys, coterie.cli\n"
        "early = 'numpy' in sys.modules\n"
        "coterie.cli.main = lambda: 0\n"
        "try: coterie.cli.script()\n"
        "except SystemExit: print(early, os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    bare = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    for given, wanted in (({}, "False 1"), ({"OPENBLAS_NUM_THREADS": "3"}, "False 3")):
        done = subprocess.run(
            [sys.executable, "-c", told], env=bare | given, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == wanted
