"""What a private run leaves: a model that predicts, what it cost, and a folder to keep it in."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.algorithms._charges import alike
from coterie.algorithms.base import all_algorithms
from coterie.api.bounds import PublicBox
from coterie.api.coding import Coding
from coterie.api.curves import Curves
from coterie.api.given import NOTHING_GIVEN, PLACE, of, takes
from coterie.api.model import Model
from coterie.api.tasks import Task
from coterie.api.watching import COVERED
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.experiment import Experiment
from coterie.losses import BY_LABELS
from coterie.network import Network
from coterie.plan import Plan
from coterie.pricing import Priced
from coterie.privacy.events import Event, flat
from coterie.privacy.ledger import Budget, MemoryLedger
from coterie.problems.additive import AdditiveModel
from coterie.worth.bands import noise_alone

if TYPE_CHECKING:
    from coterie.drivers.simulate import Trace
    from coterie.released.bands import ReleasedCurves
    from coterie.report.costs import PublicFacts, Sealed
    from coterie.report.schema import RunResult
    from coterie.worth.judge import Judged

__all__ = ["Trained", "events_of", "json_object", "load"]


@dataclass(frozen=True, eq=False, repr=False)
class Made:
    """What only the process that trained knows: settings, noise and the public network."""

    plan: Plan
    network: Network
    priced: Priced
    completed: int  # rounds that were heard
    columns: tuple[str, ...]
    shares: NDArray[np.float64] | None = None  # of an additive model: of the records in each bin, for study alone


@dataclass(frozen=True, eq=False, repr=False)
class Trained(Model):
    """What a private run leaves: a function of noisy messages and of public numbers, but for `result`.

    `points` has every party's answer, one row each; `model` is their average, which further rounds of averaging, that
    cost nothing, would bring to every party. `result` is what `result.json` says: its metrics, curves and references
    are computed on the records without noise, for study; they are not a release (`result["evaluation"]`).

    >>> import coterie as ct
    >>> x = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 400, 2))
    >>> sites = [(part, np.where(part[:, 0] > 0, 1, -1)) for part in x]
    >>> run = ct.train(ct.logistic(), ct.ring(sites), ct.dp_dsgd(), ct.Budget(2.0, 1e-5), rounds=20, seed=0)
    >>> run
    <dp-dsgd on a ring graph of 3 parties, 20 rounds: ε = 2 at δ = 1e-05>
    >>> run.predict([[0.4, 0.1], [-0.4, 0.2]])
    array([ 1, -1])
    """

    coding: Coding
    points: NDArray[np.float64]
    result: RunResult
    names: tuple[str, ...]
    made: Made | None = field(default=None)  # None: it was loaded

    @classmethod
    def of(
        cls, experiment: Experiment, priced: Priced, trace: Trace, seeds: list[int],
        judged: Judged | None = None, coding: Coding | None = None,
    ) -> Trained:  # fmt: skip
        """What a trace leaves: of its first seed, the others are for study; `judged` is what is said about it."""
        from coterie.report.result import build_result
        from coterie.worth.judge import Judged

        network = experiment.network
        names, shares = experiment.dataset.feature_names, None
        if isinstance(network.problem, AdditiveModel) and len(experiment.features):  # a release has told its own
            shares = network.problem.bins.shares(experiment.features)
        made = Made(experiment.plan, network, priced, trace.completed, names, shares)
        result = build_result(experiment, priced, trace, seeds, judged or Judged())
        points = np.asarray(trace.points[0], float)
        return cls(coding or Coding(network.problem), points, result, network.names, made)

    # -- the model -------------------------------------------------------------------------------------------------

    @property
    def point(self) -> NDArray[np.float64]:
        """The model as one flat vector, as the loss takes it."""
        return self.points.mean(axis=0)

    @property
    def clip(self) -> float | None:
        """The norm to which gradients were clipped as it was trained."""
        if self.made is not None:
            return self.made.priced.algorithm.clips(self.made.priced.cfg)
        known = all_algorithms().get(self.algorithm)
        return None if known is None else known.clips(known.config.model_validate(self.settings))

    @cached_property
    def curves(self) -> Curves:
        """The curves of an additive model, with the noise that bins without records have: both cost nothing more."""
        problem = self.coding.problem
        if self._released is not None:
            return self._released.curves
        if not isinstance(problem, AdditiveModel):
            raise InputError(f"{problem.name} has no curves: they are of ct.additive, or problem.model = 'additive'")
        if self.made is None:
            told = self.result.get("additive")
            spread = None if told is None else told["noise"]
            noise = None if spread is None else spread * np.sqrt(problem.bins.ones)
        else:
            noise = noise_alone(self.made.plan, self.made.network, self.made.priced)
        return Curves.of(problem, self.point, classes=self._classes(problem), clip=self.clip, noise=noise)

    @cached_property
    def _released(self) -> ReleasedCurves | None:
        from coterie.released.bands import released_curves

        return released_curves(self.coding.problem, self.point, self.coding.labels)

    def _classes(self, problem: AdditiveModel) -> tuple[object, ...] | None:
        """The labels of the classes, or their numbers where nobody has named them."""
        count = problem.labels.classes
        if count is None:
            return None
        return tuple(range(count)) if self.coding.labels is None else self.coding.labels

    # -- what it cost ----------------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """ε that the party who paid most has paid, at `delta`, by the tightest accountant; ∞ without privacy."""
        privacy = self.result["privacy"]
        return float("inf") if privacy is None or privacy["epsilon"] is None else float(privacy["epsilon"])

    @property
    def delta(self) -> float | None:
        """δ of the budget; None without privacy."""
        return None if self.result["privacy"] is None else self.result["privacy"]["delta"]

    @property
    def private(self) -> bool:
        """Whether `epsilon` is a guarantee: not if anything was read from the records unpaid (`leaks`)."""
        return self.result["privacy"] is not None and self.result["privacy"]["private"]

    @property
    def leaks(self) -> tuple[str, ...]:
        """What was read from the records to make features, targets or labels."""
        return () if self.result["privacy"] is None else tuple(self.result["privacy"]["leaks"])

    @property
    def rounds(self) -> int:
        """Rounds of messages."""
        return self.result["rounds"]

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.result["algorithm"]["name"]

    @property
    def settings(self) -> dict[str, object]:
        """Its settings, as the public rules have filled them in."""
        return dict(self.result["algorithm"]["settings"])

    @property
    def history(self) -> dict[str, NDArray]:
        """Curves over `history["round"]`: how far the parties disagree, and the score on `test` if it was given.

        Of several seeds, means: for study. The training loss is not in it: it is a number about the records that nobody
        has paid for.
        """
        curves = self.result["curves"]
        shown = {k: k for k in ("round", *COVERED)} | {"test_accuracy": "test_score"}
        return {shown[name]: np.asarray(curve) for name, curve in curves.items() if name in shown}

    @cached_property
    def events(self) -> tuple[tuple[Event, ...], ...]:
        """What each party released: one tuple of events a party."""
        return events_of(self._made.priced)

    @cached_property
    def ledgers(self) -> tuple[MemoryLedger, ...]:
        """Each party's ledger: the events planned before any record was read, all charged (`times` says how often)."""
        privacy = self._made.plan.privacy
        if privacy is None:
            raise InputError(f"{self.result['algorithm']['name']} is not private: it has no budget and no ledger")
        out = []
        for epsilon, events in zip(np.broadcast_to(privacy.epsilon, len(self.names)), self.events, strict=True):
            ledger = MemoryLedger(Budget(float(epsilon), privacy.delta), plan=events)
            for event in events:
                ledger.charge(self.rounds - 1, event)
            out.append(ledger)
        return tuple(out)

    @property
    def _made(self) -> Made:
        if self.made is None:
            raise InputError("a run that was loaded has no events: they are in its certificate.json, event by event")
        return self.made

    def __repr__(self) -> str:
        result, kind = self.result, Plan.model_validate(self.result["plan"]).graph.kind
        cost = "no privacy" if self.delta is None else f"ε = {self.epsilon:.4g} at δ = {self.delta:g}"
        if self.delta is not None and not self.private:
            cost += ", NOT private" + (f" ({self.leaks[0]})" if self.leaks else "")
        if len(result["seeds"]) > 1 and result["privacy"] is not None:
            every = result["privacy"]["all_seeds_epsilon"]
            cost += f"; {len(result['seeds'])} seeds for study, all of them would cost ε = {every:.4g}"
        done = f"{result['completed_rounds']} of " if result["interrupted"] else ""
        head = (
            f"<{result['algorithm']['name']} on a {kind} graph of {len(self.names)} parties, {done}{self.rounds} rounds"
        )
        return f"{head}: {cost}>"

    # -- a folder --------------------------------------------------------------------------------------------------

    @takes(folder=PLACE, key=PLACE | NOTHING_GIVEN)
    def save(self, folder: str | Path, key: str | Path | None = None) -> list[Path]:
        """Write the folder that `coterie run --out` writes, and return its files; `ct.load` reads it.

        `coterie verify` and `coterie report` work on it. A loss of your own cannot be stated in a plan, so nobody could
        derive its events anew: the folder then has no certificate, and says so. The folder names the seed, with which
        the noise can be subtracted: it is a record for study. `result.json` is written last: where it is, all is there.

        Args:
            folder: made if it is not there.
            key: PEM file of an Ed25519 private key that signs the certificate.
        """
        from coterie.report.files import check_out
        from coterie.report.result import write_run

        made = self._made
        if key is not None and made.plan.data.source == "memory" and made.plan.problem.loss is None:
            raise InputError("key signs a certificate, and the run of a loss of your own has none: leave it out")
        check_out(Path(folder), "folder")
        result = self.result.copy()
        if self._released is not None:
            result["additive"] = self._released.as_json()
        elif isinstance(self.coding.problem, AdditiveModel):
            told = self.curves.as_json()
            told["at_home"] = {"shares": None if made.shares is None else made.shares.tolist()}
            result["additive"] = told
        return write_run(
            Path(folder), result, made.plan, made.network, made.priced, points=self.points,
            completed=made.completed, columns=made.columns, key=None if key is None else Path(key),
        )  # fmt: skip


def events_of(priced: Priced) -> tuple[tuple[Event, ...], ...]:
    """What each party releases in a run: one tuple of events a party, from public numbers alone."""
    found = dict[int, tuple[Event, ...]]()
    for members, place in alike(priced.places, np.asarray(priced.places.noise)):  # parties in like places pay alike
        paid = tuple(flat(e) for e in run_events(priced.algorithm, priced.cfg, place))
        found |= dict.fromkeys(members.tolist(), paid)
    return tuple(found[i] for i in range(priced.places.agents))


# ---- from a folder ---------------------------------------------------------------------------------------------------


@takes(folder=PLACE, task=of("a task, such as ct.loss(fn, params)", Task) | NOTHING_GIVEN)
def load(folder: str | Path, task: Task | None = None) -> Trained:
    """A run from the folder that `run.save` or `coterie run --out` wrote: it predicts and scores as before.

    Args:
        folder: the folder; refused if a file is missing or damaged.
        task: the task of a loss of your own, which no file can hold.

    Records of a run that `coterie run` made are predicted as its loader encodes them, in the loss's own coding.

    >>> import coterie as ct
    >>> ct.load("runs/a").score(X, y)  # doctest: +SKIP
    0.795
    """
    from coterie.report.released import MODEL
    from coterie.report.sealing import sha256

    place = Path(folder)
    result: RunResult | None = json_object(place / "result.json")
    if result is None:
        raise InputError(f"{place} holds no result.json: give a folder that run.save or coterie run --out wrote")
    sealed: Sealed | None = json_object(place / "certificate.json")
    try:
        content = (place / MODEL).read_bytes()
        if sealed is not None and sealed["files"][MODEL] != sha256(content):
            raise InputError(f"{place / MODEL} is not the file that certificate.json names")
        with np.load(place / MODEL, allow_pickle=False) as stored:
            points, named = np.asarray(stored["points"], float), str(stored["plan"])
            features = tuple(map(str, stored["feature_names"]))
        plan = Plan.model_validate(result["plan"])  # no algorithm is looked up: to import a module is to run it
        plan.problem.refuse_modules()
        if sealed is not None:
            _need_same(place, result, sealed, plan)
        own = plan.data.source == "memory" and plan.problem.loss is None
        if sealed is None and not own:
            raise InputError(f"{place} holds no certificate.json, which says what the model is of")
        if own and (task is None or task.own is None):
            raise InputError(f"{place} holds a loss or network of your own: in Python, ct.load(folder, its task)")
        coding = _coding(plan, None if sealed is None else sealed["public"], task, features)
        names = tuple(agent["name"] for agent in result["agents"])
        run = Trained(coding, points, result, _all_names(sealed, names, len(points)))
        repr(run), run.history  # all that they need is there
        if sealed is not None and sealed["plan_sha256"] != named:
            raise InputError(f"{place / MODEL} is of another plan than certificate.json")
        if points.ndim != 2 or points.shape[1] != coding.problem.dim:
            raise InputError(f"{place / MODEL} has models of shape {points.shape[1:]}, expected {coding.problem.dim}")
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
    ) as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, OSError) and error.filename is not None:
            raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{place} is damaged, or of another version: {said}") from None
    return run


def _need_same(place: Path, result: RunResult, sealed: Sealed, plan: Plan) -> None:
    """Refuse a result.json that promises more than the certificate beside it, or is of something else."""
    claim, said = sealed["claim"], result["privacy"]
    if result["plan"] != sealed["plan"]:
        raise InputError(f"{place / 'result.json'} is of another plan than certificate.json")
    if sealed["public"]["loss"] not in ((plan.problem.loss,) if plan.problem.loss else BY_LABELS):
        raise InputError(f"{place / 'certificate.json'} is of another loss than its plan: {sealed['public']['loss']!r}")
    if said is None:
        return
    printed, proved = math.inf if said["epsilon"] is None else said["epsilon"], float(claim["epsilon"])
    if said["delta"] != claim["delta"] or printed < proved * (1 - 1e-9):
        raise InputError(
            f"{place / 'result.json'} says ({printed:g}, {said['delta']:g}), its certificate ({proved:g}, "
            f"{claim['delta']:g})"
        )
    if said["private"] != claim["private"] or list(said["leaks"]) != list(sealed["public"]["leaks"]):
        raise InputError(f"{place / 'result.json'} says otherwise than its certificate what was read from the records")


def json_object(path: Path) -> Any:
    """The JSON object of a file; None where there is no file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"cannot read {path}: expected a JSON object")
    return content


def _all_names(sealed: Sealed | None, listed: Sequence[str], count: int) -> tuple[str, ...]:
    """All parties' names: result.json lists the first thousand."""
    if sealed is not None and sealed["public"]["names"] is not None:
        return tuple(sealed["public"]["names"])
    return (*listed, *(f"agent {i}" for i in range(len(listed), count)))


def _coding(plan: Plan, public: PublicFacts | None, task: Task | None, features: tuple[str, ...]) -> Coding:
    """How the run's records were written: what its plan says, and the names of the model's features."""
    from coterie.losses.base import problem_of

    said = plan.data.options if plan.data.source == "memory" else {}
    labels = None if said.get("classes") is None else tuple(said["classes"])
    pairs = None if said.get("bounds") is None else np.array(said["bounds"], float)
    box = None if pairs is None else PublicBox(pairs[:, 0], pairs[:, 1])
    if task is not None and task.own is not None:
        problem = task.own
    elif public is not None:
        problem = problem_of(plan, public["loss"], public["features"], public["classes"] or 1)
    classes = None if said.get("named") is None else tuple(said["named"])
    columns = features[: len(features) - ("radius" in said)]  # but for the constant
    names = None if columns == tuple(map(str, range(len(columns)))) else columns
    return Coding(problem, labels, box, said.get("radius"), "radius" in said, names, classes)
