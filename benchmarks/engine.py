"""The engine against hand-written code and SciPy, in one run: `python -m benchmarks.engine`.

(a) noisy DGD on a ring, d = 40, 32 records per agent, 100 rounds, float32: the engine against a hand-written JAX loop
    of the same update (goal: the interface costs at most 1.2×), with the bytes per second that the data pass reaches;
(b) 30 rounds of exact ADMM, 5 agents × 7,000 × 105, float64, every subproblem to gradient norm 1e-8, one core: the
    engine against SciPy L-BFGS and NumPy Newton (goal: twice the faster), and the fraction of the machine's GEMM rate;
(c) ten seeds of (b) in one call against one (goal: less than ten times).
All three print ratios measured in this run; nothing is asserted on wall-clock time.
"""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable

from benchmarks.one_core import pin

if "jax" not in sys.modules:
    pin()

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import benchmarks.noisy_dgd as noisy_dgd
from benchmarks.measured import Row, arguments, finish, spread
from coterie.algorithms.base import Algorithm, find
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from coterie.problems import SolverSettings

ROUNDS, DIM, RECORDS = 100, 40, 32
STEP, SIGMA, RIDGE = 0.5, 0.01, 1e-4


@functools.lru_cache(maxsize=1)  # ten seconds and more for a million parties
def classification(
    n: int, d: int, seed: int, dtype: type = np.float64, spread: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """n unit-norm records with logistic labels; `spread` gives column k the scale k^-spread, as coded tables have."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d), dtype=np.float32).astype(dtype) * np.arange(1, d + 1, dtype=dtype) ** -spread
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-3 * x @ rng.standard_normal(d))), 1.0, -1.0)
    return x, y.astype(dtype)


def times(f: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each f() after one warm-up."""
    f()
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        took.append(time.perf_counter() - start)
    return took


def median_time(f: Callable[[], object], repeats: int) -> float:
    """Their median."""
    return float(np.median(times(f, repeats)))


def hand_written(rounds: int, clip: float | None = None) -> jax.stages.Wrapped:
    """The same noisy DGD on a ring, as one would write it for this case alone."""

    @jax.jit
    def run(key: jax.Array, w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def step(sent: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            point = (sent + jnp.roll(sent, 1, 0) + jnp.roll(sent, -1, 0)) / 3
            score = jnp.einsum("nrd,nd->nr", x, point)
            slope = -y * jax.nn.sigmoid(-y * score)
            if clip is not None:
                slope *= jnp.minimum(1, clip / jnp.maximum(jnp.abs(slope) * jnp.linalg.norm(x, axis=2), 1e-30))
            gradient = jnp.einsum("nr,nrd->nd", slope, x) / x.shape[1] + RIDGE * point
            noise = jax.random.normal(jax.random.fold_in(key, t), point.shape)
            return point - STEP * gradient + SIGMA * noise, None

        return jax.lax.scan(step, w, jnp.arange(rounds))[0]

    return run


def ring(agents: int, repeats: int, clip: float | None = None, copied: dict[str, float] | None = None) -> list[Row]:
    """Part (a) for one network size; `copied`: bytes per second of copies, for the ratio to one pass over records."""
    x, y = classification(agents * RECORDS, DIM, 0, np.float32)
    parts = np.arange(agents * RECORDS).reshape(agents, RECORDS)
    graph = make_graph("ring", agents)
    problem = Logistic(DIM)
    layout = make_layout(
        problem, x, y, parts, graph, mixing(graph, "metropolis"), rounds=ROUNDS, ridge=RIDGE, dtype=jnp.float32
    )
    algorithm = Algorithm.of("noisy-dgd", noisy_dgd)
    runs = [Run(0, noisy_dgd.Config(step=STEP, sigma=SIGMA, clip=clip))]

    def engine() -> Trace:
        return simulate(algorithm, layout, runs, rounds=ROUNDS, every=ROUNDS)

    xs, ys = jnp.asarray(x.reshape(agents, RECORDS, DIM)), jnp.asarray(y.reshape(agents, RECORDS))
    by_hand = hand_written(ROUNDS, clip)
    loop = lambda key, start: by_hand(key, start, xs, ys)  # noqa: E731
    if jax.default_backend() == "cpu":  # a tenth faster there; a GPU's compiler would take minutes for such constants
        loop = jax.jit(loop)
    start = jnp.zeros((agents, DIM), jnp.float32)
    ours, hand = [], []
    for _ in range(repeats + 1):  # taking turns; the first is a warm-up
        ours.append(engine().timing["run_s"])
        began = time.perf_counter()
        jax.block_until_ready(loop(jax.random.key(0), start))
        hand.append(time.perf_counter() - began)
    ours, hand = ours[1:], hand[1:]
    engine_s, hand_s = float(np.median(ours)), float(np.median(hand))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    passes = 2 * x.nbytes * ROUNDS / engine_s / 1e9
    print(
        f"| {agents:>9,} | {agents * ROUNDS / engine_s:>14,.0f} | {engine_s:>8.3f} | {hand_s:>8.3f} "
        f"| {engine_s / hand_s:>5.2f} | {passes:>8.1f} | {peak:>6.2f} |"
        + "".join(f" {engine_s / (x.nbytes * ROUNDS / speed):>5.2f} |" for speed in (copied or {}).values()),
        flush=True,
    )
    what = f"noisy DGD on a ring, {agents:,} parties, {ROUNDS} rounds" + ("" if clip is None else ", clipped")
    told = f"{1e3 * engine_s:,.0f} ms"
    rows = [Row(what, told, f"hand-written loop {1e3 * hand_s:,.0f} ms", *spread(ours, hand))]
    for name, speed in (copied or {}).items():
        once = x.nbytes * ROUNDS / speed
        rows.append(Row(what, told, f"one pass at {name} {1e3 * once:,.0f} ms", *spread(ours, [once] * repeats)))
    return rows


def _scipy_round(shard: tuple, linear: np.ndarray, curvature: float, x0: np.ndarray, method: str) -> np.ndarray:
    """One subproblem to gradient norm 1e-8 with SciPy's L-BFGS or a NumPy Newton iteration."""
    a, y = shard

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (a @ w)
        p = 1 / (1 + np.exp(margin))
        value = np.logaddexp(0, -margin).mean() + RIDGE / 2 * w @ w + linear @ w + curvature / 2 * w @ w
        return value, a.T @ (-y * p) / len(y) + (RIDGE + curvature) * w + linear

    if method == "L-BFGS":
        w = x0
        for _ in range(5):  # its own stopping rule is on the largest entry: repeat until the norm is there
            options = {"gtol": 1e-9, "ftol": 0.0, "maxiter": 500, "maxcor": 10}
            w = scipy.optimize.minimize(fun, w, jac=True, method="L-BFGS-B", options=options).x
            if np.linalg.norm(fun(w)[1]) <= 1e-8:
                break
        return w
    w = x0
    for _ in range(50):
        gradient = fun(w)[1]
        if np.linalg.norm(gradient) <= 1e-8:
            break
        p = 1 / (1 + np.exp(y * (a @ w)))
        hessian = a.T @ ((p * (1 - p) / len(y))[:, None] * a) + (RIDGE + curvature) * np.eye(len(w))
        w = w - np.linalg.solve(hessian, gradient)
    return w


def scipy_admm(x: np.ndarray, y: np.ndarray, parts: np.ndarray, penalty: float, rounds: int, method: str) -> np.ndarray:
    """Decentralized ADMM on a ring of five, as a NumPy user would write it, warm-started."""
    n, d = len(parts), x.shape[1]
    shards = [(np.ascontiguousarray(x[p]), y[p]) for p in parts]
    w, dual = np.zeros((n, d)), np.zeros((n, d))
    near = np.zeros((n, d))
    for _ in range(rounds):
        linear = dual - penalty * (2 * w + near)
        w = np.stack([_scipy_round(s, b, 4 * penalty, v, method) for s, b, v in zip(shards, linear, w, strict=True)])
        near = np.roll(w, 1, 0) + np.roll(w, -1, 0)
        dual += penalty * (2 * w - near)
    return w


def admm(repeats: int) -> list[Row]:
    """Parts (b) and (c)."""
    agents, records, d, rounds, penalty = 5, 7000, 105, 30, 0.004
    x, y = classification(agents * records, d, 1, spread=1.0)
    parts = np.arange(agents * records).reshape(agents, records)
    graph = make_graph("ring", agents)
    with jax.enable_x64(True):
        layout = make_layout(
            Logistic(d), x, y, parts, graph, mixing(graph, "metropolis"), rounds=rounds, ridge=RIDGE,
            how=SolverSettings(),
        )  # fmt: skip
    algorithm = find("admm")
    one = algorithm.config(penalty=penalty)

    def engine(seeds: int) -> Trace:
        return simulate(
            algorithm, layout, [Run(s, one) for s in range(seeds)], rounds=rounds, every=rounds, record=True
        )

    traces = [engine(1) for _ in range(repeats)]
    engine_s = float(np.median([t.timing["run_s"] for t in traces]))
    peers = {}
    for method in ("L-BFGS", "Newton"):
        start = time.perf_counter()
        answer = scipy_admm(x, y, parts, penalty, rounds, method)
        peers[method] = time.perf_counter() - start
        gap = abs(answer - traces[0].points[0]).max()
        print(f"  {method:<8} {peers[method]:7.3f} s   largest difference to the engine {gap:.1e}")
    best = min(peers.values())
    residual = float(np.max(traces[0].states.solver.residual))
    steps = float(np.mean(traces[0].states.solver.steps)) / rounds
    flops = 4 * records * d * float(np.sum(traces[0].states.solver.steps))
    gemm = np.random.default_rng(0).standard_normal((1500, 1500))
    gemm_s = median_time(lambda: gemm @ gemm, 3)
    rate = 2 * 1500**3 / gemm_s
    print(f"  engine   {engine_s:7.3f} s   residual ≤ {residual:.1e}, {steps:.1f} gradients per subproblem")
    share = flops / engine_s / rate
    print(f"  ratio to the faster peer: {best / engine_s:.2f}× (goal ≥ 2)")
    print(f"  gradients alone: {share:.1%} of the GEMM rate ({rate / 1e9:.0f} GFLOP/s)")
    ten = engine(10).timing["run_s"]
    print(f"  ten seeds {ten:.3f} s = {ten / engine_s:.1f} × one seed (goal < 10)")
    took = [t.timing["run_s"] for t in traces]
    what, told = "exact ADMM, 30 rounds, 5 × 7,000 × 105, gradient norm 1e-8", f"{engine_s:.2f} s"
    rows = [Row(what, told, f"{name} by hand {s:.2f} s", *spread(took, [s] * repeats)) for name, s in peers.items()]
    one = 10 * engine_s / ten
    return [
        *rows,
        Row("ten seeds of it in one call", f"{ten:.2f} s", f"ten times one {10 * engine_s:.2f} s", one, one, one),
    ]


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--agents", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip-admm", action="store_true")
    parser.add_argument("--all-cores", action="store_true", help="do not pin to one core")
    args = parser.parse_args()
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    print(f"(a) noisy DGD on a ring, d = {DIM}, {RECORDS} records each, {ROUNDS} rounds, float32")
    print("|    agents | agent-rounds/s | engine s |   hand s | ratio | GB/s data | GiB   |")
    rows = [row for n in args.agents for row in ring(n, args.repeats)]
    print("clipped to .5:")
    rows += ring(max(args.agents), args.repeats, 0.5)
    if not args.skip_admm:
        print("(b) exact ADMM, 30 rounds, 5 × 7,000 × 105, float64, gradient norm 1e-8, one core")
        rows += admm(args.repeats)
    cores, of = ("all cores", "all") if args.all_cores else ("one core", "")
    note = f"Wall clock on {cores}; d = {DIM}, {RECORDS} records a party in float32; ADMM in float64."
    finish(args, f"Engine on {cores}", rows, note, of)


if __name__ == "__main__":
    main()
