"""An algorithm of one's own, outside the package: named as a module, or installed under a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from coterie.algorithms import base
from coterie.cli import main
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.plan import read_plan, validate
from coterie.pricing import price
from tests.support import forget_algorithms

SOURCE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of a stranger's with the algorithm that CONTRIBUTING shows."""
    (text,) = re.findall(r"<!-- file: coterie/algorithms/\w+\.py -->\n```python\n(.*?)```", SOURCE.read_text(), re.S)
    folder = tmp_path / "strangers_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "diffusion.py").write_text(text)
    (folder / "nothing.py").write_text('"""Not an algorithm."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget_algorithms()


def test_a_module_is_run_by_its_name(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--set", "algorithm.name=strangers_package.diffusion", "--set", "run.rounds=3"]
    quick = ["--seeds", "1", "--quiet", "--references", "none"]
    assert main(["run", "clinics", *own, *quick, "--out", str(package / "out")]) == 0
    assert "strangers_package.diffusion" in (package / "out" / "result.json").read_text()
    assert main(["algorithms", "strangers_package.diffusion"]) == 0
    assert "Noisy diffusion" in capsys.readouterr().out


def test_a_cost_may_ask_how_large_a_setting_is(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It costs the same as one that does not ask."""
    head, found, rest = (package / "strangers_package" / "diffusion.py").read_text().rpartition("    return Gaussian(")
    folder = package / "strangers_queries"
    folder.mkdir()
    (folder / "diffusion.py").write_text(f"{head}    assert cfg.step > 0.5\n{found}{rest}")
    told = []
    for name in ("package", "queries"):
        assert main(["account", "clinics", "--set", f"algorithm.name=strangers_{name}.diffusion"]) == 0
        told.append(capsys.readouterr().out.replace("queries", "package"))
    assert told[0] == told[1]


def test_a_claim_may_be_traced(package: Path) -> None:
    """What a paper printed may be worked out round by round under `vmap`."""
    folder = package / "strangers_claims"
    folder.mkdir()
    (folder / "diffusion.py").write_text(
        (package / "strangers_package" / "diffusion.py").read_text() + "\n\ndef claim(cfg, place, delta):\n"
        "    import jax\n\n"
        "    levels = jax.vmap(place.noise_at)(jax.numpy.arange(place.rounds))\n"
        "    return float(jax.numpy.sum(levels.at[0].mul(2)))\n"
    )
    plan = read_plan("clinics", ["algorithm.name=strangers_claims.diffusion"])
    priced = price(plan, public_network(plan))
    levels = np.multiply.outer(np.asarray(priced.places.noise), np.asarray(priced.places.shape))
    assert np.isclose(priced.claim, levels.sum(axis=1) + levels[:, 0]).any()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("strangers_package.missing", "No module named 'strangers_package.missing'"),
        ("strangers_package.nothing", "is not an algorithm: it lacks Config"),
        ("nowhere.at.all", "No module named 'nowhere'"),
        ("dpdsgd", "unknown algorithm 'dpdsgd'"),
        ("strangers_package.diffusion.", "strangers_package.diffusion."),
        (".diffusion", ".diffusion"),
    ],
)
def test_what_is_no_algorithm_is_one_line(
    package: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["account", "--set", f"algorithm.name={name}"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_plans_of_others_run_no_module(package: Path) -> None:
    """An agreement, or a certificate, that names a module is refused before anything is imported."""
    (package / "strangers_package" / "diffusion.py").write_text("raise SystemExit('imported')\n")
    tree = {"algorithm": {"name": "strangers_package.diffusion"}}
    with pytest.raises(InputError, match="is a module: a plan of others takes an algorithm that is installed"):
        validate(tree, foreign=True)


def test_an_entry_point_gives_a_name(package: Path) -> None:
    info = package / "strangers_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[coterie.algorithms]\nstrangers-diffusion = strangers_package.diffusion\n")
    forget_algorithms()
    assert base.find("strangers-diffusion").private
    plan = validate({"algorithm": {"name": "strangers-diffusion", "clip": 0.25}}, foreign=True)
    assert plan.algorithm.config().clip == 0.25  # type: ignore[attr-defined]
    (info / "entry_points.txt").write_text("[coterie.algorithms]\ndp-dsgd = strangers_package.diffusion\n")
    forget_algorithms()
    with pytest.raises(InputError, match="brings another algorithm 'dp-dsgd'"):
        base.find("dp-dsgd")
