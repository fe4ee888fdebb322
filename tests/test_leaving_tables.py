"""Tables that a plan reads leave too: `coterie predict` and an ONNX file say the same of raw records.

Gaps, levels that the book does not have, values beyond the bounds, columns in another order, and no site or label.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.api.leaving import open_model
from coterie.api.onnx_file import write_onnx
from coterie.cli import main
from coterie.errors import InputError

SITES = ["east", "north", "west"]
BOOK = """
features = ["age", "cost", "ward", "sex", "score"]
sites = ["east", "north", "west"]
optional = ["age", "sex", "score"]
other = ["ward"]
missing_values = ["?", "999"]
log = ["cost"]
impute = {age = 40}
bounds = {age = [18, 95], cost = [0, 1000], score = [-1, 1]LABEL}
categories = {ward = ["medical", "surgical"], sex = ["f", "m"]}
"""
CLASSES = '\nclasses = ["no", "yes"]'
KINDS = {
    "linear": (CLASSES, "row_norm = 'clip'", ""),
    "unit": (CLASSES, "row_norm = 'unit'\nconstant = true", ""),
    "uncentred": (CLASSES, "row_norm = 'max'\ncentre = false", ""),
    "regression": ("", "row_norm = 'clip'", "loss = 'squared'"),
    "mlp": (CLASSES, "constant = true", "loss = 'mlp'\nhidden = [4]\nactivation = 'tanh'"),
    "additive": (CLASSES, "", "model = 'additive'\npairs = [['age', 'sex']]"),
}
NEW = pd.DataFrame(  # as a file has them
    {
        "score": ["0.5", "3", "", "-0.2", "0", "0.9"],
        "sex": ["f", "m", "", "m", "f", "?"],
        "ward": ["medical", "unheard of", "surgical", "other", "medical", "surgical"],
        "cost": ["10", "1e6", "0", "-5", "77.5", "1000"],
        "age": ["30", "200", "", "-3", "999", "95"],
    }
)
REFUSED = pd.DataFrame(
    {
        "score": ["0.1", "0.1", "0.1", "inf"],
        "sex": ["f", "diverse", "f", "f"],  # no `other` for it
        "ward": ["medical", "medical", "", "medical"],  # nor a place for a gap
        "cost": ["", "1", "1", "1"],
        "age": ["30", "30", "30", "30"],
    }
)
TEXT = ("sex", "ward")


RELEASE = (CLASSES, "", "loss = 'moments'\nmodel = 'additive'")


def trained(kind: str, folder: Path, algorithm: str = "dp-dsgd") -> Path:
    """A run of a plan on a small table, as the command line leaves it."""
    classes, more, problem = RELEASE if kind == "release" else KINDS[kind]
    rng, count = np.random.default_rng(1), 90
    table = pd.DataFrame(
        {
            "site": np.repeat(SITES, count // 3),
            "age": rng.integers(18, 95, count),
            "cost": rng.integers(0, 900, count),
            "ward": rng.choice(["medical", "surgical", "closed"], count),
            "sex": rng.choice(["f", "m", ""], count),
            "score": rng.uniform(-1, 1, count).round(3),
        }
    )
    late = table["age"] + 40 * (table["ward"] == "medical") + 10 * rng.normal(size=count)
    table["out"] = late.round(2) if kind == "regression" else np.where(late > 75, "yes", "no")
    table.to_csv(folder / "table.csv", index=False)
    book = BOOK.replace("LABEL", ", out = [0, 150]" if kind == "regression" else "") + classes + f"\n{more}\n"
    (folder / "book.toml").write_text(book, "utf-8")
    (folder / "plan.toml").write_text(
        f"""name = "table"
[data]
source = "csv"
path = "{folder / "table.csv"}"
label = "out"
site = "site"
codebook = "book.toml"
[partition]
kind = "site"
[graph]
kind = "complete"
[problem]
{problem}
[algorithm]
name = "{algorithm}"
[privacy]
epsilon = 5.0
delta = 1e-5
[run]
{"rounds = 4" if algorithm == "dp-dsgd" else ""}
seeds = 1
""",
        "utf-8",
    )
    return run(folder / "plan.toml", folder / "run")


def run(plan: Path, out: Path) -> Path:
    """A run's folder."""
    assert main(["run", str(plan), "--references", "none", "--out", str(out)]) == 0
    return out


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than all the rest, and are tested elsewhere."""
    monkeypatch.setattr("coterie.report.html.available", lambda: False)
    for name in ("curves", "network"):
        monkeypatch.setattr(f"coterie.report.plots.{name}", lambda _, path: path.write_bytes(b""))


def predicted(folder: Path, table: pd.DataFrame, *more: str) -> pd.DataFrame:
    """What the command says."""
    table.to_csv(folder.parent / "new.csv", index=False)
    out = folder.parent / "out.csv"
    assert main(["predict", str(folder), str(folder.parent / "new.csv"), "--out", str(out), *more]) == 0
    return pd.read_csv(out, keep_default_na=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_an_onnx_file_says_of_raw_records_what_predict_says(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed: ONNX files are not tested")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: ONNX files are not tested")
    folder = trained(kind, tmp_path)
    chances = kind != "regression"
    expected = predicted(folder, NEW, *(["--chances"] if chances else []))
    path = write_onnx(open_model(folder), tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def said(table: pd.DataFrame) -> list[np.ndarray]:
        numbers = table.drop(columns=list(TEXT)).replace("", "nan").astype(float)
        feed = {**table[list(TEXT)].astype(object), **numbers}
        return session.run(None, {name: column.to_numpy()[:, None] for name, column in feed.items()})

    label, *probabilities, taken = said(NEW)
    assert taken.all()
    if chances:
        assert label.tolist() == expected["predicted"].tolist()
        np.testing.assert_allclose(probabilities[0], expected.iloc[:, 1:].to_numpy(float), atol=1e-7)
        assert np.ptp(probabilities[0][:, 0]) > 1e-3  # records differ, so an encoding that forgets a column would show
    else:
        np.testing.assert_allclose(label, expected["predicted"].to_numpy(float), atol=1e-7)
    label, *probabilities, taken = said(REFUSED)
    assert not taken.any()
    assert set(label) == {""} if chances else np.isnan(label).all()
    assert all(np.isnan(p).all() for p in probabilities)
    for k in range(len(REFUSED)):  # and predict refuses each of them
        with pytest.raises(InputError):
            open_model(folder).predict(REFUSED.iloc[[k]].replace("", None))


def test_predictions_need_neither_site_nor_label_nor_an_order_of_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = trained("linear", tmp_path)
    assert "column 'sex'" in caplog.text  # its gaps are said as it is read,
    assert "column 'sex'" not in capsys.readouterr().out  # and not once more
    expected = predicted(folder, NEW)
    NEW.drop(columns="age").to_csv(tmp_path / "short.csv", index=False)
    assert main(["predict", str(folder), str(tmp_path / "short.csv")]) == 2
    assert capsys.readouterr().err.endswith("no column 'age': it has score, sex, ward, cost\n")  # and no label
    turned = NEW[sorted(NEW)].assign(site="nowhere", out="perhaps")
    assert predicted(folder, turned).equals(expected)
    book = (tmp_path / "book.toml").read_text("utf-8").replace('features = ["age", "cost", "ward", "sex", "score"]', "")
    (tmp_path / "book.toml").write_text(book, "utf-8")  # the order is then that of the table
    assert predicted(run(tmp_path / "plan.toml", tmp_path / "unstated"), turned).equals(expected)


def test_a_number_is_predicted_as_the_label_is_written(tmp_path: Path) -> None:
    """The label lies in [0, 150], and the model knows it as [0, 1]."""
    folder = trained("regression", tmp_path)
    model = open_model(folder)
    own = pd.read_csv(tmp_path / "table.csv", dtype=str).drop(columns=["out", "site"])
    with np.errstate(all="raise"):
        scaled = model.coding.rows(own) @ model.point
    np.testing.assert_allclose(model.predict(own), 150 * scaled)


@pytest.mark.slow
def test_a_release_over_bins_predicts_by_the_curves_that_it_states(tmp_path: Path) -> None:
    """A record's log-odds are the intercept and one value of each curve, looked up here by hand."""
    folder = trained("release", tmp_path, "release")
    curves = json.loads((folder / "curves.json").read_text("utf-8"))
    new = NEW.iloc[[0, 2]]  # one of plain values, one with gaps in age, sex and score
    odds = np.full(len(new), curves["intercept"])
    for curve in curves["attributes"]:
        for k, said in enumerate(new[curve["name"]]):
            if said == "":
                odds[k] += curve["missing"]
            elif curve["kind"] == "number":
                odds[k] += curve["values"][int(np.searchsorted(curve["edges"], float(said), side="right"))]
            else:
                odds[k] += curve["values"][curve["levels"].index(said)]
    found = predicted(folder, new, "--chances")
    np.testing.assert_allclose(found["chance of yes"].to_numpy(float), 1 / (1 + np.exp(-odds)), atol=1e-9)
    assert found["predicted"].tolist() == ["yes" if o > 0 else "no" for o in odds]
    assert np.ptp(odds) > 1e-3
