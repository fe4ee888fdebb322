"""Kinds of one's own: a graph, a source, a partition, a schedule, a command: one file each, as CONTRIBUTING shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import coterie
import coterie as ct
from coterie import cli
from coterie.cli import main
from coterie.commands import COMMANDS
from coterie.data import PARTITIONS, SOURCES, find_source, load, make_clinics, partition
from coterie.data.planned import agents_of
from coterie.errors import InputError
from coterie.found import Kinds, forget
from coterie.graphs import KINDS, make_graph, mixing
from coterie.plan import validate
from coterie.privacy import schedules
from coterie.privacy.schedules import SCHEDULES
from coterie.report.others import other_code

SOURCE = Path(__file__).parent.parent / "CONTRIBUTING.md"
FILES = dict(re.findall(r"<!-- file: coterie/(\S+)\.py -->\n```python\n(.*?)```", SOURCE.read_text("utf-8"), re.S))
PLACES = [
    (KINDS, "graphs/kinds/wheel"),
    (SOURCES, "data/sources/readings"),
    (PARTITIONS, "data/partitions/unequal"),
    (SCHEDULES, "privacy/schedules/linear"),
    (COMMANDS, "commands/degrees"),
]


def anew() -> None:
    forget()
    cli._command.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stranger's package with these files, installed without any entry point."""
    folder = tmp_path / "strangers_kinds"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for place in (place for _, place in PLACES):
        (folder / f"{Path(place).name}.py").write_text(FILES[place])
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("strangers_kinds")]:
        del sys.modules[name]
    anew()


def install(package: Path, text: str) -> None:
    """Give the package entry points."""
    info = package / "strangers_kinds-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(text)
    anew()


@pytest.mark.parametrize(("kinds", "place"), PLACES)
def test_a_file_put_into_the_package_is_found(
    kinds: Kinds, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, home = Path(place).name, import_module(kinds.package)
    (tmp_path / f"{name}.py").write_text(FILES[place])
    (tmp_path / "_helper.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.setattr(home, "__path__", [*home.__path__, str(tmp_path)])
    anew()
    try:
        assert kinds.ours(name)
        assert "-helper" not in kinds.names
        kinds.load(name)
    finally:
        sys.modules.pop(f"{kinds.package}.{name}", None)
        vars(home).pop(name, None)
        monkeypatch.undo()
        anew()
    assert name not in kinds.names


def test_a_graph_kind_with_its_keys(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = validate({"graph": {"kind": "strangers_kinds.wheel", "every": 3}})
    graph = plan.graph.graph(7)
    assert graph.kind == "strangers_kinds.wheel"
    assert graph.neighbours(0).tolist() == [1, 4]
    assert graph.degrees.sum() == 2 * (6 + 2)
    assert validate(plan.as_json()) == plan
    with pytest.raises(InputError, match=r"unknown key graph.evry; .*kind = 'strangers_kinds.wheel' takes every"):
        validate({"graph": {"kind": "strangers_kinds.wheel", "evry": 3}})
    with pytest.raises(InputError, match=r"graph.every: .*greater than or equal to 1.*0"):
        validate({"graph": {"kind": "strangers_kinds.wheel", "every": 0}})
    assert main(["graph", "--set", "graph.kind=strangers_kinds.wheel"]) == 0
    assert "strangers_kinds.wheel" in capsys.readouterr().out


def test_a_graph_that_is_none_is_refused(package: Path) -> None:
    (package / "strangers_kinds" / "apart.py").write_text(
        FILES["graphs/kinds/wheel"].replace(
            "np.concatenate([ring, np.column_stack([np.zeros_like(spokes), spokes])])", "ring"
        )
    )
    with pytest.raises(InputError, match=r"'strangers_kinds.apart' made a graph that is not connected"):
        make_graph("strangers_kinds.apart", 6)
    (package / "strangers_kinds" / "small.py").write_text(
        FILES["graphs/kinds/wheel"]
        .replace("np.arange(1, size)", "np.arange(1, size - 1)")
        .replace("from_edges(size", "from_edges(size - 1")
    )
    with pytest.raises(InputError, match=r"'strangers_kinds.small' made 5 nodes where 6 were wanted"):
        make_graph("strangers_kinds.small", 6)


def test_a_source_with_its_options(package: Path) -> None:
    rng, path = np.random.default_rng(0), package / "readings.txt"
    np.savetxt(path, np.column_stack([rng.uniform(size=60), rng.uniform(-1, 4, size=(60, 3))]))
    data = load("strangers_kinds.readings", path=path, high=3)
    assert np.linalg.norm(data.features, axis=1).max() <= 1
    tree = {
        "data": {"source": "strangers_kinds.readings", "path": str(path), "options": {"high": 3}},
        "partition": {"kind": "iid", "agents": 3}, "algorithm": {"name": "dgd"}, "run": {"rounds": 2},
    }  # fmt: skip
    plan = validate(tree)
    assert validate(plan.as_json()) == plan
    for options, words in (({}, "data.options.high is needed"), ({"high": "far"}, "data.options.high: .*'far'")):
        with pytest.raises(InputError, match=words):
            validate({**tree, "data": {**tree["data"], "options": options}})
    with pytest.raises(InputError, match=r"data.path is needed for data.source = 'strangers_kinds.readings'"):
        validate({**tree, "data": {"source": "strangers_kinds.readings", "options": {"high": 3}}})


def test_a_source_that_does_not_say_what_it_reads_is_refused(package: Path) -> None:
    """It must never pass for public: not when it says nothing, nor when its data says more than it announced."""
    text, folder = FILES["data/sources/readings"], package / "strangers_kinds"
    (folder / "silent.py").write_text(text.split("\n\n\ndef origins")[0])
    with pytest.raises(InputError, match=r"data set 'strangers_kinds.silent': strangers_kinds.silent lacks origins"):
        validate({"data": {"source": "strangers_kinds.silent", "path": "x", "options": {"high": 3}}})
    read = "Origins(classes=(), columns=(), scale=('the range is read from the data',), rows=(), sites=())"
    (folder / "sly.py").write_text(text.replace("origins=origins(low=low, high=high)", f"origins={read}"))
    np.savetxt(package / "r.txt", np.ones((4, 3)))
    with pytest.raises(InputError, match="what it had not stated: the range is read from the data"):
        load("strangers_kinds.sly", path=package / "r.txt", high=3)
    (folder / "narrow.py").write_text(
        text.replace("def origins(*, low: float = 0.0, high: float)", "def origins(*, high: float)")
    )
    with pytest.raises(InputError, match="does not take 'low'"):
        find_source("strangers_kinds.narrow")
    (folder / "vague.py").write_text(text.replace("high: float) -> Dataset", "high: 'Height') -> Dataset"))
    with pytest.raises(InputError, match="no types that can be checked: name 'Height' is not defined"):
        find_source("strangers_kinds.vague")


def test_a_partition_with_its_keys(package: Path) -> None:
    tree = {"partition": {"kind": "strangers_kinds.unequal", "agents": 4, "ratio": 3.0}}
    plan = validate(tree)
    assert validate(plan.as_json()) == plan
    assert plan.as_json()["partition"]["ratio"] == 3.0
    sizes = [len(rows) for rows in partition(make_clinics(), 4, "strangers_kinds.unequal", ratio=3.0)]
    assert sizes == [2025, 675, 225, 75]
    with pytest.raises(InputError, match=r"partition.ratio: .*greater than or equal to 1"):
        validate({"partition": {**tree["partition"], "ratio": 0.5}})
    with pytest.raises(InputError, match=r"needs partition\.agents"):
        agents_of(validate({"partition": {"kind": "strangers_kinds.unequal"}}))


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ("ends[1:]", "left a party without records, or gave one away twice|dealt to"),
        ("ends[:-2]", "dealt to 3 parties, expected 4"),
        ("[0, *ends[:-2]]", "left a party without records"),
    ],
)
def test_a_deal_that_is_none_is_refused(package: Path, instead: str, words: str) -> None:
    kind = written(package, "unfair", FILES["data/partitions/unequal"].replace("ends[:-1]", instead))
    with pytest.raises(InputError, match=words):
        partition(make_clinics(), 4, kind)
    twice = FILES["data/partitions/unequal"].replace("return np.split(", "return [np.arange(3)] * agents or np.split(")
    with pytest.raises(InputError, match="gave one away twice"):
        partition(make_clinics(), 4, written(package, "doubled", twice))
    for name, dealt in {
        "halves": "np.arange(3) + 0.5",
        "masks": "np.arange(3) > 1",
        "tables": "np.ones((1, 3), int)",
    }.items():
        wrong = FILES["data/partitions/unequal"].replace("return np.split(", f"return [{dealt}] * agents or np.split(")
        with pytest.raises(InputError, match="list of row numbers, whole ones"):
            partition(make_clinics(), 4, written(package, name, wrong))


def test_a_schedule_with_its_options(package: Path) -> None:
    shape = schedules.make("strangers_kinds.linear", 3, last=0.5)
    assert np.allclose(shape / shape[0], [1.0, 0.75, 0.5])
    assert np.sum(shape**-2) == pytest.approx(3)
    privacy = {"epsilon": 1.0, "schedule": "strangers_kinds.linear", "schedule_options": {"last": 2.0}}
    plan = validate({"privacy": privacy})
    assert validate(plan.as_json()) == plan
    (code,) = other_code(plan)
    assert (code["key"], code["module"]) == ("privacy.schedule", "strangers_kinds.linear")
    for options, words in (({"lats": 2.0}, "does not take lats"), ({"last": -1.0}, "last must be > 0, got -1")):
        with pytest.raises(InputError, match=words):
            validate({"privacy": {**privacy, "schedule_options": options}})
    short = written(package, "short", FILES["privacy/schedules/linear"].replace("last, rounds)", "last, rounds - 1)"))
    with pytest.raises(InputError, match="must give 2 finite numbers"):
        validate({"privacy": {"epsilon": 1.0, "schedule": short}})


def test_installed_under_names(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then agreements and certificates, which come from others, may name them; a command gets its name this way."""
    install(
        package,
        "[coterie.graphs.kinds]\nwheel = strangers_kinds.wheel\n"
        "[coterie.commands]\ndegrees = strangers_kinds.degrees\nbroken = strangers_kinds.missing\n"
        "torn = strangers_kinds.torn\nrun = strangers_kinds.degrees\n",
    )
    (package / "strangers_kinds" / "torn.py").write_text("app = 1 / 0\n")
    plan = validate({"graph": {"kind": "wheel"}}, foreign=True)
    assert plan.graph.graph(6).kind == "wheel"
    changes = ["--set", "graph.kind=wheel", "--set", "partition.agents=5"]
    assert main(["degrees", *changes]) == 0
    assert capsys.readouterr().out.split("\n")[:2] == ["agent 0: 4", "agent 1: 3"]
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("degrees", "broken", "torn", "algorithms"):
        assert f" {name} " in shown
    for name, words in (("broken", "No module named"), ("torn", "ZeroDivisionError: division by zero")):
        assert main([name, "--option", "word"]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert len(said.strip().splitlines()) == 1
    assert main(["run", "--set", "graph.kind=rign"]) == 2  # ours, whoever else brings one
    assert "unknown graph kind 'rign'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("graph", "kind"),
        ("graph", "mixing"),
        ("exchange", "kind"),
        ("data", "source"),
        ("partition", "kind"),
        ("privacy", "schedule"),
        ("algorithm", "name"),
    ],
)
def test_plans_of_others_run_no_module(package: Path, table: str, key: str) -> None:
    (package / "strangers_kinds" / "trap.py").write_text("raise SystemExit('imported')\n")
    tree = {table: {key: "strangers_kinds.trap"}}
    with pytest.raises(
        InputError, match=f"{table}.{key} = 'strangers_kinds.trap' is a module: a plan of others takes an? "
    ):
        validate(tree, foreign=True)
    with pytest.raises(SystemExit, match="imported"):  # so the trap is one
        validate(tree)


def test_an_exchange_that_looks_like_a_secret_sum_is_not_priced_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings derive from ours, and what it opens is its own business: the budget pays for every message."""
    (tmp_path / "loud_exchange.py").write_text(
        '"""Loud."""\n'
        "from coterie.exchange.kinds import broadcast, secret_sum\n\n"
        "class Settings(secret_sum.Settings):\n    pass\n\n"
        "def make(settings, size):\n    return broadcast.make(broadcast.Settings(), size)\n\n"
        "statement = broadcast.statement\n"
    )
    (tmp_path / "loud_package").mkdir()
    (tmp_path / "loud_exchange.py").rename(tmp_path / "loud_package" / "loud.py")
    (tmp_path / "loud_package" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    plan = validate({"exchange": {"kind": "loud_package.loud", "noise": "central", "honest": 4}})
    assert (plan.exchange.sums, plan.exchange.central) == (None, False)


def written(package: Path, name: str, text: str) -> str:
    """A module of the stranger's package."""
    (package / "strangers_kinds" / f"{name}.py").write_text(text)
    return f"strangers_kinds.{name}"


def test_a_setting_that_is_called_as_a_key_of_its_table_is_refused(package: Path) -> None:
    """Written out it would stand in that key's place, or the key's value would never reach it."""
    wheel = FILES["graphs/kinds/wheel"]
    assert "every: int" in wheel
    kind = written(package, "kinded", wheel.replace("every", "mixing"))
    with pytest.raises(InputError, match=r"graph kind '\S+kinded' has a setting 'mixing', which is a key of \[graph\]"):
        validate({"graph": {"kind": kind}})
    source = (Path(coterie.__file__).parent / "algorithms" / "dgd.py").read_text("utf-8")
    named = written(package, "named", source + "\n\nclass Config(Config):\n    name: str = 'x'\n")
    with pytest.raises(InputError, match=r"algorithm '\S+named' has a setting 'name', which is a key of \[algorithm\]"):
        ct.algorithm(named)
    loss = written(
        package, "ridged",
        "from coterie.losses.base import LossSettings\nfrom coterie.losses.squared import EXAMPLE, Squared\n\n"
        "class Settings(LossSettings):\n    ridge: float = 5.0\n\n"
        "def make(settings, features, classes):\n    return Squared(features)\n",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"loss '\S+ridged' has a setting 'ridge', which is a key of \[problem\]"):
        validate({"problem": {"loss": loss, "ridge": 0.1}})


def test_what_a_strangers_file_says_when_it_fails_is_one_line(package: Path) -> None:
    with pytest.raises(InputError, match=r"kind 'strangers_kinds.many': first second$"):
        KINDS.load(written(package, "many", "raise ValueError('first\\nsecond')\n"))


def test_two_kinds_of_one_table_do_not_share_a_setting(package: Path) -> None:
    """A plan has one place for it, and each would take the other's value for its own."""
    kind = written(package, "kappaed", FILES["graphs/kinds/wheel"].replace("every", "kappa"))
    assert validate({"graph": {"kind": kind, "kappa": 2}}).graph.graph(5).size == 5
    with pytest.raises(InputError, match="both have a setting 'kappa'"):
        validate({"graph": {"kind": kind, "mixing": "laplacian"}})


def test_a_kind_with_a_setting_that_parties_have_is_refused_by_name(package: Path) -> None:
    written(package, "sized", FILES["graphs/kinds/wheel"].replace("every", "sizes"))
    install(package, "[coterie.graphs.kinds]\nsized = strangers_kinds.sized\n")
    with pytest.raises(InputError, match="graph kind 'sized' has a setting 'sizes', which is an option of all parties"):
        ct.sized  # noqa: B018


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("np.full(graph.indices.size, np.nan)", "got nan"),
        ("np.zeros(graph.indices.size)", r"got 0\.0"),
        ("np.full(graph.indices.size, -0.1)", r"got -0\.1"),
        ("[0.3] * 3", r"got shape \(3,\)"),
        ("[[0.3], [0.3, 0.3]]", "got a list"),
        ("None", r"got shape \(\)"),
        ("'metropolis'", "got a str"),
    ],
)
def test_a_rule_that_gives_no_weights_is_refused(package: Path, given: str, words: str) -> None:
    text = "import numpy as np\nfrom coterie.settings import Settings\n\ndef weights(graph, settings):\n    return "
    rule = written(package, "rule", text + given + "\n")
    with pytest.raises(InputError, match=f"mixing rule '{rule}' must give 10 numbers > 0, .*{words}"):
        mixing(make_graph("ring", 5), rule)


def test_a_rule_may_give_a_list(package: Path) -> None:
    text = "from coterie.settings import Settings\n\ndef weights(graph, settings):\n    return [0.25] * 10\n"
    assert mixing(make_graph("ring", 5), written(package, "rule", text)).self_weights.tolist() == [0.5] * 5


def test_a_kind_that_makes_no_graph_is_refused(package: Path) -> None:
    text = "from coterie.settings import Settings\n\ndef build(size, settings):\n    return [(0, 1)]\n"
    with pytest.raises(InputError, match=r"'strangers_kinds.flat' must make a coterie.graphs.Graph, got a list"):
        make_graph(written(package, "flat", text), 5)
