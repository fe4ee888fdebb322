"""The pages say what is true: generated blocks are fresh, examples run, links lead somewhere, numbers are right."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from pydantic import BaseModel

import coterie.algorithms
from coterie import cli
from coterie.algorithms.base import Algorithm, all_algorithms, find
from coterie.data import SOURCES, find_source
from coterie.errors import InputError
from coterie.estimators import forget_fits
from coterie.losses.base import LossSettings, all_losses
from coterie.plan import Plan, validate
from coterie.report import pages
from coterie.report.result import SCHEMA
from coterie.testing import check_algorithm
from tests.support import forget_algorithms

ROOT = Path(__file__).parents[1]
PAGES = pages.pages(ROOT)
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
DEPLOY = ROOT / "docs" / "deploy.md"  # between parties, which tests/deploy/test_guide.py makes


def _with_runs(page: Path) -> Any:
    """A page, behind the marker if what it prints is trained anew."""
    marks = pytest.mark.slow if page.name == "quickstart.md" else ()
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


names = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def file_on(page: Path, name: str) -> str:
    """The file that a page prints after `<!-- file: name -->`."""
    found = re.search(rf"<!-- file: {re.escape(name)} -->\n```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    assert found, f"{page.name} does not print {name}"
    return found[1]


# ---- generated blocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [_with_runs(p) for p in PAGES])
def test_generated_blocks_are_fresh(page: Path) -> None:
    text = page.read_text("utf-8")
    assert pages.refresh(text) == text, f"{page.name} is out of date: make docs"


def test_a_slow_machine_makes_no_page_stale() -> None:
    said = "35 rounds\n{}accuracy .8 after 1.2 s compiling"
    slow = said.format("35 s in all: 6.8 s data and price, 6.3 s rounds, 14.0 s comparison, 8.0 s report\n")
    assert pages.same(slow, said.format("").replace("1.2 s", "0.1 s"))
    assert not pages.same(slow, said.format("").replace(".8", ".9"))


def test_plan_page_has_every_key_of_the_models() -> None:
    text = (ROOT / "docs" / "plan.md").read_text("utf-8")
    for table, field in Plan.model_fields.items():
        kinds = [k for k in (field.annotation, *getattr(field.annotation, "__args__", ())) if inspect.isclass(k)]
        for model in (k for k in kinds if issubclass(k, BaseModel)):
            section = text.split(f"## [{table}]")[1].split("\n## ")[0]
            for key in model.model_fields:
                assert f"| `{key}` |" in section, f"{table}.{key}"


def test_losses_page_has_every_key_of_every_loss() -> None:
    text = (ROOT / "docs" / "losses.md").read_text("utf-8")
    for name, loss in all_losses().items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for key in set(loss.settings.model_fields) - set(LossSettings.model_fields):
            assert f"| `{key}` |" in section, f"{name}.{key}"


# ---- links, names, paths ---------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as they are made when it is shown."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links that lead nowhere."""
    bad = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            bad.append(link)
    return bad


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


def test_broken_links_are_noticed() -> None:
    text = "[a](docs/nowhere.md) [b](docs/plan.md#no-such-heading) [c](docs/plan.md)"
    assert broken_links(README, text) == ["docs/nowhere.md", "docs/plan.md#no-such-heading"]


def commands() -> dict[str, set[str]]:
    """Every command, "plan check" as two words, and its options."""
    group: Any = typer.main.get_command(cli.app)
    found = {}
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        for words, one in {f"{name} {n}": c for n, c in below.items()}.items() if below else [(name, command)]:
            found[words] = {o for p in one.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        if below and (usual := getattr(importlib.import_module(f"coterie.commands.{name}"), "DEFAULT", None)):
            found[name] = found[f"{name} {usual}"]
    return found


COMMANDS = commands()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def wrong_command(line: str) -> str | None:
    """What is wrong with a line of a shell block, as far as it is about coterie, make or a module of ours."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    match words:
        case ["coterie", first, *rest]:
            name = f"{first} {rest[0]}" if rest and f"{first} {rest[0]}" in COMMANDS else first
            if name not in COMMANDS:
                return f"no command {name!r}"
            unknown = [w for w in rest if w.startswith("--") and w.partition("=")[0] not in COMMANDS[name]]
            return f"{name} has no {unknown}" if unknown else None
        case ["make", target, *_]:
            return None if target in TARGETS else f"no target {target!r}"
        case ["python", "-m", module, *_] if module.split(".")[0] in ("coterie", "examples", "benchmarks"):
            return None if importlib.util.find_spec(module) else f"no module {module!r}"
    return None


@names
def test_commands_of_shell_blocks_exist(page: Path) -> None:
    for block in (b for language in ("sh", "console", "bash", "") for b in blocks(page, language)):
        lines = block.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):  # what does not follow a prompt was printed
            lines = [line for line in lines if line.startswith("$ ")]
        for line in lines:
            if re.match(r"(\$ )?(coterie|make|python) ", line):
                assert wrong_command(line) is None, line


def test_wrong_commands_are_noticed() -> None:
    assert wrong_command("$ coterie plan check x.toml --set a=b  # why") is None
    for line in ("coterie fly", "coterie plan land", "coterie run --fast", "make tea", "python -m examples.none"):
        assert wrong_command(line), line


@names
def test_commands_targets_and_files_named_on_pages_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    groups = {name.split()[0] for name in COMMANDS}
    for first, second in re.findall(r"`coterie ([a-z]+)(?: ([a-z]+))?", text):
        assert first in groups, first
        assert first in COMMANDS or not second or f"{first} {second}" in COMMANDS, f"{first} {second}"
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= TARGETS
    for path in re.findall(r"`((?:coterie|tests|benchmarks|docs|examples)/[\w/.-]+)`", text):
        assert (ROOT / path).exists() or path.endswith("noisy_diffusion.py"), path


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    docs = {str(p.relative_to(ROOT / "docs")) for p in PAGES if p.is_relative_to(ROOT / "docs")}
    assert [p for p in sorted(docs) if f" {p}\n" not in menu and not p.startswith("papers/")] == []


def test_data_page_names_every_option() -> None:
    text = (ROOT / "docs" / "data.md").read_text("utf-8")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| `")}
    for name in SOURCES.names:
        row = next(line for first, line in rows.items() if f"`{name}`" in first)
        if "see below" in row:
            row = text.split("## Your own table")[1].split("\n## ")[0]
        for option in find_source(name).options.model_fields:
            assert f"`{option}`" in row, f"{name}: {option}"


# ---- examples on pages -----------------------------------------------------------------------------------------------


def fair_table() -> dict[str, Any]:
    """What the page on fairness takes for granted: a table, its label, and new records."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "sex": rng.choice(["Female", "Male"], 400), "age": rng.integers(17, 91, 400),
        "hours": rng.integers(1, 100, 400), "job": rng.choice(["clerk", "nurse", "driver"], 400),
    })  # fmt: skip
    return {"table": table, "income": (table.age > 50).to_numpy().astype(int), "more": table[:5]}


def small_run() -> dict[str, Any]:
    """What the page on certificates takes for granted: a finished run."""
    assert cli.main(["run", "--quiet", "--set", "run.rounds=3", "--seeds", "1", "--out", "runs/default"]) == 0
    return {}


PREPARED: dict[str, Callable[[], dict[str, Any]]] = {"fair.md": fair_table, "certificate.md": small_run}
# blocks from this heading on read what running parties leave: tests/deploy/test_coupled.py starts them and runs these
AFTER_PARTIES = {"coupled.md": "\n## Between real parties"}
LONG = (
    "estimators.md",
    "custom-models.md",
    "coupled.md",
    "python.md",
    "i-do-research.md",
    "certificate.md",
    "additive.md",
    "scores.md",
)  # their parts are tested every day beside their modules
EXAMPLES = [
    pytest.param(p, marks=pytest.mark.slow if p.name in LONG else (), id=p.name)
    for p in PAGES
    if blocks(p, "python") and p not in (README, CONTRIBUTING, DEPLOY)  # these have tests of their own
]


@pytest.fixture
def first_fit() -> None:
    """Pages fit the same clinics again and again; in this process that is no mistake."""
    forget_fits()


@pytest.mark.usefixtures("first_fit")
@pytest.mark.parametrize("page", EXAMPLES)
def test_python_of_a_page_runs_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(tmp_path / "keeper"))
    space = {"__name__": "page"} | PREPARED.get(page.name, dict)()
    elsewhere = page.read_text("utf-8").partition(AFTER_PARTIES.get(page.name, "\0"))[2]
    for block in blocks(page, "python"):
        if block in elsewhere:
            continue
        exec(compile(block, page.name, "exec"), space)


DOORS = ("i-have-data.md", "i-do-research.md", "i-must-approve.md")


def test_readme_is_read_in_thirty_seconds() -> None:
    """A picture, facts, an example, the two commands and three doors, in 120 lines; CI calls the command it gives."""
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 120
    marks = ["![", "<!-- generated: facts", "pip install", "```python", "\nmake run ", "\nmake test "]
    places = [text.index(mark) for mark in [*marks, *(f"(docs/{door})" for door in DOORS)]]
    assert places == sorted(places)
    assert not re.search(r"^\|", text, re.MULTILINE)  # tables have pages of their own
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == "make test"


@pytest.mark.parametrize("door", DOORS)
def test_no_door_is_a_dead_end(door: str) -> None:
    """Each page has commands that run (release/journeys.py runs them all), and goes on to others."""
    page = ROOT / "docs" / door
    assert any(line.startswith("coterie ") for block in blocks(page, "sh") for line in block.splitlines())
    assert len(re.findall(r"\]\((?!http)[^)]*\.md", page.read_text("utf-8"))) >= 3


@pytest.mark.usefixtures("first_fit")
def test_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = blocks(README, "python")
    assert len(first.splitlines()) <= 12
    said = re.search(r"It prints `(ε = [^`]*)` and `accuracy ([\d.]+)`", README.read_text("utf-8"))
    assert said
    exec(compile(first, "README.md", "exec"), {})
    spent, accuracy = capsys.readouterr().out.splitlines()
    assert spent == said[1]
    assert float(accuracy.removeprefix("accuracy ")) == pytest.approx(float(said[2]), abs=0.01)


def test_plans_on_pages_are_valid() -> None:
    for page in PAGES:
        for text in blocks(page, "toml"):
            tree = tomllib.loads(text)
            if "data" in tree:
                assert validate(tree).data.source == tree["data"]["source"]
    with pytest.raises(InputError, match="epsilonn"):
        validate(tomllib.loads(blocks(ROOT / "docs" / "plan.md", "toml")[0].replace("epsilon", "epsilonn")))


# ---- the algorithm of CONTRIBUTING -----------------------------------------------------------------------------------


@contextmanager
def package_folder(folder: Path) -> Iterator[Callable[[str], Algorithm]]:
    """A folder on the package's path; the function puts a file there as a contributor would. Gone afterwards."""

    def add(text: str) -> Algorithm:
        forget()
        (folder / "noisy_diffusion.py").write_text(text, "utf-8")
        importlib.invalidate_caches()
        return find("noisy-diffusion")

    def forget() -> None:
        forget_algorithms()
        sys.modules.pop("coterie.algorithms.noisy_diffusion", None)
        vars(coterie.algorithms).pop("noisy_diffusion", None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coterie.algorithms, "__path__", [*coterie.algorithms.__path__, str(folder)])
        patch.setattr(sys, "dont_write_bytecode", True)  # two versions of a file within one second
        yield add
        forget()


@pytest.fixture
def added(tmp_path: Path) -> Iterator[Callable[[str], Algorithm]]:
    """Adds an algorithm to the package."""
    with package_folder(tmp_path) as add:
        yield add


EXAMPLE = "coterie/algorithms/noisy_diffusion.py"


def sensitivity_test() -> Any:
    """The test that the page prints, made anew so that it sees the module as it is now."""
    space: dict[str, Any] = {}
    exec(compile(file_on(CONTRIBUTING, "tests/algorithms/test_noisy_diffusion.py"), "page", "exec"), space)
    return space["test_sensitivity"]


def test_example_is_found_conforms_and_has_its_sensitivity(added: Callable[[str], Algorithm]) -> None:
    algorithm = added(file_on(CONTRIBUTING, EXAMPLE))
    assert algorithm.private
    assert "noisy-diffusion" in all_algorithms()
    check_algorithm("noisy-diffusion")
    sensitivity_test()()


def test_example_runs_and_is_drawn(results: SimpleNamespace) -> None:
    result = results.private
    assert result["algorithm"]["name"] == "noisy-diffusion"
    assert result["privacy"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert result["metrics"]["test_accuracy"]["mean"] > result["references"]["alone"]["test_accuracy"]
    assert results.picture > 10_000


def test_the_printed_test_rejects_a_halved_sensitivity(added: Callable[[str], Algorithm]) -> None:
    text = file_on(CONTRIBUTING, EXAMPLE)
    broken = text.replace("return 2 * cfg.step", "return cfg.step")
    assert broken != text
    added(broken)
    with pytest.raises(AssertionError):
        sensitivity_test()()


KEPT = (  # a gradient without noise is kept in the state, added to the next message, and a second leaf hides the rest
    ('    x: Float[Array, " d"]\n', '    x: Float[Array, " d"]\n    kept: Float[Array, " d"]\n'),
    ('    y: Float[Array, " d"]\n', '    y: Float[Array, " d"]\n    twin: Float[Array, " d"]\n'),
    ("return State(place.start)", "return State(place.start, 0 * place.start)"),
    ("state.x - cfg.step * slope,", "state.x - cfg.step * (slope + state.kept),"),
    ("return State(y), Message(y)", "return State(y, slope), Message(y, 2 * y)"),
    ("return State(place.self_weight * state.x + inbox.mixed.y)",
     "return State(place.self_weight * state.x + inbox.mixed.y, state.kept)"),
)  # fmt: skip


def test_the_printed_test_rejects_a_gradient_kept_without_noise(added: Callable[[str], Algorithm]) -> None:
    text = file_on(CONTRIBUTING, EXAMPLE)
    for old, new in KEPT:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    added(text)
    with pytest.raises(AssertionError, match="of the noise apart, declared"):
        sensitivity_test()()


def test_example_is_short_and_clean(tmp_path: Path) -> None:
    text = file_on(CONTRIBUTING, EXAMPLE)
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 40
    (tmp_path / "noisy_diffusion.py").write_text(text, "utf-8")
    for check in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *check, "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_printed_loss_and_set_are_the_files_that_are_tested() -> None:
    """`tests/conformance/test_losses.py` and `tests/test_own_loss.py` have the loss, `tests/test_within.py` the set."""
    for path in ("examples/huber_loss.py", "examples/half_space.py"):
        assert file_on(CONTRIBUTING, path) == (ROOT / path).read_text("utf-8")


# ---- the page on result.json -----------------------------------------------------------------------------------------

EXTRA = ("auc", "log_loss", "recall", "calibration", "calibration_error")  # what else applies to a classifier
FREE = (  # tables whose keys vary
    "plan", "algorithm.settings", "privacy.all_accountants", "privacy.protects.of_records", "worth.mean",
    *(f"metrics.test_{name}" for name in EXTRA),
)  # fmt: skip


def flat(tree: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted keys of nested tables, those with free keys not opened."""
    found = set()
    for key, value in tree.items():
        name = f"{prefix}{key}"
        opened = isinstance(value, dict) and name not in FREE
        found |= flat(value, f"{name}.") if opened else {name}
    return found


def documented() -> set[str]:
    """Keys on the page, SCORE and METRIC spelt out for a classifier."""
    keys = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs" / "result.md").read_text("utf-8").split("| key |")[1], re.M)
    spelt = [key.replace("SCORE", "test_accuracy") for key in keys]
    metrics = ("train_loss", "test_accuracy", "consensus_gap")
    extra = tuple(f"test_{name}" for name in EXTRA)
    stands = lambda key: metrics if "METRIC" in key else extra if "EXTRA" in key else ("",)  # noqa: E731
    return {key.replace("METRIC", m).replace("EXTRA", m) for key in spelt for m in stands(key)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A private result, of the algorithm that CONTRIBUTING adds, and one without privacy, as written."""
    out = tmp_path_factory.mktemp("runs")
    private, free = out / "private", out / "free"
    with package_folder(out) as add:
        add(file_on(CONTRIBUTING, EXAMPLE))
        change = ["--set", "algorithm.name=noisy-diffusion", "--set", "run.rounds=40"]
        assert cli.main(["run", "clinics", "--quiet", *change, "--seeds", "2", "--out", str(private)]) == 0
    plan = out / "free.toml"
    plan.write_text('algorithm.name = "dgd"\nrun.rounds = 4\n')
    assert cli.main(["run", str(plan), "--quiet", "--out", str(free)]) == 0
    read = lambda folder: json.loads((folder / "result.json").read_text("utf-8"))  # noqa: E731
    picture = (private / "curves.png").stat().st_size
    with np.load(free / "model.npz") as model:
        return SimpleNamespace(private=read(private), free=read(free), arrays=model.files, picture=picture)


def test_result_page_lists_exactly_what_is_written(results: SimpleNamespace) -> None:
    keys = documented()
    assert flat(results.private) == keys - {"privacy", "worth"}
    assert flat(results.free) == {k for k in keys - {"worth"} if not k.startswith("privacy.")}
    text = (ROOT / "docs" / "result.md").read_text("utf-8")
    assert f"schema **{SCHEMA}**" in text
    assert results.private["schema"] == SCHEMA
    model = text.split("| `model.npz` |")[1].splitlines()[0]
    assert all(f"`{name}`" in model for name in results.arrays)


def test_the_threat_model_quotes_the_result(results: SimpleNamespace) -> None:
    text = " ".join((ROOT / "docs" / "threat-model.md").read_text("utf-8").split())
    assert results.private["privacy"]["adjacency"] in text
    assert "simulation" in results.private["noise_source"]
    for key in re.findall(r"`(privacy\.\w+)`", text):
        assert key in documented() or key == "privacy.tuned_on_private_data", key
