"""Trackers as callbacks of `ct.train`: TensorBoard, MLflow, Weights & Biases, each loaded when it is made.

    from coterie.api.trackers import TensorBoard
    ct.train(task, parties, budget=budget, callbacks=[TensorBoard("logs")])

Numbers are called `covered/…` where ε pays for them and `home/…` where nothing does, as the training loss. A folder is
at home, so TensorBoard gets both. A server is not: MLflow and W&B get `home/…` only if you say `home=True`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.api.trained import Trained
    from coterie.api.watching import Moment

__all__ = ["MLflow", "TensorBoard", "WandB"]


def needed(module: str, package: str, what: str) -> ModuleType:
    """An optional package, or one line that says what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # it is there, and lacks something itself
            raise InputError(f"{what} needs {package}, which cannot be loaded: {error}") from None
        raise InputError(f"{what} needs {package}, which is not installed: pip install {package}") from None
    except ImportError as error:
        raise InputError(f"{what} needs {package}, which cannot be loaded: {error}") from None


def _named(moment: Moment, home: bool) -> dict[str, float]:
    """Numbers by the names under which they are written."""
    shown = {f"covered/{key}": value for key, value in moment.covered.items()}
    return shown | ({f"home/{key}": value for key, value in moment.home.items()} if home else {})


def _facts(run: Trained) -> dict[str, float]:
    """What a run that is private cost; nothing else of it is a release."""
    return {"covered/epsilon": run.epsilon, "covered/delta": run.delta or 0.0} if run.private else {}


class TensorBoard:
    """Writes event files into a folder, by tensorboardX."""

    def __init__(self, folder: str | Path, *, home: bool = True):
        self._writer = needed("tensorboardX", "tensorboardX", "TensorBoard").SummaryWriter(str(folder))
        self._home = home

    def __call__(self, moment: Moment) -> None:
        for key, value in _named(moment, self._home).items():
            self._writer.add_scalar(key, value, moment.round)

    def finish(self, run: Trained) -> None:
        """ε, and the end of the files."""
        for key, value in _facts(run).items():
            self._writer.add_scalar(key, value, run.rounds)
        self._writer.close()


class MLflow:
    """Logs to the run that is active, or to one of its own that it ends."""

    def __init__(self, *, home: bool = False):
        self._mlflow = needed("mlflow", "mlflow-skinny", "MLflow")
        self._home, self._own = home, self._mlflow.active_run() is None
        if self._own:
            self._mlflow.start_run()

    def __call__(self, moment: Moment) -> None:
        self._mlflow.log_metrics(_named(moment, self._home), step=moment.round)

    def finish(self, run: Trained) -> None:
        """ε, and the public settings."""
        self._mlflow.log_metrics(_facts(run), step=run.rounds)
        self._mlflow.log_params({"algorithm": run.algorithm, "rounds": run.rounds, "private": run.private})
        if self._own:
            self._mlflow.end_run()


class WandB:
    """Logs to a run of Weights & Biases; `options` go to `wandb.init`."""

    def __init__(self, project: str, *, home: bool = False, **options: object):
        self._run = needed("wandb", "wandb", "WandB").init(project=project, **options)
        self._home = home

    def __call__(self, moment: Moment) -> None:
        self._run.log(_named(moment, self._home), step=moment.round)

    def finish(self, run: Trained) -> None:
        """ε, and the end of the run."""
        self._run.summary.update(_facts(run))
        self._run.finish()
