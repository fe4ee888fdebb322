"""Releases: exactly the declared noise, exactly the declared cost, one draw."""

import numpy as np
import pytest
from scipy import stats

from coterie.errors import InputError
from coterie.fair import polynomial as poly
from coterie.fair.mechanisms import Attribute, release
from coterie.fair.methods import METHODS
from coterie.fair.noise import GridNoise, Seeded
from coterie.fair.polynomial import Statistics
from coterie.privacy import gdp
from coterie.privacy.accountants import account
from coterie.privacy.events import DiscreteGaussian, Gaussian, Laplace, flat
from tests.fair.cases import Recorder, records, statistics

PRIVATE = [slug for slug, m in METHODS.items() if m.private]
FAIR = [slug for slug, m in METHODS.items() if m.fair]


def seeded(seed=0):
    return Seeded(np.random.default_rng(seed))


@pytest.mark.parametrize("method", PRIVATE)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_the_budget_is_spent_and_not_exceeded(method, epsilon):
    out = release(statistics(), method, epsilon=epsilon, delta=1e-3, noise=seeded())
    assert out.account.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert out.account.epsilon <= epsilon * (1 + 1e-12)
    pure = METHODS[method].law == "laplace"
    assert out.account.delta == (0.0 if pure else 1e-3)
    assert account(out.events, out.account.delta, fast=True).epsilon == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("delta", "epsilon", "golden"),
    [(1e-3, 0.01, 93.9), (1e-3, 0.1, 17.4), (1e-3, 1, 2.58), (1e-3, 10, 0.406), (1e-5, 1, 3.73), (1e-5, 10, 0.500)],
)  # fmt: skip
def test_gaussian_noise_of_the_relaxed_mechanism(delta, epsilon, golden):
    note = Recorder()
    release(statistics(d=3), "relaxed-fm", epsilon=epsilon, delta=delta, noise=note)
    (_, scale, law) = note.seen[0]
    assert law == "gaussian"
    assert np.allclose(scale[:3], golden, rtol=6e-3)
    assert np.allclose(scale[3:], scale[0] / np.sqrt(8))


def test_laplace_noise_of_the_functional_mechanism():
    note = Recorder()
    release(statistics(d=13), "fm", epsilon=0.01, noise=note)
    assert np.allclose(note.seen[0][1], 600.8, rtol=1e-3)  # Δ₁(13)/ε, on b and on every distinct monomial
    assert note.seen[0][0].size == 13 + 13 * 14 // 2


def _neighbours(method, change, seed=0, signed=True, attribute=None, ratio=1.0, n=40, d=4):
    """Σ|Δ|/scale and Σ(Δ/scale)² of everything hidden, for records that differ in one."""
    x, y, z = records(n, d, seed, signed=signed)
    flats = []
    for k in (0, 1):
        xx, yy, zz = (np.array(a, copy=True) for a in (x, y, z))
        xx[0], yy[0], zz[0] = change[k]
        note = Recorder(count=0.45 * n)
        options = {} if attribute is None else {"attribute": attribute, "ratio": ratio}
        out = release(Statistics.of(xx, yy, zz), method, epsilon=1.0, delta=1e-3, noise=note, signed=signed, **options)
        flats.append(note.flat)
    move = np.abs(flats[1][0] - flats[0][0]) / flats[0][1]
    assert np.array_equal(flats[0][1], flats[1][1])  # scales are the same in both worlds
    return move.sum(), np.sqrt((move**2).sum()), out


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("method", PRIVATE)
def test_no_neighbour_costs_more_than_declared(method, signed):
    rng = np.random.default_rng(3)
    budget = 1.0 if METHODS[method].law == "laplace" else float(gdp.mu_for(1.0, 1e-3))
    worst = 0.0
    for k in range(40):
        x, other = (v if signed else np.abs(v) for v in rng.normal(size=(2, 4)))
        x, other = x / np.linalg.norm(x), other / np.linalg.norm(other)
        other = {0: x, 1: -x if signed else other}.get(k % 3, other)
        change = [(x, 0, 0), (other, int(rng.integers(2)), int(rng.integers(2)))]
        one, two, _ = _neighbours(method, change, k, signed)
        cost = one if METHODS[method].law == "laplace" else two
        assert cost <= budget * (1 + 1e-9)
        worst = max(worst, cost)
    assert worst > 0.4 * budget


def test_the_gaussian_bound_is_attained_by_flipping_label_and_group():
    x = np.array([1.0, 0, 0, 0])
    _, two, _ = _neighbours("relaxed-fm", [(x, 0, 0), (x, 1, 0)])
    assert two == pytest.approx(float(gdp.mu_for(1.0, 1e-3)))
    # adfc, unsigned, shares near one half: √2c ≤ 1, so the same record is worst in every stage but the counts,
    # which the recorder's fixed answer hides from V but not from stage 0
    _, two, _ = _neighbours("adfc", [(x, 0, 0), (x, 1, 1)], signed=False)
    assert two == pytest.approx(float(gdp.mu_for(1.0, 1e-3)))


@pytest.mark.parametrize("method", ["pdfc", "adfc"])
def test_more_noise_on_an_attribute_keeps_the_record_and_protects_the_attribute(method):
    chosen, rng = Attribute((1, 2), 0.7), np.random.default_rng(5)
    pure = METHODS[method].law == "laplace"
    budget = 1.0 if pure else float(gdp.mu_for(1.0, 1e-3))
    inner = []
    for k in range(40):
        rest = rng.normal(size=2)
        s, t = rng.normal(size=(2, 2))
        s, t = 0.7 * s / np.linalg.norm(s), 0.7 * t / np.linalg.norm(t)
        t = -s if k % 2 else t
        rest *= np.sqrt(1 - 0.49) / np.linalg.norm(rest)
        x, other = np.array([rest[0], *s, rest[1]]), np.array([rest[0], *t, rest[1]])
        one, two, out = _neighbours(method, [(x, 1, 1), (other, 1, 1)], k, attribute=chosen, ratio=10.0)
        inner.append(one if pure else two)
        assert inner[-1] <= budget
    allowed = out.attribute.epsilon if pure else float(gdp.mu_for(out.attribute.epsilon, 1e-3))
    assert out.account.epsilon == pytest.approx(1.0, rel=1e-6)  # the record's guarantee is what it was
    assert out.attribute.epsilon < 0.8
    assert max(inner) <= allowed * (1 + 1e-9)
    assert max(inner) > (0.2 if pure else 0.9) * allowed
    plain = release(statistics(), method, epsilon=1.0, delta=1e-3, noise=seeded(), attribute=chosen, ratio=1.0)
    assert plain.attribute.epsilon > out.attribute.epsilon


def test_attribute_noise_sits_on_the_right_monomials():
    note = Recorder(count=50)
    release(statistics(d=3), "adfc", epsilon=1.0, delta=1e-3, noise=note, attribute=Attribute((1,)), ratio=10.0)
    scale = note.seen[1][1] / note.seen[1][1][0]
    quad = 1 / np.sqrt(8)
    # b0 b1 b2 | A00 A11 A22 | A01 A02 A12
    assert np.allclose(scale, [1, 10, 1, quad, 10 * quad, quad, 10 * quad, quad, 10 * quad])
    with pytest.raises(InputError, match="ratio must be >= 1"):
        release(statistics(), "adfc", epsilon=1.0, delta=1e-3, noise=seeded(), attribute=Attribute((1,)), ratio=0.5)
    with pytest.raises(InputError, match="no group-wise noise"):
        release(statistics(), "fm", epsilon=1.0, noise=seeded(), attribute=Attribute((1,)))


@pytest.mark.parametrize("method", ["relaxed-fm", "fm"])
def test_noise_has_the_declared_law_and_not_one_five_percent_off(method):
    d = 450  # 101,475 quadratic coefficients
    empty = Statistics(1, np.zeros(2), np.zeros(d), np.zeros((d, d)), np.zeros((2, d)))
    out = release(empty, method, epsilon=1.0, delta=1e-3, noise=seeded(4))
    note = Recorder()
    release(empty, method, epsilon=1.0, delta=1e-3, noise=note)
    vector = poly.svec if method == "relaxed-fm" else poly.monomials
    drawn = vector(out.quadratic) / note.seen[0][1][d]
    law = stats.norm if method == "relaxed-fm" else stats.laplace
    assert stats.kstest(drawn, law.cdf).pvalue > 0.01
    assert stats.kstest(drawn / 1.05, law.cdf).pvalue < 1e-4


@pytest.mark.parametrize("method", PRIVATE)
@pytest.mark.parametrize("groups", [2, 3])
def test_without_noise_the_answer_is_the_closed_form(method, groups):
    x, y, z = records(600, 4, groups=groups)
    s = Statistics.of(x, y, z, groups)
    out = release(s, method, epsilon=np.inf, noise=seeded())
    assert out.account.epsilon == np.inf
    plain = -np.linalg.solve(x.T @ x / 8, (0.5 - y) @ x) / 2
    assert np.allclose(out.weights(0.0), plain)
    if method in FAIR:
        codes = np.eye(groups)[z] - np.bincount(z) / len(z)
        fair = out.weights(np.inf)
        assert np.allclose(codes.T @ x @ fair, 0, atol=1e-9)
        assert np.abs(codes.T @ x @ plain).max() > 1
        assert np.abs(codes.T @ x @ out.weights(0.01)).max() < np.abs(codes.T @ x @ plain).max()
    else:
        assert np.allclose(out.weights(np.inf), plain)


def test_names_of_the_groups_do_not_matter():
    x, y, z = records(500, 4)
    weights = [
        release(Statistics.of(x, y, labels), "adfc", epsilon=np.inf, noise=seeded()).weights(0.05)
        for labels in (z, 1 - z)
    ]
    assert np.allclose(*weights)


def test_pdfc_without_penalty_and_with_all_its_budget_on_the_objective_is_fm():
    s = statistics()
    one = release(s, "pdfc", epsilon=1.0, noise=seeded(7), shares=(0, 1, 0)).weights(0.0)
    assert np.array_equal(one, release(s, "fm", epsilon=1.0, noise=seeded(7)).weights())
    two = release(s, "adfc", epsilon=1.0, delta=1e-3, noise=seeded(7), shares=(0, 1, 0)).weights(0.0)
    assert np.array_equal(two, release(s, "relaxed-fm", epsilon=1.0, delta=1e-3, noise=seeded(7)).weights())


def test_pdfc_with_even_noise_is_pflr_star():
    s = statistics()
    one, two = (release(s, m, epsilon=1.0, noise=seeded(8)).weights() for m in ("pdfc", "pflr-star"))
    assert np.array_equal(one, two)


def test_an_indefinite_objective_is_repaired_and_never_drawn_again():
    class Counting(Seeded):
        calls = 0

        def add(self, values, scale, law):
            self.calls += 1
            return super().add(values, scale, law)

    for seed in range(30):
        noise = Counting(np.random.default_rng(seed))
        out = release(statistics(n=20), "adfc", epsilon=0.01, delta=1e-6, noise=noise)
        assert noise.calls == 3
        assert np.all(np.isfinite(out.weights()))
    assert np.linalg.eigvalsh(out.quadratic).min() < 0


def test_shares_of_the_budget():
    note = Recorder(count=50)
    release(statistics(d=3), "adfc", epsilon=1.0, delta=1e-3, noise=note, shares=(0.2, 0.5, 0.3), signed=False)
    mu = float(gdp.mu_for(1.0, 1e-3))
    (_, s0, _), (_, s1, _), (_, s2, _) = note.seen
    p = 50 / 400
    assert float(s0[0]) == pytest.approx(1 / (mu * np.sqrt(0.2)))
    assert float(s1[0]) == pytest.approx(1 / (mu * np.sqrt(0.5)))
    assert float(s2[0, 0]) == pytest.approx(max(1, np.sqrt(2) * (1 - p)) / (mu * np.sqrt(0.3)))
    with pytest.raises(InputError, match="sum to 1"):
        release(statistics(), "adfc", epsilon=1.0, delta=1e-3, noise=seeded(), shares=(0.5, 0.5, 0.5))


def test_an_empty_group_is_clipped_away_from_nothing():
    x, y, _ = records(200, 4)
    out = release(Statistics.of(x, y, np.zeros(200, int)), "adfc", epsilon=np.inf, noise=seeded())
    assert out.share.tolist() == [0.99, 0.01]
    assert np.all(np.isfinite(out.weights()))


@pytest.mark.parametrize("method", ["adfc", "pdfc"])
def test_secure_noise_is_on_a_grid_and_its_rounding_is_paid(method):
    out = release(statistics(), method, epsilon=2.0, delta=1e-3, noise=GridNoise())
    assert out.account.epsilon <= 2.0
    assert out.account.epsilon > 1.99
    kinds = {type(e) for e in out.events}
    assert kinds == {DiscreteGaussian if method == "adfc" else Laplace}
    size = [1, 4 + 10, 4]
    for event, count in zip(out.events, size, strict=True):
        if method == "adfc":
            step = float(event.sigma) / mech_sigma()
            assert float(event.sensitivity) == pytest.approx(1 + step * np.sqrt(count), rel=1e-6)
        else:
            assert float(event.l1) == pytest.approx(1 + count / (float(event.rate) * 2**16), rel=1e-6)


def mech_sigma():
    return np.sqrt(1024**2 * (1 + 64**2))


def test_secure_values_are_multiples_of_the_step():
    values, sigma = np.array([0.3, -2.0, 17.123456]), 0.5
    noisy = GridNoise().add(values, np.array(sigma), "gaussian")
    step = np.nextafter(sigma / mech_sigma(), 1)
    assert np.allclose(noisy / step, np.rint(noisy / step), atol=1e-4)
    assert not np.allclose(values / step, np.rint(values / step), atol=1e-4)


def test_refusals():
    with pytest.raises(InputError, match="delta in"):
        release(statistics(), "adfc", epsilon=1.0, noise=seeded())
    with pytest.raises(InputError, match="expected one of fm"):
        release(statistics(), "lr", epsilon=1.0, noise=seeded())
    with pytest.raises(InputError, match="epsilon must be > 0"):
        release(statistics(), "fm", epsilon=-1.0, noise=seeded())


def test_events_are_what_the_noise_is():
    out = release(statistics(), "adfc", epsilon=1.0, delta=1e-3, noise=seeded())
    assert all(isinstance(e, Gaussian) for e in out.events)
    square = sum(float(flat(e).mu()[0]) ** 2 for e in out.events)
    assert square == pytest.approx(float(gdp.mu_for(1.0, 1e-3)) ** 2)
