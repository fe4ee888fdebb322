"""Networks as tasks: Equinox and Flax NNX modules as they are, convolutions too, people as unit; what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie as ct
from coterie.errors import InputError
from coterie.problems import of_people, single
from coterie.problems.people import People, clipped_sum, grouped, lay_out
from coterie.problems.records import rescale
from tests.support import mostly_slow

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)


def pictures(rows: int = 30, sites: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """6 × 6 pixels; the class is which half is brighter."""
    y = RNG.integers(0, 2, (sites, rows))
    x = RNG.uniform(0, 0.5, (sites, rows, 6, 6))
    x[..., :3] += 0.5 * y[..., None, None]
    return [(a.reshape(rows, 36), b) for a, b in zip(x, y, strict=True)]


def small() -> eqx.Module:
    parts = [
        eqx.nn.Conv2d(1, 3, 3, key=KEY), eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2), eqx.nn.Lambda(jnp.ravel),
        eqx.nn.Dropout(0.5), eqx.nn.Linear(12, 2, key=KEY),
    ]  # fmt: skip
    return eqx.nn.Sequential(parts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:privacy.epsilon = 50 promises")  # to see that it learns
def test_a_convolutional_network_trains_and_is_the_module_again() -> None:
    """Three parties at once, and one after the other: the same numbers; memory does not grow with the parties."""
    task = ct.neural(small(), 2, shape=(1, 6, 6))
    sites = pictures()
    run = ct.train(task, ct.complete(sites), ct.dp_dsgd(step=2.0), ct.Budget(50.0, 1e-5), rounds=30, seed=0)
    x, y = pictures(200, 1)[0]
    assert run.score(x, y) > 0.8
    module = eqx.nn.inference_mode(run.model)
    np.testing.assert_array_equal(run.predict(x), jax.vmap(lambda v: module(v.reshape(1, 6, 6)).argmax())(x))
    np.testing.assert_allclose(run.predict_proba(x).sum(axis=1), 1.0)


@pytest.mark.slow
def test_parties_at_once_and_one_by_one_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ct.neural(small(), 2, shape=(1, 6, 6)).own
    with jax.enable_x64(True):
        x, y = (jnp.asarray(np.stack(v)) for v in zip(*pictures(4), strict=True))
        points = jnp.asarray(own.start(0)) + 0.1 * jnp.arange(3.0)[:, None]
        ask = lambda p, f, t: own.weighted_gradient(p, f, t, jnp.ones(4), 0.3)  # noqa: E731
        wanted = [jax.jit(ask)(*one) for one in zip(points, x, y, strict=True)]
        found = jax.jit(jax.vmap(ask))(points, x, y)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
        slopes = jax.jit(jax.vmap(jax.grad(lambda p, f, t: jnp.sum(own.losses(p, f, t)))))(points, x, y)
        plain = jax.vmap(jax.grad(lambda p, f, t: jnp.sum(own._plain(p, f, t))))(points, x, y)
        np.testing.assert_allclose(slopes, plain, rtol=1e-9, atol=1e-12)


def test_memory_of_many_parties_is_that_of_one() -> None:
    """What the compiled gradient of a hundred parties needs beside its arguments: not a hundred times one's."""
    own = ct.neural(small(), 2, shape=(1, 6, 6)).own
    ask = jax.jit(jax.vmap(lambda p, f, t: own.weighted_gradient(p, f, t, jnp.ones(50), 0.3)))

    def needed(parties: int) -> int:
        shapes = ((parties, own.dim), jnp.float32), ((parties, 50, 36), jnp.float32), ((parties, 50), jnp.int32)
        found = ask.lower(*(jax.ShapeDtypeStruct(*s) for s in shapes)).compile().memory_analysis()
        return int(found.temp_size_in_bytes)

    assert needed(40) < 3 * needed(4) + (1 << 20)


@pytest.mark.parametrize("pieces", mostly_slow([1 << 21, 1], 1 << 21))
def test_people_as_unit_clip_their_means(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "room", lambda: pieces)
    own = of_people(ct.neural(small(), 2, shape=(1, 6, 6)).own)
    (x, y), owners = pictures(6, 1)[0], np.array([0, 1, 0, 2, 1, 0])
    with jax.enable_x64(True):
        take, laid = lay_out([owners], 6, 3, 3)
        people = People(**{k: jnp.asarray(v[0]) for k, v in laid.items()}, most=3)
        features, targets = jnp.asarray(x[take[0]]), jnp.asarray(y[take[0]])
        point = jnp.asarray(own.start(0))
        one = jax.grad(lambda v, f, t: own._plain(v, f[None], t[None])[0])
        each = np.asarray(jax.jit(jax.vmap(one, (None, 0, 0)))(point, jnp.asarray(x), jnp.asarray(y)))
        means = jnp.asarray(np.stack([each[owners == k].mean(axis=0) for k in range(3)]))
        norms = jnp.linalg.norm(means, axis=1)
        clip = float(jnp.median(norms))
        of = grouped(people, features, targets, jnp.ones(3, bool), None, None, point.dtype)
        found = jax.jit(lambda v: clipped_sum(own, v, of, clip))(point)
        np.testing.assert_allclose(found, rescale(means, norms, clip).sum(0), rtol=1e-10, atol=1e-12)


def test_a_record_whose_gradient_is_no_number_adds_nothing() -> None:
    own = ct.neural(small(), 2, shape=(1, 6, 6)).own
    x, y = pictures(4, 1)[0]
    wild = x.copy()
    wild[1], wild[2] = np.nan, 1e30
    point = jnp.asarray(own.start(0), jnp.float32)
    ask = jax.jit(lambda f, w: own.weighted_gradient(point, f, jnp.asarray(y), w, 0.3))
    found = ask(jnp.asarray(wild, jnp.float32), jnp.ones(4))
    assert np.isfinite(found).all()
    rest = ask(jnp.asarray(x, jnp.float32), jnp.asarray([1.0, 0, 0, 1]))
    assert np.linalg.norm(found - rest) <= 0.3 * (1 + 1e-5)


@pytest.mark.slow
def test_a_pickled_network_predicts() -> None:
    layers = [eqx.nn.Linear(36, 4, key=KEY), eqx.nn.Lambda(jax.nn.relu), eqx.nn.Linear(4, 2, key=KEY)]
    task = ct.neural(eqx.nn.Sequential(layers), 2)  # of an eqx.nn.MLP no: it holds a lambda
    run = ct.train(task, ct.complete(pictures()), ct.dp_dsgd(), ct.Budget(5.0, 1e-5), rounds=2, seed=0)
    x = pictures(5, 1)[0][0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(run)).predict(x), run.predict(x))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["equinox", "flax"])
def test_a_network_is_stopped_goes_on_and_is_loaded_again(kind: str, tmp_path: Path) -> None:
    """With a module that is made anew each time, as by who starts the script again."""

    def made() -> Any:
        if kind == "equinox":
            return ct.neural(small(), 2, shape=(1, 6, 6))
        nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")
        layers = nnx.Conv(1, 2, (3, 3), rngs=nnx.Rngs(0)), jnp.ravel, nnx.Linear(72, 2, rngs=nnx.Rngs(1))
        return ct.neural(nnx.Sequential(*layers), 2, shape=(6, 6, 1))

    def train(**options: Any) -> ct.Trained:
        net, budget = ct.complete(sites), ct.Budget(5.0, 1e-5)
        return ct.train(made(), net, ct.dp_dsgd(), budget, rounds=8, seed=0, **options)

    def stop(moment: Any) -> None:
        if moment.round >= 4:
            raise KeyError

    sites = pictures()
    whole = train()
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    with pytest.raises(KeyError):
        train(callbacks=[stop], **kept)
    rounds: list[int] = []
    again = train(callbacks=[lambda moment: rounds.append(moment.round)], **kept)
    assert rounds[0] >= 2
    np.testing.assert_array_equal(again.points, whole.points)
    whole.save(tmp_path / "run")
    loaded = ct.load(tmp_path / "run", made())
    np.testing.assert_array_equal(loaded.predict(sites[0][0]), whole.predict(sites[0][0]))
    with pytest.raises(InputError, match=r"a loss or network of your own: in Python, ct.load\(folder, its task\)"):
        ct.load(tmp_path / "run")


@pytest.mark.filterwarnings("ignore:privacy.epsilon = 50 promises")
@pytest.mark.slow
def test_a_flax_module_is_a_task() -> None:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Small(nnx.Module):
        def __init__(self, rngs: Any):
            self.conv = nnx.Conv(1, 3, (3, 3), padding="VALID", rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.out = nnx.Linear(48, 2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.out(self.drop(jnp.tanh(self.conv(x)).reshape(-1)))

    task = ct.neural(Small(nnx.Rngs(0)), 2, shape=(6, 6, 1))
    run = ct.train(task, ct.complete(pictures()), ct.dp_dsgd(step=2.0), ct.Budget(50.0, 1e-5), rounds=30, seed=0)
    x, y = pictures(200, 1)[0]
    assert run.score(x, y) > 0.8
    assert isinstance(run.model, Small)

    class Normal(nnx.Module):
        def __init__(self, rngs: Any):
            self.norm = nnx.BatchNorm(36, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.norm(x)[:2]

    with pytest.raises(InputError, match="normalises over a batch"):
        ct.neural(Normal(nnx.Rngs(0)), 2)


def test_what_is_no_network_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="normalises over a batch"):
        ct.neural(eqx.nn.BatchNorm(3, "batch", mode="batch"), 3)
    with pytest.raises(InputError, match="a function of your own is trained with"):
        ct.neural(lambda x: x, 2)
    linear = eqx.nn.Linear(36, 3, key=KEY)
    with pytest.raises(InputError, match=r"gives \(3,\) for a record, expected 2 scores"):
        ct.train(ct.neural(linear, 2), ct.complete(pictures()), budget=ct.Budget(1.0, 1e-5))
    with pytest.raises(InputError, match="takes 16 features, and the records have 36"):
        ct.train(ct.neural(linear, 3, shape=(4, 4)), ct.complete(pictures()), budget=ct.Budget(1.0, 1e-5))
    port = type("Net", (), {"__module__": "torch.nn"})
    with pytest.raises(InputError, match="is a PyTorch module"):
        ct.neural(port(), 2)
