"""`coterie.train`: what it refuses, and that bounds which the price rests on are checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.data import ALL_PUBLIC, make_clinics
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Ball, Custom
from coterie.training import _records


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
        (Logistic(2), sites(scale=2.0), {}, "norms up to .* rests on at most 1"),
        (Logistic(2), [(x, 3 * y) for x, y in sites()], {}, "−1 and 1"),
        (Logistic(2), sites(1), {}, "at least 2 sites"),
        (Logistic(2), [*sites(), *sites(1, dim=3)], {}, r"same features, got \[2, 3\]"),
        (Softmax(2, 3), sites(), {}, "from 0 to 2"),
        (Mean(2), sites(scale=2.0), {}, "expected at most problem.radius = 1"),
        (Logistic(2), sites(), {"names": ["a"]}, "1 names for 3 sites"),
        (Logistic(2), sites(), {"graph": "dodecahedron"}, "graph"),
        (Logistic(2), sites(), {"algorithm": "dgd"}, "not private"),
        (Logistic(2), sites(), {"settings": {"clip": -1.0}}, "clip"),
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
    found = [coterie.train(p, sites(), epsilon=2.0, rounds=10, seed=1) for p in (Logistic(2), mine)]
    np.testing.assert_allclose(found[0].point, found[1].point, rtol=1e-9)
    np.testing.assert_allclose(found[1].params, found[1].point, rtol=1e-6)
    with pytest.raises(InputError, match="use `point`"):
        _ = found[0].params
    assert found[0].epsilon <= 2.0
    assert [ledger.spent() for ledger in found[0].ledgers] == pytest.approx([2.0] * 3, rel=1e-6)


# ---- what was read from the records, and what no record is needed for ------------------------------------------------


def test_what_was_read_from_records_is_told():
    """Records whose making looked at all of them: whatever ε was paid for the messages, nothing is private."""
    with pytest.warns(UserWarning, match="no privacy can be claimed: scaled by the largest record"):
        told = coterie.train(Logistic(2), sites(), rounds=4, seed=0, leaks=["scaled by the largest record"])
    assert (told.private, told.leaks) == (False, ("scaled by the largest record",))
    quiet = coterie.train(Logistic(2), sites(), rounds=4, seed=0)
    assert (quiet.private, quiet.leaks) == (True, ())
    np.testing.assert_array_equal(told.point, quiet.point)


def test_a_data_set_brings_its_leaks():
    data = [make_clinics(seed=s, sites=1, records=50) for s in range(3)]
    public = coterie.train(Logistic(12), data, rounds=4, seed=0)
    assert (public.private, public.leaks) == (True, ())
    read = [replace(d, origins=replace(ALL_PUBLIC, classes=("its classes are read from the data",))) for d in data]
    with pytest.warns(UserWarning, match="no privacy can be claimed"):
        leaky = coterie.train(Logistic(12), read, rounds=4, seed=0)
    assert (leaky.private, leaky.leaks) == (False, ("its classes are read from the data",))
    np.testing.assert_array_equal(leaky.point, public.point)


class Unread:
    """A site that nobody may look at."""

    def __iter__(self):
        raise AssertionError("a record was read")

    def __array__(self, *_, **__):
        raise AssertionError("a record was read")


@pytest.mark.parametrize(
    ("problem", "options", "why"),
    [
        (Squared(2), {"algorithm": "dvp"}, "dvp needs"),
        (Logistic(2, constraint=Ball(1.0)), {"algorithm": "pr-admm"}, "does not keep its answer in a set"),
        (Logistic(2), {"algorithm": "dgd"}, "dgd is not private"),
        (Logistic(2), {"algorithm": "gauss-avg-gd"}, "runs on complete graphs"),
        (Logistic(2), {"settings": {"steps": 3}}, "unknown key algorithm.steps"),
    ],
)
def test_a_contract_that_fails_is_refused_before_a_record_is_read(problem, options, why):
    with pytest.raises(InputError, match=why) as caught:
        coterie.train(problem, [Unread(), Unread()], **options)
    assert "\n" not in str(caught.value)


# ---- seeds -----------------------------------------------------------------------------------------------------------


def test_a_seed_that_nobody_gives_has_all_bits_that_the_generator_takes(monkeypatch):
    """The top half counts: two seeds that agree in 32 bits are two noises, and the default has the whole key."""
    low, wide = (coterie.train(Logistic(2), sites(), rounds=3, seed=s).point for s in (7, 7 + (1 << 32)))
    assert not np.allclose(low, wide)
    with pytest.raises(InputError, match="seed must be from 0 to 18446744073709551615"):
        coterie.train(Logistic(2), sites(), rounds=3, seed=1 << 64)
    asked = []
    monkeypatch.setattr("secrets.randbits", lambda bits: asked.append(bits) or (7 + (1 << 32)))
    np.testing.assert_array_equal(coterie.train(Logistic(2), sites(), rounds=3).point, wide)
    assert asked == [64]


class Cut(Squared):
    """Least squares whose targets are cut to a range of its own: a fact about them holds of nothing else."""

    def admit_targets(self, targets: Any) -> Any:
        return np.clip(targets, -1, 1)


def test_a_loss_sees_the_targets_that_it_admits() -> None:
    """In a simulation too, where nobody's own agent reads the records."""
    _, targets, _ = _records(Cut(2), [(x, 50 * y) for x, y in sites()])
    assert set(targets) == {-1.0, 1.0}
