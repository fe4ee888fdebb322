"""Clipped per-record gradients of networks of one's own, against Opacus in one run: `python -m benchmarks.networks`.

Two networks on 28 × 28 pixels, written with Equinox and taken as `ct.neural` takes any, float32, one core unless
--all-cores:
    cnn     the network of Opacus's MNIST example: two convolutions with pooling, two dense layers, 26,010 parameters
    dense   784-256-64-10 with ReLU, 218,058 parameters
Σ_r clip_K(∇loss_r) at several batches by
    ours           `Custom.weighted_gradient`
    non-private    the same network's plain gradient: the rate that clipping is measured against (GPU goal ≥ 50 %)
    vmap(grad)     every record's gradient formed, then clipped (left out where it does not fit: --formed N)
    opacus         (--peer-python) per-sample hooks, and ghost clipping: the faster counts (goal: 1× cnn, 2× dense)
Peers run in their own interpreter with the same records and parameters; the norms of all clipped sums are compared.
Times are the best of several, on one core in processor time, which other programs disturb less; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.one_core import pin

ONE_CORE = __name__ == "__main__" and pin()

import numpy as np  # noqa: E402

from benchmarks.per_example import CLIP, best  # noqa: E402

CLOCK = time.process_time if ONE_CORE else time.perf_counter
BATCHES = (64, 256, 1024)
CNN = ((16, 1, 8, 8), (16,), (32, 16, 4, 4), (32,), (32, 512), (32,), (10, 32), (10,))
DENSE = ((256, 784), (256,), (64, 256), (64,), (10, 64), (10,))
NETWORKS = {"cnn": CNN, "dense": DENSE}


def make_data(network: str, rows: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Pixels in [0, 1] (most of them 0, as in MNIST), labels, and parameters in PyTorch's order."""
    rng = np.random.default_rng(0)
    pixels = rng.uniform(size=(rows, 784))
    features, labels = np.maximum(pixels - 0.81, 0) / 0.19, pixels.argmax(axis=1) % 10
    rng = np.random.default_rng(1)
    shapes = NETWORKS[network]
    scale = [1 / np.sqrt(np.prod(shapes[k - k % 2][1:])) for k in range(len(shapes))]
    params = [rng.uniform(-s, s, shape).astype(np.float32) for s, shape in zip(scale, shapes, strict=True)]
    return features.astype(np.float32), labels, params


def ours(network: str, params: list[np.ndarray]) -> Any:
    """The problem that `ct.neural` makes."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import coterie as ct  # before JAX computes anything

    key, relu = jax.random.key(0), eqx.nn.Lambda(jax.nn.relu)
    if network == "cnn":
        pool = eqx.nn.MaxPool2d(2, 1)
        module = eqx.nn.Sequential([
            eqx.nn.Conv2d(1, 16, 8, 2, 3, key=key), relu, pool, eqx.nn.Conv2d(16, 32, 4, 2, key=key), relu, pool,
            eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(512, 32, key=key), relu, eqx.nn.Linear(32, 10, key=key),
        ])  # fmt: skip
    else:
        sizes = (784, 256), (256, 64), (64, 10)
        layers = [layer for a, b in sizes for layer in (eqx.nn.Linear(a, b, key=key), relu)]
        module = eqx.nn.Sequential(layers[:-1])
    leaves, tree = jax.tree.flatten(eqx.filter(module, eqx.is_array))
    given = [jnp.asarray(p).reshape(leaf.shape) for p, leaf in zip(params, leaves, strict=True)]
    module = eqx.combine(jax.tree.unflatten(tree, given), module)
    return ct.neural(module, 10, shape=(1, 28, 28) if network == "cnn" else None).own


def measure_ours(network: str, batch: int, formed_up_to: int) -> tuple[dict[str, float], float]:
    """Seconds per batch of our ways, and the norm of the clipped sum."""
    import jax
    import jax.numpy as jnp

    features, labels, params = make_data(network, batch)
    problem = ours(network, params)
    x = jnp.asarray(problem.start(0), jnp.float32)
    z, y, ones = jnp.asarray(features), jnp.asarray(labels, jnp.int32), jnp.ones(batch, jnp.float32)

    def formed(x: jax.Array) -> jax.Array:
        one = jax.grad(lambda v, f, t: problem._plain(v, f[None], t[None])[0])
        each = jax.vmap(one, (None, 0, 0))(x, z, y)
        return jnp.minimum(1.0, CLIP / jnp.linalg.norm(each, axis=1)) @ each

    ways: dict[str, Callable] = {
        "ours": lambda x: problem.weighted_gradient(x, z, y, ones, CLIP),
        "non-private": jax.grad(lambda x: jnp.sum(problem._plain(x, z, y))),
    }
    if batch <= formed_up_to:
        ways["vmap(grad)"] = formed
    compiled = {name: jax.jit(f) for name, f in ways.items()}
    norms = {name: float(jnp.linalg.norm(f(x))) for name, f in compiled.items() if name != "non-private"}
    for name, norm in norms.items():
        assert abs(norm - norms["ours"]) < 2e-3 * norm, f"clipped sums differ: {name} {norm}, ours {norms['ours']}"
    return {name: best(lambda: jax.block_until_ready(f(x)), clock=CLOCK) for name, f in compiled.items()}, norms["ours"]  # noqa: B023


def measure_peer(folder: Path, network: str) -> None:
    """In the peer's interpreter: seconds per batch and norm of the clipped sum, as JSON on the last line."""
    import warnings

    import opacus
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from torch import nn

    warnings.filterwarnings("ignore")
    if "--all-cores" not in sys.argv:
        torch.set_num_threads(1)
    stored = np.load(folder / "data.npz")

    def model() -> nn.Module:
        if network == "cnn":
            parts = [
                nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
                nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
            ]  # fmt: skip
        else:
            parts = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)]
        net = nn.Sequential(*parts)
        with torch.no_grad():
            for k, p in enumerate(net.parameters()):
                p.copy_(torch.from_numpy(stored[f"p{k}"]))
        return net

    def norm(net: nn.Module, attribute: str) -> float:
        return float(torch.sqrt(sum((getattr(p, attribute) ** 2).sum() for p in net.parameters())))

    out: dict[str, Any] = {"versions": f"opacus {opacus.__version__}, torch {torch.__version__}"}
    for batch in json.loads(str(stored["batches"])):
        z, y = torch.from_numpy(stored["features"][:batch]), torch.from_numpy(stored["labels"][:batch])
        z = z.reshape(-1, 1, 28, 28) if network == "cnn" else z
        settings = {"noise_multiplier": 0.0, "max_grad_norm": CLIP, "expected_batch_size": batch}

        ghost = GradSampleModuleFastGradientClipping(model(), max_grad_norm=CLIP, use_ghost_clipping=True)
        ghost_optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(ghost.parameters(), lr=0.0), **settings)
        criterion = DPLossFastGradientClipping(ghost, ghost_optimizer, nn.CrossEntropyLoss(), "mean")

        def by_ghost() -> None:
            ghost_optimizer.zero_grad()  # noqa: B023
            criterion(ghost(z), y).backward()  # noqa: B023

        hooks = GradSampleModule(model())
        hooks_optimizer = DPOptimizer(torch.optim.SGD(hooks.parameters(), lr=0.0), **settings)
        plain_loss = nn.CrossEntropyLoss()

        def by_hooks() -> None:
            hooks_optimizer.zero_grad()  # noqa: B023
            plain_loss(hooks(z), y).backward()  # noqa: B023
            hooks_optimizer.clip_and_accumulate()  # noqa: B023

        plain = model()

        def by_torch() -> None:
            plain.zero_grad()  # noqa: B023
            plain_loss(plain(z), y).backward()  # noqa: B023

        ways = {"opacus ghost": by_ghost, "opacus hooks": by_hooks, "torch": by_torch}
        out[str(batch)] = {name: best(f, clock=CLOCK) for name, f in ways.items()}
        out[f"norm {batch}"] = [norm(ghost, "grad"), norm(hooks, "summed_grad")]
    print(json.dumps(out))


def ask_peer(python: str | None, network: str, batches: list[int]) -> dict[str, Any] | None:
    """The peer's measurements, or None with a line that says why there are none."""
    if python is None:
        print("no peer: give --peer-python an interpreter that has torch and opacus")
        return None
    features, labels, params = make_data(network, max(batches))
    with tempfile.TemporaryDirectory() as folder:
        arrays = {f"p{k}": p for k, p in enumerate(params)}
        np.savez(
            Path(folder) / "data.npz", features=features, labels=labels, batches=json.dumps(batches), **arrays
        )  # fmt: skip
        command = [python, "-m", "benchmarks.networks", "--as-peer", folder, "--network", network]
        done = subprocess.run(
            command + ([] if ONE_CORE else ["--all-cores"]), capture_output=True, text=True, check=False
        )
    if done.returncode:
        print(f"no peer: {python} failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="interpreter with torch and opacus")
    parser.add_argument("--all-cores", action="store_true", help="do not pin to one core (and for a GPU)")
    parser.add_argument("--network", choices=NETWORKS, help="one of them; default: all")
    parser.add_argument("--batches", type=int, nargs="*", default=list(BATCHES))
    parser.add_argument("--formed", type=int, default=1024, help="largest batch for vmap(grad)")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_peer:
        return measure_peer(Path(args.as_peer), args.network)

    import jax

    import coterie  # noqa: F401, before JAX computes anything

    for network in [args.network] if args.network else NETWORKS:
        peer = ask_peer(args.peer_python, network, args.batches)
        print(
            f"{network}: jax {jax.__version__} on {jax.devices()[0].device_kind}"
            + (f"; {peer['versions']}" if peer else "")
        )
        print("clipped per-record gradients per second, thousands")
        for batch in args.batches:
            seconds, norm = measure_ours(network, batch, args.formed)
            if peer:
                seconds |= peer[str(batch)]
                for theirs in peer[f"norm {batch}"]:
                    assert abs(theirs - norm) < 2e-3 * norm, f"clipped sums differ: ours {norm}, theirs {theirs}"
            rates = "  ".join(f"{name} {batch / s / 1e3:.2f}" for name, s in seconds.items())
            ratios = [f"{seconds['non-private'] / seconds['ours']:.0%} of non-private"]
            ratios += [f"{seconds[k] / seconds['ours']:.2f}× {k}" for k in seconds if k not in ("ours", "non-private")]
            print(f"  batch {batch:>5}: {rates}\n               ours: {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
