"""Whatever prints an ε prints the one that the plan's budget is for, and against whom; others stand apart."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.comparison import compare, methods_of
from coterie.errors import InputError
from coterie.exchange.central import EVERYBODY_ELSE
from coterie.exchange.statement import EVERY_MESSAGE
from coterie.experiment import prepare
from coterie.explain import explain
from coterie.plan import read_plan, validate
from coterie.pricing import price

PLAN = """
name = "sums"
data.source = "clinics"
data.options = { records = 600, features = 3, sites = 4 }
graph.kind = "ring"
algorithm.name = "gauss-avg-gd"
privacy.epsilon = 0.1
exchange = { kind = "secret-sum", honest = 3, noise = "central" }
run.rounds = 10
run.seeds = 2
run.references = "none"
"""
NAME = "central, at least 3 honest parties"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "sums.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def local(plan: Path) -> float:
    """The price if everybody else colludes, which is larger than what was asked for."""
    read = read_plan(plan)
    spent = price(read, prepare(read).network).spending
    assert spent is not None
    assert spent.worst.epsilon > 0.15
    return spent.worst.epsilon


def words(text: str) -> str:
    return " ".join(text.split())


def told(text: str, local: float) -> None:
    """Both prices are there, each with its adversary, and the one that was asked for comes first."""
    text = words(text)
    assert text.index("0.1") < text.index(f"{local:.2f}")
    for said in ("opened sums", "any 1 of the 4 parties", "all other parties together", "5 vectors sent again"):
        assert said in text


@pytest.fixture(scope="module")
def finished(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run; what it said on the console is beside it."""
    out = tmp_path_factory.mktemp("runs") / "sums"
    with contextlib.redirect_stdout(io.StringIO()) as console:
        assert main(["run", str(plan), "--out", str(out), "--quiet"]) == 0
    (out.parent / "console.txt").write_text(console.getvalue(), "utf-8")
    return out


def test_the_console(finished: Path, local: float) -> None:
    out = words((finished.parent / "console.txt").read_text("utf-8"))
    assert "gauss-avg-gd, ε = 0.1 (central," in out
    told(out[out.index("privacy:") :], local)
    assert "one run is released, that of seed 0" in out


def test_the_result(finished: Path, local: float) -> None:
    privacy = json.loads((finished / "result.json").read_text("utf-8"))["privacy"]
    assert privacy["epsilon"] == pytest.approx(0.1, rel=1e-3)
    assert privacy["claim"] == NAME
    assert "opened sums" in privacy["adversary"]
    assert privacy["per_agent"] == [privacy["epsilon"]] * 4
    other, cap = privacy["other_claims"]
    assert other["epsilon"] == pytest.approx(local)
    assert other["epsilon"] < cap["epsilon"]
    assert other["adversary"] == cap["adversary"] == EVERYBODY_ELSE


def test_the_report(finished: Path, local: float) -> None:
    page = (finished / "report.html").read_text("utf-8")
    tile = page[page.index(">ε = 0.1<") :][:200]
    assert NAME in tile
    told(page[page.index("What the guarantee says") :], local)
    assert 'class="over"' not in page  # nobody is over a budget that was not for this adversary


def test_the_certificate(finished: Path, local: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(finished / "certificate.json"), "--strict"]) == 0
    out = words(capsys.readouterr().out)
    assert out.index("(0.0999") < out.index(NAME) < out.index(f"({local:.3f}")


def test_prices_before_a_run(plan: Path, local: float, capsys: pytest.CaptureFixture[str]) -> None:
    told(" ".join(explain(read_plan(plan))[0][3:]), local)
    assert main(["account", str(plan)]) == 0
    out = words(capsys.readouterr().out)
    assert "epsilon 0.0999" in out
    assert f"local, everybody else colludes ε = {local:.3f}" in out


@pytest.mark.slow
def test_a_comparison_never_puts_two_adversaries_under_one_name(plan: Path, local: float) -> None:
    """Nor in one table: plans that pay for different ones are refused."""
    weaker = read_plan(plan)
    usual: Any = weaker.as_json()
    usual |= {"exchange": {"kind": "broadcast"}, "graph": {"kind": "complete"}}  # a sum is over everybody
    (sums,), (plain,) = (methods_of([(name, p)], []) for name, p in (("sums", weaker), ("plain", validate(usual))))
    with pytest.raises(InputError, match="another adversary"):
        compare([sums, plain], [0.1], 1)
    ((one,), _), ((other,), _) = (compare([method], [0.1], 1) for method in (sums, plain))
    assert (one["method"], other["method"]) == (f"sums ({NAME})", "plain")
    assert [c["true_epsilon"] for c in (one, other)] == pytest.approx([0.1, 0.1], rel=1e-3)
    assert one["other_claims"][0]["epsilon"] == pytest.approx(local)
    assert "opened sums" in one["adversary"]
    assert other["adversary"] == EVERY_MESSAGE
