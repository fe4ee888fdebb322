"""Every way to train in Python, on planted records, with a cache that stores every program: `test_leaks` looks at it.

python -m tests.faults.planted_drivers NAME [NAME...]
"""

from __future__ import annotations

import contextlib
import importlib.util
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

import coterie as ct
from coterie.api import trackers
from coterie.api.watching import Moment
from coterie.cli import main
from coterie.coupled import Coupled, quadratic_agent, secret_sum, solve
from coterie.data.dataset import PUBLIC, Origins
from coterie.data.store_writer import write_store
from coterie.drivers.program import Test
from coterie.estimators import (
    PrivateAdditiveClassifier,
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
    PrivateSearch,
)
from coterie.experiment import assemble, prepare
from coterie.fair import PrivateFairClassifier
from coterie.losses.logistic import Logistic
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.plan import validate
from coterie.pricing import price
from coterie.problems import Custom, Problem
from coterie.problems.coupled import smooth_agent
from coterie.released.judging import covered_scores
from tests.leaks import planted_numbers

FEATURES = planted_numbers((90, 3), -0.5, 0.5, seed=30)
SLOPES = planted_numbers((6,), 16, 26, seed=31)
LABELS = (FEATURES[:, 0] > 0).astype(int)
SITES = [(FEATURES[k : k + 30], LABELS[k : k + 30]) for k in (0, 30, 60)]
MADE = Origins(classes=PUBLIC, columns=PUBLIC, scale=PUBLIC, rows=PUBLIC, sites=PUBLIC)  # the records are made up
ONNX = ["--onnx", "model.onnx"] if importlib.util.find_spec("onnx") else []


def _loss(params: jnp.ndarray, x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
    return jnp.sqrt(1 + (params @ x - y) ** 2)


def trains() -> None:
    """`coterie.train` on a loss of one's own and on the built-in ones."""
    problems: list[tuple[Problem, np.ndarray]] = [
        (Custom.make(_loss, jnp.zeros(3), lipschitz=1.0, bound=1.0), LABELS.astype(float)),
        (Squared(3), FEATURES[:, 1]),
        (Softmax(3, 2), LABELS),
        (Perceptron((3, 4, 2)), LABELS),
    ]
    for problem, targets in problems:
        sites = [(FEATURES[k : k + 30], targets[k : k + 30]) for k in (0, 30, 60)]
        ct.train(
            problem, ct.ring(sites), ct.dp_dsgd(clip=1.0), ct.Budget(1.0, 1e-5), rounds=3, seed=0,
            test=(FEATURES[:9], targets[:9]), references=True,
        )  # fmt: skip


def estimators() -> None:
    """The estimators, the fair one too."""
    bounds = (-0.5, 0.5)
    PrivateConsensusClassifier(bounds=bounds, random_state=0).fit(SITES)
    PrivateConsensusRegressor(bounds=bounds, target_bounds=bounds, random_state=0).fit(FEATURES, FEATURES[:, 0])
    PrivateMean(bounds=bounds, random_state=0).fit([x for x, _ in SITES])
    fair = PrivateFairClassifier(epsilon=1.0, delta=1e-5, method="adfc", sensitive_feature=2, bounds=bounds)
    fair.fit(FEATURES, LABELS)


def coupled() -> None:
    """Coupled problems: the costs are private."""
    plants = [quadratic_agent(0.02, p, low=50, high=300, slope_range=(15, 27), records=500) for p in SLOPES]
    problem = Coupled(plants, total=600.0)
    solve(problem, rounds=5, epsilon=1.0, delta=1e-5)
    solve(problem, rounds=3, epsilon=1.0, delta=1e-5, aggregate=secret_sum(problem))
    cost = lambda data, x: 0.5 * jnp.sum((x - data) ** 2)  # noqa: E731
    own = [smooth_agent(cost, jnp.asarray(x[0]), 3, strong=1.0, smooth=1.0, gap=2.0) for x, _ in SITES]
    solve(Coupled(own, total=np.zeros(3)), rounds=4, epsilon=1.0, delta=1e-5)


def algorithms() -> None:
    """References, and methods that solve subproblems, keep memory, stay silent or send sums."""
    for name, graph, exchange in (
        ("pr-admm", "ring", {}), ("ipp-admm", "ring", {}), ("pvp", "ring", {}),
        ("dp-dsgd", "complete", {"kind": "secret-sum"}),
    ):  # fmt: skip
        tree = {
            "graph": {"kind": graph}, "problem": {"ridge": 0.1}, "algorithm": {"name": name}, "exchange": exchange,
            "privacy": {"epsilon": 5.0, "delta": 1e-5}, "run": {"rounds": 3},
        }  # fmt: skip
        plan = validate({k: v for k, v in tree.items() if v})
        parts = [np.arange(k, k + 30) for k in (0, 30, 60)]
        targets, names = 2.0 * LABELS - 1, ["a", "b", "c"]
        one = assemble(plan, Logistic(3), FEATURES, targets, parts, names=names, origins=MADE)
        one.run(price(plan, one.network), [0, 1], test=None)


def stores() -> None:
    """Records that are streamed from a store; the store itself is one of records."""
    agents = {name: [site] for name, site in zip("abc", SITES, strict=True)}
    write_store(Path("store"), agents, test=SITES[0], classes=("no", "yes"), origins=MADE)
    plan = validate({
        "data": {"source": "store", "path": "store"}, "partition": {"kind": "site"}, "problem": {"loss": "logistic"},
        "algorithm": {"name": "dp-dsgd"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "run": {"rounds": 3},
    })  # fmt: skip
    experiment = prepare(plan)
    experiment.run(price(plan, experiment.network), [0])


def released() -> None:
    """Statistics of tables, and scores that are covered by ε."""
    tables = [{"a": x[:, 0], "b": x[:, 1], "c": np.where(y, "yes", "no")} for x, y in SITES]
    stated = {"bounds": {"a": (-0.5, 0.5), "b": (-0.5, 0.5)}, "categories": {"c": ["no", "yes"]}}
    for honest in (None, 2):
        ct.statistics(tables, budget=ct.Budget(1.0, 1e-5), seed=0, honest=honest, **stated)  # type: ignore[arg-type]
    plan = validate({
        "graph": {"kind": "complete"}, "algorithm": {"name": "dp-dsgd"}, "run": {"rounds": 3},
        "privacy": {"epsilon": 2.0, "delta": 1e-4},
    })  # fmt: skip
    parts, targets = [np.arange(k, k + 30) for k in (0, 30, 60)], 2.0 * LABELS - 1
    test = Test(FEATURES[:30], targets[:30])
    whose = [np.arange(k, k + 10) for k in (0, 10, 20)]
    one = assemble(
        plan, Logistic(3), FEATURES, targets, parts, names=["a", "b", "c"], origins=MADE, test=test, own_test=whose
    )  # fmt: skip
    priced = price(plan, one.network)
    covered_scores(one, one.run(priced, [0]).points[0].mean(axis=0), clip=priced.algorithm.clips(priced.cfg))


def accounts() -> None:
    """Fits that draw on an account, by record and by person, linear and additive."""
    people, bounds = np.arange(90) // 2, (-0.5, 0.5)
    budget = ct.Budget(9.0, 1e-4)
    account = ct.DataAccount.open("record.account", budget, data=FEATURES)
    PrivateMean(bounds=bounds, account=account).fit(FEATURES)
    whose = ct.DataAccount.open("person.account", budget, data=(FEATURES, LABELS), unit="person")
    PrivateConsensusClassifier(bounds=bounds, classes=[0, 1], account=whose).fit(FEATURES, LABELS, people=people)
    print(account.statement(), whose.statement())
    stated = {"a": (-0.5, 0.5), "b": (-0.5, 0.5), "c": (-0.5, 0.5)}
    table = pd.DataFrame(FEATURES, columns=list(stated))
    PrivateAdditiveClassifier(bounds=stated, random_state=0).fit(table, LABELS, people=people)


def kept() -> None:
    """What is kept of fits: checkpoints, pickles, what trackers write, saved folders, cards, ONNX, predictions."""
    halted, sites = [3], [(x, np.where(y, "ill", "well")) for x, y in SITES]

    def halt(moment: Moment) -> None:
        if moment.round >= halted[0]:
            raise KeyboardInterrupt

    def fit(*callbacks: Callable[[Moment], None]) -> ct.Trained:
        net = ct.ring(sites, bounds=(-0.5, 0.5))
        return ct.train(
            ct.logistic(classes=["ill", "well"]), net, ct.dp_dsgd(), ct.Budget(2.0, 1e-5), rounds=8, seed=0,
            test=sites[0], references=True, callbacks=list(callbacks), checkpoint="checkpoint", checkpoint_every=2,
        )  # fmt: skip

    with contextlib.suppress(KeyboardInterrupt):
        fit(halt)
    assert list(Path("checkpoint").iterdir())
    followed = [trackers.TensorBoard("board")] if importlib.util.find_spec("tensorboardX") else []
    run = fit(*followed)
    Path("run.pickle").write_bytes(pickle.dumps(run))
    run.save("saved")
    pd.DataFrame(FEATURES).to_csv("rows.csv", index=False)
    assert main(["predict", "saved", "rows.csv", "--chances", "--out", "said.csv"]) == 0
    assert main(["export", "saved", "--card", "MODEL.md", *ONNX]) == 0
    assert main(["report", "saved"]) == 0
    fitted = PrivateConsensusClassifier(bounds=(-0.5, 0.5), random_state=0).fit(FEATURES, LABELS)
    searched = PrivateSearch(fitted, {"ridge": [0.01, 0.1]}, epsilon=4.0, random_state=0)
    Path("estimators.pickle").write_bytes(pickle.dumps([fitted, searched.fit(FEATURES, LABELS)]))


def joins() -> None:
    """A party from Python whose records are in memory: keys, agreement and state are in this folder."""
    table = pd.read_csv("ada.csv", float_precision="round_trip")
    ct.join("trial/agreement.json", keys="trial/ada/keys", state="trial/ada/state").fit(
        table.drop(columns="outcome"), table["outcome"], progress=False
    )


WAYS = {
    "train": trains, "estimators": estimators, "coupled": coupled, "algorithms": algorithms, "stores": stores,
    "released": released, "accounts": accounts, "kept": kept, "join": joins,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:]:
        WAYS[name]()
