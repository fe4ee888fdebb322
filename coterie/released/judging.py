"""Covered scores of a trained model: its held-out records, as the public model sees them, released once.

Training and held-out records are disjoint by a public split (by person, where records have people). The scores are a
function of the model, which the training records have paid for, and of the held-out records, which pay here: each
record pays once, so a run and its covered scores together cost a record the larger of the two (parallel composition).
Where records are in both, their costs add up (`overlapping`). What all of them paid before, for quantiles, say, adds to
either (`[privacy.before]`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from coterie.api.accounts import need_unseeded
from coterie.data.partition import by_site
from coterie.data.planned import options_of, sizes_of
from coterie.deploy.accounts import DataAccount
from coterie.deploy.data import Records, write_records
from coterie.drivers.seeds import fresh_seed
from coterie.errors import InputError
from coterie.experiment import Experiment
from coterie.plan import Plan
from coterie.pricing import Priced
from coterie.privacy.accountants import Account, account
from coterie.problems import Problem
from coterie.released.covered import CoveredNumber, CoveredScores, ToldCovered
from coterie.released.moments import Moments
from coterie.released.once import Charge, Once, charged_to, events_of, release_once, release_plan
from coterie.released.scores import Scores
from coterie.worth.measures import Answers, say

__all__ = ["AT_HOME", "COVERED", "Covered", "covered_scores", "overlapping", "scored_records", "write_scored"]

COVERED, AT_HOME = "covered by ε", "at home only"
NO_CHANCES = "the loss states no chances"
MANY_CLASSES = "an AUC is of two classes"


@dataclass(frozen=True, eq=False)
class Covered:
    """Scores that may leave, and what they cost the held-out records."""

    scores: CoveredScores
    once: Once
    records: int
    before: str = ""  # what the same records had paid already, in words

    def as_json(self) -> ToldCovered:
        """The part `covered` of result.json."""
        claim = self.once.priced.claims[0]
        return {
            "marked": COVERED,
            "records": self.records,
            "epsilon": float(claim.account.epsilon),
            "delta": claim.account.delta,
            "claim": claim.name,
            "adversary": claim.adversary,
            "composition": _composition(self.before),
            **self.scores.as_json(),
        }


def _composition(before: str) -> str:
    """What a record pays for a run and its scores together."""
    once = "parallel: held-out records are not training records, so each pays once"
    return f"{once} for these two; {before}" if before else once


def scored_records(
    problem: Problem, point: NDArray, features: NDArray, targets: NDArray, *, clip: float | None = None,
    groups: NDArray | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:  # fmt: skip
    """What a public model says of records, each on its own: (chance, right), and what happened with the group.

    Of two classes the chance is that of the second, which happened or not; of more it is that of the class that was
    predicted, which was right or not. A score without a chance is squeezed between 0 and 1.
    """
    if problem.labels.classes is None:
        raise InputError(f"covered scores are of classes, and {problem.name} predicts none: use statistics")
    said = say(problem, point, features, targets, clip)
    right = (said.predicted == said.truth).astype(float)
    happened = said.truth == 1 if problem.labels.classes == 2 else right > 0
    group = np.zeros(len(right), np.int64) if groups is None else np.asarray(groups, np.int64)
    return np.stack([_chance(problem, said), right], axis=1), happened.astype(np.int64) + 2 * group


def _chance(problem: Problem, said: Answers) -> NDArray[np.float64]:
    if said.chances is not None:
        return said.chances[:, 1] if said.chances.shape[1] == 2 else said.chances.max(axis=1)
    if said.score is None:
        return np.full(len(said.truth), 0.5)
    between = isinstance(problem, Moments) and problem.bins is None  # least squares of −1 and 1; others are log-odds
    return np.clip((1 + said.score) / 2, 0, 1) if between else expit(said.score)


def covered_scores(
    experiment: Experiment, point: NDArray, *, clip: float | None = None, groups: NDArray | None = None,
    names: Sequence[str] = (), bins: int = 20, epsilon: float | None = None, seed: int | None = None,
    charge: Charge | None = None, account: DataAccount | None = None, data: object = None, people: object = None,
) -> Covered:  # fmt: skip
    """Scores of the model at `point` on all held-out records, released as the plan's exchange and budget say.

    Args:
        experiment: the run whose model it is; every party's held-out records are its `own_test`.
        point: the model, which has been paid for.
        clip: the norm to which gradients were clipped as it was trained.
        groups: the number of every held-out record's group, of `names`, which are public; None: one group.
        bins: score bins.
        epsilon: of the held-out records; default: that of the plan, so that all records pay the same.
        seed: of the simulated noise; None: 0 without an account, with one from the operating system.
        charge: hears the events before a record is used.
        account: of the data set: what the scores cost is drawn from it before a record is used, or they are refused.
        data: the records, with an account: of its tables, the one that the held-out records are of.
        people: whose each record of `data` is, where people are the unit: a column, or a list of names;
            default: the plan's column.
    """
    test, problem = experiment.test, experiment.network.problem
    if test is None or experiment.own_test is None:
        raise InputError("covered scores need held-out records of every party, and this run has none")
    if groups is not None and (len(names) < 1 or groups.min() < 0 or groups.max() >= len(names)):
        raise InputError(f"groups must be numbers from 0 to {len(names) - 1}, of the {len(names)} names")
    if charge is not None and account is not None:
        raise InputError("charge and account both pay: give one of them")
    if account is not None:
        need_unseeded(account, seed)
        charge = charged_to(account, experiment.plan, "covered scores", data, _whose(experiment.plan, people))
    drawn = seed if seed is not None else 0 if account is None else fresh_seed()
    released = Scores(bins, max(1, len(names)))
    rows, targets = scored_records(problem, point, test.features, test.targets, clip=clip, groups=groups)
    once = release_once(
        release_plan(experiment.plan, "scores", epsilon=epsilon), released, rows, targets, experiment.own_test,
        names=experiment.network.names, origins=experiment.dataset.origins, seed=drawn, charge=charge,
        people=experiment.tested if experiment.plan.by_person else None,
        apart=not by_site(experiment.plan.partition.kind),
    )  # fmt: skip
    counted = sum(sizes_of(experiment.own_test, experiment.tested if experiment.plan.by_person else None))
    scores = CoveredScores.of(released, once.point, names, records=counted)
    paid = experiment.plan.privacy
    before = "" if paid is None or paid.before is None else paid.before.words(paid.delta)
    return Covered(_known(scores, problem), once, counted, before)


def _whose(plan: Plan, people: object) -> object:
    """Whose the records are, for the account: as it is said, or the plan's own column."""
    if not plan.by_person:
        return None
    if people is None and (people := options_of(plan).get("person")) is None:
        raise InputError("data.unit = 'person', and an account must know whose each record of data is: give people")
    return people


def write_scored(path: Path, rows: NDArray, targets: NDArray, *, groups: int = 1) -> None:
    """A party's `scored_records` as the file that its agent takes under an agreement with `problem.loss = "scores"`."""
    names = tuple(f"{what} {group}" for group in range(groups) for what in ("missed", "happened"))
    write_records(path, Records(np.asarray(rows, float), np.asarray(targets), names, ()))


def _known(scores: CoveredScores, problem: Problem) -> CoveredScores:
    """The scores without those that the model has not got."""
    lacking = {} if problem.likely else {"calibration": NO_CHANCES}
    if problem.labels.classes != 2:
        lacking["auc"] = MANY_CLASSES
    cut = lambda told: {k: CoveredNumber(None, None, lacking[k]) if k in lacking else v for k, v in told.items()}  # noqa: E731
    curve = scores.curve if problem.likely else ()
    return CoveredScores(cut(scores.whole), tuple(map(cut, scores.groups)), curve, scores.names)


def overlapping(first: Priced, second: Priced, delta: float) -> Account:
    """What a record pays that is in both: the costs add up."""
    return account([*events_of(first), *events_of(second)], delta)
