"""Every private algorithm is attacked at ε = 1 and 8, and passes all checks."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.audit import audit, checks, make_setting
from coterie.audit.audit import watch
from coterie.audit.sequential import sequential
from coterie.audit.setting import ATTACKS, WHOLE
from tests.support import mostly_slow

EVERYDAY = {"gauss-avg-gd", "hmv-dgd", "qdpsgd1"}  # Gaussian, Laplace, and a state behind rounding
PRIVATE = [slug for slug, a in all_algorithms().items() if a.private]
LEARNED = {"qdpsgd1", "qdpsgd2", "qdpsgd2-grad"}  # a state behind rounding
GAUSSIAN = ["dp-admm", "dp-consensus-gd", "dp-dsgd", "gauss-avg-gd", "p-admm", "pr-admm", "priv-rcd"]


def attack(slug: str, epsilon: float, trials: int) -> None:
    """Attack one algorithm on its transcripts, at a fixed size and by bets."""
    setting = make_setting(find(slug), epsilon=epsilon)
    verdict = audit(setting, trials)
    assert not verdict.violated, verdict.reasons
    assert verdict.exact == (slug not in LEARNED), verdict.error
    assert verdict.lower_bound <= epsilon * 1.0001
    assert not sequential(setting, trials).refuted
    if verdict.exact and epsilon == 1:  # E[L'/L] = 1, E[L/L'] = 1: only for true likelihoods
        for ratio in (np.exp(verdict.scores[0]), np.exp(-verdict.scores[1])):
            assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))


@pytest.mark.parametrize("slug", mostly_slow(sorted(EVERYDAY), "gauss-avg-gd", "hmv-dgd"))
def test_claims_hold(slug: str) -> None:
    for epsilon in (1.0, 8.0):
        attack(slug, epsilon, 250)


@pytest.mark.audit
@pytest.mark.parametrize("slug", PRIVATE)
def test_claims_hold_on_1000_transcripts_per_world(slug: str) -> None:
    for epsilon in (1.0, 8.0):
        attack(slug, epsilon, 1000)


@pytest.mark.audit
@pytest.mark.parametrize("slug", sorted(WHOLE))
def test_claims_with_random_batches_hold(slug: str) -> None:
    cfg = find(slug).example.replace(batch=2)
    for epsilon in (1.0, 8.0):
        verdict = audit(make_setting(find(slug), cfg, epsilon=epsilon, records=8), 1000)
        assert not verdict.violated, verdict.reasons
        assert not verdict.exact


@pytest.mark.audit  # every day: coupled worlds with Poisson batches in test_matrix.py
def test_claims_about_leaving_a_record_out_are_tested_as_such() -> None:
    cfg = find("dp-dsgd").example.replace(batch=2, scheme="poisson")
    setting = make_setting(find("dp-dsgd"), cfg, epsilon=8.0)
    assert not setting.replaces
    verdict = audit(setting, 250, confidence=0.99)
    assert not verdict.violated, verdict.reasons
    assert verdict.lower_bound > 0.3
    assert checks.sampling(checks.gather(setting, ATTACKS[:1])).passed


@pytest.mark.audit
@pytest.mark.parametrize("slug", GAUSSIAN)
def test_the_attack_is_sharp_on_gaussian_claims(slug: str) -> None:
    # at ε = 1 the 99 % limits of 50,000 transcripts alone take 11 % of μ
    for epsilon in (2.0, 8.0):
        verdict = audit(make_setting(find(slug), epsilon=epsilon), 50_000, confidence=0.99)
        assert not verdict.violated
        assert verdict.mu is not None
        assert verdict.mu_bound >= 0.9 * verdict.mu


@pytest.mark.audit
def test_1000_honest_audits_raise_no_alarm() -> None:
    """The attack uses all of μ, so an alarm is as likely as it can be: at most 1e-5 in each."""
    for epsilon in (1.0, 8.0):
        setting = make_setting(find("gauss-avg-gd"), epsilon=epsilon)
        for seed in range(500):
            assert not audit(setting, 250, attack=ATTACKS[0], seed=seed).violated, seed
            assert not sequential(setting, 250, attack=ATTACKS[0], seed=seed).refuted, seed


@pytest.mark.audit
def test_1000_honest_checks_raise_no_alarm() -> None:
    """The checks use statistics in one place only, how often a record is used: so with random batches."""
    cfg = find("dp-dsgd").example.replace(batch=2)
    setting = make_setting(find("dp-dsgd"), cfg, epsilon=1.0, records=8)
    for seed in range(1000):
        found = checks.examine(checks.gather(setting, ATTACKS[:2], seed=seed))
        assert all(f.passed for f in found), (seed, found)


def test_attacks_saturate_the_sensitivity() -> None:
    setting = make_setting(find("gauss-avg-gd"), epsilon=8.0)
    first, _ = (watch(setting, ATTACKS[0], k) for k in (0, 1))
    used = np.sqrt(np.sum(first.apart**2, axis=(1, 2)))
    assert setting.mu is not None
    np.testing.assert_array_less(used, setting.mu * (1 + 1e-9))
    assert np.all(used > 0.995 * setting.mu)


def test_every_private_algorithm_is_audited() -> None:
    assert set(PRIVATE) >= EVERYDAY | LEARNED | set(GAUSSIAN)
    assert len(PRIVATE) >= 22
