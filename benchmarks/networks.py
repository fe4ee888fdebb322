"""Clipped per-record gradients of networks of one's own, against Opacus in one run: `python -m benchmarks.networks`.

Two networks on 28 × 28 pixels, written with Equinox and taken as `ct.neural` takes any, float32, one core unless
--all-cores:
    cnn     the network of Opacus's MNIST example: two convolutions with pooling, two dense layers, 26,010 parameters
    dense   784-256-64-10 with ReLU, 218,058 parameters
Σ_r clip_K(∇loss_r) at several batches by
    ours           `Custom.weighted_gradient`
    non-private    the same network's plain gradient: the rate that clipping is measured against (GPU goal ≥ 50 %)
    vmap(grad)     every record's gradient formed, then clipped (left out where it does not fit: --formed N)
    opacus         (--opacus) per-sample hooks, and ghost clipping: the faster counts (goal: 1× cnn, 2× dense)
Opacus runs as in `benchmarks.per_example`, with the same records and parameters; the norms of all clipped sums are
compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.one_core import ONE_CORE, pin

if __name__ == "__main__":
    pin()

import numpy as np

import benchmarks.per_example as each
from benchmarks.measured import arguments, finish
from benchmarks.per_example import CLIP, OURS, Times

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


def measure_ours(network: str, batch: int, formed_up_to: int, count: int) -> tuple[Times, float]:
    """Our ways, and the norm of the clipped sum."""
    import jax
    import jax.numpy as jnp

    features, labels, params = make_data(network, batch)
    problem = ours(network, params)
    x = jnp.asarray(problem.start(0), jnp.float32)
    z, y, ones = jnp.asarray(features), jnp.asarray(labels, jnp.int32), jnp.ones(batch, jnp.float32)

    def formed(x: jax.Array) -> jax.Array:
        one = jax.grad(lambda v, f, t: problem._plain(v, f[None], t[None])[0])
        all_ = jax.vmap(one, (None, 0, 0))(x, z, y)
        return jnp.minimum(1.0, CLIP / jnp.linalg.norm(all_, axis=1)) @ all_

    ways: dict[str, Callable] = {
        OURS: lambda x: problem.weighted_gradient(x, z, y, ones, CLIP),
        "non-private": jax.grad(lambda x: jnp.sum(problem._plain(x, z, y))),
    }
    if batch <= formed_up_to:
        ways["vmap(grad)"] = formed
    compiled = {name: jax.jit(f) for name, f in ways.items()}
    norms = {name: float(jnp.linalg.norm(f(x))) for name, f in compiled.items() if name != "non-private"}
    each.agree(norms[OURS], list(norms.values()))
    calls = {name: partial(lambda f: jax.block_until_ready(f(x)), f) for name, f in compiled.items()}
    return each.turns(calls, count), norms[OURS]


def measure_opacus(folder: Path, network: str, batches: list[int], count: int) -> None:
    """In Opacus's interpreter: a network at every batch, as JSON on the last line."""
    import torch
    from torch import nn

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

    features, labels = stored["features"], stored["labels"]
    features = features.reshape(-1, 1, 28, 28) if network == "cnn" else features
    print(json.dumps({str(b): each.opacus_ways(model, features[:b], labels[:b], count) for b in batches}))


def main() -> None:
    """Print and store a line for every network, batch and peer."""
    parser = arguments(__doc__)
    each.add_opacus(parser)
    parser.add_argument("--network", choices=NETWORKS, help="one of them; default: all")
    parser.add_argument("--batches", type=int, nargs="*", default=list(BATCHES))
    parser.add_argument("--formed", type=int, default=1024, help="largest batch for vmap(grad)")
    args = parser.parse_args()
    if args.as_peer:
        return measure_opacus(args.as_peer, args.network, args.batches, args.turns)

    import coterie  # noqa: F401, before JAX computes anything

    rows, said = [], ""
    for network in [args.network] if args.network else NETWORKS:
        options = ["--network", network, "--batches", *map(str, args.batches)]
        peer, said = each.ask_opacus(args, make_data(network, max(args.batches)), options)
        for batch in args.batches:
            times, norm = measure_ours(network, batch, args.formed, args.turns)
            if peer:
                times |= peer[str(batch)]["times"]
                each.agree(norm, peer[str(batch)]["norms"])
            rows += each.compared(network, batch, times)
    note = f"Clipped per-record gradients, {'one core' if ONE_CORE else 'all cores'}, float32. {said}"
    finish(args, "Clipped gradients of networks of one's own", rows, note)


if __name__ == "__main__":
    main()
