"""ε of a record, of a person, of a person whom two parties know: the same wherever it is stated, and as by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from coterie.cli import main
from tests.report.certificates import rejection, resealed
from tests.support import mostly_slow

DELTA = 1e-5
PLAN = """[data]
source = "csv"
path = "{path}"
label = "ill"
person = "patient"
unit = "{unit}"
[data.options]
bounds = {{age = [0, 100]}}
classes = ["no", "yes"]
[partition]
kind = "iid"
agents = 3
{sizes}
[graph]
kind = "complete"
[privacy]
epsilon = {epsilon}
delta = 1e-5
[problem]
loss = "logistic"
dim = 2
[algorithm]
name = "{name}"
[run]
rounds = 3
references = "none"
{exchange}
"""


def excess(epsilon: float, mu: float) -> float:
    """δ(ε) of N(0, 1) against N(μ, 1), by its definition Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), less the δ that is asked."""
    tail = np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    return float(norm.cdf(mu / 2 - epsilon / mu) - tail - DELTA)


def epsilon_of(mu: float) -> float:
    return float(brentq(excess, 0.0, 500.0, (mu,), xtol=1e-13))


def mu_of(epsilon: float) -> float:
    return float(brentq(lambda mu: excess(epsilon, mu), 1e-3, 9.0, xtol=1e-13))


SAID = [(u, s, n) for n in ("dp-dsgd", "pr-admm") for u, s in (("person", False), ("record", False), ("person", True))]


@pytest.mark.parametrize(("unit", "shared", "name"), mostly_slow(SAID, ("person", False, "pr-admm")))
def test_all_say_the_same_and_never_too_little(
    unit: str, shared: bool, name: str, tmp_path: Path, capfd: Any
) -> None:  # fmt: skip
    if shared and name == "pr-admm":
        pytest.skip("it keeps its own messages: no claim for opened sums")
    rng = np.random.default_rng(0)
    age, who = rng.integers(20, 80, 300), np.arange(300) // 2
    rows = [f"{a},{w},{'yes' if a > 50 else 'no'}" for a, w in zip(age, who, strict=True)]
    (tmp_path / "all.csv").write_text("\n".join(["age,patient,ill", *rows]))
    each = 1.0 if shared else [1.0, 0.4, 0.7]
    honest = '[exchange]\nkind = "secret-sum"\nnoise = "central"\nhonest = 2' if shared else ""
    text = PLAN.format(
        path=tmp_path / "all.csv", unit=unit, epsilon=each, name=name, exchange=honest,
        sizes="sizes = [40, 40, 40]" if unit == "person" else "",
    )  # fmt: skip
    (tmp_path / "plan.toml").write_text(text)
    assert main(["run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]) == 0
    ran = " ".join(capfd.readouterr().out.split())
    told = json.loads((tmp_path / "out" / "result.json").read_text())["privacy"]["protects"]
    one = mu_of(1.0)
    assert told["unit"] == unit
    assert told["record"] == pytest.approx(1.0, rel=2e-3)
    if unit == "person":
        two = epsilon_of(2 * one if shared else np.hypot(one, mu_of(0.7)))
        assert told["person"] == told["record"]
        assert told["person_at_two_parties"] == pytest.approx(two, rel=2e-3)
        words = f"a person whom two parties know: ε = {told['person_at_two_parties']:.4g} at δ = 1e-05"
    else:
        assert told["person"] is None
        for k, epsilon in told["of_records"].items():
            assert epsilon == pytest.approx(epsilon_of(int(k) * one), rel=2e-3)
            assert epsilon >= epsilon_of(int(k) * one) * (1 - 1e-3)
        words = "a person with several records at one party: ε = 2.15 with 2, 6.17 with 5, 14.4 with 10, 102 with 40"
    assert words in ran
    if unit == "person":  # sizes are stated, so that no data is read
        assert main(["account", str(tmp_path / "plan.toml")]) == 0
        assert f"ε is for one person; {words}" in " ".join(capfd.readouterr().out.split())
        assert main(["plan", "check", str(tmp_path / "plan.toml")]) == 0
        assert words in " ".join(capfd.readouterr().out.split())
    assert main(["verify", str(tmp_path / "out" / "certificate.json")]) == 0
    assert f"one {unit}; {words}" in " ".join(capfd.readouterr().out.split())
    stated = json.loads((tmp_path / "out" / "certificate.json").read_text())
    numbers = lambda tree: {k: v for k, v in (tree | tree["of_records"]).items() if isinstance(v, float)}  # noqa: E731
    assert numbers(stated["protects"]) == pytest.approx(numbers(told), rel=1e-6)
    for name in ("person_at_two_parties", "record"):  # made smaller, and sealed anew
        fake = {**stated, "protects": {**stated["protects"], name: 0.5}}
        assert f"protects.{name}" in str(rejection(resealed(fake)))
