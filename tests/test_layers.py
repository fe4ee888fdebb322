"""The direction of imports: each layer knows those below it, and none above or beside it unless listed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import coterie
from coterie.algorithms import ALGORITHMS
from coterie.algorithms.base import find
from coterie.losses import LOSSES
from coterie.losses.base import find_loss
from coterie.plan import validate
from coterie.tables import unloaded
from coterie.tables.unloaded import algorithm_settings, loss_settings

PACKAGE = Path(coterie.__file__).parent
# from the ground up; units of one line may know each other only in the order in which they stand
LAYERS = (
    ("errors",),
    ("arguments", "names", "compiler", "programs", "engines", "lazily", "found", "settings", "passes"),
    ("privacy", "graphs", "data"),
    ("problems",),
    ("sets",),
    ("losses",),
    ("algorithms",),
    ("sums", "exchange"),
    ("drivers",),
    ("written", "tables", "plan", "network", "solvable", "contracts", "pricing", "experiment", "worth", "explain"),
    ("coupled", "fair", "deploy", "api", "released", "estimators"),
    ("report", "comparison", "audit", "testing"),
    ("commands",),
    ("cli",),
    ("__main__",),
)
ORDER = [unit for layer in LAYERS for unit in layer]
# these know the standard library alone, but for privacy
OURS = ("coterie.privacy", "coterie.errors", "coterie.arguments", "coterie.found")
PLAIN = {"numpy", "scipy", "dp_accounting", "mpmath"}  # what privacy/ stands on, beside the standard library


def imported(body: list[ast.stmt], module: str) -> Iterator[str]:
    """Modules that are imported as the file is loaded: not those for types alone, nor those inside functions."""
    for node in body:
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.dump(node.test):
                yield from imported(node.body, module)
            yield from imported(node.orelse, module)
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            yield from imported(node.body, module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            whole = node.module or ""
            yield from ([f"coterie.{a.name}" for a in node.names] if whole == "coterie" else [whole])


def files() -> list[tuple[str, list[str]]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found.append((".".join(parts), list(imported(ast.parse(path.read_text("utf-8")).body, str(path)))))
    return found


def test_every_part_has_a_layer() -> None:
    there = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert there - {"__init__"} == set(ORDER)


def test_the_tour_names_every_part() -> None:
    """In the order of the layers: what a row names knows those of the rows above it."""
    tour = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")
    rows = tour.split("## Layers")[1].split("## Folders")[0].splitlines()
    named = [row.split("|")[1].split("`")[1::2] for row in rows if row.startswith("| `")]
    assert {name for row in named for name in row} == set(ORDER) - {"__main__"}
    place = [max(ORDER.index(name) for name in row) for row in named]
    assert all(min(ORDER.index(name) for name in row) > before for row, before in zip(named[1:], place, strict=False))


def test_no_class_name_has_two_homes() -> None:
    """But for the parts that every algorithm, loss or kind has under the same name."""
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in ("Config", "State", "Message", "Settings"):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_no_import_goes_against_the_direction() -> None:
    wrong = []
    for module, names in files():
        mine = module.split(".")[0]
        if mine == "__init__":
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] != "coterie" or len(parts) == 1 or parts[1] == mine or parts[1].startswith("__"):
                continue
            if ORDER.index(parts[1]) > ORDER.index(mine):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_the_test_sees_what_it_should() -> None:
    text = "import coterie.report\nif TYPE_CHECKING:\n    import a\nelse:\n    import b\ndef f():\n    import c\n"
    assert list(imported(ast.parse(text).body, "x")) == ["coterie.report", "b"]


def test_privacy_is_plain_numpy() -> None:
    for module, names in files():
        if module.startswith("privacy."):
            roots = {n.split(".")[0] for n in names if not n.startswith(OURS)}
            assert roots - set(sys.stdlib_module_names) <= PLAIN, module


QUICK = {
    "--help": 0,
    "calibrate --rounds 10 --epsilon 1 --delta 1e-5": 0,
    "run --set grph.kind=ring": 2,
    "run --set algorithm.name=dp-dsdg": 2,
    "run --set algorithm.momentun=0.5": 2,
    "run --set algorithm.step=-1": 2,
    "run --set algorithm.scheme=poisson": 2,
    "run --set algorithm.name=qdpsgd1 --set algorithm.scheme=clock --set algorithm.as_printed=true": 2,
    "run --set problem.rigde=1": 2,
    "run --set problem.loss=hinge --set problem.width=-1": 2,
    "run --set problem.loss=logistic --set problem.hidden=[3]": 2,
    "run --set partition.alhpa=1": 2,
    "run --set problem.loss=logistics": 2,
    "account --set privacy.epsilon=-1": 2,
    "compare --set privacy.epsilon=-1": 2,
    "graph --set graph.kind=rign": 2,
    "run --set graph.mixing=metropolys": 2,
    "run --set exchange.kind=secret": 2,
    "run --set data.source=clinic": 2,
    "run --set data.options.recrods=9": 2,
    "launch --set privacy.epsilon=-1": 2,
    "plan check --set run.rounds=0": 2,
    "audit nowhere.toml": 2,
}


def test_accounting_and_mistakes_do_not_wait_for_jax() -> None:
    """One after the other in one process: what none of them has loaded, no first one has."""
    script = (
        "import sys\n"
        "from coterie.cli import main\n"
        "for command in sys.argv[1:]:\n"
        "    code = main(command.split())\n"
        "    heavy = {'jax', 'jaxlib', 'equinox', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "    print('LOADED', command, code, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script, *QUICK], capture_output=True, text=True, check=True)
    said = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert said == [f"LOADED {command} {code} []" for command, code in QUICK.items()]


def test_settings_read_without_their_file_are_those_of_the_file() -> None:
    for name, place in {**ALGORITHMS.names, **dict(ALGORITHMS.apart)}.items():
        apart = algorithm_settings(str(place))
        assert apart is not None, name
        assert apart.model_json_schema() == find(name).config.model_json_schema()
    for name, place in {**LOSSES.names, **dict(LOSSES.apart)}.items():
        settings = loss_settings(str(place))
        assert settings is not None, name
        assert settings.model_json_schema() == find_loss(name).settings.model_json_schema()


def test_a_package_without_its_text_is_as_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unloaded, "ROOT", tmp_path)  # as in a zip file, or where only bytecode is
    unloaded._Parts.cache_clear()
    assert algorithm_settings("coterie.algorithms.dp_dsgd") is None
    assert loss_settings("coterie.losses.logistic") is None
    monkeypatch.setattr("coterie.tables.problem.before_jax", lambda: True)
    monkeypatch.setattr("coterie.tables.algorithm.before_jax", lambda: True)
    validate({"problem": {"loss": "logistic"}, "algorithm": {"name": "dp-dsgd", "clip": 1.0}})
    unloaded._Parts.cache_clear()


BARE = """
import sys, tempfile, tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
named = {"grpcio": "grpc", "pynacl": "nacl"}
for kind in ("deploy", "report", "parquet", "cluster"):
    for package in extras[kind]:
        name = package.partition(">")[0]
        sys.modules[named.get(name, name)] = None  # importing it fails as if it were not there
import numpy as np
import coterie as ct
from coterie.cli import main
rng = np.random.default_rng(0)
sites = [(rng.uniform(-0.5, 0.5, (40, 2)), rng.choice([-1, 1], 40)) for _ in range(3)]
run = ct.train(ct.logistic(), ct.ring(sites), ct.dp_dsgd(), ct.Budget(1.0, 1e-5), rounds=3, seed=0)
with tempfile.TemporaryDirectory() as folder:
    run.save(folder + "/run")
    assert ct.load(folder + "/run").epsilon == run.epsilon
    assert main(["verify", folder + "/run/certificate.json"]) == 0
    assert main(["run", "clinics", "--set", "run.rounds=2", "--references", "none", "--out", folder + "/plan"]) == 0
"""


@pytest.mark.slow
def test_training_pricing_and_verifying_need_no_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", BARE], capture_output=True, text=True,
        cwd=PACKAGE.parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
