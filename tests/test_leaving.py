"""Models leave: a saved folder predicts on the command line, as ONNX and in scikit-learn what the run predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.api.leaving import as_sklearn, card, open_model
from coterie.api.onnx_file import write_onnx
from coterie.cli import main
from coterie.errors import InputError

BUDGET = ct.Budget(4.0, 1e-5)
RNG = np.random.default_rng(0)
X = RNG.uniform(-90, 90, (3, 60, 3))  # beyond the bounds too
Y = np.where(X @ [1.0, -2.0, 0.5] > 0, "ill", "well")
THREE = np.digitize(X[..., 0], [-20, 20])
TABLE = pd.DataFrame({"age": [10.0, 35.0, np.nan, 80.0, 200.0, 50.0], "smokes": ["no", "yes", "no", "?", None, "yes"]})


def parties(targets: np.ndarray, **options: object) -> ct.Parties:
    return ct.complete(list(zip(X, targets, strict=True)), **options)


TASKS = {
    "logistic": lambda: (ct.logistic(classes=["ill", "well"]), parties(Y, bounds=(-60, 60))),
    "softmax": lambda: (ct.softmax(3), parties(THREE, bounds=[(-60, 60), (-50, 70), (-90, 90)])),
    "squared": lambda: (ct.squared(), parties(X[..., 1] / 90, bounds=(-60, 60))),
    "mlp": lambda: (ct.mlp(3, hidden=[4], activation="relu"), parties(THREE, bounds=(-60, 60))),
}


def trained(name: str) -> ct.Trained:
    task, net = TASKS[name]()
    return ct.train(task, net, ct.dp_dsgd(), BUDGET, rounds=4, seed=0)


def said(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


@pytest.mark.parametrize("name", TASKS)
def test_an_onnx_file_predicts_as_the_run_does(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    run = trained(name)
    rows = 2 * X.reshape(-1, 3)
    found = said(write_onnx(run, tmp_path / "model.onnx"), {"X": rows})
    if name == "squared":
        np.testing.assert_allclose(found[0], run.predict(rows), atol=1e-9)
        return
    assert found[0].tolist() == run.predict(rows).tolist()
    np.testing.assert_allclose(found[1], run.predict_proba(rows), atol=1e-6)


def additive() -> ct.Trained:
    task = ct.additive(
        {"age": (0, 100), "smokes": ["no", "yes"]}, classes=[0, 1], bins={"age": 25}, pairs=[("age", "smokes")],
        monotone={"age": "up"},
    )  # fmt: skip
    sites = [(TABLE.iloc[RNG.integers(0, 6, 40)], RNG.integers(0, 2, 40)) for _ in range(3)]
    return ct.train(task, ct.complete(sites), ct.dp_dsgd(), BUDGET, rounds=4, seed=0)


def test_an_additive_model_takes_its_bins_along(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    run = additive()
    texts = TABLE["smokes"].fillna("").to_numpy(object)
    feed = {"age": TABLE[["age"]].to_numpy(float), "smokes": texts[:, None]}
    label, chances = said(write_onnx(run, tmp_path / "model.onnx"), feed)
    assert label.tolist() == run.predict(TABLE).tolist()
    np.testing.assert_allclose(chances, run.predict_proba(TABLE), atol=1e-6)


def test_a_saved_folder_predicts_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("logistic")
    run.save(tmp_path / "run")
    table = tmp_path / "rows.csv"
    pd.DataFrame(X[0]).to_csv(table, index=False)
    out = tmp_path / "out.csv"
    assert main(["predict", str(tmp_path / "run"), str(table), "--chances", "--out", str(out)]) == 0
    found = pd.read_csv(out)
    assert found["predicted"].tolist() == run.predict(X[0]).tolist()
    np.testing.assert_allclose(found["chance of well"], run.predict_proba(X[0])[:, 1], atol=1e-12)
    assert main(["export", str(tmp_path / "run"), "--card", str(tmp_path / "MODEL.md")]) == 0
    assert f"ε = {run.epsilon:.6g} at δ = 1e-05 for one record" in (tmp_path / "MODEL.md").read_text("utf-8")
    capsys.readouterr()
    for wrong in (["predict", str(tmp_path / "none"), str(table)], ["predict", str(tmp_path / "run"), "no.csv"],
                  ["export", str(tmp_path / "run")]):  # fmt: skip
        assert main(wrong) == 2
        told = capsys.readouterr()
        assert len((told.err or told.out).strip().splitlines()) == 1


def test_a_card_names_no_number_that_is_not_paid_for() -> None:
    task, net = TASKS["logistic"]()
    run = ct.train(task, net, ct.dp_dsgd(), BUDGET, rounds=4, seed=0, test=(X[0], Y[0]))
    score = f"accuracy {run.result['metrics']['test_accuracy']['mean']:.4g}"
    assert score in card(run, home=True)
    assert "no ε covers it" in card(run, home=True)
    assert score not in card(run)
    for part in ("**Privacy.**", "**Data.**", "**Worth.**", "Against one who "):
        assert part in card(run)


def test_a_card_names_label_and_features() -> None:
    assert "**Predicts.** a label (0, 1), from age, smokes." in card(additive())


def test_a_model_is_an_estimator_that_is_fitted() -> None:
    from sklearn.model_selection import cross_val_score
    from sklearn.utils.validation import check_is_fitted

    run = trained("logistic")
    made = as_sklearn(run)
    check_is_fitted(made)
    assert made.classes_.tolist() == ["ill", "well"]
    assert made.score(X[0], Y[0]) == pytest.approx(run.score(X[0], Y[0]))
    with pytest.raises(InputError, match="costs again"):
        cross_val_score(made, X[0], Y[0], error_score="raise")
    assert open_model.__doc__
