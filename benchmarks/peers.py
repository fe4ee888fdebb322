"""Other packages, side by side: `make bench-peers`, or `python -m benchmarks.peers [--only flower …] [--keep]`.

Ten parties with 700 records of 105 numbers average over everybody and take a logistic gradient step (decentralized
gradient descent on a complete graph; federated averaging does the two in the other order): rounds per second, of wall
clock and of processor time, of
    coterie     through its driver, float64 and float32, without and with privacy (clipped records, Gaussian noise)
    JAX scan    written by hand for this case
    NumPy loop  written by hand
    packages    `benchmarks.peer_loops`: what each does differently is said beside it
Every answer is compared with the NumPy loop's. Our rate is that at the peer's precision: dgd on one core, and dp-dsgd
with privacy on, on one core by processor time and spread over all cores by the clock. Packages get virtual environments
of their own in the user's cache, and a time limit; what does not install, run or finish is said. dp-accounting has no
such loop (see `benchmarks.accounting`), nor has Opacus (`benchmarks.per_example --opacus`). What runs here is pinned to
one core unless the line says otherwise (--all-cores: nothing is); packages get all cores, but one thread for a matrix
product, as here. Nothing is asserted on wall-clock time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ALL_CORES: set[int] = set()
if "--all-cores" not in sys.argv and __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if hasattr(os, "sched_getaffinity"):
        ALL_CORES = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(ALL_CORES)})

import numpy as np  # noqa: E402

from benchmarks.measured import Row, arguments, beside, finish  # noqa: E402
from benchmarks.peer_loops import LOOPS  # noqa: E402
from benchmarks.peer_task import (  # noqa: E402
    DIM,
    PARTIES,
    RECORDS,
    RIDGE,
    STEP,
    Found,
    Mark,
    data,
    descendants,
    gradient,
)

INSTALL_SECONDS, RUN_SECONDS = 420, 120
ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coterie" / "peers"
PACKAGES = {  # name -> what pip is asked for, oldest Python it takes
    "decent-bench": (["decent-bench"], "3.13"),
    "pfl-research": (["pfl"], "3.11"),
    "gossipy": (["gossipy-dfl", "torchvision"], "3.11"),  # it imports torchvision without asking for it
    "flower": (["flwr[simulation]"], "3.11"),
    # it cannot be imported without its extra dp, nor with what pip takes for pyarrow and huggingface_hub by itself
    "p2pfl": (["p2pfl[dp]", "pyarrow<20", "huggingface_hub<1"], "3.11"),
    "jax-privacy": (["jax-privacy"], "3.11"),
    "opacus": (["opacus"], "3.11"),
}


# -- in this interpreter ----------------------------------------------------------------------------------------------


def numpy_loop(rounds: int, average_last: bool = False) -> Found:
    """Written by hand; `average_last`: in the order of federated averaging."""
    x, y = data()
    w = np.zeros((PARTIES, DIM))
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        steps = np.stack([STEP * gradient(a, b, v) for a, b, v in zip(x, y, w, strict=True)])
        w = np.broadcast_to((w - steps).mean(0), w.shape) if average_last else w.mean(0) - steps
    return Found([Mark(time.perf_counter() - wall, time.process_time() - processor)], rounds, w[0])


def jax_scan(rounds: int, double: bool) -> Found:
    """The same as one compiled loop."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(double):
        x, y = (jnp.asarray(a, jnp.float64 if double else jnp.float32) for a in data())

        @jax.jit
        def run(w: jax.Array) -> jax.Array:
            def step(w: jax.Array, _: None) -> tuple[jax.Array, None]:
                slope = -y * jax.nn.sigmoid(-y * jnp.einsum("nrd,nd->nr", x, w))
                return w.mean(0) - STEP * (jnp.einsum("nr,nrd->nd", slope, x) / RECORDS + RIDGE * w), None

            return jax.lax.scan(step, w, None, length=rounds)[0]

        w = jnp.zeros((PARTIES, DIM), x.dtype)
        run(w).block_until_ready()
        wall, processor = time.perf_counter(), time.process_time()
        w = run(w).block_until_ready()
        return Found([Mark(time.perf_counter() - wall, time.process_time() - processor)], rounds, np.asarray(w[0]))


def spread(rounds: int, repeats: int, double: bool, private: bool, limit: float) -> list[Found]:
    """`ours` over all cores: in a process of its own, which JAX gives as many devices as there are cores."""
    arguments = [str(int(x)) for x in (rounds, repeats, double, private, len(ALL_CORES) or os.cpu_count() or 1)]
    answer = call(Path(sys.executable), "benchmarks.peer_ours", arguments, limit)
    if isinstance(answer, str):
        raise SystemExit(f"coterie over all cores {answer}")
    return [Found([Mark(*span)], rounds, np.array(answer["point"])) for span in answer["spans"]]


# -- in a package's own environment -----------------------------------------------------------------------------------


def environment(name: str, cache: Path) -> Path | str:
    """The interpreter of a package's environment, or why there is none."""
    requirements, oldest = PACKAGES[name]
    python, ready = cache / name / "bin" / "python", cache / name / ".ready"
    if ready.exists() and ready.read_text() == "\n".join(requirements):
        return python
    versions = (oldest, "3.13", "3.12", "3.11") if oldest == "3.11" else (oldest,)
    for version in versions:
        if python.exists() or any(_made(base, cache / name) for base in _interpreters(version)):
            break
    else:
        return f"needs Python {oldest}, which is not here"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements, "numpy"]
    try:
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not install within {INSTALL_SECONDS} s"
    if done.returncode:
        return f"did not install: {last_line(done.stderr)}"
    ready.write_text("\n".join(requirements))
    return python


def _interpreters(version: str) -> list[str]:
    """What may be a Python of this version: ours, the path's, pyenv's."""
    if version == f"3.{sys.version_info.minor}":
        return [sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))]


def _made(base: str, folder: Path) -> bool:
    """Whether this interpreter made a virtual environment there."""
    try:
        return subprocess.run([base, "-m", "venv", folder], capture_output=True).returncode == 0
    except OSError:
        return False


def last_line(text: str) -> str:
    """The last line that says something, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["it said nothing"])[-1][:160]


def call(python: Path, module: str, arguments: list[str], limit: float) -> dict | str:
    """Call `main` of a module of ours in an environment and read its last line of JSON, or say what went wrong.

    The call leads a process group of its own, which is killed afterwards: nothing that it started survives it.
    """
    command = [str(python), "-c", f"from {module} import main; main()", *arguments]
    mine = os.sched_getaffinity(0) if ALL_CORES else set()
    if ALL_CORES:
        os.sched_setaffinity(0, ALL_CORES)  # a child inherits it; changing it there would fork a process that runs JAX
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if ALL_CORES:
        os.sched_setaffinity(0, mine)
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return f"not finished in {limit:.0f} s"
    finally:
        end_group(child)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else f"failed: {last_line(err)}"


def end_group(child: subprocess.Popen) -> None:
    """Kill a process, its group, and what it started in other groups."""
    others = descendants(child.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()


def elsewhere(name: str, python: Path, repeats: int, limit: float) -> Found | str:
    """Run one loop in its package's environment."""
    answer = call(python, "benchmarks.peer_loops", [name, str(LOOPS[name].rounds), str(repeats)], limit)
    if isinstance(answer, str):
        return answer
    point = None if answer["point"] is None else np.array(answer["point"])
    return Found([Mark(*span) for span in answer["spans"]], answer["total"], point)


# -- what they come to -------------------------------------------------------------------------------------------------


def rates(found: list[Found], rounds: int) -> list[Mark]:
    """Rounds per second of wall clock and of processor time, of every repeat."""
    taken = [span for f in found for span in f.spans]
    return [Mark(*(rounds / max(seconds, 1e-9) for seconds in span)) for span in taken]


def gap(found: Found, average_last: bool = False) -> str:
    """Largest difference from the NumPy loop's point after as many rounds."""
    if found.point is None:
        return ""
    like = numpy_loop(found.total, average_last).point
    assert like is not None
    return f"{np.abs(found.point - like).max():.0e}"


def compared(own: dict[str, list[Mark]], name: str, theirs: list[Mark], precision: str, private: bool) -> list[Row]:
    """Ours at that precision beside a peer; one with privacy beside ours with privacy alone."""
    ways = [("dgd", 0, "a second"), ("dp-dsgd", 1, "a processor second"), ("dp-dsgd on all cores", 0, "a second")]
    return [
        beside(f"rounds of {way}, {precision}", [mark[k] for mark in own[f"coterie {way}, {precision}"]], name,
               [mark[k] for mark in theirs], "{:,.4g} " + per, cost=False)
        for way, k, per in ways[private:]
    ]  # fmt: skip


def main() -> None:
    """Print and store a few lines for every peer."""
    parser = arguments(__doc__)
    packages = sorted({loop.package for loop in LOOPS.values()})
    parser.add_argument("--only", nargs="*", choices=packages, help="install and run these packages only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1000, help="of one repeat, for what runs here")
    parser.add_argument("--limit", type=float, default=RUN_SECONDS, help="seconds that a package's loop gets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for the environments")
    parser.add_argument("--all-cores", action="store_true", help="do not pin to one core")
    args = parser.parse_args()
    from benchmarks.peer_ours import ours  # here: packages' environments, which have no JAX, import this module too

    here: dict[str, Callable[[], Found]] = {
        "NumPy loop, float64": lambda: numpy_loop(args.rounds),
        "JAX scan, float64": lambda: jax_scan(args.rounds, True),
        "JAX scan, float32": lambda: jax_scan(args.rounds, False),
        "coterie dgd, float64": lambda: ours(args.rounds, True, False),
        "coterie dgd, float32": lambda: ours(args.rounds, False, False),
        "coterie dp-dsgd, float64": lambda: ours(args.rounds, True, True),
        "coterie dp-dsgd, float32": lambda: ours(args.rounds, False, True),
    }
    found: dict[str, list[Found]] = {name: [] for name in here}
    for _ in range(args.repeats):  # in turns, so that a disturbance hits all alike
        for name, measure in here.items():
            found[name].append(measure())
    for precision in ("float64", "float32"):
        name = f"coterie dp-dsgd on all cores, {precision}"
        found[name] = spread(args.rounds, args.repeats, precision == "float64", True, args.limit)
    own = {name: rates(found[name], args.rounds) for name in found}
    rows = [row for name in here if "coterie" not in name for row in compared(own, name, own[name], name[-7:], False)]
    apart = [f"{name} {gap(found[name][0])}" for name in here if "dp-" not in name]
    missing = []
    pythons = {name: environment(name, args.cache) for name in (packages if args.only is None else args.only)}
    for name, loop in LOOPS.items():
        if loop.package not in pythons:
            continue
        python = pythons[loop.package]
        result = python if isinstance(python, str) else elsewhere(name, python, args.repeats, args.limit)
        if isinstance(result, str):
            missing.append(f"{name}: {result}")
            continue
        precision, private = "float64" if loop.double else "float32", loop.package == "jax-privacy"
        rows += compared(own, name, rates([result], loop.rounds), precision, private)
        apart.append(f"{name} {gap(result, loop.average_last)} ({loop.note})".replace("  ", " "))
    note = f"{PARTIES} parties × {RECORDS} × {DIM}. Answers differ from the NumPy loop's by: {'; '.join(apart)}. "
    finish(args, "Other packages", rows, note + f"Not run: {'; '.join(missing) or 'none'}.")


if __name__ == "__main__":
    main()
