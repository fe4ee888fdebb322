"""Every seeded fault is found by its check, which has nothing to say about the real module."""

from __future__ import annotations

import pytest

from coterie.algorithms.base import Algorithm, find
from coterie.audit import audit, make_setting
from coterie.audit.checks import CHECKS, Finding
from coterie.audit.setting import ATTACKS
from coterie.errors import InputError
from tests.audit.seeded.hunting import FAULTS, Fault, hunt, plant

# one or two of every check; what is left out here is caught by another test every day, or like one of these
EVERYDAY = {
    "noise 5 % short",
    "silence where the gradient is small",
    "the answer is the point before its noise",
    "a dropped charge",
    "a fresh draw for a message sent again, not charged",
    "a bound on gradients that is half the true one",
    "an own message kept where only the sum may be read",
    "everybody's noise counted where few are honest",
    "a certificate of half the rounds",
    "a verifier that takes any noise for drawn",
    "a claim in spite of what a loader read",
    "a range that stretches to the largest value",
    "all agents draw the same noise",
    "layer 0 of shared noise from the seeds that others hold shares of",
}


def marked(fault: Fault) -> object:
    return pytest.param(fault, id=fault.name, marks=() if fault.name in EVERYDAY else pytest.mark.audit)


HONEST: dict[tuple[str, ...], list[Finding]] = {}  # by all that is run where no fault is planted


def wrong_with_the_real(fault: Fault) -> list[Finding]:
    apart = fault.check if fault.check not in CHECKS else ""  # a check that looks at another part than an agent
    settings = fault.changes, fault.options, fault.losses, fault.person
    key = (apart, fault.runs or fault.module, fault.problem, *map(repr, settings))
    if key not in HONEST:
        HONEST[key] = hunt(fault, planted=False)
    return HONEST[key]


@pytest.mark.parametrize("fault", [marked(f) for f in FAULTS])
def test_fault_is_killed_and_the_real_code_is_not(fault: Fault) -> None:
    found = hunt(fault)
    assert fault.check in [f.check for f in found], found
    assert wrong_with_the_real(fault) == []


def test_half_the_noise_at_epsilon_8_takes_80_transcripts_per_world() -> None:
    (fault,) = [f for f in FAULTS if f.name == "half the noise"]
    right = make_setting(find("gauss-avg-gd"), epsilon=8.0)
    wrong = make_setting(Algorithm.of("gauss-avg-gd", plant(fault)), epsilon=8.0)
    for seed in range(4):
        assert audit(wrong, 80, attack=ATTACKS[0], seed=seed, confidence=0.99).violated
        assert not audit(right, 80, attack=ATTACKS[0], seed=seed, confidence=0.99).violated


def test_the_list() -> None:
    assert len(FAULTS) >= 60
    assert len({f.name for f in FAULTS}) == len(FAULTS)
    assert {f.check for f in FAULTS} == {
        *CHECKS,
        "driver",
        "wire",
        "sums",
        "contract",
        "exchange",
        "certificate",
        "loader",
    }
    assert {f.name for f in FAULTS} >= EVERYDAY
    assert {f.check for f in FAULTS if f.name in EVERYDAY} >= {f.check for f in FAULTS} - {
        "wire",
        "contract",
        "solver",
        "sampling",  # every day in test_batches.py
    }  # dear


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_every_patch_applies(fault: Fault) -> None:
    """Whether it is found is asked of few every day: that there is something to find, of all."""
    plant(fault)


def test_a_patch_that_no_longer_applies_is_an_error() -> None:
    with pytest.raises(InputError, match="expected 1"):
        plant(Fault("gone", "gauss-avg-gd", "noise", (("no such line", ""),)))
