"""Public bins: exactly one of each attribute whatever a record says, so norm 1; and never by the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.bins import Bins, Finish, bins_of, neutral
from coterie.data.encode import Category, Number
from coterie.data.planned import load_planned, planned_bins
from coterie.errors import InputError
from coterie.plan import Plan, validate

BOOK = {"age": Number(17, 90), "money": Number(0, 99_999, log=True), "job": Category(("nurse", "cook"))}
BINS = bins_of(BOOK, pairs=[("age", "job")])
ANYTHING = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**12), 10**12),
    st.text(max_size=3),
    st.sampled_from(["nurse", " cook ", ""]),
)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), min_size=1, max_size=6))
def test_every_row_has_norm_one_whatever_it_says(rows: list[tuple]) -> None:
    """Missing, infinite, out of range, text where a number belongs, an unknown category: one bin of each attribute."""
    table = pd.DataFrame(rows, columns=["age", "money", "job"], dtype=object)
    made = BINS.rows(table)
    assert np.linalg.norm(made, axis=1) == pytest.approx(1, abs=1e-12)
    for block in BINS.blocks:
        assert np.linalg.norm(made[:, block.where], axis=1) == pytest.approx(0.5, abs=1e-12)
    apart = replace(BINS, alike=0.0).rows(table)
    for block in BINS.blocks:
        assert (np.count_nonzero(apart[:, block.where], axis=1) == 1).all()
    assert BINS.shares(made) == pytest.approx(2 * apart.mean(axis=0), abs=1e-9)


def test_neighbours_are_as_alike_as_is_said() -> None:
    """Scalar products of bins: ρᵏ for numbers k bins apart, 0 between levels, and of a pair both factors."""
    one, _, job, pair = (BINS.basis(block) @ BINS.basis(block).T for block in BINS.blocks)
    place = np.arange(len(one) - 1)
    assert one[:-1, :-1] == pytest.approx(0.5 ** np.abs(place[:, None] - place), abs=1e-9)
    assert np.abs(one[-1, :-1]).max() < 1e-12
    assert job == pytest.approx(np.eye(3))
    assert pair == pytest.approx(np.kron(one, job))
    assert BINS.basis(BINS.blocks[0]).shape == (16, 16)
    with pytest.raises(InputError, match=r"problem\.alike must be between 0 and 0\.99, got 1"):
        bins_of(BOOK, alike=1.0, key="problem.bins")


def test_where_values_go() -> None:
    """Edges belong to the bin above; beyond the range is the end; gaps, words and unknown levels are `missing`."""
    table = pd.DataFrame({"age": [17, 20, 24.99, -3, 900, None], "money": [0, 1, 10, 99_999, 10**9, "x"],
                          "job": ["nurse", "cook", "pilot", None, "", "NURSE"]})  # fmt: skip
    names = np.array(BINS.feature_names)
    said = names[BINS.codes(table)]
    ages = ["below 20", "20 to 25", "20 to 25", "below 20", "from 85", "missing"]
    assert said[:, 0].tolist() == [f"age={age}" for age in ages]
    assert said[[0, 1, 5], 1].tolist() == ["money=below 1", "money=1 to 1.77828", "money=missing"]
    assert said[3, 1] == said[4, 1] == names[BINS.blocks[1].where][-2]
    assert said[:, 2].tolist() == [f"job={job}" for job in ["nurse", "cook", *["missing"] * 4]]
    assert said[4, 3] == "age=from 85, job=missing"
    other = bins_of({"job": Category(("nurse", "other"))})
    assert [*other.codes(pd.DataFrame({"job": ["pilot", None]}))[:, 0]] == [1, 2]


def test_neutral_edges_are_round_and_few() -> None:
    assert neutral(Number(17, 90)) == tuple(range(20, 90, 5))
    assert neutral(Number(1, 99)) == tuple(range(10, 100, 10))
    assert neutral(Number(-3, 7)) == tuple(range(-2, 7))
    quarters = neutral(Number(0, 99_999, log=True))
    assert np.log10(quarters) == pytest.approx(np.arange(20) / 4)
    rng = np.random.default_rng(0)
    for _ in range(300):
        low = rng.normal() * 10.0 ** rng.integers(-6, 7)
        rule = Number(low, low + 10.0 ** rng.uniform(-5, 6))
        edges = np.array(neutral(rule))
        assert 6 <= len(edges) + 1 <= 18, rule
        assert (np.diff(edges) > 0).all()
        assert rule.low < edges[0] < edges[-1] < rule.high


CSV = {
    "data": {
        "source": "csv", "label": "y",
        "options": {"classes": ["no", "yes"], "bounds": {"age": [0, 100]}, "categories": {"job": ["nurse", "cook"]}},
    },
    "partition": {"kind": "iid", "agents": 2},
    "problem": {"loss": "logistic", "model": "additive", "bins": {"age": 20}},
    "privacy": {"epsilon": 1.0},
}  # fmt: skip


def planned(path: Path, **problem: object) -> Plan:
    return validate({**CSV, "data": {**CSV["data"], "path": path}, "problem": {**CSV["problem"], **problem}})


def write(path: Path, rows: list[tuple]) -> Path:
    pd.DataFrame(rows, columns=["age", "job", "y"]).to_csv(path, index=False)
    return path


def test_bins_never_depend_on_records(tmp_path: Path) -> None:
    """Two tables that have nothing in common, one narrow and with gaps: the same features, by the plan alone."""
    wide = [(a, "nurse", "yes") for a in range(0, 101, 5)]
    narrow = [(40.5 + i / 100, "" if i % 2 else "cook", "no") for i in range(30)] + [("", "cook", "yes")]
    plans = [planned(write(tmp_path / f"{k}.csv", rows)) for k, rows in enumerate((wide, narrow))]
    before = planned_bins(planned(tmp_path / "nobody has this.csv"))
    found = [load_planned(plan) for plan in plans]
    assert [planned_bins(plan) for plan in plans] == [before, before]
    assert found[0].feature_names == found[1].feature_names == before.feature_names
    assert not found[0].leaks
    assert not found[1].leaks
    for data in found:
        assert np.linalg.norm(data.features, axis=1) == pytest.approx(1)


def test_columns_of_a_table_come_in_any_order(tmp_path: Path) -> None:
    """Parties write their tables as they like, and a plan that was stored may have its keys in another order."""
    rows = [(30, "nurse", "yes"), (70, "cook", "no")]
    one, two = write(tmp_path / "a.csv", rows), tmp_path / "b.csv"
    pd.read_csv(one)[["y", "job", "age"]].to_csv(two, index=False)
    assert np.array_equal(load_planned(planned(one)).features, load_planned(planned(two)).features)
    again = planned(one).as_json()
    again["data"]["options"] = dict(reversed(again["data"]["options"].items()))
    assert planned_bins(validate(again)) == planned_bins(planned(one))


def test_what_a_table_must_state(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pd.DataFrame({"age": [1, 2], "job": ["nurse", "cook"], "extra": [1, 2], "y": ["no", "yes"]}).to_csv(
        path, index=False
    )
    with pytest.raises(InputError, match="has no bins: state its bounds or categories"):
        load_planned(planned(path))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ({"bins": {"weight": 5}}, r"problem\.bins names 'weight', which is not an attribute: there are age, job"),
        ({"bins": {"age": -5}}, r"problem\.bins\.age = -5.*expected a step > 0"),
        ({"bins": {"age": 500}}, r"problem\.bins\.age = 500 leaves one bin: 'age' goes from 0 to 100"),
        ({"bins": {"age": 1e-4}}, "makes .* bins between 0 and 100: too many"),
        ({"bins": {"age": [30, 20]}}, "edges of 'age' must ascend"),
        ({"bins": {"age": []}}, "need one or more finite edges"),
        ({"bins": {"age": "deciles"}}, "expected a step > 0, a list of edges, 'log', or false"),
        ({"bins": {"age": "quantiles"}}, "quantiles of the records have to be paid for"),
        ({"bins": {"job": 3}}, "'job' is a category, whose levels are its bins"),
        ({"bins": {"age": False, "job": False}}, "needs one attribute at least"),
        ({"pairs": [["age", "age"]]}, r"problem\.pairs must hold two different attributes"),
        ({"pairs": [["age", "sex"]]}, r"problem\.pairs names 'sex'"),
        ({"pairs": [["age", "job"], ["job", "age"]]}, r"problem\.pairs lists \['job', 'age'\] twice"),
        ({"monotone": {"job": "up"}}, r"problem\.monotone names 'job', a category: its bins have no order"),
        ({"monotone": {"sex": "up"}}, r"problem\.monotone names 'sex', which is not an attribute"),
        ({"monotone": {"age": "sideways"}}, r"problem\.monotone"),
        ({"smooth": -1}, r"problem\.smooth"),
        ({"dim": 3}, r"problem\.dim = 3, but there are 9 bins"),
        ({"loss": "mlp"}, "problem.model = 'additive' goes with problem.loss = logistic, hinge, squared, softmax"),
        ({"loss": "fair"}, "problem.model = 'additive' goes with problem.loss"),
        ({"model": "linear"}, "problem.bins belongs to problem.model = 'additive', not 'linear'"),
        ({"model": None, "bins": None, "smooth": 1.0}, "problem.smooth belongs to problem.model = 'additive'"),
        ({"model": "tree"}, r"problem\.model"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_before_data_is_read(tmp_path: Path, problem: dict, words: str) -> None:
    with pytest.raises(InputError, match=words) as told:
        planned(tmp_path / "nobody has this.csv", **problem)
    assert "\n" not in str(told.value)


def test_sources_without_a_code_book_are_refused_by_name() -> None:
    for source in ("clinics", "mnist", "store"):
        with pytest.raises(InputError, match=f"data.source = '{source}' has none: use .*adult.*csv"):
            validate({"data": {"source": source, "path": "x"}, "problem": {"model": "additive"}, "privacy": {}})
    with pytest.raises(InputError, match=r"data\.options\.bins"):  # no option of a loader: a plan says them elsewhere
        validate({"data": {"source": "adult", "options": {"bins": {"age": 5}}}, "privacy": {}})


def test_a_shape_is_of_an_attribute() -> None:
    Finish(1.0, (("age", "up"),)).check(BINS)
    with pytest.raises(InputError, match="smooth must be 0 or more, got nan"):
        Finish(float("nan")).check(BINS)
    with pytest.raises(InputError, match="too many, at most 5000"):
        Bins(bins_of({"a": Number(0, 1), "b": Number(0, 1)}, {"a": 0.01, "b": 0.01}).attributes, ((0, 1),))


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.99])
def test_vectors_of_bins_have_norm_one_for_every_number_of_bins(alike: float) -> None:
    """To rounding: noise for a sensitivity of 1 covers what bins, alone and in pairs, can be."""
    for count in (*range(2, 41), 200):
        edges = [float(k) for k in range(1, count)]
        made = bins_of({"a": Number(0, count), "b": Number(0, 3)}, {"a": edges, "b": [1.0]}, [("a", "b")], alike=alike)
        for block in made.blocks:
            assert np.abs(np.linalg.norm(made.basis(block), axis=1) - 1).max() < 1e-15
