"""An adversary changes one field of a certificate and seals it anew: `coterie verify --strict` finds it out.

The mutator walks whatever JSON it is given, so a field that is added to the certificate is attacked from then on.
What gets through is listed, with the reason why it does no harm.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy.party import Terms
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy.ledger import Entry
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.released import MODEL, party_model, run_model
from coterie.report.verification import Refuted, parse, verify
from tests.deploy.house import small_plan
from tests.report.certificates import walk

MOST = 4  # changes of one field in the everyday tests; the slow ones try them all
HARMLESS = {
    r"made_with\.(python|jax|numpy|scipy|dp-accounting)": "a version's name: nothing follows from it",
    r"public\.names(\.\d+)?": "a label, where the plan neither makes nor states it: no number follows from it",
}
SAME_PRICE = {  # keys of a plan that no price depends on: changed with plan_sha256 and the model, it is another plan's
    r"name": "a title",
    r"data\..*": "which records they are; sizes and shape are stated apart, and are checked",
    r"partition(\.concentration)?": "how records were dealt out; sizes are listed for every agent",
    r"problem": "loss or dimension left to the data; they are listed under public",
    r"exchange\.fraction_bits": "the grid of a sum that has no claim of its own",
    r"graph\.seed": "where the kind of graph has no randomness",
    r"run\.(seed|seeds|every|dtype|references|splits|metric|specificity|covered)": "how a simulation is run and judged",
    r"deploy\..*": "addresses, patience, and the wire's bound, which cuts what is already noisy",
    r"privacy\.(claim|tuned_on_private_data)": "words, which the statements repeat",
    r"privacy\.schedule_options": "an option that has its default, left out",
}
SAME_SUM = {  # the same of plans that open sums only
    r"exchange": "the grid's fineness that has its default, left out",
    r"exchange\.bound": "where numbers are cut, which moves no two messages further apart",
    r"exchange\.away": "who is left out of a simulation's sums: the noise is made for that",
    r"graph\..*": "what carries the words of sums over everybody",
}
HUGE = 10**30
TREE: dict[str, Any] = {
    "problem": {"loss": "logistic", "dim": 3},
    "partition": {"kind": "iid", "sizes": [40, 40, 60]},
    "graph": {"kind": "path"},
    "data": {"source": "adult"},
    "privacy": {"epsilon": 1.0},
    "run": {"rounds": 4},
}
COMPLETE = {"kind": "complete", "mixing": "uniform"}
SUMS = {"kind": "secret-sum", "honest": 3, "noise": "central", "fraction_bits": 18}


# ---- kinds of certificates -------------------------------------------------------------------------------------------


def simulated(folder: Path, **tables: Any) -> None:
    """The certificate and model of a simulation, of a plan that states its sizes."""
    plan = validate({**TREE, **tables})
    network = public_network(plan)
    points = np.zeros((len(network.sizes), network.problem.dim))
    model = run_model(
        points, list("abc"), plan=sealing.plan_hash(plan), rounds=plan.run.rounds or 0, seed=plan.run.seed
    )
    write(folder, c.certificate(plan, network, price(plan, network), files={MODEL: sealing.sha256(model)}), model)


def deployed(folder: Path, plan: Plan) -> None:
    """The certificate and model of party 1 after its last round, with the charges that its ledger took."""
    terms = Terms.of(plan)
    entries = [Entry(t, e, 0.0) for t, events in enumerate(terms.charges(1)) for e in events]
    point = np.zeros(terms.network.problem.dim)
    model = party_model(point, plan=sealing.plan_hash(plan), rounds=terms.rounds, epsilon=1.0, delta=1e-5)
    files, charged = {MODEL: sealing.sha256(model)}, {1: terms.charged(entries)}
    body = c.certificate(plan, terms.network, terms.priced, noise=c.SECURE, charged=charged, files=files)
    write(folder, body, model)


def write(folder: Path, body: dict[str, Any], model: bytes) -> None:
    (folder / MODEL).write_bytes(model)
    (folder / "certificate.json").write_text(json.dumps(sealing.seal(body)), "utf-8")


def real_run(folder: Path) -> None:
    """Sites with names, budgets of their own, a schedule, several seeds."""
    (folder / "plan.toml").write_text(
        'name = "small"\ndata.source = "clinics"\ndata.options = { records = 160, features = 3, sites = 3 }\n'
        'algorithm.name = "dp-dsgd"\nprivacy.epsilon = [1.0, 2.0, 1.0]\nprivacy.schedule = "periodic"\n'
        "privacy.schedule_options = { rate = 0.9, period = 1 }\nrun.rounds = 4\nrun.seeds = 2\n"
    )
    assert main(["run", str(folder / "plan.toml"), "--out", str(folder), "--quiet", "--references", "none"]) == 0


def secret(folder: Path) -> None:
    tree = small_plan(3, "gauss-avg-gd", graph="complete").model_dump(mode="json", exclude_none=True)
    deployed(folder, validate({**tree, "run": {"rounds": 3}, "exchange": {"kind": "secret-sum"}}))


KINDS: dict[str, Callable[[Path], None]] = {
    "a run": real_run,
    "deployed": lambda folder: deployed(folder, small_plan(3, "pr-admm")),
    "central noise": lambda folder: simulated(
        folder, graph=COMPLETE, algorithm={"name": "gauss-avg-gd"}, exchange=SUMS
    ),
    "deployed secret sum": secret,
    "central claim beside": lambda folder: simulated(
        folder,
        graph=COMPLETE,
        algorithm={"name": "gauss-avg-gd"},
        exchange={**SUMS, "noise": "local", "fraction_bits": 17},
    ),
    "deployed with epochs": lambda folder: deployed(folder, small_plan(5, "priv-rcd", graph="complete")),
    "deployed with Laplace noise": lambda folder: deployed(folder, small_plan(3, "hmv-dgd")),
    "epochs": lambda folder: simulated(folder, graph=COMPLETE, algorithm={"name": "priv-rcd"}),
    "silence": lambda folder: simulated(folder, algorithm={"name": "ipp-admm"}),
    "sparse vector": lambda folder: simulated(folder, algorithm={"name": "ipp-admm", "test": "svt"}),
    "pure": lambda folder: simulated(folder, algorithm={"name": "hmv-dgd"}),
    "objective": lambda folder: simulated(folder, algorithm={"name": "pp-admm"}),
    "batches": lambda folder: simulated(folder, algorithm={"name": "sdm"}),
    "free rounds": lambda folder: simulated(folder, algorithm={"name": "dp-consensus-gd"}),
}
QUICK = ("a run", "deployed")


@pytest.fixture(
    scope="module",
    params=[*((k, MOST) for k in QUICK), *(pytest.param((k, None), marks=pytest.mark.slow) for k in KINDS)],
    ids=lambda param: f"{param[0]}{', some' if param[1] else ''}",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int | None]:
    """A certificate of one kind, with its model beside it, and how many changes of each field to try."""
    where = tmp_path_factory.mktemp("kind")
    KINDS[request.param[0]](where)
    return where, request.param[1]


@pytest.fixture
def folder(case: tuple[Path, int | None]) -> Path:
    return case[0]


@pytest.fixture
def most(case: tuple[Path, int | None]) -> int | None:
    return case[1]


@pytest.fixture
def true(folder: Path) -> dict[str, Any]:
    return parse((folder / "certificate.json").read_text("utf-8"))


# ---- the mutator -----------------------------------------------------------------------------------------------------


def others(value: Any) -> Iterator[Any]:
    """Other values: changed, of another type, null, not a number; of tables and lists also their members changed."""
    yield from (None, True, False, "x", 0, 1, -1, HUGE, 1.5, math.nan, math.inf, [], {})
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (-value, 2 * value, value / 2, value * 1.01, value * 0.99, value + 1, value - 1, [value], str(value))
    elif isinstance(value, str):
        yield from (value + "x", value[:-1], value.upper(), [value])
    elif isinstance(value, list):
        yield from (value[::-1], value[1:], value[:-1], [*value, None], [*value, 0], [*value, "x"], [*value, {}])
        yield from ([*value[:k], value[k], *value[k:]] for k in range(len(value)))  # one of them twice
        yield from ([*value[:k], value[k + 1], value[k], *value[k + 2 :]] for k in range(len(value) - 1))
    elif isinstance(value, dict):
        yield from ({**value, "extra": more} for more in (None, 0, "x", {}))
        yield from ({**value, f"{key}_": value[key]} for key in value)
        yield from ({k: v for k, v in value.items() if k != gone} for gone in value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are one to a reader: 1 and 1.0 are, and totals of two machines that differ by 1e-6."""
    kinds = {type(one), type(other)}
    if kinds <= {int, float}:
        return bool(abs(one - other) <= 2e-6 * abs(other))
    return len(kinds) == 1 and bool(one == other)


def mutants(tree: dict[str, Any], most: int | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of a field, and the certificate with that field changed, in so many ways at most."""
    rng = random.Random(7)
    yield from (("", {**other}) for other in others(tree) if isinstance(other, dict))
    for path in walk(tree):
        at = tree
        for key in path:
            at = at[key]
        values = list(others(at))
        for value in values if most is None else rng.sample(values, min(most, len(values))):
            if not same(value, at):
                out = copy.deepcopy(tree)
                place = out
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = copy.deepcopy(value)
                yield ".".join(map(str, path)), out


def sealed(content: dict[str, Any]) -> str:
    """The text of a changed certificate, with the plan's hash and the digest to match."""
    body = {k: v for k, v in content.items() if k not in ("digest", "signature")}
    try:
        if isinstance(body.get("plan"), dict) and "plan_sha256" in body:
            body["plan_sha256"] = sealing.sha256(sealing.canonical(body["plan"]))
        return json.dumps({**content, **body, "digest": sealing.sha256(sealing.canonical(body))})
    except ValueError:  # not a number: no digest fits
        return json.dumps(content)


def rejected(text: str, folder: Path) -> bool:
    """Whether `coterie verify --strict` refuses it; whatever else is raised is a bug."""
    try:
        verify(parse(text), strict=True, folder=folder)
    except (Refuted, InputError):
        return True
    return False


def explained(field: str, known: dict[str, str]) -> bool:
    return any(re.fullmatch(pattern, field) for pattern in known)


# ---- the attacks -----------------------------------------------------------------------------------------------------


def test_every_mutant_is_rejected_or_harmless(folder: Path, true: dict[str, Any], most: int | None) -> None:
    assert not rejected(json.dumps(true), folder)
    tried, accepted = 0, set()
    for field, fake in mutants(true, most):
        text = sealed(fake)
        if json.loads(text) == true:
            continue  # a digest that is computed anew is the true one again
        tried += 1
        if not rejected(text, folder):
            accepted.add(field)
    assert tried > (3000 if most is None else 500)
    assert not {field for field in accepted if not explained(field, HARMLESS)}
    assert any(field.startswith("made_with.") for field in accepted)  # the list is not longer than it must be


def test_the_command_refuses_in_one_line(
    folder: Path, true: dict[str, Any], most: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few of them through the command itself: exit code 1, or 2 for what is no JSON, and never a traceback."""
    (tmp_path / MODEL).write_bytes((folder / MODEL).read_bytes())
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(true))
    assert main(["verify", str(path), "--strict"]) == 0
    capsys.readouterr()
    for field, fake in random.Random(3).sample([m for m in mutants(true, most) if m[0]], 20):
        if not explained(field, HARMLESS) and field not in ("digest", "plan_sha256"):
            path.write_text(sealed(fake))
            assert main(["verify", str(path), "--strict"]) in (1, 2), field
            said = capsys.readouterr()
            assert len((said.out + said.err).strip().splitlines()) == 1, said


def test_a_plan_of_another_price_is_rejected_even_with_a_model_of_its_own(
    folder: Path, true: dict[str, Any], most: int | None, tmp_path: Path
) -> None:
    """The adversary also writes the model anew, for the changed plan: now only the derivation can tell."""
    accepted = set()
    for field, plan in mutants(true["plan"], most):
        try:
            fake = {**true, "plan": plan, "plan_sha256": sealing.sha256(sealing.canonical(plan))}
        except ValueError:
            continue
        with np.load(folder / MODEL) as stored:
            np.savez_compressed(tmp_path / MODEL, **{**stored, "plan": fake["plan_sha256"]})
        fake["files"] = {MODEL: sealing.sha256((tmp_path / MODEL).read_bytes())}
        if not rejected(sealed(fake), tmp_path):
            accepted.add(field)
    same = SAME_PRICE | (SAME_SUM if true["plan"]["exchange"]["kind"] == "secret-sum" else {})
    assert not {field for field in accepted if not explained(field, same)}


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.1, 0.99])
def test_noise_that_calibration_does_not_give_is_rejected_with_everything_to_match(
    folder: Path, true: dict[str, Any], most: int | None, factor: float
) -> None:
    """More noise than was drawn is a smaller ε than was spent: events, totals and claim follow from it, and agree."""
    plan, secure = validate(true["plan"]), true["run"]["noise"] == c.SECURE
    network = Terms.of(plan).network if secure else public_network(plan)
    priced = Terms.of(plan).priced if secure else price(plan, network)
    with jax.enable_x64(True):
        places = eqx.tree_at(lambda p: p.noise, priced.places, factor * jnp.asarray(priced.noise))
    louder = dataclasses.replace(priced, noise=factor * priced.noise, places=places)
    body = c.certificate(plan, network, louder, noise=true["run"]["noise"], files=true["files"])
    assert rejected(json.dumps(sealing.seal(body)), folder) == (factor != 1)
    if factor > 1:
        with pytest.raises(Refuted, match="noise_multiplier"):
            verify(parse(json.dumps(sealing.seal(body))), strict=True, folder=folder)
