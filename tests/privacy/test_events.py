"""Events: pytrees under tracing, checked and sorted on the host; worst cases of the vector mechanisms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie.algorithms.base  # noqa: F401 - makes events pytrees
from coterie.errors import InputError
from coterie.privacy import rdp
from coterie.privacy.events import (
    DiscreteGaussian,
    Event,
    Free,
    Gaussian,
    L2Laplace,
    Laplace,
    LaplaceUniform,
    MaskedGaussian,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    SampledGaussian,
    SparseVector,
    check,
    flat,
    merge,
)

ORDERS = np.array([2.0, 3.0, 8.0, 33.0])
EXAMPLES: list[Event] = [
    Gaussian(0.5, 2.0),
    MaskedGaussian(0.5, 2.0, 0.3),
    DiscreteGaussian(1.0, 4.0),
    SampledGaussian(3.0, 0.05),
    SampledGaussian(3.0, 0.05, discrete=True),
    SampledGaussian(3.0, 0.05, scheme="poisson"),
    L2Laplace(0.5, 0.8, 6),
    Laplace(0.5, 0.8, 6, linf=0.2),
    LaplaceUniform(2.0, 0.5, 0.1),
    Pure(0.2),
    SparseVector(0.5, 4.0, 20.0, 3),
    ObjectivePerturbation(0.1, 1.0, 0.01),
    Free(),
]


def identity(event: Event) -> str:
    settings = [str(value) for value in vars(event).values() if isinstance(value, str | bool)]
    return "-".join([type(event).__name__, *settings])


def test_mapped_over_rounds_in_float64() -> None:
    def cost(t: jax.Array) -> Gaussian:
        return Gaussian(2.0 / (1 + t), 3.0, times=jnp.where(t % 2 == 0, 1, 0))

    with jax.enable_x64(True):
        events = jax.vmap(cost)(jnp.arange(5.0))
    one = flat(events)
    assert one.times.tolist() == [1, 1, 1]
    assert one.sensitivity.dtype == np.float64
    assert one.sensitivity == pytest.approx([2 / 5, 2 / 3, 2])
    assert events.adjacency == "replace-one"


@pytest.mark.parametrize("event", EXAMPLES, ids=identity)
def test_every_event_can_be_traced(event: Event) -> None:
    mapped = jax.vmap(lambda times: jax.tree.map(lambda x: x + 0 * times, event))(jnp.arange(3))
    assert flat(mapped).times.sum() == 3


def test_equal_rows_are_counted_and_free_ones_dropped() -> None:
    one = flat(Gaussian(np.array([1.0, 2.0, 1.0, 3.0]), 2.0, times=np.array([1, 2, 4, 0])))
    assert dict(zip(one.sensitivity, one.times, strict=True)) == {1.0: 5, 2.0: 2}
    merged = merge([Gaussian(1.0, 2.0), Pure(0.1), Gaussian(1.0, 2.0), Gaussian(1.0, 2.0, adjacency="zero-out")])
    assert sorted(int(part.times.sum()) for part in merged) == [1, 1, 2]


@pytest.mark.parametrize("event", EXAMPLES, ids=identity)
def test_curves_rise_with_the_order_and_stay_below_their_bounds(event: Event) -> None:
    one = flat(event)
    curve = one.rdp(ORDERS)
    assert curve.shape == (1, 4)
    assert np.all(np.diff(curve) >= -1e-12)
    if not isinstance(event, ObjectivePerturbation):  # which has neither
        assert np.all(curve <= one.zcdp()[:, None] * ORDERS * (1 + 1e-9))
    assert np.all(curve <= one.pure()[:, None] * (1 + 1e-9))
    mu = one.mu()
    if mu is not None:
        assert np.all(curve <= rdp.gaussian(mu, ORDERS) * (1 + 1e-9))


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(0.0, 0.0),
        Gaussian(1.0, np.inf),
        MaskedGaussian(1.0, 1.0, 0.0),
        SampledGaussian(2.0, 0.0),
        SampledGaussian(2.0, 0.0, discrete=True),
        SampledGaussian(2.0, 0.0, scheme="poisson"),
        L2Laplace(0.0, 1.0, 3),
        Laplace(0.0, 1.0, 3),
        LaplaceUniform(1.0, 0.5, 0.0),
        Pure(0.0),
        ObjectivePerturbation(0.0, 1.0, 0.0),
        Free(),
    ],
    ids=identity,
)
def test_nothing_to_hide_costs_nothing(event: Event) -> None:
    assert flat(event).rdp(ORDERS) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    "event",
    [Gaussian(1.0, 0.0), NonPrivate(), SampledGaussian(0.0, 0.5), SampledGaussian(0.0, 0.5, scheme="poisson")],
    ids=identity,
)
def test_no_noise_and_no_guarantee_cost_everything(event: Event) -> None:
    assert np.all(np.isinf(flat(event).rdp(ORDERS)))


@given(
    dim=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    slack=st.tuples(st.floats(1, 2), st.floats(1, 2), st.floats(1, 2)),
)
def test_laplace_covers_every_shift_within_its_norms(dim: int, seed: int, slack: tuple[float, float, float]) -> None:
    """The declared bound is at least the exact product of coordinates, for any shift that the norms allow."""
    shift = np.abs(np.random.default_rng(seed).standard_cauchy(dim)).clip(0, 5)
    exact = rdp.laplace(shift, ORDERS).sum(axis=0)
    l1, linf, l2 = shift.sum() * slack[0], shift.max() * slack[1], np.linalg.norm(shift) * slack[2]
    for norms in ({}, {"linf": linf}, {"l2": l2}, {"linf": linf, "l2": l2}):
        one = flat(Laplace(l1, 1.0, dim, **norms))
        assert np.all(one.rdp(ORDERS)[0] >= exact * (1 - 1e-12))
        assert one.pure()[0] >= shift.sum() * (1 - 1e-12)
        assert one.zcdp()[0] >= np.sum(shift + np.expm1(-shift)) * (1 - 1e-12)


def test_laplace_uses_what_it_knows() -> None:
    events = Laplace(1.0, 1.0, 10), Laplace(1.0, 1.0, 10, linf=0.25), Laplace(1.0, 1.0, 10, l2=0.4)
    plain, boxed, even = (flat(event).rdp(ORDERS)[0] for event in events)
    assert plain == pytest.approx(rdp.laplace(np.array([1.0]), ORDERS)[0])
    assert boxed == pytest.approx(4 * rdp.laplace(np.array([0.25]), ORDERS)[0])
    spread = 10 * rdp.laplace(np.array([0.4 / np.sqrt(10)]), ORDERS)[0]
    assert even[:2] == pytest.approx(spread[:2])
    assert np.all(even <= np.minimum(spread, plain))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Gaussian(-1.0, 1.0), "sensitivity must be >= 0, got -1"),
        (Gaussian(1.0, np.nan), "sigma must be >= 0, got nan"),
        (Gaussian(np.array([1.0, -2.0]), 1.0), "got -2"),
        (Gaussian(1.0, 1.0, times=1.5), "times must be a whole number"),
        (Gaussian(1.0, 1.0, times=-1), "times must be a whole number"),
        (Gaussian(1.0, 1.0, times=np.inf), "times must be a whole number"),
        (Gaussian(1.0, 1.0, slack=-1e-9), "slack must be >= 0"),
        (SampledGaussian(1.0, 1.5), r"rate must be in \[0, 1\]"),
        (SampledGaussian(1.0, 0.5, scheme="shuffle"), "scheme must be one of"),
        (SampledGaussian(1.0, 0.5, adjacency="add-remove"), "no bound for without-replacement sampling"),
        (SampledGaussian(1.0, 0.5, 0.3), "keep < 1 needs"),
        (L2Laplace(1.0, 1.0, 0), "dim must be"),
        (ObjectivePerturbation(1.0, 1.0, 0.1, adjacency="add-remove"), "adjacency must be"),
        (Pure(-0.1), "epsilon must be >= 0"),
        ("pure", "expected a privacy event"),
    ],
)
def test_bad_values_are_named(event: Event, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(event)


def test_poisson_sampling_names_its_own_adjacency() -> None:
    assert SampledGaussian(1.0, 0.5, scheme="poisson").adjacency == "add-remove"
    assert SampledGaussian(1.0, 0.5, scheme="poisson", adjacency="zero-out").adjacency == "zero-out"
