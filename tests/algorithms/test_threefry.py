"""Numbers that are made in one go are those of `jax.random`, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from coterie.algorithms import _threefry

SHAPES = [(), (1,), (7,), (1000,), (30, 7), (0,)]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", ["uniform", "normal", "laplace", "exponential"])
def test_the_numbers_of_jax(name: str, x64: bool) -> None:
    mine, theirs = getattr(_threefry, name), getattr(jax.random, name)
    with jax.enable_x64(x64):
        dtype = jnp.float64 if x64 else jnp.float32
        keys = jax.random.split(jax.random.key(3), 3)
        over = lambda draw: jax.jit(jax.vmap(lambda k: [draw(k, shape, dtype) for shape in SHAPES]))(keys)  # noqa: E731
        for got, want in zip(over(mine), over(theirs), strict=True):
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("x64", [False, True])
def test_the_keys_of_jax(x64: bool) -> None:
    with jax.enable_x64(x64):
        key = jax.random.key(3)
        for number in (0, 7, 0x7FFF_A3A1, (1 << 32) - 1, jnp.array(-1), jnp.array(9, jnp.int32)):
            assert _threefry.fold_in(key, number) == jax.random.fold_in(key, number)
        keys, numbers = jax.random.split(key, 4), jnp.arange(4)
        over = lambda fold: jax.random.key_data(jax.jit(jax.vmap(fold))(keys, numbers))  # noqa: E731
        np.testing.assert_array_equal(over(_threefry.fold_in), over(jax.random.fold_in))
        for given in ((keys[:2], 5), (key, np.array([3, 4]))):  # one at a time, as JAX has it
            with pytest.raises((TypeError, ValueError), match="accepts a s"):
                _threefry.fold_in(*given)
    other = jax.random.key(3, impl="rbg")
    assert _threefry.fold_in(other, 1) == jax.random.fold_in(other, 1)


def test_they_are_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU JAX's own draws are not called; on an accelerator, of another generator or of another width they are."""
    asked: list[str] = []

    def never(key: Array, shape: tuple[int, ...], dtype: object) -> Array:
        asked.append(str(jax.random.key_impl(key)))
        return jnp.zeros(shape)

    monkeypatch.setattr(jax.random, "uniform", never)
    draw: Callable[..., Array] = _threefry.uniform
    assert float(draw(jax.random.key(0), (5,), jnp.float32).sum()) > 0
    assert asked == []
    draw(jax.random.key(0, impl="rbg"), (5,), jnp.float32)
    draw(jax.random.key(0), (5,), jnp.float16)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    draw(jax.random.key(0), (5,), jnp.float32)
    assert asked == ["rbg", "threefry2x32", "threefry2x32"]


def test_a_thousand_million_places_would_wrap_at_two_to_the_thirty_two() -> None:
    """Places are words of 32 bits: larger draws are JAX's."""
    key = jax.random.key(0)
    assert _threefry._written_out(key, (1 << 16, (1 << 16) - 1), jnp.float32)
    assert not _threefry._written_out(key, (1 << 16, 1 << 16), jnp.float32)
