"""Streamed records give what the same records in memory give, within the bounds that privacy rests on."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import cli, pricing
from coterie.data import ALL_PUBLIC
from coterie.data.encode import normalise_rows
from coterie.data.store import Store
from coterie.data.store_writer import write_store
from coterie.deploy.trial import make_trial
from coterie.drivers import layout as layout_module
from coterie.drivers.simulate import Test
from coterie.errors import InputError
from coterie.experiment import assemble, prepare
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.problems import HeldShard, Linear, People, Problem, Shard, StoredShard, of_people
from coterie.problems.people import lay_out
from coterie.report.units import at_home
from tests.support import mostly_slow

SIZES, WIDTH, CLASSES = (90, 23, 61), 4, ("no", "yes")


def raw(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Records of all agents in turn; about half of the rows are longer than 1."""
    rng = np.random.default_rng(0)
    x = (0.55 * rng.standard_normal((sum(SIZES), WIDTH))).astype(np.float32)
    return x, np.where(x[:, 0] > 0, classes - 1, rng.integers(0, classes, len(x))).astype(np.float32)


def parts() -> list[np.ndarray]:
    return np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])


def make_store(folder: Path, classes: tuple[str, ...] | None = CLASSES) -> Store:
    x, y = raw(2 if classes is None else len(classes))
    agents = {f"clinic-{i}": [(x[p], y[p])] for i, p in enumerate(parts())}
    return write_store(folder, agents, test=(x[:20], y[:20]), classes=classes, origins=ALL_PUBLIC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "store")


def plan_of(store: Store, slug: str = "dp-dsgd", private: bool = True, **tables: Any) -> Plan:
    tree: dict[str, Any] = {
        "data": {"source": "store", "path": str(store.folder)},
        "graph": {"kind": "complete"},
        "algorithm": {"name": slug},
        "run": {"rounds": 3, "every": 3},
    }
    if private:
        tree["privacy"] = {"epsilon": 3.0, "delta": 1e-5}
    for name, table in tables.items():
        tree[name] = tree.get(name, {}) | table
    return validate(tree)


def shard_of(store: Store, problem: Problem, piece: int = 16) -> StoredShard:
    count = jnp.asarray(store.counts[0], jnp.int32)
    return StoredShard(problem, jnp.asarray(0, jnp.int32), count, jnp.asarray(0.1), jnp.asarray(0.01), store, piece)


def in_memory(problem: Problem, classes: tuple[str, ...] | None = CLASSES) -> Shard:
    x, y = (a[: SIZES[0]] for a in raw(2 if classes is None else len(classes)))
    inside = x.astype(float)
    if isinstance(problem, Mean):
        inside = np.clip(inside, -problem.radius, problem.radius)
    elif isinstance(problem, Linear | Softmax):
        inside = normalise_rows(inside, "clip")
    targets = jnp.asarray(problem.encode(y, classes))
    rest = jnp.asarray(SIZES[0], jnp.int32), jnp.asarray(0.1), jnp.asarray(0.01)
    return HeldShard(problem, jnp.asarray(inside), targets, *rest)


# ---- one shard -------------------------------------------------------------------------------------------------------

THREE = ("a", "b", "c")
PROBLEMS: list[tuple[Problem, tuple[str, ...] | None]] = [
    (Logistic(WIDTH), CLASSES),
    (Squared(WIDTH), None),
    (Softmax(WIDTH, 3), THREE),
    (Mean(WIDTH, radius=0.5), None),
    (Perceptron((WIDTH, 3, 3)), THREE),
]


@pytest.mark.parametrize(("problem", "classes"), PROBLEMS, ids=lambda p: type(p).__name__)
def test_sums_are_those_of_records_in_memory(tmp_path: Path, problem: Problem, classes: Any) -> None:
    rows, mask = jnp.array([89, 3, 3, 41]), jnp.array([True, False, True, True])
    odd = jnp.arange(SIZES[0]) % 2 == 1

    def sums(shard: Any, x: jax.Array) -> tuple:
        of_some = shard.gradient(x, 0.3, rows, mask), shard.gradient(x, mask=odd)
        return shard.value(x), shard.slope(x), shard.gradient(x, clip=0.3), *of_some

    with jax.enable_x64(True):
        ours, theirs = shard_of(make_store(tmp_path / "s", classes), problem), in_memory(problem, classes)
        x = jnp.asarray(np.random.default_rng(1).standard_normal(problem.dim))
        for streamed, held in zip(jax.jit(sums)(ours, x), jax.jit(sums)(theirs, x), strict=True):
            np.testing.assert_allclose(streamed, held, rtol=1e-12, atol=1e-12)


# ---- people ----------------------------------------------------------------------------------------------------------

MOST = 7


def owners() -> np.ndarray:
    """Whose each record is: some have one, some several, one has seven."""
    rng = np.random.default_rng(3)
    many = np.concatenate([[MOST, 1, 1], rng.integers(1, 5, 80)])
    return np.concatenate([np.repeat(np.arange(len(many)), many)[:n] for n in SIZES])


def crowded(folder: Path, classes: tuple[str, ...] | None = CLASSES, chunk: int = 5) -> Store:
    """The same store with people, written in chunks that cut people in two."""
    (x, y), who = raw(2 if classes is None else len(classes)), owners()
    cut = {f"clinic-{i}": [p[k : k + chunk] for k in range(0, len(p), chunk)] for i, p in enumerate(parts())}
    agents = {name: [(x[at], y[at], who[at]) for at in chunks] for name, chunks in cut.items()}
    return write_store(folder, agents, test=(x[:20], y[:20]), classes=classes, origins=ALL_PUBLIC)


@pytest.mark.parametrize(
    ("problem", "classes", "piece", "most"),
    [
        pytest.param(*PROBLEMS[0], MOST, MOST, marks=pytest.mark.slow),
        (*PROBLEMS[1], 16, 2),
        pytest.param(*PROBLEMS[2], 200, MOST, marks=pytest.mark.slow),
    ],
)
def test_sums_over_people_are_those_of_people_in_memory(
    tmp_path: Path, problem: Problem, classes: Any, piece: int, most: int
) -> None:
    store, who, problem = crowded(tmp_path / "s", classes), owners()[: SIZES[0]], of_people(problem)
    count = len(np.unique(who))
    assert (store.people or ())[0] == count
    assert store.most == MOST
    rows, mask = jnp.array([count - 1, 0, 0, 3, 500]), jnp.array([True, False, True, True, True])
    odd = jnp.arange(count) % 2 == 1

    def sums(shard: Any, x: jax.Array) -> tuple:
        of_some = shard.gradient(x, 0.3, rows, mask & (rows < count)), shard.gradient(x, 0.3, mask=odd)
        return shard.value(x), shard.slope(x), shard.gradient(x, clip=0.3), *of_some

    with jax.enable_x64(True):
        rest = jnp.asarray(count, jnp.int32), jnp.asarray(0.1), jnp.asarray(0.01)
        pieces = jnp.asarray(len(store.cuts(0, piece)) - 1, jnp.int32)
        ours = StoredShard(problem, jnp.asarray(0, jnp.int32), *rest, store, piece, pieces, most)
        held = in_memory(problem, classes)
        assert isinstance(held, HeldShard)
        take, laid = lay_out([who], SIZES[0], count, most)
        people = People(**{name: jnp.asarray(a[0]) for name, a in laid.items()}, most=most)
        theirs = HeldShard(problem, held.features[take[0]], held.targets[take[0]], *rest, held.how, people)
        x = jnp.asarray(np.random.default_rng(1).standard_normal(problem.dim))
        for streamed, kept in zip(jax.jit(sums)(ours, x), jax.jit(sums)(theirs, x), strict=True):
            np.testing.assert_allclose(streamed, kept, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [{}, {"batch": 8}])
def test_runs_over_people_in_a_store_are_those_in_memory(tmp_path: Path, batch: dict[str, Any]) -> None:
    store, (x, y), who = crowded(tmp_path / "store"), raw(), owners()
    plan = plan_of(store, data={"unit": "person"}, algorithm=batch)
    streamed = prepare(plan)
    each = [len(np.unique(who[p])) for p in parts()]
    assert streamed.network.sizes.tolist() == each
    priced = price(plan, streamed.network)
    found = streamed.run(priced, [0]).points
    names = np.concatenate([1000 * i + who[p] for i, p in enumerate(parts())])
    problem = streamed.network.problem
    told = plan.model_copy(update={"data": plan.data.model_copy(update={"source": "memory", "path": None})})
    labels = problem.encode(y, CLASSES)
    kept = assemble(
        told, problem, normalise_rows(x.astype(float), "clip"), labels, parts(), names=store.names, origins=ALL_PUBLIC,
        test=Test(x[:20].astype(float), labels[:20]), people=names,
    )  # fmt: skip
    np.testing.assert_allclose(found, kept.run(price(told, kept.network), [0]).points, rtol=1e-6, atol=1e-6)


def test_people_of_a_store_are_stated_rightly(tmp_path: Path, store: Store) -> None:
    x, y = raw()
    told = crowded(tmp_path / "people")
    record = prepare(plan_of(told, data={"unit": "record"}))
    assert record.network.sizes.tolist() == list(SIZES)
    home = at_home(record, price(record.plan, record.network))
    assert (home or {})["most_records"] == MOST
    for made, unit, reason in (
        (store, {"unit": "person"}, "does not say whose its records are: write it with people"),
        (told, {}, "says whose its records are: state data.unit = 'person', or 'record'"),
    ):
        with pytest.raises(InputError, match=reason):
            prepare(plan_of(made, data=unit))
    for who, other, reason in (
        ([0, 1, 0], [0, 1, 2], "people must come in rising order"),
        ([0, 1], [0, 1, 2], "a person for each of 3 records"),
        ([0, np.nan, np.nan], [0, 1, 2], "people must name a person for every record, and 2 are missing"),
    ):
        agents = {"a": [(x[:3], y[:3], np.array(who))], "b": [(x[:3], y[:3], np.array(other))]}
        with pytest.raises(InputError, match=reason):
            write_store(tmp_path / "wrong", agents, test=(x[:2], y[:2]), classes=CLASSES, origins=ALL_PUBLIC)
    mixed: Any = {"a": [(x[:3], y[:3], np.arange(3))], "b": [(x[:3], y[:3])]}
    with pytest.raises(InputError, match="and not of others: say it of all"):
        write_store(tmp_path / "wrong", mixed, test=(x[:2], y[:2]), classes=CLASSES, origins=ALL_PUBLIC)
    spelled = np.array(["7", "7.0", "8"])
    one: Any = {name: [(x[:1], y[:1], spelled[:1]), (x[1:3], y[1:3], spelled[1:])] for name in "ab"}
    made = write_store(tmp_path / "two", one, test=(x[:2], y[:2]), classes=CLASSES, origins=ALL_PUBLIC)
    assert (made.people, made.most) == ((2, 2), 2)  # two ways of writing one name
    path = told.folder / "clinic-0.people.npy"
    path.write_bytes(path.read_bytes()[:-4] + b"1234")
    with pytest.raises(InputError, match="not those that were written"):
        prepare(plan_of(told, data={"unit": "person"}))


def test_many_points_share_one_pass(store: Store) -> None:
    with jax.enable_x64(True):
        ours, points = shard_of(store, Logistic(WIDTH)), jnp.ones((7, WIDTH)) * jnp.arange(7.0)[:, None]
        values = jax.jit(jax.vmap(lambda x: ours.value(x)))(points)
        np.testing.assert_allclose(values, jax.jit(jax.vmap(in_memory(Logistic(WIDTH)).value))(points), rtol=1e-12)
    assert store.tally.records == SIZES[0]


def test_masked_rows_are_not_read(store: Store) -> None:
    held, mask = shard_of(store, Logistic(WIDTH)), np.array([True, False, True])
    jax.jit(lambda x: held.gradient(x, rows=jnp.array([1, 2, 99]), mask=jnp.asarray(mask)))(
        jnp.ones(WIDTH)
    ).block_until_ready()
    assert store.tally.records == 1


# ---- bounds ----------------------------------------------------------------------------------------------------------

WRONG = {
    "long": (np.full(WIDTH, 1e3), 0.0),
    "endless": (np.full(WIDTH, np.inf), 1.0),
    "not a number": (np.full(WIDTH, np.nan), np.nan),
    "huge": (np.full(WIDTH, 1e30), 0.0),
    "no such class": (np.ones(WIDTH), 99.0),
}


def moved(store: Store, problem: Problem, dtype: Any) -> dict[str, float]:
    """How far writing each of these over the first record, past every check of the writer, moves the gradient."""
    shard, out = shard_of(store, problem), {}
    with jax.enable_x64(dtype == jnp.float64):
        gradient = jax.jit(lambda x: shard.gradient(x))
        x = jnp.full(problem.dim, 0.3, dtype)
        before = gradient(x)
        for wrong, (features, target) in WRONG.items():
            with store.path(0).open("r+b") as file:
                file.seek(store.start)
                file.write(np.array([target, *features], np.float32).tobytes())
            out[wrong] = float(jnp.linalg.norm(gradient(x) - before))
    return out


BOUNDED: list[tuple[Problem, tuple[str, ...] | None]] = [PROBLEMS[0], PROBLEMS[2], PROBLEMS[3]]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize(("problem", "classes"), BOUNDED, ids=lambda p: type(p).__name__)
def test_one_record_moves_a_gradient_within_its_sensitivity(
    tmp_path: Path, problem: Problem, classes: Any, dtype: Any
) -> None:
    for wrong, change in moved(make_store(tmp_path / "s", classes), problem, dtype).items():
        assert change <= 2 * problem.half_gap * (1 + 1e-6), wrong


def test_without_the_bound_the_sensitivity_is_wrong(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logistic, "admit", lambda self, features, targets: (features, targets))
    assert moved(store, Logistic(WIDTH), jnp.float64)["long"] > 1000


# ---- whole runs ------------------------------------------------------------------------------------------------------

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "dp-dsgd": ("dp-dsgd", {}),
    "dp-dsgd, batches": ("dp-dsgd", {"batch": 9}),
    "dp-dsgd, Poisson": ("dp-dsgd", {"batch": 9, "scheme": "poisson"}),
    "qdpsgd2, batches": ("qdpsgd2", {}),
    "gauss-avg-gd": ("gauss-avg-gd", {}),
    "dsgd, batches": ("dsgd", {"batch": 5}),
}


ALL = [(name, dtype) for name in RUNS for dtype in ("float64", "float32")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), mostly_slow(ALL, ("dp-dsgd, batches", "float64")))
def test_runs_are_those_of_records_in_memory(
    store: Store, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_module, "PIECE", 16 * store.stride)  # several pieces of every agent
    slug, settings = RUNS[name]
    plan = plan_of(store, slug, slug != "dsgd", algorithm={"name": slug, **settings}, run={"dtype": dtype})
    ours = prepare(plan)
    priced = price(plan, ours.network)
    x, y = raw()
    problem = ours.network.problem
    inside, labels = normalise_rows(x.astype(float), "clip"), problem.encode(y, CLASSES)
    test = Test(inside[:20], labels[:20])
    theirs = assemble(plan, problem, inside, labels, parts(), names=store.names, test=test, origins=ALL_PUBLIC)
    seeds = [0, 1] if slug == "gauss-avg-gd" else [0]
    streamed, held = ours.run(priced, seeds), theirs.run(priced, seeds)
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(streamed.points, held.points, rtol=tolerance, atol=tolerance)
    assert np.abs(held.points).max() > 0.01
    for curve, values in held.curves.items():
        np.testing.assert_allclose(streamed.curves[curve], values, rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.slow
def test_command_says_what_it_read(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "plan.toml"
    where.write_text(
        f'[data]\nsource = "store"\npath = "{store.folder}"\n[graph]\nkind = "ring"\n[algorithm]\nname = "dgd"\n'
        "[run]\nrounds = 3\n"
    )
    assert cli.main(["run", str(where), "--out", str(tmp_path / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "records/s" in shown
    assert "no references" in shown
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    passes = 3 + 2  # a gradient in each round, and the loss at both ends
    assert result["timing"]["records_read"] == passes * sum(SIZES)
    assert result["timing"]["bytes_read"] == passes * store.size
    assert result["timing"]["records_per_s"] == pytest.approx(passes * sum(SIZES) / result["timing"]["run_s"])
    assert result["references"] == {}
    assert result["agents"][1]["name"] == "clinic-1"
    assert set(result["metrics"]) == {"train_loss", "test_accuracy", "consensus_gap"}


def test_plans_are_checked_and_priced_without_reading(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Store, "piece", None)
    monkeypatch.setattr(Store, "rows", None)
    where = tmp_path / "plan.toml"
    where.write_text(
        f'[data]\nsource = "store"\npath = "{store.folder}"\n[graph]\nkind = "ring"\n[algorithm]\nname = "dp-dsgd"\n'
        "[privacy]\nepsilon = 1.0\n[run]\nrounds = 3\n"
    )
    for command in (["plan", "check", str(where), "--no-rehearsal"], ["account", str(where)], ["graph", str(where)]):
        assert cli.main(command) == 0, command
    assert "3 parties with 23 to 90 records" in capsys.readouterr().out


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "why"), [("admm", "subproblems"), ("pr-admm", "subproblems"), ("ipp-admm", "subproblems|every record")]
)
def test_algorithms_that_solve_subproblems_are_refused(store: Store, slug: str, why: str) -> None:
    plan = plan_of(store, slug, slug != "admm")
    with pytest.raises(InputError, match=f"{slug} cannot run on data.source = 'store': .*({why}).*dp-dsgd"):
        price(plan, prepare(plan).network)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"partition": {"kind": "iid", "agents": 3}}, "partition.kind = 'site', 3 parties"),
        ({"partition": {"agents": 4}}, "3 parties"),
        ({"partition": {"sizes": [1, 2, 3]}}, "the store has"),
        ({"data": {"label": "x"}}, "data.label does not apply to data.source = 'store'"),
        ({"problem": {"loss": "squared"}}, "needs a numeric label"),
    ],
)
def test_what_a_store_cannot_do_is_refused(store: Store, tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(plan_of(store, **tables))


def test_devices_and_trials_are_refused(store: Store, tmp_path: Path) -> None:
    plan = plan_of(store)
    ready = prepare(plan)
    with pytest.raises(InputError, match="one device"):
        ready.run(price(plan, ready.network), [0], make=lambda *a, **k: None)
    with pytest.raises(InputError, match="trial"):
        make_trial(plan, tmp_path / "trial")


def test_damage_is_refused_before_anything_is_priced(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "plan.toml"
    where.write_text(f'[data]\nsource = "store"\npath = "{store.folder}"\n[privacy]\nepsilon = 1.0\n')
    with store.path(1).open("r+b") as file:
        file.truncate(200)
    monkeypatch.setattr(pricing, "price", None)
    assert cli.main(["run", str(where)]) == 2
    assert "clinic-1.npy has 200 bytes" in capsys.readouterr().err


def test_damage_during_a_run_is_one_line(store: Store) -> None:
    plan = plan_of(store, "dgd", private=False)
    ready = prepare(plan)
    with store.path(1).open("r+b") as file:
        file.truncate(200)
    with pytest.raises(InputError, match=r"clinic-1.npy ends before its last record"):
        ready.run(price(plan, ready.network), [0])


# ---- memory ----------------------------------------------------------------------------------------------------------

MEASURE = """
    import sys
    from pathlib import Path
    import numpy as np
    from coterie.data import ALL_PUBLIC
    from coterie.data.store_writer import write_store
    from coterie.experiment import prepare
    from coterie.pricing import price
    from coterie.plan import validate

    def peak():  # resident memory; unlike ru_maxrss it has nothing to do with the parent process
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1000

    folder, megabytes, settings = Path(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3])

    def make(where, pieces):
        piece = np.full((2500, 399), 0.01, np.float32), np.arange(2500) % 2
        def agent():
            for _ in range(pieces):
                yield piece
        agents = {n: agent() for n in ("a", "b", "c", "d")}
        write_store(where, agents, test=piece, classes=("0", "1"), origins=ALL_PUBLIC)

    def run(where):
        plan = validate({"data": {"source": "store", "path": str(where)}, "graph": {"kind": "ring"},
                         "algorithm": {"name": "dp-dsgd", **settings}, "run": {"rounds": 1, "dtype": "float32"},
                         "privacy": {"epsilon": 1.0, "delta": 1e-6}})
        ready = prepare(plan)
        return ready.run(price(plan, ready.network), [0])

    make(folder / "small", 1)
    run(folder / "small")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident now
    before = peak()
    make(folder / "large", megabytes // 16)
    trace = run(folder / "large")
    streamed = peak()
    held = [np.load(p) + 0 for p in sorted((folder / "large").glob("[a-d].npy"))]  # what a loader would do
    print(before, streamed, peak(), trace.timing["bytes_read"] / 1e6)
"""


def memory(folder: Path, megabytes: int, settings: dict[str, Any]) -> tuple[float, float, float]:
    """Peak resident memory that streaming a store adds to a run on a small one, that holding it adds; and MB read."""
    command = [sys.executable, "-c", textwrap.dedent(MEASURE), str(folder), str(megabytes), repr(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, streamed, held, read = map(float, done.stdout.split())
    return streamed - before, held - before, read


@pytest.mark.slow
def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    streaming, holding, read = memory(tmp_path, 160, {})
    assert read == pytest.approx(3 * 160, rel=0.01)  # both ends and a round
    assert holding > 140  # the meter works
    assert streaming < holding / 2


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"batch": 100}])
def test_memory_does_not_grow_with_a_large_store(tmp_path: Path, settings: dict[str, Any]) -> None:
    streaming, holding, _ = memory(tmp_path, 1536, settings)
    assert holding > 1400
    assert streaming < 100
