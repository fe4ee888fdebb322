"""A loss of one's own, outside the package: named as a module, or installed under a name; certified and deployed."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy.agreement import unverified
from coterie.deploy.trial import make_trial
from coterie.errors import InputError
from coterie.experiment import prepare
from coterie.losses import LOSSES
from coterie.losses.base import find_loss
from coterie.plan import read_plan, validate
from coterie.pricing import price
from coterie.report.derivation import derive
from tests.report.certificates import resealed
from tests.support import forget_losses

HUBER = (Path(__file__).parents[1] / "examples" / "huber_loss.py").read_text("utf-8")
BOUND = "return self.corner * self.bound"
PLAN = """
[data]
source = "csv"
path = "{path}"
label = "y"
options = {{ bounds = {{ a = [-1, 1], b = [-1, 1], y = [-5, 5] }}, optional = [] }}
[partition]
kind = "iid"
agents = 3
[problem]
loss = "{loss}"
corner = 0.5
[graph]
kind = "complete"
[algorithm]
name = "gauss-avg-gd"
[privacy]
epsilon = 4.0
[run]
rounds = 5
"""


class Stranger:
    """A package of somebody else's with the loss that CONTRIBUTING shows, and a table to learn from."""

    def __init__(self, folder: Path):
        self.folder, self.home = folder, folder / "strangers_losses"
        self.home.mkdir()
        self.write(HUBER)
        rng = np.random.default_rng(0)
        x = rng.uniform(-1, 1, (300, 2))
        y = np.clip(x @ [1.0, -0.5] + 0.1 * rng.standard_normal(300), -5, 5)
        rows = "".join(f"{a:.6f},{b:.6f},{c:.6f}\n" for (a, b), c in zip(x, y, strict=True))
        (folder / "table.csv").write_text("a,b,y\n" + rows)

    def write(self, text: str) -> None:
        """What the module says from now on."""
        (self.home / "huber.py").write_text(text)
        self.forget()

    def forget(self) -> None:
        """As in a new process."""
        for name in ("strangers_losses", "strangers_losses.huber"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        forget_losses()
        derive.cache_clear()

    def install(self) -> str:
        """Give it a name by an entry point."""
        info = self.folder / "strangers_losses-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers-losses\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[coterie.losses]\nhuber = strangers_losses.huber\n")
        self.forget()
        return "huber"

    def plan(self, loss: str) -> str:
        """The path of a plan with this loss."""
        (self.folder / "plan.toml").write_text(PLAN.format(path=self.folder / "table.csv", loss=loss))
        return str(self.folder / "plan.toml")


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions of a file within one second
    made = Stranger(tmp_path)
    yield made
    made.forget()


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error."""
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    return error


def test_a_module_is_taken_by_its_name(stranger: Stranger) -> None:
    plan = read_plan(Path(stranger.plan("strangers_losses.huber")))
    made = prepare(plan)
    assert (made.network.problem.name, made.network.problem.lipschitz, made.dataset.classes) == (
        "huber loss",
        0.5,
        None,
    )
    assert price(plan, made.network).private
    stored = json.loads(json.dumps(plan.as_json()))
    assert stored["problem"]["corner"] == 0.5
    assert validate(stored) == plan
    stranger.write(HUBER.replace(BOUND, BOUND + " / 2"))
    with pytest.raises(InputError, match=r"huber loss: lipschitz = 0.25 is stated, but a made-up .* of norm 0.5"):
        prepare(plan)


def test_its_certificate_holds_while_its_facts_do(stranger: Stranger, capsys: pytest.CaptureFixture[str]) -> None:
    out = stranger.folder / "out"
    quick = ["--seeds", "1", "--quiet", "--references", "none"]
    assert main(["run", stranger.plan(stranger.install()), *quick, "--out", str(out)]) == 0
    file = out / "certificate.json"
    stranger.forget()
    assert main(["verify", "--strict", str(file)]) == 0
    content = json.loads(file.read_text())
    assert (content["public"]["loss"], content["public"]["features"]) == ("huber", 2)
    capsys.readouterr()
    for text, words in (
        (HUBER.replace(BOUND, BOUND + " * 2"), "agents[0].events[0].sensitivity: expected"),  # another price
        (HUBER.replace(BOUND, BOUND + " / 2"), "lipschitz = 0.25 is stated"),  # a false one
    ):
        stranger.write(text)
        assert main(["verify", str(file)]) == 1
        assert "rejected: problem.loss: the certificate is for other code: 'huber' is" in capsys.readouterr().out
        named = [{**content["other_code"][0], "sha256": sha256(text.encode()).hexdigest()}]
        (out / "other.json").write_text(json.dumps(resealed({**content, "other_code": named})))
        assert main(["verify", str(out / "other.json")]) == 1
        assert words in capsys.readouterr().out
    stranger.write(HUBER)
    wrong = {**content, "public": {**content["public"], "loss": "squared"}}
    (out / "other.json").write_text(json.dumps(resealed(wrong)))
    assert main(["verify", str(out / "other.json")]) == 1
    assert "rejected: public.loss" in capsys.readouterr().out


def test_parties_can_agree_on_it(stranger: Stranger) -> None:
    """Keys, records and a signed agreement for every party; the agreement is read as a plan of others."""
    made = make_trial(read_plan(Path(stranger.plan(stranger.install()))), stranger.folder / "trial")
    stranger.forget()
    plan = unverified(made.agreement).plan
    assert plan.problem.loss == "huber"
    assert plan.problem.settings().corner == 0.5  # type: ignore[attr-defined]


def test_plans_of_others_run_no_module(stranger: Stranger) -> None:
    stranger.write("raise SystemExit('imported')\n")
    with pytest.raises(InputError, match=r"problem.loss = .* is a module: a plan of others .*group coterie.losses"):
        validate({"problem": {"loss": "strangers_losses.huber"}}, foreign=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("loss=strangers_losses.missing", "No module named 'strangers_losses.missing'"),
        ("loss=strangers_losses.nothing", "is not a loss: it lacks make, EXAMPLE"),
        ("loss=hubber", "problem.loss: unknown loss 'hubber'; there are hinge, logistic"),
        ("corner=-1", "problem.corner: input should be greater than 0 (got -1)"),
        (
            "cornr=1",
            "unknown key problem.cornr; expected one of loss, ridge, weighting, model, bins, pairs, alike, smooth, "
            "monotone, within, within_options, dim, classes, radius, corner",
        ),
        ("width=0.3", "problem.width belongs to problem.loss = 'hinge', not 'strangers_losses.huber'"),
    ],
)
def test_a_mistake_is_one_line(stranger: Stranger, change: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    (stranger.home / "nothing.py").write_text('"""Not a loss."""\n')
    plan = stranger.plan("strangers_losses.huber")
    assert main(["account", plan, "--set", f"problem.{change}"]) == 2
    assert words in said(capsys)


def test_a_file_in_the_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import coterie.losses as package

    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    (tmp_path / "soft_corner.py").write_text(HUBER)
    forget_losses()
    try:
        assert "soft-corner" in LOSSES.names
        assert find_loss("soft-corner").model == "robust linear regression"
        assert validate({"problem": {"loss": "soft-corner", "corner": 2}}).problem.settings().ball is None
    finally:
        sys.modules.pop("coterie.losses.soft_corner", None)
        vars(package).pop("soft_corner", None)
        forget_losses()


def test_a_plan_that_an_earlier_version_wrote_out_is_read() -> None:
    """It stated the defaults of all losses, and an agreement outlives a version of the package."""
    stated = {"loss": "logistic", "ridge": 0.001, "width": 0.5, "hidden": [50], "activation": "tanh"}
    plan = validate({"problem": stated}, foreign=True)
    assert validate(plan.as_json(), foreign=True) == plan
    with pytest.raises(InputError, match=r"problem.width belongs to problem.loss = 'hinge', not 'logistic'"):
        validate({"problem": {**stated, "width": 0.4}}, foreign=True)
