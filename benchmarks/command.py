"""`coterie run` of many agents against a hand-written JAX loop: `python -m benchmarks.command KIND [--agents N]`.

Decentralized gradient descent in float32 on a random 4-regular graph (`regular`) or a grid: what the command says its
run took (its first and only one, both measurements in it) over the median of some runs of the loop, compiled and warm.
Making data, compiling, loading kernels and reporting are left out; the whole command's time stands beside a goal.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.engine import median_time
from benchmarks.measured import Row, arguments, finish, spread
from coterie.graphs import make_graph, mixing

ROUNDS, DIM, STEP, RIDGE = 100, 40, 0.5, 0.01
PLAN = """
name = "many agents"
data = {{ source = "clinics", test_fraction = 0.06, options = {{ records = {total}, features = {dim} }} }}
partition = {{ kind = "iid", agents = {agents}, records = {records} }}
graph = {{ kind = "{kind}" {degree} }}
problem = {{ loss = "logistic" }}
algorithm = {{ name = "dgd" }}
run = {{ rounds = {rounds}, every = {rounds}, dtype = "float32" }}
"""


def command(kind: str, agents: int, records: int) -> tuple[float, float, str]:
    """Seconds of the run, and of the whole command; and where it says that they went."""
    total, degree = agents * (records + 2 + records // 10), ", degree = 4" if kind == "regular" else ""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as name:
        plan = Path(name) / "plan.toml"
        sizes = {"agents": agents, "records": records, "total": total, "dim": DIM, "rounds": ROUNDS}
        plan.write_text(PLAN.format(kind=kind, degree=degree, **sizes))
        call = [sys.executable, "-W", "ignore", "-m", "coterie.cli", "run", str(plan), "--out", f"{name}/out"]
        call.append("--quiet")
        start = time.perf_counter()
        said = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
        whole = time.perf_counter() - start
        parts = re.search(r"\d+ s in all: .*?report", said, re.DOTALL)
        told = " ".join(parts.group().split()) + "." if parts else ""
        return json.loads((Path(name) / "out" / "result.json").read_text())["timing"]["run_s"], whole, told


def by_hand(kind: str, agents: int, records: int, repeats: int) -> float:
    """Median seconds of the same rounds as one would write them."""
    graph = make_graph(kind, agents, seed=0, **({"degree": 4} if kind == "regular" else {}))
    degrees = np.diff(graph.indptr)
    index = np.zeros((agents, int(degrees.max())), np.int32)
    weight = np.zeros(index.shape, np.float32)
    who, slot = np.repeat(np.arange(agents), degrees), np.arange(len(graph.indices))
    slot = slot - np.repeat(graph.indptr[:-1], degrees)
    index[who, slot], weight[who, slot] = graph.indices, mixing(graph, "metropolis").edge_weights
    own, near, share = jnp.asarray(1 - weight.sum(1)), jnp.asarray(index), jnp.asarray(weight)
    key = jax.random.key(0)
    xs = jax.random.normal(key, (agents, records, DIM)) / DIM**0.5
    ys = jnp.where(jax.random.bernoulli(key, 0.5, (agents, records)), 1.0, -1.0)

    @jax.jit
    def loop(x: jax.Array, xs: jax.Array, ys: jax.Array) -> jax.Array:
        def step(x: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            mixed = own[:, None] * x
            for k in range(near.shape[1]):
                mixed += share[:, k, None] * x[near[:, k]]
            slope = -ys * jax.nn.sigmoid(-ys * jnp.einsum("nrd,nd->nr", xs, x))
            gradient = jnp.einsum("nr,nrd->nd", slope, xs) / records + RIDGE * x
            return mixed - STEP / (1 + t) ** 0.5 * gradient, None

        return jax.lax.scan(step, x, jnp.arange(ROUNDS, dtype=jnp.float32))[0]

    start = jnp.zeros((agents, DIM))
    with jax.default_matmul_precision("highest"):
        return median_time(lambda: jax.block_until_ready(loop(start, xs, ys)), repeats)


def main() -> None:
    """Print and store what was measured."""
    parser = arguments(__doc__)
    parser.add_argument("kind", choices=["regular", "grid"])
    parser.add_argument("--agents", type=int, default=10**6)
    parser.add_argument("--records", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7, help="of the loop by hand")
    parser.add_argument("--commands", type=int, default=3, help="how often the whole command is run")
    parser.add_argument("--goal", type=float, default=30.0, help="seconds that the whole command should take at most")
    args = parser.parse_args()
    rounds, wholes, parts = [], [], []
    for _ in range(args.commands):  # before the loop by hand: a GPU's memory is for one process
        ours, whole, said = command(args.kind, args.agents, args.records)
        print(f"the whole command: {whole:.1f} s, rounds {ours:.3f} s; {said}", flush=True)
        rounds, wholes, parts = [*rounds, ours], [*wholes, whole], [*parts, said]
    loop = by_hand(args.kind, args.agents, args.records, args.repeats)
    size, ours, whole = f"{args.agents:,} parties on a {args.kind} graph", median(rounds), median(wholes)
    goal, loops = [args.goal] * args.commands, [loop] * args.commands
    rows = [
        Row(f"rounds of `coterie run`, {size}", f"{ours:.3f} s", f"hand-written loop {loop:.3f} s",
            *spread(rounds, loops)),
        Row("the whole command", f"{whole:.1f} s", f"goal {args.goal:g} s", *spread(wholes, goal)),
    ]  # fmt: skip
    took = ", ".join(f"{one:.1f}" for one in wholes)
    note = f"Commands one after the other, the first with nothing in a cache if the machine is new: {took} s."
    note += f" The first: {parts[0]}" if parts[0] else ""  # a short one does not say where its time went
    finish(args, f"The whole command, {args.agents:,} parties", rows, note, of=str(args.agents))


if __name__ == "__main__":
    main()
