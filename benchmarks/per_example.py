"""Clipped per-example gradients per second, against peers in one run: `python -m benchmarks.per_example`.

The 784-50-10 sigmoid perceptron (39,760 parameters), float32, one core unless --all-cores: Σ_r clip_K(∇loss_r) at batch
20, 256 and 2048 by
    ours           `Perceptron.weighted_gradient` with its closed-form norms
    non-private    the same without clipping: the rate that clipping is measured against (goal ≥ 90 %)
    vmap(grad)     every record's gradient formed, then clipped
    opacus ghost   (--peer-python) its fast gradient clipping (goal: 3× at 256, 2× at 2048)
    opacus hooks, torch                  its per-sample hooks, and a plain backward pass
Peers run in their own interpreter with the same data and parameters; their clipped sums are compared with ours. Times
are the best of several, since other programs may disturb any of them; nothing is asserted on wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

try:
    from benchmarks.one_core import pin
except ModuleNotFoundError:  # the peer's interpreter runs this file by its path
    from one_core import pin  # type: ignore[import-not-found,no-redef]

ONE_CORE = __name__ == "__main__" and pin()

import numpy as np  # noqa: E402

SIZES, CLIP, BATCHES = (784, 50, 10), 0.5, (20, 256, 2048)


def best(f: Callable[[], Any], seconds: float = 1.0, clock: Callable[[], float] = time.perf_counter) -> float:
    """Least seconds of one call, over at least five and about `seconds` of them, after a warm-up."""
    f()
    times: list[float] = []
    while len(times) < 5 or sum(times) < seconds:
        start = clock()
        f()
        times.append(clock() - start)
    return min(times)


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


def measure_ours(batch: int) -> tuple[dict[str, float], np.ndarray]:
    """Seconds per batch of our three ways, and the clipped sum."""
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
    ways = {"ours": ours, "non-private": plain, "vmap(grad)": formed}
    return {name: best(lambda: jax.block_until_ready(f(x))) for name, f in ways.items()}, answer  # noqa: B023


def measure_peer(folder: Path) -> None:
    """In the peer's interpreter: seconds per batch and norm of the clipped sum, as JSON on the last line."""
    import warnings

    import opacus
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    warnings.filterwarnings("ignore")
    if "--all-cores" not in sys.argv:
        torch.set_num_threads(1)
    stored = np.load(folder / "data.npz")

    def model() -> torch.nn.Module:
        net = torch.nn.Sequential(torch.nn.Linear(784, 50), torch.nn.Sigmoid(), torch.nn.Linear(50, 10))
        with torch.no_grad():
            for k, layer in enumerate((net[0], net[2])):
                layer.weight.copy_(torch.from_numpy(stored[f"p{2 * k}"].T))
                layer.bias.copy_(torch.from_numpy(stored[f"p{2 * k + 1}"]))
        return net

    def norm(net: torch.nn.Module, attribute: str) -> float:
        return float(torch.sqrt(sum((getattr(p, attribute) ** 2).sum() for p in net.parameters())))

    out: dict[str, Any] = {"versions": f"opacus {opacus.__version__}, torch {torch.__version__}"}
    for batch in BATCHES:
        z, y = torch.from_numpy(stored["features"][:batch]), torch.from_numpy(stored["labels"][:batch])
        settings = {"noise_multiplier": 0.0, "max_grad_norm": CLIP, "expected_batch_size": batch}

        ghost = GradSampleModuleFastGradientClipping(model(), max_grad_norm=CLIP, use_ghost_clipping=True)
        ghost_optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(ghost.parameters(), lr=0.0), **settings)
        criterion = DPLossFastGradientClipping(ghost, ghost_optimizer, torch.nn.CrossEntropyLoss(), "mean")

        def by_ghost() -> None:
            ghost_optimizer.zero_grad()  # noqa: B023
            criterion(ghost(z), y).backward()  # noqa: B023

        hooks = GradSampleModule(model())
        hooks_optimizer = DPOptimizer(torch.optim.SGD(hooks.parameters(), lr=0.0), **settings)
        plain_loss = torch.nn.CrossEntropyLoss()

        def by_hooks() -> None:
            hooks_optimizer.zero_grad()  # noqa: B023
            plain_loss(hooks(z), y).backward()  # noqa: B023
            hooks_optimizer.clip_and_accumulate()  # noqa: B023

        plain = model()

        def by_torch() -> None:
            plain.zero_grad()  # noqa: B023
            plain_loss(plain(z), y).backward()  # noqa: B023

        ways = {"opacus ghost": by_ghost, "opacus hooks": by_hooks, "torch": by_torch}
        out[str(batch)] = {name: best(f) for name, f in ways.items()}
        out[f"norm {batch}"] = [norm(ghost, "grad"), norm(hooks, "summed_grad")]
    print(json.dumps(out))


def ask_peer(python: str | None) -> dict[str, Any] | None:
    """The peer's measurements, or None with a line that says why there are none."""
    if python is None:
        print("no peer: give --peer-python an interpreter that has torch and opacus")
        return None
    features, labels, params = make_data()
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            Path(folder) / "data.npz", features=features, labels=labels, **{f"p{k}": p for k, p in enumerate(params)}
        )
        more = ["--all-cores"] if not ONE_CORE else []
        command = [python, __file__, "--as-peer", folder, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"no peer: {python} failed: {reason}")
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="interpreter with torch and opacus")
    parser.add_argument("--all-cores", action="store_true", help="do not pin to one core (and for a GPU)")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_peer:
        return measure_peer(Path(args.as_peer))

    import jax

    peer = ask_peer(args.peer_python)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}" + (f"; {peer['versions']}" if peer else ""))
    print("clipped per-example gradients per second, thousands")
    for batch in BATCHES:
        seconds, answer = measure_ours(batch)
        if peer:
            seconds |= peer[str(batch)]
            norm = float(np.linalg.norm(answer))
            for theirs in peer[f"norm {batch}"]:
                assert abs(theirs - norm) < 1e-3 * norm, f"clipped sums differ: ours {norm}, theirs {theirs}"
        rates = "  ".join(f"{name} {batch / s / 1e3:.1f}" for name, s in seconds.items())
        ratios = [f"{seconds['non-private'] / seconds['ours']:.0%} of non-private"]
        ratios += [f"{seconds[k] / seconds['ours']:.1f}× {k}" for k in ("vmap(grad)", "opacus ghost") if k in seconds]
        print(f"  batch {batch:>4}: {rates}\n              ours: {', '.join(ratios)}")


if __name__ == "__main__":
    main()
