"""`ct.train` that is stopped and goes on, told what happens, pickled; and trackers that keep apart what ε covers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.api import trackers
from coterie.api.watching import Moment
from coterie.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, (3, 60, 2))
SITES = [(x, np.where(x[:, 0] > 0, 1, -1)) for x in X]


def train(**options: Any) -> ct.Trained:
    return ct.train(
        ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(2.0, 1e-5), rounds=40,
        **{"seed": 0, "test": SITES[0], **options},
    )  # fmt: skip


class Stopped(Exception):
    """What a callback raises to end a call."""


def stop_at(round: int) -> Any:
    def callback(moment: Moment) -> None:
        if moment.round >= round:
            raise Stopped

    return callback


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = train()
    with pytest.raises(Stopped):
        train(callbacks=[stop_at(20)], checkpoint=tmp_path, checkpoint_every=8)
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept
    seen: list[Moment] = []
    again = train(callbacks=[seen.append], checkpoint=tmp_path, checkpoint_every=8)
    np.testing.assert_array_equal(again.points, whole.points)
    assert seen[0].round >= 8  # it did not begin anew
    for name, curve in whole.history.items():
        np.testing.assert_array_equal(again.history[name], curve)
    with pytest.raises(InputError, match=r"belongs to another run: .* or empty it$"):  # not: remove its last step
        train(seed=1, checkpoint=tmp_path)
    with pytest.raises(InputError, match="give seed"):
        train(seed=None, checkpoint=tmp_path)


def test_ctrl_c_leaves_a_checkpoint_that_is_gone_on_from(tmp_path: Path) -> None:
    import signal

    whole = train()
    cut = train(callbacks=[lambda m: signal.raise_signal(signal.SIGINT) if m.round == 0 else None], checkpoint=tmp_path)
    assert cut.result["interrupted"]
    np.testing.assert_array_equal(train(checkpoint=tmp_path).points, whole.points)


def test_callbacks_see_what_is_covered_apart_from_what_is_not() -> None:
    seen: list[Moment] = []
    run = train(callbacks=[lambda moment: seen.append(moment) or True])  # what is returned ends nothing
    assert [m.round for m in seen] == run.history["round"].tolist()
    assert {"consensus_gap", "test_score"} == set(seen[0].covered)
    assert set(seen[0].home) == {"train_loss"}
    np.testing.assert_array_equal([m.covered["test_score"] for m in seen], run.history["test_score"])
    free: list[Moment] = []
    ct.train(ct.logistic(), ct.ring(SITES), ct.dgd(), rounds=3, seed=0, callbacks=[free.append])
    assert not free[0].covered  # without noise nothing is


def test_a_pickled_run_predicts() -> None:
    run = train()
    again = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(again.predict(X[0]), run.predict(X[0]))
    assert again.epsilon == run.epsilon


def test_tensorboard_writes_both_and_names_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: the tracker is not tested")
    train(callbacks=[trackers.TensorBoard(tmp_path)])
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    for name in (b"covered/test_score", b"home/train_loss", b"covered/epsilon"):
        assert name in content
    assert b"covered/train_loss" not in content


def test_a_score_on_the_parties_own_records_stays_at_home() -> None:
    seen: list[Moment] = []
    train(callbacks=[seen.append], test=None, own_test=SITES)
    assert {"test_score", "train_loss"} <= set(seen[-1].home)
    assert set(seen[-1].covered) == {"consensus_gap"}
    train(callbacks=[seen.append])  # test=: records that are not private
    assert "test_score" in seen[-1].covered


@pytest.mark.slow
@pytest.mark.parametrize("home", [False, True])
def test_wandb_is_sent_only_what_is_covered(tmp_path: Path, home: bool) -> None:
    """Offline: the file that `wandb sync` would send."""
    pytest.importorskip("wandb", reason="wandb is not installed: the tracker is not tested")
    tracker = trackers.WandB("trial", home=home, mode="offline", dir=str(tmp_path), settings={"silent": True})
    train(callbacks=[tracker])
    (sent,) = tmp_path.rglob("*.wandb")
    content = sent.read_bytes()
    for name in (b"covered/test_score", b"covered/consensus_gap", b"covered/epsilon"):
        assert name in content
    assert (b"home/train_loss" in content) is home


@pytest.mark.slow
def test_mlflow_is_sent_only_what_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the slim package has no database
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: the tracker is not tested")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    tracker = trackers.MLflow()
    key = mlflow.active_run().info.run_id
    run = train(callbacks=[tracker])
    metrics = mlflow.get_run(key).data.metrics
    assert set(metrics) == {"covered/test_score", "covered/consensus_gap", "covered/epsilon", "covered/delta"}
    assert metrics["covered/epsilon"] == run.epsilon


def test_a_tracker_that_is_missing_says_what_to_install() -> None:
    with pytest.raises(InputError, match="needs no-such-package, which is not installed: pip install no-such-package"):
        trackers.needed("no_such_module", "no-such-package", "it")
