"""The pages on estimators and on models of your own print what runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from coterie.privacy import gdp
from coterie.privacy.selection import mu_for_selection
from tests.support import mostly_slow

ROOT = Path(__file__).parents[2]
ESTIMATORS, CUSTOM = (ROOT / "docs" / name for name in ("estimators.md", "custom-models.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_first_example_runs_as_printed(capsys):
    example = blocks(ESTIMATORS, "python")[0]
    assert len(example.splitlines()) <= 12
    exec(compile(example, "estimators.md", "exec"), {})
    assert capsys.readouterr().out == blocks(ESTIMATORS, "text")[0]


@pytest.mark.slow  # nine fits; a search by hand: tests/estimators/test_search.py
def test_search_example_runs(capsys):
    exec(compile(blocks(ESTIMATORS, "python")[1], "estimators.md", "exec"), {})
    assert "ε = 1.000" in capsys.readouterr().out


def test_prices_on_the_page_are_right():
    text = ESTIMATORS.read_text("utf-8")
    network = gdp.epsilon_of(gdp.mu_for(1.0, 1e-5) / 3, 1e-5)
    hidden = [gdp.epsilon_of(mu_for_selection(1.0, 1e-5, 9, shape), 1e-5) for shape in (1.0, 0.0)]
    said = [float(x) for x in re.findall(r"gets ε = (0\.\d+)|or (0\.\d+) \(`shape=0`", text) for x in x if x]
    assert said == [round(float(x), 3) for x in (network, *hidden)]


EXAMPLES = {"custom_loss": 0.95, "equinox_network": 0.85, "private_last_layer": 0.9}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_printed_as_they_are(name):
    printed = re.search(
        rf"<!-- file: examples/{name}.py -->\n```python\n(.*?)^```", CUSTOM.read_text("utf-8"), re.S | re.M
    )
    assert printed[1] == (ROOT / "examples" / f"{name}.py").read_text("utf-8")


@pytest.mark.parametrize(("name", "least"), mostly_slow(EXAMPLES.items(), ("custom_loss", 0.95)))
def test_examples_run(name, least, capsys):
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    out = capsys.readouterr().out
    assert float(re.search(r"(?:truth|accuracy) ([\d.]+)", out)[1]) > least
    expected = float(re.search(r"ε = ([\d.]+)", out)[1])
    assert expected == (2.0 if name == "equinox_network" else 1.0)


def test_a_loss_of_your_own_takes_ten_lines():
    """From the loss to the model, the made-up data and the report left out."""
    text = (ROOT / "examples" / "custom_loss.py").read_text("utf-8")
    body = re.sub(r'""".*?"""', "", text, flags=re.DOTALL).split("\n")
    made = ("rng", "x =", "truth", "labels", "right", "print")
    lines = [line for line in body if line.strip() and not line.startswith(made)]
    assert len(lines) <= 10
