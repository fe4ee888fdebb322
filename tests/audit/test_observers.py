"""The audit from a seat: refutes what is false, lets stand what is proved, and finds planted faults."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import cli
from coterie.algorithms.base import Algorithm, find
from coterie.audit.observers import Vantage, attack
from coterie.experiment import prepare
from coterie.graphs import make_graph, mixing
from coterie.losses.mean import Mean
from coterie.plan import read_plan
from coterie.pricing import price
from coterie.privacy import gdp
from coterie.privacy.observers import factorised, linear, view
from coterie.problems import Custom
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.result import privacy_block
from coterie.report.verification import Refuted, parse, verify

PATH = make_graph("path", 3)
WEIGHTS = mixing(PATH, "metropolis")


def hill(p: Any, f: Any, y: Any) -> Any:
    """Not convex: a party with features 1 steps away from zero, by eight times its distance."""
    return y * p[0] - 4 * f[0] * p[0] ** 2


HILL = Custom.make(hill, np.zeros(1))


def learning(gain: float) -> Vantage:
    """v – a – u, two rounds of plain descent with noise of one sensitivity; a's records pull with this gain."""
    algorithm = find("dp-dsgd")
    cfg = algorithm.config(step=1.0, momentum=0.0, clip=1.0, mixing=1, tail=0.0)
    still = (np.zeros(1), 0.0)
    return Vantage(
        algorithm, cfg, HILL, PATH, WEIGHTS, records=60, rounds=2, noise=1.0, observers=(0,), victim=2,
        pair=((np.zeros(1), 1.0), (np.zeros(1), -1.0)),
        others={0: [still], 1: [(np.full(1, gain), 0.0)], 2: [still]},
    )  # fmt: skip


@pytest.mark.slow
def test_refutes_the_matrix_account_for_learning_and_not_without_a_gradient() -> None:
    claimed = factorised(view(WEIGHTS.dense(), [0]), 2, np.ones(2), np.ones((3, 2)))
    printed = float(gdp.epsilon_of(claimed, 1e-5))
    assert printed == pytest.approx(1.20, abs=5e-3)
    found = attack(learning(1.0), trials=4000)
    assert found.epsilon(1e-5) >= 2 * printed
    assert found.mu <= (9 / 10) ** 0.5  # what is proved for a Lipschitz constant of 9
    still = attack(learning(0.0), trials=4000)
    assert still.estimate == pytest.approx(claimed, rel=0.1)
    assert still.mu <= claimed


def gossip(algorithm: Algorithm, noise: float, victim: int, *, again: float = 0.5) -> Vantage:
    """Six parties on a path, one observer at its end."""
    graph = make_graph("path", 6)
    return Vantage(
        algorithm, algorithm.config(again=again), Mean(1), graph, mixing(graph, "metropolis"), records=4, rounds=6,
        noise=noise, observers=(0,), victim=victim, pair=((np.ones(1), 0.0), (-np.ones(1), 0.0)),
    )  # fmt: skip


def exact(seat: Vantage, again: float) -> float:
    scale = np.full((6, 6), float(seat.noise))
    scale[:, 1:] *= again
    return float(linear(view(seat.mixing.dense(), seat.observers), np.ones(6), scale)[seat.victim])


def test_averaging_reaches_its_exact_account_and_a_planted_fault_exceeds_it() -> None:
    right = find("gossip-mean")
    unit = exact(gossip(right, 1.0, 3), 0.5)
    seat = gossip(right, unit / 2, 3)  # so that μ is 2 three hops away
    found = attack(seat, trials=6000)
    assert exact(seat, 0.5) == pytest.approx(2.0)
    assert 0.9 * 2.0 <= found.mu <= 2.0

    def quiet(cfg: Any, place: Any, t: Any, state: Any, shard: Any, draw: Any) -> Any:
        return right.emit(cfg.replace(again=0.1), place, t, state, shard, draw)  # less noise on the way than is claimed

    faulty = dataclasses.replace(right, slug="faulty", emit=quiet)
    assert attack(gossip(faulty, unit / 2, 3), trials=2000).mu > 2.0


@pytest.mark.slow
@pytest.mark.parametrize("hops", range(1, 6))
def test_averaging_reaches_its_exact_account_at_every_distance(hops: int) -> None:
    right = find("gossip-mean")
    seat = gossip(right, exact(gossip(right, 1.0, hops), 0.5) / 2, hops)
    assert exact(seat, 0.5) == pytest.approx(2.0)
    assert 0.9 * 2.0 <= attack(seat, trials=10_000).mu <= 2.0


PLAN = """
[data]
source = "clinics"
options = {{ records = 300 }}
[partition]
kind = "iid"
agents = 4
[graph]
kind = "path"
[problem]
loss = "{loss}"
[algorithm]
name = "{name}"
{settings}
[privacy]
epsilon = 4.0
{observers}
[run]
rounds = 3
references = "none"
"""


def plan(path: Path, loss: str, name: str, settings: str = "", observers: str = "") -> Path:
    path.write_text(PLAN.format(loss=loss, name=name, settings=settings, observers=observers), "utf-8")
    return path


@pytest.mark.slow
def test_the_command_looks_from_a_seat(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    made = plan(tmp_path / "plan.toml", "mean", "gossip-mean")
    code = cli.main(["audit", str(made), "--observer", "agent 0", "--trials", "2000", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert code == 0
    assert shown.count("holds") == 3
    assert "may send what it likes" in " ".join(shown.split())
    near, middle, far = json.loads((tmp_path / "observers.json").read_text("utf-8"))
    assert near["claimed_epsilon"] == pytest.approx(4.0)
    assert near["mu_at_least"] > 0.8 * near["claimed_mu"] > middle["claimed_mu"] > far["claimed_mu"]


@pytest.mark.slow
def test_a_plan_with_steps_that_expand_refutes_the_formula_and_not_the_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    steep = "momentum = 0.0\nmixing = 1\nclip = 1.0\ntail = 0.0\nstep = 10.0"  # 10/L, where 2/L is what convexity bears
    made = plan(tmp_path / "plan.toml", "mean", "dp-dsgd", steep)
    assert cli.main(["audit", str(made), "--observer", "agent 0", "--trials", "6000", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert any(row["formula_refuted"] for row in rows)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("logistic", "dp-dsgd", "momentum = 0.5\nmixing = 1"), "without momentum = 0"),
        (("logistic", "dp-dsgd", "momentum = 0.0\nmixing = 2"), "without mixing = 1"),
        (("logistic", "pr-admm", ""), "no account of single observers is proved for pr-admm"),
        (("softmax", "dp-dsgd", "momentum = 0.0\nmixing = 1\nclip = 0.1"), "a loss of one score per record"),
    ],
)
def test_learning_without_a_proof_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture, settings: tuple[str, str, str], told: str
) -> None:
    made = plan(tmp_path / "plan.toml", *settings, observers='observers = ["agent 0"]')
    assert cli.main(["run", str(made), "--out", str(tmp_path / "out")]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["dp-dsgd", "--observer", "agent 0"], "--observer needs plans"),
        (["--observer", "agent 0"], "--observer needs plans"),
        (["PLAN", "--observer", "nobody"], "'nobody' is no party"),
        (["PLAN", "--observer", "0,1,2,3"], "nobody left to look at"),
        (["PLAN", "--observer", "0", "--wire"], "leave out --wire"),
    ],
)
def test_bad_seats(tmp_path: Path, capsys: pytest.CaptureFixture, flags: list[str], told: str) -> None:
    made = plan(tmp_path / "plan.toml", "mean", "gossip-mean")
    assert cli.main(["audit", *(str(made) if f == "PLAN" else f for f in flags)]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_tables_of_observers_are_certified(tmp_path: Path) -> None:
    made = plan(
        tmp_path / "plan.toml", "mean", "gossip-mean", observers='observers = ["agent 0", "agent 0 + agent 3"]'
    )  # fmt: skip
    read = read_plan(made)
    network = prepare(read).network
    priced = price(read, network)
    block = privacy_block(read, network.problem, priced)
    assert block is not None
    one, two = block["observers"]
    assert one["epsilon"][0] is None
    assert one["epsilon"][1] == pytest.approx(4.0)
    assert one["epsilon"][1] > one["epsilon"][2] > one["epsilon"][3] > 0
    assert two["epsilon"][2] == pytest.approx(4.0)
    sealed = sealing.seal(c.certificate(read, network, priced))
    assert verify(parse(json.dumps(sealed))).derived
    sealed["observers"][0]["epsilon"][2] /= 2  # a table that promises more, sealed anew
    bare = {k: v for k, v in sealed.items() if k not in ("signer", "digest", "signature")}
    with pytest.raises(Refuted, match="observers"):
        verify(parse(json.dumps(sealing.seal(bare))))
