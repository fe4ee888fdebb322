"""What the papers printed is caught, with the numbers of the specification."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from coterie.algorithms.base import find
from coterie.audit import audit, make_setting
from coterie.audit.audit import watch
from coterie.audit.setting import ATTACKS
from coterie.errors import InputError
from reproduction.__main__ import main
from reproduction.printed import CASES, Case, carried_state_epsilon, measure, redrawn_test_epsilon, row
from reproduction.rare import carried_setting, mean_bound, rare_epsilon


def case(slug: str, where: str = "") -> Case:
    """The first case of an algorithm, from a place in its paper."""
    return next(c for c in CASES if c.algorithm == slug and where in c.where)


@pytest.mark.parametrize(
    ("claimed", "rounds", "expected"),
    [(1.0, 1000, (1.46, 2.52, 4.70)), (1.0, 5000, (3.5, 6.2, 11.7)), (1.5, 1000, (2.3, 4.1, 7.9))],
)
def test_carried_state_spends_what_the_specification_says(claimed: float, rounds: int, expected: tuple) -> None:
    got = [carried_state_epsilon(claimed, rounds, w) for w in (0.2, 0.5, 0.7)]
    np.testing.assert_allclose(got, expected, rtol=0.02)


def test_the_closed_form_is_that_of_the_module() -> None:
    # Σ_t z_t of the printed algorithm, batches of 1 of 4: mean gap Σ c_τ/4, variance of the noise and of the batches
    cfg = find("qdpsgd2").example.replace(scheme="fixed", batch=1, grid=1e-6, range=4096.0, step=0.5, averaging=0.4)
    rounds, own = 12, 0.5
    setting = make_setting(find("qdpsgd2"), cfg, printed=True, noise=0.3, rounds=rounds, self_weight=own, ridge=0.0)
    first, second = (
        np.concatenate([np.asarray(watch(setting, ATTACKS[0], k, p).seen.messages.z)[:, :, 0].sum(1) for p in range(8)])
        for k in (0, 1)
    )
    keep = 1 - 0.4 + 0.4 * own
    moves = 2 * np.cos(0.05) * 0.5 * 0.4 * (1 - keep ** (rounds - 1 - np.arange(rounds))) / (1 - keep)
    noise = rounds * (0.3 * 2 * 0.5 * 0.4) ** 2
    spread = noise + 3 / 16 * np.sum((moves / 2) ** 2)
    error = np.sqrt(2 * spread / len(first))
    assert abs((first.mean() - second.mean()) - moves.sum() / 4) < 4 * error
    assert first.var() == pytest.approx(spread, rel=0.12)


def test_printed_last_message_of_consensus_descent_is_caught() -> None:
    found = audit(case("dp-consensus-gd").setting(), 250, confidence=0.99)
    assert found.violated
    assert found.lower_bound > 3
    assert np.isinf(found.largest_ratio)


def test_per_coordinate_claim_of_ldp_admm_is_caught() -> None:
    found = audit(case("ldp-admm").setting(), 1000)
    assert found.violated
    assert found.lower_bound > 1.5
    assert found.largest_ratio == pytest.approx(2 * np.sqrt(2) * np.cos(0.05), rel=1e-4)  # 2√d times the claim


@pytest.mark.slow
def test_printed_noise_of_dvp_is_half_of_what_it_must_be() -> None:
    found = audit(case("dvp", "Alg. 2").setting(), 2000)
    assert found.exact
    assert found.violated
    assert found.epsilon == pytest.approx(0.3)
    assert found.largest_ratio == pytest.approx(0.555, abs=2e-3)


@pytest.mark.slow
def test_tests_of_the_printed_ipp_admm_stay_below_its_total_where_delta_is_ordinary() -> None:
    # measured in closed form: the selection on the noise cannot exceed the printed total unless δ is tiny
    charged = lambda pure, delta: np.sqrt(2 * np.log(1 / delta)) * pure  # noqa: E731
    shares = [redrawn_test_epsilon(e, c, t, 1e-5) / charged(e, 1e-5)
              for e in (0.2, 1.0) for c in (1, 4) for t in (30, 1000)]  # fmt: skip
    assert 0.6 < max(shares) < 0.7
    assert redrawn_test_epsilon(1.0, 1, 10_000, 1e-12) > 1.1 * charged(1.0, 1e-12)
    # by throwing the coins: c = 1, T = 20
    rng, pure, threshold, n = np.random.default_rng(0), 2.0, 4.0, 200_000
    ratio = 2 ** (2 / 3)
    scales = 4 * (1 + ratio) / (pure * ratio), 2 * (1 + ratio) / pure
    ends = []
    for query in (1.0, -1.0):
        passed = query + rng.laplace(0, scales[0], (n, 20)) >= threshold + rng.laplace(0, scales[1], (n, 20))
        ends.append(np.bincount(np.where(passed.any(1), passed.argmax(1), 20), minlength=21) / n)
    seen = np.sum(np.clip(ends[0] - np.exp(0.1) * ends[1], 0, None))
    spent = redrawn_test_epsilon(pure, 1, 20, float(seen))
    assert spent > 0.1 - 0.02  # the best threshold tells no less than this one


@pytest.mark.slow
@pytest.mark.parametrize("self_weight", [0.5, 0.7])
def test_a_thousand_rounds_of_the_printed_qdpsgd2_on_transcripts(self_weight: float) -> None:
    found = rare_epsilon(carried_setting(self_weight=self_weight), 3000)
    print(f"\nw_ii = {self_weight}: {found}")
    exact = carried_state_epsilon(1.0, 1000, self_weight)
    assert exact == pytest.approx(carried_state_epsilon(1.0, 1000, self_weight, batch=1, records=50), abs=1e-6)
    assert found.epsilon < exact
    assert found.epsilon > 0.75 * exact
    assert norm.sf(found.event) < found.miss < 1.4 * norm.sf(found.event)  # the first world is noise alone


@pytest.mark.slow
@pytest.mark.parametrize("one", CASES, ids=lambda c: f"{c.algorithm}-{c.where}")
def test_every_erratum_is_caught_and_its_correction_is_not(one: Case) -> None:
    found = measure(one)
    assert found.printed.violated
    assert found.printed.lower_bound > one.epsilon  # at 99 % confidence, not only by one transcript's ratio
    assert not found.corrected.violated
    assert row(found)[-1] == "caught"


def test_the_page_has_a_row_for_every_case() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text("utf-8")
    for one in CASES:
        start = f"| `{one.algorithm}` | {one.where} | {one.what} | {one.epsilon:g} |"
        (line,) = [x for x in page.splitlines() if x.startswith(start)]
        bound = float(line.split("|")[5].split()[0])
        assert bound > one.epsilon
        assert line.endswith("| caught |")


def test_printed_versions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="printed"):
        make_setting(find("gauss-avg-gd"), printed=True)
    with pytest.raises(InputError, match="claim"):
        make_setting(find("gauss-avg-gd"), claim="paper")
    with pytest.raises(InputError, match="nothing to audit"):
        make_setting(find("dgd"))


def test_a_refuted_claim_is_exit_code_1(capsys: pytest.CaptureFixture) -> None:
    assert main(["claims", "dp-consensus-gd", "--trials", "250", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["refuted"]
    assert found["lower_bound"] > found["epsilon"] == pytest.approx(1)


def test_what_has_no_erratum_is_one_line(capsys: pytest.CaptureFixture) -> None:
    assert main(["claims", "dsgd"]) == 2
    assert "no erratum of 'dsgd' is measured" in capsys.readouterr().err


def test_limits_of_a_bounded_mean_cover_and_are_sharp() -> None:
    # skewed variables in [0, 1]: u⁸ where u is uniform, else 0; mean .3/9
    rng, mean, n = np.random.default_rng(3), 0.3 / 9, 2000
    draw = lambda k: np.where(rng.uniform(size=k) < 0.3, rng.uniform(size=k) ** 8, 0.0)  # noqa: E731
    low, high = np.array([[mean_bound(draw(n), draw(200), 0.05, upper=u) for u in (False, True)] for _ in range(400)]).T
    assert np.mean(low > mean) <= 0.05
    assert np.mean(high < mean) <= 0.05
    assert np.median(low) > 0.75 * mean
    assert np.median(high) < 1.25 * mean
    assert mean_bound(np.zeros(10), np.zeros(10), 0.05, upper=False) == 0
