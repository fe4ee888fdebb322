"""Runs over many devices: the same result as on one, bytes in proportion to the boundary, and a state that survives."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.commands.spawn import spawn
from coterie.drivers.checkpoint import Checkpoint
from coterie.drivers.cluster import Spread
from coterie.drivers.sharded import make_mesh, make_shards, simulate_shards
from coterie.drivers.simulate import Run, Trace
from coterie.errors import InputError
from coterie.exchange.choice import Quantized, SecretSum
from tests.drivers.spread import ROUNDS, ingredients

ROOT = Path(__file__).parents[2]
EVERYDAY = ["dp-dsgd:gnm:3", "ldp-dgd:complete:3", "dgd:star:2:groups"]


def spread(cases: list[str], flags: str = "") -> dict[str, dict[str, Any]]:
    """What `tests.drivers.spread` finds, on three devices of the host."""
    devices = f"--xla_force_host_platform_device_count=3 {flags}"
    env = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {devices}", "JAX_COMPILATION_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tests.drivers.spread", *cases], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(found: dict[str, Any]) -> None:
    assert found["moved"] > 1e-3  # something happened at all
    assert found["points"] < 1e-9
    assert max(found["curves"].values()) < 1e-9
    assert found["counts"]


@pytest.mark.slow
def test_many_devices_are_one_and_send_only_what_crosses(tmp_path: Path) -> None:
    """The compiled loop's collective permutes carry what `crossing_bytes` says: counted in the program's own text."""
    found = spread(EVERYDAY, f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_ahead")
    for case in EVERYDAY:
        check(found[case])
    assert found["dgd:star:2:groups"]["groups"] > 1
    assert found["dp-dsgd:gnm:3"]["padding"] > 0
    texts = [p.read_text() for p in sorted(tmp_path.glob("*after_optimizations.txt"))]
    # messages are read in the loop's body and once more in the last step, which stands behind it
    assert [_permuted(text) for text in texts] == [2 * [found[case]["crossing_bytes"]] for case in EVERYDAY]
    # and no sum is taken of what an exchange cut where it cuts nothing
    assert not [text for text in texts if re.search(r"= s32\[\]\S* all-reduce", text)]


def _permuted(text: str) -> list[int]:
    """Bytes that collective permutes move between devices, in each of a program's computations that has some."""
    permute = r"= \(?([a-z]\d+)\[([\d,]*)\]\S* collective-permute\(.*?source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}"
    size = lambda kind, shape: int(kind[1:]) // 8 * int(np.prod([int(n) for n in shape.split(",")]))  # noqa: E731
    found = [re.findall(permute, computation) for computation in text.split("\n\n")]
    return [sum(size(kind, shape) * pairs.count("{") for kind, shape, pairs in each) for each in found if each]


@pytest.mark.slow
def test_every_algorithm_is_the_same_over_three_devices() -> None:
    kind = {slug: (a.graphs or ("gnm",))[0] for slug, a in all_algorithms().items()}
    cases = [f"{slug}:{graph}:3" for slug, graph in kind.items()]
    for case, found in spread(cases).items():
        print(case)
        check(found)


# -- checkpoints --------------------------------------------------------------------------------------------------


@cache
def shards() -> Any:
    what, options = ingredients("gnm")
    with jax.enable_x64(True):
        return make_shards(*what, **options, mesh=make_mesh(1))


def go(checkpoint: Checkpoint | None = None, seed: int = 4, **options: Any) -> Trace:
    algorithm = find("dp-dsgd")
    runs = [Run(seed, algorithm.example, 0.02)]
    return simulate_shards(algorithm, shards(), runs, rounds=ROUNDS, every=3, checkpoint=checkpoint, **options)


@cache
def unbroken() -> Trace:
    return go()


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C after a piece stores the state; the second run starts there and ends as if nothing had happened."""
    interrupt = lambda done: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    first = go(Checkpoint(tmp_path, 2), progress=interrupt)
    assert 0 < first.completed < ROUNDS
    second = go(Checkpoint(tmp_path, 2))
    assert second.extras["resumed"] >= first.completed
    assert second.completed == ROUNDS
    np.testing.assert_array_equal(second.points, unbroken().points)
    np.testing.assert_array_equal(second.curves["train_loss"], unbroken().curves["train_loss"])
    assert len(list(tmp_path.glob("*.npz"))) == 2  # the last two
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.slow
def test_a_state_is_used_only_by_its_own_run(tmp_path: Path) -> None:
    go(Checkpoint(tmp_path, 4))
    with pytest.raises(InputError, match="belongs to another run"):
        go(Checkpoint(tmp_path, 4), seed=5)
    with pytest.raises(InputError, match="belongs to another run"):
        go(Checkpoint(tmp_path, 4), exchange=Quantized())
    last = sorted(tmp_path.glob("*.npz"))[-1]
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        go(Checkpoint(tmp_path, 4))
    last.unlink()
    (tmp_path / last.with_suffix(".partial").name).write_bytes(whole[:100])  # what a killed process may leave
    again = go(Checkpoint(tmp_path, 4))
    assert 0 < again.extras["resumed"] < ROUNDS
    np.testing.assert_array_equal(again.points, unbroken().points)


# -- what cannot run, and what the flags mean -----------------------------------------------------------------------


def test_what_cannot_be_spread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="secret-sum' runs on one device"):
        go(exchange=SecretSum(13))
    with pytest.raises(InputError, match="--devices must be from 1 to"):
        make_mesh(len(jax.devices()) + 1)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        Checkpoint(tmp_path / "file", 1)
    with pytest.raises(InputError, match="sets --processes itself"):
        spawn(2, ["--processes=3"])


def test_flags_come_before_the_environment_and_slurm_fills_in() -> None:
    env = {"COTERIE_COORDINATOR": "a:1", "COTERIE_PROCESS_ID": "1", "COTERIE_PROCESSES": "2"}
    slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}
    assert Spread.read({}, every_rounds=5) is None
    assert Spread.read(slurm) is None  # a job is not asked to spread
    assert Spread.read(env) == Spread(None, "a:1", 1, 2)
    assert Spread.read(env, coordinator="b:2", process_id=0).leader  # type: ignore[union-attr]
    assert Spread.read(slurm, devices="all") == Spread("all", None, 3, 4)
    assert dataclasses.astuple(Spread.read({}, devices="2"))[0] == "2"  # type: ignore[arg-type]
    for env, flags, words in [
        ({}, {"devices": "0"}, "'all' or a positive number, got '0'"),
        ({}, {"coordinator": "a:1"}, "several processes need"),
        ({}, {"coordinator": "a:1", "process_id": 2, "processes": 2}, "from 0 to 1, got 2"),
        ({"COTERIE_PROCESSES": "two"}, {}, "must be a number, got 'two'"),
    ]:
        with pytest.raises(InputError, match=words):
            Spread.read(env, **flags)
