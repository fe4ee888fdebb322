"""`ct.train` on problems as they are: what it refuses, and that bounds which the price rests on are checked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.api.coding import Coding
from coterie.data import ALL_PUBLIC, Dataset, make_clinics, split
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Ball, Custom

BUDGET = ct.Budget(1.0, 1e-5)


def sites(count: int = 3, dim: int = 2, scale: float = 0.5):
    rng = np.random.default_rng(0)
    x = rng.uniform(-scale, scale, (count, 50, dim))
    return [(part, np.where(part[:, 0] > 0, 1.0, -1.0)) for part in x]


@pytest.mark.parametrize(
    ("problem", "data", "words"),
    [
        (Logistic(2), sites(scale=2.0), "norms up to .* rests on at most 1"),
        (Logistic(2), [(x, 3 * y) for x, y in sites()], "−1 and 1"),
        (Logistic(3), sites(), "takes 3 features, and the records have 2"),
        (Softmax(2, 3), sites(), "from 0 to 2"),
        (Mean(2), sites(scale=2.0), "expected at most problem.radius = 1"),
    ],
)
def test_what_cannot_be_priced_is_refused(problem, data, words):
    with pytest.raises(InputError, match=words):
        ct.train(problem, ct.ring(data), budget=BUDGET, rounds=4, seed=0)


def test_a_loss_without_bounds_needs_an_algorithm_that_clips():
    free = Custom.make(lambda w, x, y: jnp.exp(-y * (w @ x)), jnp.zeros(2))
    with pytest.raises(InputError, match=r"pr-admm needs a convex loss and .* a bound on the loss's gradient"):
        ct.train(free, ct.ring(sites()), ct.pr_admm(penalty=1.0), BUDGET, rounds=4, seed=0)


@pytest.mark.slow
def test_a_custom_loss_gives_the_built_in_model():
    """The logistic loss written by hand and the one of the package: one model, to rounding, with the same noise."""
    logistic = lambda w, x, y: jnp.logaddexp(0.0, -jnp.sign(y) * (w @ x))  # noqa: E731
    mine = ct.loss(logistic, jnp.zeros(2), lipschitz=1.0, smoothness=0.25, bound=1.0)
    found = [
        ct.train(task, ct.ring(sites()), budget=ct.Budget(2.0, 1e-5), rounds=10, seed=1)
        for task in (ct.logistic(), Logistic(2), mine)
    ]
    np.testing.assert_array_equal(found[0].point, found[1].point)
    np.testing.assert_allclose(found[0].point, found[2].point, rtol=1e-9)
    np.testing.assert_allclose(found[2].model, found[2].point, rtol=1e-6)
    assert found[0].epsilon <= 2.0
    assert [ledger.spent() for ledger in found[0].ledgers] == pytest.approx([2.0] * 3, rel=1e-6)


# ---- what was read from the records, and what no record is needed for ------------------------------------------------


def test_what_was_read_from_records_is_told():
    """Records whose making looked at all of them: whatever ε was paid for the messages, nothing is private."""
    leaky = ct.ring(sites(), leaks=["scaled by the largest record"])
    with pytest.warns(UserWarning, match="no privacy can be claimed: scaled by the largest record"):
        told = ct.train(Logistic(2), leaky, budget=BUDGET, rounds=4, seed=0)
    assert (told.private, told.leaks) == (False, ("scaled by the largest record",))
    assert "NOT private" in repr(told)
    quiet = ct.train(Logistic(2), ct.ring(sites()), budget=BUDGET, rounds=4, seed=0)
    assert (quiet.private, quiet.leaks) == (True, ())
    np.testing.assert_array_equal(told.point, quiet.point)


def test_a_data_set_brings_its_leaks():
    data = [make_clinics(seed=s, sites=1, records=50) for s in range(3)]
    public = ct.train(Logistic(12), ct.ring(data), budget=BUDGET, rounds=4, seed=0)
    assert (public.private, public.leaks) == (True, ())
    read = [replace(d, origins=replace(ALL_PUBLIC, classes=("its classes are read from the data",))) for d in data]
    with pytest.warns(UserWarning, match="no privacy can be claimed"):
        leaky = ct.train(Logistic(12), ct.ring(read), budget=BUDGET, rounds=4, seed=0)
    assert (leaky.private, leaky.leaks) == (False, ("its classes are read from the data",))
    np.testing.assert_array_equal(leaky.point, public.point)


class Unread:
    """A table that nobody may look at; its shape is public."""

    shape = (50, 2)

    def __iter__(self):
        raise AssertionError("a record was read")

    def __array__(self, *_, **__):
        raise AssertionError("a record was read")


@pytest.mark.parametrize(
    ("task", "algorithm", "why"),
    [
        (Squared(2), ct.dvp(), "dvp needs"),
        (Logistic(2, constraint=Ball(1.0)), ct.sdm(), "does not keep its answer in a set"),
        (ct.logistic(radius=1.0), ct.qdpsgd2(), "does not keep its answer in a set"),
        (Logistic(2), ct.dgd(), "dgd is not private"),
        (Logistic(2), ct.gauss_avg_gd(), "runs on complete graphs"),
        (ct.squared(), ct.dvp(), "dvp needs"),
    ],
)
def test_a_contract_that_fails_is_refused_before_a_record_is_read(task, algorithm, why):
    with pytest.raises(InputError, match=why) as caught:
        ct.train(task, ct.ring([(Unread(), Unread())] * 3), algorithm, BUDGET)
    assert "\n" not in str(caught.value)


# ---- seeds -----------------------------------------------------------------------------------------------------------


def test_a_seed_that_nobody_gives_has_all_bits_that_the_generator_takes(monkeypatch):
    """The top half counts: two seeds that agree in 32 bits are two noises, and the default has the whole key."""

    def point(**seed):
        return ct.train(Logistic(2), ct.ring(sites()), budget=BUDGET, rounds=3, **seed).point

    low, wide = point(seed=7), point(seed=7 + (1 << 32))
    assert not np.allclose(low, wide)
    with pytest.raises(InputError, match="seed must be from 0 to 18446744073709551615"):
        point(seed=1 << 64)
    asked = []
    monkeypatch.setattr("secrets.randbits", lambda bits: asked.append(bits) or (7 + (1 << 32)))
    np.testing.assert_array_equal(point(), wide)
    assert asked == [64]


class Cut(Squared):
    """Least squares whose targets are cut to a range of its own: a fact about them holds of nothing else."""

    def admit_targets(self, targets: Any) -> Any:
        return np.clip(targets, -1, 1)


def test_a_loss_sees_the_targets_that_it_admits() -> None:
    """In a simulation too, where nobody's own agent reads the records."""
    found = [Coding(Cut(2)).records((x, 50 * y), "a site")[1] for x, y in sites()]
    assert set(np.concatenate(found)) == {-1.0, 1.0}


class Standardised(Squared):
    """Least squares whose labels are moved by their mean: every one of them then says something of all the others."""

    convex: ClassVar[bool] = True

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        return targets - targets.mean()


class Shrunk(Squared):
    """Least squares whose records are divided by the longest."""

    convex: ClassVar[bool] = True

    def admit(self, features: Any, targets: Any) -> tuple[Any, Any]:
        return features / np.abs(features).max(), targets


@pytest.mark.parametrize(("problem", "words"), [(Standardised(2), "encode"), (Shrunk(2), "admit")])
def test_a_loss_that_writes_a_record_by_the_others_is_refused(problem, words):
    with pytest.raises(InputError, match=f"what {words} makes of a .* depends on the others"):
        ct.train(problem, ct.ring(sites()), ct.dp_dsgd(clip=1.0), BUDGET, rounds=3, seed=0)


def test_a_folder_that_promises_more_than_its_certificate_is_refused(tmp_path):
    leaky = ct.ring(sites(), leaks=["scaled by the largest record"])
    with pytest.warns(UserWarning, match="no privacy"):
        run = ct.train(ct.logistic(), leaky, ct.dp_dsgd(mixing=1), BUDGET, rounds=3, seed=0)
    run.save(tmp_path / "a")
    file = tmp_path / "a" / "result.json"
    whole = json.loads(file.read_text())
    assert not ct.load(tmp_path / "a").private
    for change, words in (
        ({"epsilon": 0.001}, "says \\(0.001, 1e-05\\), its certificate"),
        ({"private": True, "leaks": []}, "otherwise than its certificate"),
    ):
        file.write_text(json.dumps({**whole, "privacy": {**whole["privacy"], **change}}))
        with pytest.raises(InputError, match=words):
            ct.load(tmp_path / "a")


def test_loading_a_folder_imports_no_module_that_it_names(tmp_path, monkeypatch):
    (tmp_path / "evil_loss.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    ct.train(ct.logistic(), ct.ring(sites()), ct.dp_dsgd(mixing=1), BUDGET, rounds=3, seed=0).save(tmp_path / "a")
    for name, place in (("result.json", ("plan", "problem")), ("certificate.json", ("public",))):
        file = tmp_path / "a" / name
        tree = json.loads(file.read_text())
        part = tree
        for key in place:
            part = part[key]
        part["loss"] = "evil_loss.m"
        kept = file.read_text()
        file.write_text(json.dumps(tree))
        with pytest.raises(InputError):
            ct.load(tmp_path / "a")
        file.write_text(kept)


# ---- names of columns and classes ------------------------------------------------------------------------------------


def three_frames() -> list[pd.DataFrame]:
    x = np.random.default_rng(3).uniform(-0.5, 0.5, (3, 40, 2)) * [1.0, 0.2]
    return [pd.DataFrame(part, columns=["age", "dose"]) for part in x]


def short(task, parties, **more):
    return ct.train(task, parties, ct.dp_dsgd(clip=1.0, mixing=1, momentum=0.5), BUDGET, rounds=3, seed=0, **more)


@pytest.mark.slow
def test_columns_are_taken_by_their_names(tmp_path):
    frames = three_frames()
    y = [np.where(frame["age"] > 0, 1, -1) for frame in frames]
    swapped = [frames[0], frames[1][["dose", "age"]], frames[2]]
    run = short(ct.logistic(), ct.ring(list(zip(frames, y, strict=True))))
    other = short(ct.logistic(), ct.ring(list(zip(swapped, y, strict=True))))
    np.testing.assert_array_equal(run.point, other.point)
    wide = [short(ct.logistic(), ct.ring(list(zip(f, y, strict=True)), bounds={"age": (-1, 1), "dose": (-9, 9)}))
            for f in (frames, swapped)]  # fmt: skip
    np.testing.assert_array_equal(wide[0].point, wide[1].point)
    run.save(tmp_path / "a")
    wide[0].save(tmp_path / "b")
    for one in (run, ct.load(tmp_path / "a"), ct.load(tmp_path / "b")):
        np.testing.assert_array_equal(one.predict(frames[0]), one.predict(frames[0][["dose", "age"]]))
        np.testing.assert_array_equal(one.predict(frames[0]), one.predict(frames[0].to_numpy()))
        with pytest.raises(InputError, match=r"its columns are \['age', 'weight'\], and the model's \['age', 'dose'\]"):
            one.predict(frames[0].rename(columns={"dose": "weight"}))
    renamed = [frames[0], frames[1].rename(columns={"dose": "weight"}), frames[2]]
    with pytest.raises(InputError, match=r"site 1: its columns are \['age', 'weight'\], those of site 0 are"):
        ct.ring(list(zip(renamed, y, strict=True)))


def test_a_frame_is_predicted_with_site_and_label_beside_its_features_and_a_gap_is_named(tmp_path):
    table = pd.concat(three_frames(), ignore_index=True)
    table["ward"], table["ill"] = np.repeat(["north", "south", "west"], 40), np.where(table["age"] > 0, "yes", "no")
    names = ["north", "south", "west"]
    run = short(ct.logistic(classes=["no", "yes"]), ct.ring(table, site="ward", label="ill", names=names))
    run.save(tmp_path)
    for one in (run, ct.load(tmp_path)):
        np.testing.assert_array_equal(one.predict(table), one.predict(table[["age", "dose"]]))
        assert one.score(table, table["ill"]) == one.score(table[["age", "dose"]], table["ill"])
        with pytest.raises(InputError, match=r"expected \(features, targets\), got DataFrame: such as \(frame,"):
            one.score(table)  # does as it says, above
        with pytest.raises(InputError, match=r"got shape .*; pictures go as"):
            one.predict(np.zeros((3, 2, 2)))
    whole = pd.DataFrame({"age": [0, 1, 0], "dose": [0.1, 0.2, 0.3]})
    for gap in (whole.mask(whole == 1), whole.mask(whole == 1).convert_dtypes()):  # NaN, and a column that knows NA
        with pytest.raises(InputError, match="column 'age' is missing in 1 of 3 records: leave these out, or fill"):
            run.predict(gap)
    torn = table.assign(dose=table["dose"].where(table.index != 50))
    with pytest.raises(InputError, match="site 'south': column 'dose' is missing in 1 of 40 records"):
        short(ct.logistic(classes=["no", "yes"]), ct.ring(torn, site="ward", label="ill", names=names))


def named(classes, swap=False, seed=0):
    """A data set of one site: the class says whether the first feature is above 0."""
    x = np.random.default_rng(seed).uniform(-0.5, 0.5, (60, 2))
    codes = (x[:, 0] > 0).astype(int)
    origins = ALL_PUBLIC
    return Dataset(
        "made", x, 1 - codes if swap else codes, classes[::-1] if swap else classes, ("a", "b"), origins=origins
    )


@pytest.mark.slow
def test_classes_are_taken_by_their_names(tmp_path):
    names = ("healthy", "ill")
    plain = [named(names, seed=i) for i in range(3)]
    swapped = [named(names, swap=i == 1, seed=i) for i in range(3)]
    for task in (ct.logistic(), ct.logistic(classes=names), ct.softmax(names), ct.softmax(2)):
        run, other = (short(task, ct.ring(data), test=named(names, swap=True)) for data in (plain, swapped))
        np.testing.assert_array_equal(run.point, other.point)
        assert run.score(named(names, swap=True)) == run.score(named(names))
    back = short(ct.logistic(classes=names[::-1]), ct.ring(plain))
    assert np.mean(back.predict(plain[0]) == np.where(plain[0].features[:, 0] > 0, "ill", "healthy")) == back.score(
        plain[0]
    )
    short(ct.logistic(), ct.ring(plain)).save(tmp_path)
    loaded = ct.load(tmp_path)
    assert loaded.score(named(names, swap=True)) == loaded.score(named(names))


@pytest.mark.parametrize(
    ("task", "classes", "words"),
    [
        (
            ct.logistic(classes=["no", "yes"]),
            ("healthy", "ill"),
            r"site 0: its classes are .* the task's \['no', 'yes'\]",
        ),
        (ct.logistic(), ("1", "0"), r"state them in the task, as classes=\['1', '0'\]"),  # 1 would become −1
        (ct.softmax(3), ("a", "b"), "its classes are"),
    ],
)
def test_classes_with_other_names_are_refused(task, classes, words):
    with pytest.raises(InputError, match=words):
        short(task, ct.ring([named(classes, seed=i) for i in range(3)]))


def test_data_sets_whose_classes_differ_are_refused():
    data = [named(("healthy", "ill"), seed=0), named(("healthy", "sick"), seed=1), named(("healthy", "ill"), seed=2)]
    with pytest.raises(InputError, match="site 1: its classes are"):
        short(ct.logistic(), ct.ring(data))


@pytest.mark.parametrize("parties", [ct.ring(sizes=[60] * 3), ct.ring(sizes=[60] * 3, features=2)])
def test_a_price_rests_on_no_false_statement(parties):
    def steep(w, x, y):
        return 5.0 * jnp.sqrt(1 + (w @ x - y) ** 2)

    task = ct.loss(steep, jnp.zeros(2), lipschitz=1.0, bound=1.0)
    with pytest.raises(InputError, match="lipschitz = 1 is stated, but a made-up record has a gradient of norm"):
        ct.price(task, parties, ct.dp_dsgd(mixing=1), BUDGET, rounds=3)


@pytest.mark.slow
def test_what_joining_is_worth_to_each_party() -> None:
    clinics = make_clinics(seed=0, records=900)
    train, held = split(clinics, 0.3)
    sites = [clinics.take(train[clinics.sites[train] == s]) for s in range(5)]
    own = [clinics.take(held[clinics.sites[held] == s]) for s in range(5)]
    run = ct.train(ct.logistic(), ct.ring(sites), ct.dp_dsgd(), ct.Budget(1.0, 1e-5), rounds=10, seed=0, own_test=own,
                   references=True)  # fmt: skip
    worth = run.result["worth"]
    assert [row["test_records"] for row in worth["parties"]] == [len(one) for one in own]
    private = float(np.mean((own[2].features @ run.points[2] > 0) == (own[2].targets == 1)))
    assert worth["metric"] == "accuracy"
    assert worth["parties"][2]["private"] == pytest.approx(private)
    assert worth["sentence"]
    with pytest.raises(InputError, match="each of the 5 parties, got 2"):
        ct.train(ct.logistic(), ct.ring(sites), ct.dp_dsgd(), ct.Budget(1.0, 1e-5), own_test=own[:2])
