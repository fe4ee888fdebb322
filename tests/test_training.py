"""`coterie.train`: what it refuses, and that bounds which the price rests on are checked."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.errors import InputError
from coterie.problems import Custom, Linear, Mean, Softmax


def sites(count: int = 3, dim: int = 2, scale: float = 0.5):
    rng = np.random.default_rng(0)
    x = rng.uniform(-scale, scale, (count, 50, dim))
    return [(part, np.where(part[:, 0] > 0, 1.0, -1.0)) for part in x]


def test_it_is_found_at_the_top():
    assert coterie.train is coterie.training.train
    with pytest.raises(AttributeError, match="no_such_name"):
        coterie.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    ("problem", "data", "options", "words"),
    [
        (Linear(2), sites(scale=2.0), {}, "norm .* rests on at most 1"),
        (Linear(2), [(x, 3 * y) for x, y in sites()], {}, "−1 and 1"),
        (Linear(2), sites(1), {}, "at least 2 sites"),
        (Linear(2), [*sites(), *sites(1, dim=3)], {}, r"same features, got \[2, 3\]"),
        (Softmax(2, 3), sites(), {}, "from 0 to 2"),
        (Mean(2), sites(scale=2.0), {}, "must lie in"),
        (Linear(2), sites(), {"names": ["a"]}, "1 names for 3 sites"),
        (Linear(2), sites(), {"graph": "dodecahedron"}, "graph"),
        (Linear(2), sites(), {"algorithm": "dgd"}, "not private"),
        (Linear(2), sites(), {"settings": {"clip": -1.0}}, "clip"),
    ],
)
def test_what_cannot_be_priced_is_refused(problem, data, options, words):
    with pytest.raises(InputError, match=words):
        coterie.train(problem, data, **{"rounds": 4, "seed": 0, **options})


def test_a_loss_without_bounds_needs_an_algorithm_that_clips():
    free = Custom.make(lambda w, x, y: jnp.exp(-y * (w @ x)), jnp.zeros(2))
    with pytest.raises(InputError, match=r"pr-admm needs a convex loss and .* a bound on the loss's gradient"):
        coterie.train(free, sites(), algorithm="pr-admm", settings={"penalty": 1.0}, rounds=4, seed=0)


def test_a_custom_loss_gives_the_built_in_model():
    """The logistic loss written by hand and the one of the package: one model, to rounding, with the same noise."""
    logistic = lambda w, x, y: jnp.logaddexp(0.0, -jnp.sign(y) * (w @ x))  # noqa: E731
    mine = Custom.make(logistic, jnp.zeros(2), lipschitz=1.0, smoothness=0.25, bound=1.0)
    found = [coterie.train(p, sites(), epsilon=2.0, rounds=10, seed=1) for p in (Linear(2), mine)]
    np.testing.assert_allclose(found[0].point, found[1].point, rtol=1e-9)
    np.testing.assert_allclose(found[1].params, found[1].point, rtol=1e-6)
    with pytest.raises(InputError, match="use `point`"):
        _ = found[0].params
    assert found[0].epsilon <= 2.0
    assert [ledger.spent() for ledger in found[0].ledgers] == pytest.approx([2.0] * 3, rel=1e-6)
