"""The report: one page that needs nothing else, shows what the files say, and takes no orders from a name."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.algorithms.base import all_algorithms
from coterie.cli import main
from coterie.privacy import gdp
from coterie.report import charts, html
from coterie.report.epsilon import guess
from coterie.report.schema import AgentRow, AlgorithmBlock, MetricValue, PrivacyBlock, RunResult
from coterie.report.sealing import canonical, sha256

from .browser import MISSING, Browser

PLAN = """
name = "small trial"
[data]
source = "clinics"
options = { records = 200, features = 4, sites = 5 }
[algorithm]
name = "dp-consensus-gd"
[privacy]
epsilon = [1.0, 2.0, 4.0, 8.0, 8.0]
[run]
rounds = 12
seeds = 3
every = 1
"""
FAIR = """
name = "hiring"
epsilons = [1.0, 100.0]
seeds = 2
holders = 3
[data]
source = "csv"
path = "{path}"
label = "hired"
classes = ["no", "yes"]
protected = "sex"
[data.bounds]
sex = ["f", "m"]
skill = [-4, 4]
[codings.ours]
[[runs]]
method = "lr"
[[runs]]
method = "adfc"
[[runs]]
method = "pdfc"
as_printed = true
[[runs]]
panel = "holders"
method = "adfc"
over = "secret-sum"
"""
HOSTILE = (
    "<script>window.taken = 1</script>",
    '"><img src=x onerror="window.taken=1">',
    "</title></svg></style><script>window.taken=1</script>",
    "{{ 7 * 7 }}{% raw %}",
    "' onmouseover='window.taken=1' x='",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    where = tmp_path_factory.mktemp("report")
    (where / "plan.toml").write_text(PLAN)
    assert main(["run", str(where / "plan.toml"), "--out", str(where / "run"), "--quiet"]) == 0
    return where / "run"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished fairness study with its page."""
    where = tmp_path_factory.mktemp("fair")
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], size=600)
    skill = rng.normal(size=600) + 1.5 * (sex == "m")
    hired = np.where(skill + 0.5 * rng.normal(size=600) > 0.7, "yes", "no")
    pd.DataFrame({"sex": sex, "skill": skill.clip(-4, 4), "hired": hired}).to_csv(where / "t.csv", index=False)
    (where / "fair.toml").write_text(FAIR.format(path=where / "t.csv"))
    assert main(["fair", str(where / "fair.toml"), "--out", str(where / "out")]) == 0
    assert main(["report", str(where / "out")]) == 0
    return where / "out"


@pytest.mark.slow
def test_a_result_has_the_keys_that_its_types_say(folder: Path) -> None:
    result, _ = content(folder)
    every = {RunResult: [result], PrivacyBlock: [result["privacy"]], AlgorithmBlock: [result["algorithm"]]}
    every |= {AgentRow: result["agents"], MetricValue: list(result["metrics"].values())}
    for kind, parts in every.items():
        assert parts
        for part in parts:
            assert set(part) == set(kind.__annotations__)


@pytest.fixture(scope="module")
def hostile(folder: Path) -> Path:
    """The run's page with every free text replaced by an attack."""
    result, sealed = content(folder)
    result["plan"]["name"] = HOSTILE[2]
    for agent, name in zip(result["agents"], HOSTILE, strict=True):
        agent["name"] = name
    result["warnings"] = list(HOSTILE)
    result["plan"]["data"]["source"] = HOSTILE[0]
    result["plan"]["data"]["options"] = {HOSTILE[1]: HOSTILE[4]}
    result["algorithm"]["settings"] = {HOSTILE[0]: HOSTILE[1]}
    result["privacy"]["assumptions"] = list(HOSTILE)
    sealed["digest"] = sealed["made_with"]["coterie"] = sealed["run"]["noise"] = HOSTILE[1]
    sealed["signer"] = HOSTILE[0]
    sealed["statements"] = [{"statement": text, "trust": text} for text in HOSTILE]
    page = folder.parent / "hostile.html"
    page.write_text(html.run_page(result, sealed), "utf-8")
    return page


def content(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return tuple(json.loads((folder / f"{n}.json").read_text("utf-8")) for n in ("result", "certificate"))  # type: ignore[return-value]


class Read(HTMLParser):
    """Tags, attributes and visible text of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said: list[str] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_the_page_says_what_the_files_say(folder: Path) -> None:
    result, sealed = content(folder)
    page = Read((folder / "report.html").read_text("utf-8"))
    for agent, epsilon in zip(result["agents"], result["privacy"]["per_agent"], strict=True):
        assert agent["name"] in page.text
        assert charts.number(epsilon) in page.text
    for value in (result["references"]["pooled"]["test_accuracy"], result["metrics"]["train_loss"]["mean"]):
        assert charts.number(value) in page.text
    for row in sealed["statements"]:
        assert row["statement"] in page.text
        assert row["trust"] in page.text
    for words in (*result["privacy"]["assumptions"], sealed["digest"], "coterie verify certificate.json"):
        assert words in page.text
    assert page.text.index("Was it worth it?") < page.text.index("5 parties on a ring")
    told = result["worth"]["sentence"].removeprefix("Cannot tell whether joining pays at ")
    assert told != result["worth"]["sentence"]
    assert f"Was it worth it? Cannot tell. At {told}" in page.text
    assert page.tags.count("figure") == 5  # scores, three curves, the graph
    assert "simulation" in page.text.lower()


def test_the_guess_of_the_adversary_is_the_right_number() -> None:
    """(e^ε + δ)/(e^ε + 1) is what (ε, δ) allows a test between two worlds, found here by brute force."""
    eps, delta = 1.3, 0.01
    best = 0.0
    for false in np.linspace(0, 1, 20001):  # rates of a test: neither error may pass the other's bound
        true = min(np.exp(eps) * false + delta, 1 - np.exp(-eps) * (1 - false - delta), 1.0)
        best = max(best, (true + 1 - false) / 2)
    for law in ("rdp", "pld", "zcdp", "basic"):
        said = guess(eps, delta, law)
        assert 0 <= said.percent - 100 * best <= 0.1  # rounded up, never down
        assert not said.exact
    delta = 1e-4
    mu = float(gdp.mu_for(eps, delta))  # Gaussian noise: the halfway point between two normal laws is the best test
    rng = np.random.default_rng(0)
    right = np.mean(rng.normal(size=400_000) < mu / 2)
    exact = guess(eps, delta, "gdp")
    assert exact.exact
    assert abs(exact.percent - 100 * right) < 0.3
    assert exact.percent < exact.bound
    assert guess(1.0, 1e-5, "gdp").percent == 55.3


def test_errata_are_listed_where_they_touch_the_run(folder: Path) -> None:
    result, sealed = content(folder)
    known = all_algorithms()["dp-consensus-gd"].errata
    page = Read(html.run_page(result, sealed)).text
    assert "None of it touches this run" in page
    assert not [e for e in known if " ".join(e.printed.split()) in page]
    result["plan"]["privacy"]["claim"] = "paper"
    page = Read(html.run_page(result, sealed)).text
    for erratum in known:
        assert " ".join(erratum.printed.split()) in page


def test_no_panel_is_empty_and_no_two_ticks_are_alike(folder: Path) -> None:
    """Parties that hold the same model do not disagree; a curve that hardly moves is drawn as one."""
    result, sealed = content(folder)
    result["curves"]["consensus_gap"] = [0.0] * len(result["curves"]["round"])
    page = html.run_page(result, sealed)
    assert "there is no finite number to draw" not in page
    assert "hold the same model after every round" in page
    for low, high in ((0.8848001, 0.8848002), (1e-12, 2e-12), (-3.0, 5e6), (0.5, 0.5)):
        c = charts.line_chart("c", "t", "round", "loss", [charts.Series("s", "run", [0.0, 1.0], [low, high])])
        labels = [label for _, label in c["y_ticks"]]
        assert len(set(labels)) == len(labels) >= 2
        assert max(map(len, labels)) <= 8  # the room on the left


@pytest.mark.parametrize(
    "names", [[f"practice-{k:02d}" for k in range(12)], ["Klinikum " + "x" * 30 + str(k) for k in range(12)]]
)
def test_names_in_a_graph_do_not_meet_or_are_left_out(names: list[str]) -> None:
    from coterie.graphs import make_graph

    drawn = charts.network(make_graph("ring", 12), names, [1] * 12)
    texts = [node["label"] for node in drawn["nodes"]]
    assert (len(set(texts)) == 12) if names[0].startswith("practice") else set(texts) == {None}
    boxes = [charts._box(node, node["label"], drawn["width"]) for node in drawn["nodes"] if node["label"]]
    assert not any(charts._meet(a, b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert all(0 <= left < right <= drawn["width"] for left, right, _, _ in boxes)


def test_nothing_is_fetched_and_only_our_script_may_run(folder: Path, study: Path, hostile: Path) -> None:
    for path in (folder / "report.html", study / "report.html", hostile):
        page = Read(path.read_text("utf-8"))
        assert page.tags.count("script") == page.tags.count("style") == 1
        assert not [t for t in page.tags if t in ("img", "iframe", "object", "embed", "form", "base")]
        assert not [a for a, _ in page.attributes if a.startswith("on")]
        links = [v for a, v in page.attributes if a in ("src", "href", "action", "xlink:href")]
        assert links == ["data:,"]
        assert "url(" not in path.read_text("utf-8").split("</style>")[0]
        policy = next(v for a, v in page.attributes if v and v.startswith("default-src 'none'"))
        assert "script-src 'sha256-" in str(policy)
        assert path.stat().st_size < 300_000


def test_hostile_text_is_shown_as_text(hostile: Path) -> None:
    shown = Read(hostile.read_text("utf-8"))
    for text in HOSTILE:
        assert " ".join(text.split()) in shown.text


@pytest.mark.parametrize("colours", [1, 2])
def test_texts_and_lines_stand_out_in_light_and_dark(colours: int) -> None:
    """Contrast ratios of WCAG 2: 4.5 for text, 3 for lines."""
    style = (Path(html.__file__).parent / "templates" / "style.css").read_text()
    palette = {row[0]: row[colours] for row in re.findall(r'\("(\w+)", "(#\w{6})", "(#\w{6})"\)', style)}

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(palette[one]), luminance(palette[other])))
        return (high + 0.05) / (low + 0.05)

    for ink, paper in (("ink", "paper"), ("ink", "card"), ("soft", "paper"), ("soft", "card"), ("warmink", "warm"),
                       ("badink", "bad"), ("run", "paper")):  # fmt: skip
        assert contrast(ink, paper) >= 4.5, (ink, paper)
    for line in ("pooled", "alone", *(f"s{k}" for k in range(html.STYLES))):
        assert contrast(line, "paper") >= 3, line


# ---- odd runs --------------------------------------------------------------------------------------------------------


def test_runs_of_every_kind_have_a_page(folder: Path) -> None:
    result, sealed = content(folder)
    none = {**result, "privacy": None}
    assert "Not private" in Read(html.run_page(none, None)).text
    broken = copy.deepcopy(result)  # a run that diverged
    broken["metrics"]["test_accuracy"] = {"mean": None, "std": None, "per_seed": [None]}
    for key in ("train_loss", "test_accuracy", "consensus_gap"):
        broken["curves"][key] = [None] * len(broken["curves"]["round"])
    broken["privacy"]["epsilon"], broken["privacy"]["per_agent"] = None, [None] * 5
    broken["privacy"]["private"] = False
    broken["interrupted"] = True
    page = Read(html.run_page(broken, sealed))
    assert "∞" in page.text
    assert "Interrupted" in page.text
    many = copy.deepcopy(result)
    many["agents"] = [{**result["agents"][0], "name": f"a{k}"} for k in range(1000)]
    many["privacy"]["per_agent"], many["privacy"]["budget"] = [1.0] * 1000, 1.0
    crowd = copy.deepcopy(sealed)
    crowd["public"]["agents"] = 5000
    assert "200 of 5000 parties" in Read(html.run_page(many, crowd)).text
    old = copy.deepcopy(result)
    for agent in old["agents"]:
        del agent["bytes_sent"]
    assert "unknown" in Read(html.run_page(old, None)).text


@pytest.mark.parametrize("kind", ["star", "complete", "grid"])
def test_graphs_are_drawn_inside_their_frame(kind: str) -> None:
    from coterie.graphs import make_graph

    graph = make_graph(kind, 12, seed=0)
    drawn = charts.network(graph, [f"a{k}" for k in range(12)], list(range(1, 13)))
    assert len(drawn["edges"]) == len(graph.edges)
    for node in drawn["nodes"]:
        assert node["r"] <= node["x"] <= drawn["width"] - node["r"]
        assert node["r"] <= node["y"] <= drawn["height"] - node["r"]


def test_lines_lie_where_their_numbers_say() -> None:
    """The drawn path, read back through the drawn ticks, gives the numbers."""
    x, y = [0.0, 5.0, 10.0], [0.3, 0.7, 0.5]
    c = charts.line_chart("c", "t", "round", "loss", [charts.Series("s", "run", x, y)])
    points = np.array([[float(v) for v in p.split()] for p in c["series"][0]["path"][1:].split("L")])
    for axis, ticks, values in ((0, c["x_ticks"], x), (1, c["y_ticks"], y)):
        at, labels = np.array([t[0] for t in ticks]), np.array([float(t[1]) for t in ticks])
        slope, offset = np.polyfit(at, labels, 1)
        np.testing.assert_allclose(slope * points[:, axis] + offset, values, atol=2e-3 * max(values))
    log = charts.line_chart("c", "t", "round", "gap", [charts.Series("s", "run", x, [0.0, 1e-3, 1.0])], log_y=True)
    assert [label for _, label in log["y_ticks"]] == ["0.001", "0.01", "0.1", "1"]
    assert log["series"][0]["path"].count("L") == 1  # zero has no logarithm


def test_a_folder_without_a_result_is_one_line(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "neither result.json nor fair.json" in capsys.readouterr().err
    for text in ("{", "[]", '{"plan": {}}', json.dumps({**content(folder)[0], "curves": {}})):
        (tmp_path / "result.json").write_text(text)
        assert main(["report", str(tmp_path)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_the_command_writes_what_the_run_wrote(folder: Path) -> None:
    before = sha256((folder / "report.html").read_bytes())
    assert main(["report", str(folder)]) == 0
    assert sha256((folder / "report.html").read_bytes()) == before
    assert canonical(content(folder)[1])  # and the certificate is untouched


# ---- in a browser ----------------------------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
FIGURES = """
const inside = (b, box) => b.left >= box.left - 2 && b.right <= box.right + 2 && b.bottom <= box.bottom + 2;
return [...document.querySelectorAll("figure .plot > svg")].map((svg) => {
  const box = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
  const marks = [...svg.querySelectorAll("path.line, circle, line.line")].filter((mark) => {
    const b = mark.getBoundingClientRect(), s = getComputedStyle(mark);
    return (s.stroke !== "none" || s.fill !== "none") && b.width + b.height > 1 && inside(b, box);
  });
  const scale = box.width / svg.viewBox.baseVal.width;
  return {
    width: box.width,
    marks: marks.length,
    outside: texts.filter((t) => !inside(t.getBoundingClientRect(), box)).map((t) => t.textContent),
    smallest: Math.min(...texts.map((t) => parseFloat(getComputedStyle(t).fontSize) * scale)),
  };
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as b:
        yield b


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["folder", "study", "hostile"])
def test_it_renders(page: str, width: int, dark: bool, browser: Browser, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(page)
    browser.open(path if path.is_file() else path / "report.html", width, dark=dark)
    assert browser.complaints() == []
    assert browser.run("return innerWidth") == width
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.run("return window.taken === undefined")
    figures = browser.run(FIGURES)
    assert len(figures) == (5 if page != "study" else 4)
    for figure in figures:
        assert figure["width"] > 250
        assert figure["marks"] >= 1
        assert figure["smallest"] >= 9  # pixels of the smallest text
        if page != "hostile":
            assert figure["outside"] == []
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark
    if shots := os.environ.get("COTERIE_SHOTS"):  # `make test-browser`: for a person to look at
        browser.picture(Path(shots) / f"report-{page}-{width}-{'dark' if dark else 'light'}.png")


@needs_browser
def test_the_check_of_a_rendering_can_fail(folder: Path, browser: Browser, tmp_path: Path) -> None:
    """A page with a script error, a wide element and an empty chart fails each of the checks above."""
    text = (folder / "report.html").read_text("utf-8")
    text = re.sub(r'<path class="line run[^>]*>', "", text).replace("<main>", '<main><div style="width:3000px">x</div>')
    text = text.replace("<script>", "<script>undefined_name();")
    (tmp_path / "bad.html").write_text(text, "utf-8")
    browser.open(tmp_path / "bad.html", 390)
    assert any("Content Security Policy" in m for m in browser.complaints())  # a changed script is not run at all
    assert browser.run("return document.documentElement.scrollWidth") > 390
    disagreement = browser.run(FIGURES)[3]
    assert disagreement["marks"] == 0


@needs_browser
def test_scripts_sort_read_out_and_switch_colours(folder: Path, browser: Browser) -> None:
    browser.open(folder / "report.html", 1280)
    names = "return [...document.querySelectorAll('#spent tbody th')].map((e) => e.textContent)"
    browser.click("#spent thead th:nth-child(5) button")
    ascending = browser.run(names)
    browser.click("#spent thead th:nth-child(5) button")
    assert browser.run(names) == ascending[::-1]
    result, _ = content(folder)
    assert ascending == [a["name"] for a in sorted(result["agents"], key=lambda a: a["records"])]
    browser.hover("svg[data-readout]", 0.99)
    tip = browser.run("return document.querySelector('.tip').textContent")
    assert tip.startswith("round 12\n")
    assert f"dp-consensus-gd: {charts.number(result['curves']['train_loss'][-1])}" in tip
    browser.click(".theme")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert browser.complaints() == []


@needs_browser
def test_without_scripts_nothing_is_missing(folder: Path, browser: Browser) -> None:
    read = "return document.querySelector('main').innerText.replace(/dark colours\\s*|[↕]/g, '').replace(/\\s+/g, ' ')"
    browser.open(folder / "report.html", 1280)
    with_scripts = browser.run(read)
    browser.open(folder / "report.html", 1280, scripts=False)
    assert browser.run(read).strip() == with_scripts.strip()
    assert len(browser.run(FIGURES)) == 5
    browser.open(folder / "report.html", 1280)
