"""JAX's compiler without the part of it that computes wrong numbers.

jaxlib 0.10.2 and 0.11.0 hand matrix products and sums on a CPU to YNNPACK ("ynn fusions"). Some of those programs read
memory that is not theirs, and some leave out rows:

    sum(x @ full((d, k), s), -1), x of shape (n, m, d)   a scalar is read as if it were d · k numbers: what comes out is
                                                          whatever lies behind it, another thing after each compilation
    vmap(lambda row: sum((a @ row) ** 2))(x)              wrong for more than some 16,000 rows (jax-ml/jax#39103)
    sum(a * b, axis) of seven axes                        crashes or hangs (jax-ml/jax#39257)

The first is how a softmax model that starts at zero came out trained or untrained at random. Clipping, sensitivities,
replay and recovery rest on sums that are right and the same every time, so the fusions are off: `XLA_FLAGS` gets an
empty list of them, which XLA understands in every version that coterie allows. XLA reads it once, when JAX computes
for the first time in a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from coterie.errors import InputError

__all__ = ["brief", "by_size", "mend", "need_mended", "of_runs", "one_thread", "quickly"]

# How a program is compiled: `compiler_options` of JAX. On a core with registers of 512 bits XLA uses half of them
# unless it is told to: of many runs side by side that is a fifth faster, of a single one up to a fifth slower. Its
# newer way to make loops and the most that LLVM can do take up to twice as long to compile, which a program that is
# over in milliseconds does not earn back. Loops over many runs are as fast without them, but for those that solve:
# these may take twice as long.
Options = dict[str, str | bool]
WIDE: Options = {"xla_cpu_prefer_vector_width": "512"}
BRIEF: Options = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": "1"}
MUCH = 1 << 23  # numbers of which a few passes take as long as compiling does
# numbers that are gone through, in all rounds and runs, below which compiling quickly takes less time in all
OF_ONE, OF_MANY, OF_MANY_SOLVED = 1 << 26, 1 << 33, 3 << 29
P = ParamSpec("P")
T = TypeVar("T")
FLAG = "--xla_cpu_experimental_ynn_fusion_type="


def mend() -> None:
    """Switch the fusions off for this process and its children; refuse to go on where that is too late."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    if flags[-1:] == [FLAG]:
        return
    os.environ["XLA_FLAGS"] = " ".join([*(f for f in flags if f != FLAG), FLAG])  # the last one counts
    if "jax" in sys.modules:
        need_mended()


def one_thread() -> None:
    """For a process of our own, before NumPy is loaded: matrices are factored by one thread, unless somebody asked.

    Ours are small and many, and OpenBLAS's threads wait for one another by spinning: with two, the six models of a
    party at home (40 parameters) took 35 to 90 times the processor time. XLA has threads of its own for what is large.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def brief(f: Callable[P, T]) -> Callable[P, T]:
    """`eqx.filter_jit` of what is over in milliseconds, and is called by no compiled function."""

    @cache
    def compiled() -> Callable[P, T]:
        import equinox as eqx

        return eqx.filter_jit(f, compiler_options=quickly())  # type: ignore[call-overload, no-any-return]

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return compiled()(*args, **kwargs)

    return call


def quickly() -> Options:
    """How to compile a program that is over in milliseconds."""
    return _known(BRIEF)


def by_size(given: object) -> Options:
    """How to compile a program that goes over what it is given a few times."""
    import jax
    import numpy as np

    return quickly() if sum(np.size(x) for x in jax.tree.leaves(given)) < MUCH else {}


def of_runs(count: int, numbers: float, solves: bool) -> Options:
    """How to compile a loop over so many runs side by side, each of which goes through so many numbers of records."""
    if count == 1:
        return _known(BRIEF if numbers < OF_ONE else {})
    return _known({**WIDE, **(BRIEF if count * numbers < (OF_MANY_SOLVED if solves else OF_MANY) else {})})


def _known(options: Options) -> Options:
    """Those that this XLA has and that nobody has set: they say how long things take and nothing else, and come and go
    with its versions."""
    import jax

    asked = {flag.partition("=")[0].lstrip("-") for flag in os.environ.get("XLA_FLAGS", "").split()}
    cpu = jax.default_backend() == "cpu"  # on a GPU nobody has measured what less optimising costs
    options = {name: value for name, value in options.items() if name not in asked and (cpu or "_cpu_" in name)}
    return {name: value for name, value in options.items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: str | bool) -> bool:
    import jax

    try:
        jax.jit(lambda x: x).lower(0.0).compile({name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def need_mended() -> None:
    """Refuse a JAX that was started with the fusions on."""
    import jax
    import jax.numpy as jnp

    from jax._src import xla_bridge  # isort: skip  # nothing public says whether JAX has started

    if not xla_bridge.backends_are_initialized():
        return
    shape = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        program = jax.jit(lambda x: x @ jnp.ones((8, 3), x.dtype)).lower(shape).compile().as_text()
    if "__ynn_fusion" in (program or ""):
        raise InputError(
            "JAX has computed something before coterie was imported, with a part of its compiler that computes wrong "
            f"numbers (see coterie/compiler.py): import coterie first, or set XLA_FLAGS={FLAG}"
        )
