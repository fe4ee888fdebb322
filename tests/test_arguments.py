"""Every public function, with something of a wrong type for each of its arguments: one line, and never a traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.api import names
from coterie.audit.claims import attack_task
from coterie.errors import InputError

BUDGET = ct.Budget(1.0, 1e-5)
X = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 30, 2))
SITES = [(x, np.where(x[:, 0] > 0, 1, -1)) for x in X]
SIZES = {"sizes": [30] * 4, "features": 2}
WRONG: dict[str, Any] = {
    "an object": object(), "a dictionary": {"x": [1]}, "a complex number": 1j, "bytes": b"?", "an array": np.eye(9),
    "nan": float("nan"),
}  # fmt: skip
FRAME = pd.DataFrame({"a": [0.1, 0.2] * 3, "y": [1, -1] * 3, "who": list("uvwuvw")})


def priced(task: Any = None, parties: Any = None, algorithm: Any = None) -> Any:
    """Use what was made: at the latest then a mistake in it is told."""
    parties = ct.ring(**SIZES) if parties is None else parties
    return ct.price(task or ct.logistic(), parties, algorithm or ct.dp_dsgd(clip=1.0, mixing=1), BUDGET, rounds=2)


def tasked(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **given: priced(make(**given))


def placed(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **given: priced(parties=make(**given))


def own(w: Any, x: Any, y: Any) -> Any:
    return jnp.sqrt(1 + (w @ x - y) ** 2)


def cross(scores: Any, label: Any) -> Any:
    return -jax.nn.log_softmax(scores)[label]


NEEDED = {"p": 0.9, "edges": 5, "degree": 2, "k": 2}  # settings that a kind of graph cannot do without
BOX = {"sites": SITES, "bounds": (-1, 1), "radius": 1.0, "names": list("abc"), "leaks": ["nothing"]}
TABLE = {"sites": FRAME, "site": "who", "label": "y", "names": list("uvw")}
CALLS: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("logistic", tasked(ct.logistic), {"classes": [0, 1], "ridge": 0.1, "weighting": "agents", "radius": 1.0}),
    ("hinge", tasked(ct.hinge), {"classes": [0, 1], "width": 0.5, "ridge": 0.1, "weighting": "agents", "radius": 1.0}),
    ("squared", tasked(ct.squared), {"ridge": 0.1, "weighting": "agents", "radius": 1.0}),
    ("softmax", tasked(ct.softmax), {"classes": 3, "ridge": 0.1, "weighting": "agents", "radius": 1.0}),
    ("mlp", tasked(ct.mlp), {"classes": 3, "hidden": [3], "activation": "tanh", "ridge": 0.1, "weighting": "agents"}),
    ("mean", tasked(ct.mean), {"radius": 1.0, "weighting": "agents"}),
    ("additive", lambda **given: priced(ct.additive(**given), ct.ring(sizes=[30] * 4)),
     {"attributes": {"a": (0, 1), "b": ["u", "v"]}, "classes": [0, 1], "bins": {"a": 0.1}, "pairs": [("a", "b")],
      "smooth": 0.1, "monotone": {"a": "up"}, "alike": 0.5, "ridge": 0.1, "weighting": "agents"}),
    ("neural", tasked(ct.neural), {"module": eqx.nn.Linear(2, 2, key=jax.random.key(0)), "classes": 2, "shape": [2],
                                   "loss": cross, "ridge": 0.1, "weighting": "agents"}),
    ("statistics", ct.statistics, {"sites": [FRAME, FRAME], "budget": BUDGET, "bounds": {"a": (0, 1)},
                                   "categories": {"who": list("uvw")}, "gaps": ["a"], "bins": 4, "moments": True,
                                   "honest": 2, "seed": 0, "names": ["u", "v"], "charge": lambda events: None,
                                   "account": None, "people": "who"}),
    ("loss", tasked(ct.loss), {"fn": own, "params": jnp.zeros(2), "predict": own, "classes": 2, "ridge": 0.1,
                               "weighting": "agents", "convex": False, "lipschitz": 9.0, "smoothness": 9.0,
                               "bound": 1.0}),
    ("graph", placed(ct.graph), {"given": [(0, 1), (1, 2)], "mixing": "metropolis", **BOX}),
    ("ring", placed(ct.ring), {"mixing": "metropolis", **BOX}),
    ("ring", placed(ct.ring), {"sizes": [30] * 3, "features": 2}),
    ("ring", placed(ct.ring), TABLE),
    ("algorithm", lambda **given: priced(algorithm=ct.algorithm(given.pop("name"), **given)),
     {"name": "dp-dsgd", "clip": 1.0, "mixing": 1}),
    ("price", ct.price, {"task": ct.logistic(), "parties": ct.ring(**SIZES), "algorithm": ct.dp_dsgd(),
                         "budget": BUDGET, "rounds": 2, "levels": [1.0, 2.0], "away": {0: [(1, 1)]}}),
    ("train", ct.train, {"task": ct.logistic(), "parties": ct.ring(SITES), "algorithm": ct.dp_dsgd(clip=1.0),
                         "budget": BUDGET, "rounds": 1, "seeds": 1, "seed": 0, "test": SITES[0], "references": False,
                         "name": "x", "account": None}),
    ("train", ct.train, {"task": ct.logistic(), "parties": ct.ring(SITES), "algorithm": ct.dp_dsgd(clip=1.0),
                         "budget": BUDGET, "rounds": 2, "seed": 0, "own_test": SITES, "levels": [1.0, 1.0],
                         "away": {0: [(1, 1)]}}),
    ("train", ct.train, {"task": ct.logistic(), "parties": ct.ring(SITES), "algorithm": ct.dp_dsgd(clip=1.0),
                         "budget": BUDGET, "rounds": 1, "seed": 0, "callbacks": [print], "checkpoint": "nowhere",
                         "checkpoint_every": 5}),
    ("train", ct.train, {"task": ct.logistic(), "parties": ct.ring(SITES), "algorithm": ct.dp_dsgd(clip=1.0),
                         "budget": BUDGET, "rounds": 1, "seed": 0, "adaptive": max}),
    ("audit", ct.audit, {"algorithm": ct.dp_dsgd(), "task": ct.logistic(), "budget": BUDGET, "trials": 200}),
    ("load", ct.load, {"folder": "nowhere", "task": ct.logistic()}),
    ("join", ct.join, {"agreement": "nowhere", "me": "ada", "keys": "nowhere", "state": "s", "listen": "h:1",
                       "behind": "nowhere", "account": None}),
]  # fmt: skip


def taken(name: str) -> dict[str, Any]:
    """The arguments of a public function, and their defaults."""
    function = attack_task if name == "audit" else getattr(ct, name)
    return {key: p.default for key, p in inspect.signature(function).parameters.items()}


CALLS += [
    (kind, placed(getattr(ct, kind)), {**SIZES, **{k: v for k, v in NEEDED.items() if k in taken(kind)}})
    for kind in names.graphs()
]
CALLS += [(name, getattr(ct, name), taken(name)) for name in names.algorithms()]
RIGHT = {("loss", "params", "a dictionary"), ("loss", "params", "an array")}  # a tree of numbers
CASES = [pytest.param(name, call, given, key, id=f"{name}: {key}") for name, call, given in CALLS for key in given]


def test_every_public_function_is_here() -> None:
    public = {name for name in dir(ct) if callable(getattr(ct, name)) and not inspect.isclass(getattr(ct, name))}
    assert {name for name, _, _ in CALLS} == public
    for name in {name for name, _, _ in CALLS} - {"ring", "graph", "algorithm", *names.graphs()}:  # others' options
        assert {key for other, _, given in CALLS if other == name for key in given} == set(taken(name)), name


@pytest.mark.parametrize(("name", "call", "given", "key"), CASES)
def test_a_wrong_type_is_one_line(
    name: str, call: Callable[..., Any], given: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.experiment.Experiment.run", lambda *_, **__: pytest.fail("it was run"))
    for what, wrong in WRONG.items():
        if (name, key, what) in RIGHT or (name in names.algorithms() and what == "nan"):  # its range is its own affair
            continue
        with pytest.raises(InputError) as caught:
            call(**{**given, key: wrong})
        assert "\n" not in str(caught.value), what


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CALLS} - {"audit"}))
def test_wrong_arguments_are_one_line(name: str) -> None:
    for call in (lambda: getattr(ct, name)(*range(20)), lambda: getattr(ct, name)(no_such_argument=1)):
        with pytest.raises(InputError) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: ct.ring(SITES, leaks="bounds"), "leaks must be a list .*'bounds'"),
        (lambda: ct.ring(SITES, leaks=None), "leaks must be a list .*None"),
        (lambda: ct.ring(SITES, names=4), "names must be a list .*4"),
        (lambda: ct.ring(sizes=4), "sizes must be a list .*4"),
        (lambda: ct.ring(SITES, bounds=(0, 1), radius="a"), "radius must be a number .*'a'"),
        (lambda: ct.ring(SITES, site="a", foo=1), "ring: .*foo"),
        (lambda: ct.graph([(0, 1)], sizes=[3, 3], foo=1), "graph: .*foo"),
        (lambda: ct.mlp(2, hidden=5), "hidden must be a list .*5"),
        (lambda: ct.loss(own, "a"), "tree of real numbers, .*'a'"),
        (lambda: ct.loss(own, []), "tree of real numbers, and \\[\\] has none"),
        (lambda: ct.loss(own, jnp.zeros(2), lipschitz="1"), "lipschitz must be a number > 0, got '1'"),
        (lambda: ct.loss(own, jnp.zeros(2), smoothness=-1), "smoothness must be a number > 0, got -1"),
        (lambda: ct.loss(own, jnp.zeros(2), bound=0.0), "bound must be a number > 0 or None, got 0.0"),
        (lambda: ct.dp_dsgd(1.0), "dp_dsgd: too many positional arguments"),
        (lambda: ct.load(None), "folder must be a path, got None"),
        (lambda: ct.ring(pd.concat([FRAME, FRAME[["who"]]], axis=1), site="who"), "two columns 'who'"),
        (lambda: ct.ring(FRAME, site="y", label="y"), "site and label are both 'y'"),
        (lambda: ct.audit(ct.dp_dsgd(), budget=ct.Budget("a", 1e-5)), "two numbers, .*'a'"),
        (lambda: ct.ring(sizes=[5, 5], mixing="metropolitan"), "unknown mixing rule 'metropolitan'"),
        (lambda: ct.ring(sizes=[5, 5], mixing="laplacian", kapa=1), "ring: .*kapa"),
    ],
)
def test_it_names_the_value_and_what_was_expected(mistake: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        mistake()


def test_a_budget_without_delta_names_it() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'delta'"):
        ct.Budget(1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ((X[0] + 0j, SITES[0][1]), "complex"),
        ((np.ma.masked_greater(X[0], 0.2), SITES[0][1]), "masked"),
        ((X[0], np.ma.masked_array(SITES[0][1], X[0][:, 0] > 0.1)), "masked"),
        ((pd.DataFrame(X[0] + 0j), SITES[0][1]), "complex"),
    ],
)
def test_records_that_numpy_would_change_without_a_word_are_refused(site: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ct.train(ct.logistic(), ct.ring([site, *SITES[1:]]), ct.dp_dsgd(clip=1.0), BUDGET, rounds=1, seed=0)


def test_a_key_that_could_sign_nothing_is_refused(tmp_path: Path) -> None:
    run = ct.train(ct.loss(own, jnp.zeros(2)), ct.ring(SITES), ct.dp_dsgd(clip=1.0), BUDGET, rounds=1, seed=0)
    with pytest.raises(InputError, match=r"key signs a certificate, and .* has none"):
        run.save(tmp_path, key=tmp_path / "key.pem")
    assert not list(tmp_path.iterdir())


def test_a_tuple_of_two_rows_is_two_rows() -> None:
    run = ct.train(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(clip=1.0), BUDGET, rounds=1, seed=0)
    np.testing.assert_array_equal(run.predict(tuple(X[0][:2])), run.predict(X[0][:2]))


def test_a_finished_run_takes_wrong_records_as_one_line(tmp_path: Path) -> None:
    run = ct.train(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(clip=1.0), BUDGET, rounds=1, seed=0)
    for wrong in (*WRONG.values(), None):
        for call in (lambda w=wrong: run.predict(w), lambda w=wrong: run.score(X[0], w), lambda w=wrong: run.score(w),
                     lambda w=wrong: run.save(w), lambda w=wrong: run.score(w, SITES[0][1])):  # fmt: skip
            with pytest.raises(InputError) as caught:
                call()
            assert "\n" not in str(caught.value)
