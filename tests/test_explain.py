"""A plan in words: every number in a sentence is the one that pricing gives, and warnings come when they must."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from coterie import cli
from coterie.errors import InputError
from coterie.explain import Rehearsal, explain, rehearse
from coterie.network import Network
from coterie.plan import Plan, read_plan
from coterie.pricing import Priced, price
from tests.support import CLINICS

QUICK = ["run.rounds=3"]


@cache
def default() -> tuple[Plan, list[str], Network, Priced]:
    """The embedded plan and what is said about it."""
    plan = read_plan(CLINICS)
    return plan, *explain(plan)


@cache
def rehearsal(*changes: str) -> Rehearsal | None:
    """A rehearsal of the embedded plan with changes."""
    plan = read_plan(CLINICS, list(changes))
    _, network, priced = explain(plan)
    return rehearse(plan, network, priced)


def said(*changes: str) -> str:
    """What is said about the embedded plan with changes, cut to three rounds."""
    return " ".join(explain(read_plan(CLINICS, [*QUICK, *changes]))[0])


def test_sentences_carry_the_numbers_of_pricing() -> None:
    plan, lines, network, _ = default()
    again = price(plan, network)
    assert again.spending is not None
    assert lines[0].startswith(f"5 parties with {network.sizes.min()} to {network.sizes.max()} records train")
    assert "logistic classifier of 12 parameters by dp-dsgd" in lines[0]
    assert "ring graph, each with 2 others" in lines[1]
    assert "after 2 hops" in lines[1]  # five on a ring
    assert lines[2].startswith(f"Each party will send {again.rounds} messages of 12 numbers ")
    assert f"({again.rounds * 12 * 8 / 1000:.3g} kB to each neighbour)" in lines[2]
    assert f"ε = {again.spending.worst.epsilon:.2f} of 1.00" in lines[3]
    assert f"at δ = 1e-05, by the {again.spending.worst.accountant} accountant" in lines[3]
    low, high = f"{again.noise.min():.3g}", f"{again.noise.max():.3g}"
    assert lines[5].startswith(f"Noise: {low if low == high else f'{low} to {high}'} times")
    assert not any("Warning" in line for line in lines)


def test_messages_that_may_stay_away_and_messages_of_one_number() -> None:
    assert "at most 3 messages of 12 numbers" in said("algorithm.name=ipp-admm")
    assert "3 messages of 1 numbers" in said("algorithm.name=priv-rcd", "graph.kind=complete")


def test_the_largest_budget_stands_beside_the_largest_spending() -> None:
    assert "ε = 2.00 of 2.00" in said("privacy.epsilon=[0.5, 1.0, 2.0, 0.5, 0.5]")


def test_a_delta_of_one_record_is_warned_of_and_a_smaller_one_is_not() -> None:
    largest = default()[2].sizes.max()
    assert f"Warning: δ = {1.1 / largest:g} is larger than 1 in {largest}" in said(f"privacy.delta={1.1 / largest}")
    whole = default()[2].sizes.sum()
    assert f"is not below 1/{whole}" in said(f"privacy.delta={0.9 / largest}")
    assert "Warning" not in said(f"privacy.delta={0.9 / whole}")


def test_other_warnings() -> None:
    assert "promises next to nothing" in said("privacy.epsilon=11")
    assert "tuned on private data" in said("privacy.tuned_on_private_data=true")
    assert "as its paper printed it" in said("algorithm.name=pr-admm", "algorithm.as_printed=true")


def test_without_noise_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "free.toml"
    path.write_text('algorithm.name = "dgd"\nrun.rounds = 3\n')
    text = " ".join(explain(read_plan(path))[0])
    assert "carry NO noise" in text
    assert "ε =" not in text


def test_yardsticks_are_refused() -> None:
    with pytest.raises(InputError, match="yardstick"):
        explain(read_plan(CLINICS, ["algorithm.name=pooled"]))


def test_a_plan_that_states_its_shape_is_explained_without_data(tmp_path: Path) -> None:
    stated = 'data = { source = "csv", path = "nowhere.csv", label = "y" }\nprivacy.epsilon = 1.0\nrun.rounds = 3\n'
    sizes = "partition = { kind = 'iid', agents = 3, sizes = [40, 40, 40] }\n"
    path = tmp_path / "plan.toml"
    path.write_text(stated + sizes + 'problem = { loss = "logistic", dim = 7 }\n')
    lines = explain(read_plan(path))[0]
    assert lines[0].startswith("3 parties with 40 records each train one logistic classifier of 7 parameters")
    path.write_text(stated + sizes)
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        explain(read_plan(path))


def test_a_plan_that_does_not_is_read_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.uniform(-1, 1, (40, 2)), rng.integers(2, size=40)])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,y", comments="", fmt="%g")
    path = tmp_path / "plan.toml"
    path.write_text(
        f'data = {{ source = "csv", path = "{tmp_path / "t.csv"}", label = "y" }}\npartition = {{ kind = "iid", '
        "agents = 2 }\nprivacy.epsilon = 1.0\nrun.rounds = 3\n"
    )
    assert "the data was read for its shape" in explain(read_plan(path))[0][-1]


def test_the_rehearsal_asks_on_own_patients() -> None:
    tried = rehearsal()
    assert tried is not None
    assert tried.metric == "accuracy"
    assert 0.7 < tried.score < tried.pooled + 0.02 < 1
    assert abs(tried.alone - tried.pooled) < 0.03  # clinics that are unlike gain nothing by pooling


@pytest.mark.slow
def test_a_budget_of_nearly_nothing_rehearses_worse() -> None:
    tried, poor = rehearsal(), rehearsal("privacy.epsilon=0.02")
    assert tried is not None
    assert poor is not None
    assert poor.score < tried.score - 0.05
    assert poor.pooled == pytest.approx(tried.pooled, abs=1e-9)  # references have no noise


def test_no_rehearsal_where_it_would_mislead() -> None:
    assert rehearsal(*QUICK, "problem.loss=mean", "algorithm.name=dp-consensus-gd") is None


def test_the_command_prints_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "check", "clinics", "--no-rehearsal", "--set", "run.rounds=3"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines() == explain(read_plan(CLINICS, QUICK))[0]
    assert cli.main(["plan", "check", "clinics", "--set", "run.rounds=3"]) == 0
    assert "each party's own: accuracy 0." in " ".join(capsys.readouterr().out.split())
