"""Clipped per-example gradients per second, against peers in one run: `python -m benchmarks.per_example [--keep]`.

The 784-50-10 sigmoid perceptron (39,760 parameters), float32, one core unless --all-cores: Σ_r clip_K(∇loss_r) at batch
20, 256 and 2048 by
    ours           `Perceptron.weighted_gradient` with its closed-form norms
    non-private    the same without clipping: the rate that clipping is measured against (goal ≥ 90 %)
    vmap(grad)     every record's gradient formed, then clipped
    opacus ghost   (--opacus) its fast gradient clipping (goal: 3× at 256, 2× at 2048)
    opacus hooks, torch              its per-sample hooks, and a plain backward pass
Opacus runs in an interpreter that has it, or in one that `benchmarks.peers` makes, with the same data and parameters;
its clipped sums are compared with ours. Every turn's time is the best of several, since other programs may disturb any
of them, and processor time on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.one_core import ONE_CORE, pin

if __name__ == "__main__":
    pin()

import numpy as np

from benchmarks.measured import Row, arguments, beside, finish
from benchmarks.peers import CACHE, ROOT, environment, last_line

OURS = "ours"
Times = dict[str, list[float]]  # seconds of a batch, in every turn
SIZES, CLIP, BATCHES = (784, 50, 10), 0.5, (20, 256, 2048)
CLOCK = time.process_time if ONE_CORE else time.perf_counter


def turns(ways: dict[str, Callable[[], Any]], count: int) -> Times:
    """Seconds of a call of every way: in each turn the least of at least three, and of a fifth of a second of them."""
    took: Times = {name: [] for name in ways}
    for f in ways.values():
        f()
    for _ in range(count):
        for name, f in ways.items():
            times: list[float] = []
            while len(times) < 3 or sum(times) < 0.2:
                start = CLOCK()
                f()
                times.append(CLOCK() - start)
            took[name].append(min(times))
    return took


def make_data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Pixels in [0, 1] (most of them 0, as in MNIST), labels, and weights as (inputs, outputs), bias, …"""
    rng = np.random.default_rng(seed)
    features = rng.uniform(size=(max(BATCHES), SIZES[0])) * (rng.uniform(size=(max(BATCHES), SIZES[0])) < 0.19)
    params: list[np.ndarray] = []
    for i, o in pairwise(SIZES):
        limit = (6 / (i + o)) ** 0.5
        params += [rng.uniform(-limit, limit, (i, o)), rng.uniform(-0.1, 0.1, o)]
    labels = rng.integers(0, SIZES[-1], max(BATCHES))
    return features.astype(np.float32), labels, [p.astype(np.float32) for p in params]


def measure_ours(batch: int, count: int) -> tuple[Times, float]:
    """Our three ways, and the norm of the clipped sum."""
    import jax
    import jax.numpy as jnp

    from coterie.losses.mlp import Perceptron

    problem = Perceptron(SIZES, "sigmoid")
    features, labels, params = make_data()
    x = jnp.asarray(np.concatenate([p.ravel() for p in params]))
    z, y, ones = jnp.asarray(features[:batch]), jnp.asarray(labels[:batch], jnp.int32), jnp.ones(batch, jnp.float32)
    ours = jax.jit(lambda x: problem.weighted_gradient(x, z, y, ones, CLIP))
    plain = jax.jit(lambda x: problem.weighted_gradient(x, z, y, ones))

    @jax.jit
    def formed(x: jax.Array) -> jax.Array:
        one = jax.grad(lambda v, f, t: problem.losses(v, f[None], t[None])[0])
        each = jax.vmap(one, (None, 0, 0))(x, z, y)
        norms = jnp.linalg.norm(each, axis=1)
        return jnp.minimum(1.0, CLIP / norms) @ each

    answer = np.asarray(ours(x))
    np.testing.assert_allclose(answer, formed(x), atol=2e-3 * np.abs(answer).max())  # TF32 products on a GPU
    ways = {OURS: ours, "non-private": plain, "vmap(grad)": formed}
    calls = {name: partial(lambda f: jax.block_until_ready(f(x)), f) for name, f in ways.items()}
    return turns(calls, count), float(np.linalg.norm(answer))


def compared(what: str, batch: int, times: Times) -> list[Row]:
    """Our rate beside every other."""
    rates = {name: [batch / seconds / 1e3 for seconds in those] for name, those in times.items()}
    ours = rates.pop(OURS)
    return [beside(f"{what}, batch {batch:,}", ours, *peer, "{:.2f} thousand a second", cost=False)
            for peer in rates.items()]  # fmt: skip


# -- Opacus, in an interpreter that has it -----------------------------------------------------------------------------


def opacus_ways(model: Callable[[], Any], z: np.ndarray, y: np.ndarray, count: int) -> dict[str, Any]:
    """Times of its ghost clipping, its hooks and a plain backward pass of PyTorch; norms of the clipped sums."""
    import warnings

    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    warnings.filterwarnings("ignore")
    if ONE_CORE:
        torch.set_num_threads(1)
    records, labels = torch.from_numpy(z), torch.from_numpy(y)
    settings = {"noise_multiplier": 0.0, "max_grad_norm": CLIP, "expected_batch_size": len(z)}
    loss = torch.nn.CrossEntropyLoss()
    ghost = GradSampleModuleFastGradientClipping(model(), max_grad_norm=CLIP, use_ghost_clipping=True)
    ghost_optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(ghost.parameters(), lr=0.0), **settings)
    criterion = DPLossFastGradientClipping(ghost, ghost_optimizer, loss, "mean")

    def by_ghost() -> None:
        ghost_optimizer.zero_grad()
        criterion(ghost(records), labels).backward()

    hooks = GradSampleModule(model())
    hooks_optimizer = DPOptimizer(torch.optim.SGD(hooks.parameters(), lr=0.0), **settings)

    def by_hooks() -> None:
        hooks_optimizer.zero_grad()
        loss(hooks(records), labels).backward()
        hooks_optimizer.clip_and_accumulate()

    plain = model()

    def by_torch() -> None:
        plain.zero_grad()
        loss(plain(records), labels).backward()

    def norm(net: torch.nn.Module, attribute: str) -> float:
        return float(torch.sqrt(sum((getattr(p, attribute) ** 2).sum() for p in net.parameters())))

    times = turns({"Opacus, ghost": by_ghost, "Opacus, hooks": by_hooks, "PyTorch, non-private": by_torch}, count)
    return {"times": times, "norms": [norm(ghost, "grad"), norm(hooks, "summed_grad")]}


def measure_opacus(folder: Path, count: int) -> None:
    """The perceptron at every batch, as JSON on the last line."""
    import torch

    stored = np.load(folder / "data.npz")

    def model() -> torch.nn.Module:
        net = torch.nn.Sequential(torch.nn.Linear(784, 50), torch.nn.Sigmoid(), torch.nn.Linear(50, 10))
        with torch.no_grad():
            for k, layer in enumerate((net[0], net[2])):
                layer.weight.copy_(torch.from_numpy(stored[f"p{2 * k}"].T))
                layer.bias.copy_(torch.from_numpy(stored[f"p{2 * k + 1}"]))
        return net

    features, labels = stored["features"], stored["labels"]
    print(json.dumps({str(b): opacus_ways(model, features[:b], labels[:b], count) for b in BATCHES}))


def add_opacus(parser: argparse.ArgumentParser) -> None:
    """The options that `ask_opacus` needs."""
    parser.add_argument("--opacus", metavar="PYTHON", nargs="?", const="", help="that has it; or make one")
    parser.add_argument("--all-cores", action="store_true", help="do not pin to one core (and for a GPU)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--as-peer", type=Path, help=argparse.SUPPRESS)


def ask_opacus(
    args: argparse.Namespace, made: tuple[np.ndarray, np.ndarray, list[np.ndarray]], options: Sequence[str] = ()
) -> tuple[dict[str, Any], str]:
    """What Opacus takes for these records, labels and parameters, and a sentence with its versions, or why it is not.

    The module that runs is called in the other interpreter with `--as-peer` and a folder with data.npz.
    """
    if args.opacus is None:
        return {}, "Opacus was not asked for."
    python = args.opacus or environment("opacus", CACHE)
    if isinstance(python, str) and not args.opacus:
        return {}, f"Opacus {python}."
    spec = sys.modules["__main__"].__spec__
    assert spec is not None
    features, labels, params = made
    versions = "import opacus, torch; print('Opacus', opacus.__version__ + ', PyTorch', torch.__version__)"
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            Path(folder) / "data.npz", features=features, labels=labels, **{f"p{k}": p for k, p in enumerate(params)}
        )
        options = [*options, "--turns", str(args.turns), *([] if ONE_CORE else ["--all-cores"])]
        calls = [["-c", versions], ["-m", spec.name, "--as-peer", folder, *options]]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = [subprocess.run([python, *call], capture_output=True, text=True, env=env) for call in calls]
    if failed := [one for one in done if one.returncode]:
        return {}, f"Opacus failed: {last_line(failed[0].stderr)}."
    return json.loads(done[1].stdout.strip().splitlines()[-1]), f"{done[0].stdout.strip()}."


def agree(ours: float, theirs: Sequence[float]) -> None:
    """Norms of clipped sums are the same."""
    assert all(abs(one - ours) < 2e-3 * ours for one in theirs), f"clipped sums differ: ours {ours}, theirs {theirs}"


def main() -> None:
    """Print and store a line for every batch and peer."""
    parser = arguments(__doc__)
    add_opacus(parser)
    args = parser.parse_args()
    if args.as_peer:
        return measure_opacus(args.as_peer, args.turns)
    peer, said = ask_opacus(args, make_data())
    rows = []
    for batch in BATCHES:
        times, norm = measure_ours(batch, args.turns)
        if peer:
            times |= peer[str(batch)]["times"]
            agree(norm, peer[str(batch)]["norms"])
        rows += compared("clipped gradients of 784-50-10", batch, times)
    finish(
        args, "Clipped gradients of a perceptron", rows, f"{'One core' if ONE_CORE else 'All cores'}, float32. {said}"
    )


if __name__ == "__main__":
    main()
