"""A run beside what its parties could have done otherwise: alone, with all records in one place, by a constant.

Every party's model is scored on that party's own test records, because those are the patients that it treats; then on
everybody's. All of it reads the records without noise: it is for study, and nothing of it is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from coterie.data.parts import Parts
from coterie.drivers.layout import Layout
from coterie.drivers.references import objective, pooled
from coterie.drivers.simulate import Test
from coterie.errors import InputError
from coterie.experiment import Experiment, Outsider
from coterie.passes import gather, in_turns
from coterie.problems import Problem
from coterie.worth.home import at_home, at_homes
from coterie.worth.measures import (
    LESS,
    MEASURES,
    Answers,
    Placed,
    default_measure,
    need_measure,
    numbered,
    place,
    say,
    scores,
    summary,
)
from coterie.worth.verdict import (
    UNKNOWN,
    Gain,
    ModelScores,
    Worth,
    WorthRow,
    gain,
    mean_gain,
    mean_scores,
    value,
)  # fmt: skip

if TYPE_CHECKING:  # which stands above it
    from coterie.released.covered import ToldCovered

__all__ = ["JUDGED", "Judged", "References", "judge", "own_worth", "references"]

P = ParamSpec("P")
T = TypeVar("T")
Pair = tuple[NDArray, NDArray]  # features and targets of records
Later = Callable[[], dict[str, float]]  # what is being worked out meanwhile
References = Literal["none", "alone", "pooled", "all"]
JUDGED = 64  # parties, evenly spaced, whose models are made and scored: a sample says what they are like
MANY = 20_000  # test records beyond which a party's own are asked by themselves
SCORED = 16  # of them, whose models are scored on everybody's test records in every way …
VAST, FEW = 10**6, 4  # … or few, where the test records are so many that a model's scores have no error to speak of


@dataclass(frozen=True)
class Judged:
    """What is said about a run beside its own curves."""

    metrics: dict[str, list[float]] = field(default_factory=dict)  # of the run, one number for each seed
    references: dict[str, dict[str, float]] = field(default_factory=dict)
    worth: Worth | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # what each reference took
    warnings: list[str] = field(default_factory=list)
    covered: ToldCovered | None = None  # scores that were released: they may leave


def judge(
    experiment: Experiment, points: NDArray | None, asked: References = "all", *, measure: str | None = None,
    specificity: float = 0.9, clip: float | None = None, laid: Layout | None = None,
) -> Judged:  # fmt: skip
    """Score a run (`points`: seeds × parties × numbers; None: the references alone), and what `asked` for beside it.

    `clip`: the norm to which the run clips gradients, for which its probabilities are corrected. `laid`: the parties
    as they were laid out for the run, whatever its rounds; laid out anew without.
    """
    if experiment.network.store is not None or experiment.test is None:
        return Judged()
    problem, test = experiment.network.problem, experiment.test
    run = None if points is None else np.asarray(points, float)
    if run is not None and not np.isfinite(run).all():
        run = None  # it diverged, and a warning says so
    if problem.released or problem.coupled:  # nothing is minimised, or nobody can alone
        asked = "none"
    chosen = _spaced(len(experiment.parts), JUDGED)
    seconds, said = dict[str, float](), list[list[Answers]]()
    of_seeds, found = list[Later](), dict[str, Later]()
    best = homes = centre = worth = constant = None
    with in_turns(), ThreadPoolExecutor() as pool:  # compiling, small models and sorting go on beside each other
        if problem.labels.classes is not None and asked != "none":
            constant = pool.submit(_majority, experiment, specificity)
        sided = pool.submit(_one_sided, experiment)
        panel = _Panel.of(problem, test, specificity, pool)
        if asked != "none":
            layout = laid or experiment.layout(1)
            train_loss = objective(layout)
            ready = pool.submit(panel.score, np.zeros((1, problem.dim)), train_loss)  # compiled beside the solver
        if asked in ("pooled", "all"):
            best = pool.submit(_timed, pooled, layout)
        if asked in ("alone", "all"):
            homes = pool.submit(_timed, _homes, experiment, chosen, None if run is None else run[0])
        for seed in [] if run is None else run:
            said.append([panel.ask(x, clip) for x in seed[_spaced(len(seed), panel.closely)]])
            of_seeds.append(panel.sum_up(said[-1]))
        if best is not None:
            (solved, took), _ = best.result(), ready.result()
            centre = np.asarray(solved, float)
            found["pooled"], more = _timed(panel.tell, centre[None], train_loss)
            seconds["pooled_s"] = took + more
        if homes is not None:
            ((alone, blends), took), _ = homes.result(), ready.result()
            if run is not None and experiment.own_test is not None:
                by = measure or default_measure(problem, numbered(problem, test.targets))
                worth = pool.submit(_worth, experiment, by, chosen, run, alone, blends, centre, clip)
            found["alone"], more = _timed(panel.tell, alone, train_loss)
            seconds["alone_s"] = took + more
        each = [later() for later in of_seeds]
        told = {name: later() for name, later in found.items()}
    metrics = {key: [one[key] for one in each] for key in each[0]} if each else {}
    if constant is not None:
        told["majority"] = constant.result()
    gained = None if worth is None else worth.result()
    complaints = _complaints(said, told, gained) if said else []
    return Judged(metrics, told, gained, seconds, [*sided.result(), *complaints])


@dataclass(frozen=True)
class _Panel:
    """Everybody's test records, what is asked about them, and threads for what takes long and needs no device."""

    problem: Problem
    test: Pair
    placed: Placed
    closely: int  # of how many models everything is said
    specificity: float
    pool: Executor

    @classmethod
    def of(cls, problem: Problem, test: Test, specificity: float, pool: Executor) -> _Panel:
        records, closely = (test.features, test.targets), SCORED if len(test.targets) <= VAST else FEW
        return cls(problem, records, place(*records), closely, specificity, pool)

    def ask(self, x: NDArray, clip: float | None = None) -> Answers:  # all at once: one program for every model
        return say(self.problem, x, *self.test, clip, self.placed)

    def sum_up(self, said: list[Answers]) -> Later:
        """Begin to sum these up; their mean, when it is asked for."""
        parts = [self.pool.submit(summary, one, self.specificity) for one in said]
        return lambda: _mean(part.result() for part in parts)

    def tell(self, models: NDArray, train_loss: Callable[[NDArray], float]) -> Later:
        """What is said of a reference: mean loss and score of all its models, the rest of a few."""
        first, *others = models[_spaced(len(models), self.closely)]
        said = self.ask(first)  # compiled here, if it is not yet, and not by all of them
        parts = [self.pool.submit(lambda x: summary(self.ask(x), self.specificity), x) for x in others]
        few = [self.pool.submit(summary, said, self.specificity), *parts]
        whole = self.score(models, train_loss)
        return lambda: whole | _mean(part.result() for part in few)

    def score(self, models: NDArray, train_loss: Callable[[NDArray], float]) -> dict[str, float]:
        """The mean loss and score of models."""
        loss, score = np.mean([train_loss(x) for x in models]), np.mean(scores(self.problem, models, self.placed))
        return {"train_loss": float(loss), "test_score": float(score)}


def references(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Scores and losses of `pooled` and of `alone` (mean over the parties); none where records are streamed."""
    if experiment.network.store is None and experiment.test is None:
        raise InputError("references are scored on test records, and this experiment has none")
    return judge(experiment, None).references


def _timed(f: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[T, float]:
    """What f returns, and the seconds that it took."""
    began = time.perf_counter()
    return f(*args, **kwargs), time.perf_counter() - began


def _spaced(count: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _mean(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    rows = list(rows)
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def _homes(experiment: Experiment, chosen: NDArray, run: NDArray | None) -> tuple[NDArray, NDArray]:
    """The chosen parties' own models, and their blends with their private ones (none without a run)."""
    problem = experiment.network.problem
    records = [(experiment.features[rows], experiment.targets[rows]) for rows in (experiment.parts[i] for i in chosen)]
    centres = np.empty((len(chosen), 0, problem.dim)) if run is None else run[chosen][:, None]
    found = at_homes(problem, records, centres, chosen.tolist())
    return np.array([home.alone for home in found]), np.array([home.blends for home in found])


def _majority(experiment: Experiment, specificity: float) -> dict[str, float]:
    """What always saying the training records' larger class, with its share as the chance, would reach."""
    problem, test = experiment.network.problem, experiment.test
    assert test is not None
    trained, truth = (numbered(problem, t) for t in (experiment.targets, test.targets))
    classes = np.union1d(*(np.flatnonzero(np.bincount(t)) for t in (trained, truth)))
    share = np.array([np.mean(trained == c) for c in classes])
    most = classes[int(share.argmax())]
    out = {"test_score": float(np.mean(truth == most))} if problem.metric == "accuracy" else {}
    if problem.likely:
        chance = np.maximum(share, 1e-12)[np.searchsorted(classes, truth)]
        out["test_log_loss"] = float(-np.mean(np.log(chance)))
        if problem.labels.classes == 2:
            out |= {"test_auc": 0.5, "test_recall": 1 - specificity}
    return out


def _worth(
    experiment: Experiment, by: str, chosen: NDArray, run: NDArray, alone: NDArray, blends: NDArray | None,
    centre: NDArray | None, clip: float | None,
) -> Worth:  # fmt: skip
    """Every chosen party's table row, their mean, and what can be said of both."""
    problem, test, owned = experiment.network.problem, experiment.test, experiment.own_test
    assert test is not None
    assert owned is not None
    assert blends is not None
    found = list[tuple[int, int, ModelScores, Gain | None]]()
    for k, i in enumerate(chosen):
        mine = owned[i]
        ask = lambda x, clip=None: _own(problem, x, (test.features, test.targets), mine, clip)  # noqa: B023, E731
        models = {"alone": [alone[k]], "private": list(run[:, i]), "blend": list(blends[k])}
        if centre is not None:
            models["pooled"] = [centre]
        clips = {"private": clip, "blend": _clip(clip, blends[k][0], run[0, i])}
        said = {name: [ask(x, clips.get(name)) for x in those] for name, those in models.items()} if len(mine) else {}
        reached = {name: _value(by, said[name]) if said else None for name in models}
        scored: ModelScores = {"alone": reached["alone"], "private": reached["private"], "blend": reached["blend"]}
        if centre is not None:
            scored["pooled"] = reached["pooled"]
        found.append((int(i), len(mine), scored, gain(by, said["private"], said["alone"][0]) if said else None))
    known = [gained for *_, gained in found if gained is not None]
    rows: list[WorthRow] = [
        {
            "name": experiment.network.names[i], "records": len(experiment.parts[i]), "test_records": held, **scored,
            **(UNKNOWN if gained is None else gained.told(len(known))),
        }
        for i, held, scored, gained in found
    ]  # fmt: skip
    mean = mean_scores([scored for *_, scored, gained in found if gained is not None])
    return {
        "metric": by,
        "meaning": MEASURES[by],
        "better": "less" if by in LESS else "more",
        "of": len(experiment.parts),
        "seeds": len(run),
        "parties": rows,
        "outsiders": [_outside(experiment, by, other, run, centre, clip) for other in experiment.outsiders],
        "splits": 1,
        "mean": {**mean, **(mean_gain(known).told() if known else UNKNOWN)},
    }


def _own(problem: Problem, x: NDArray, everybody: Pair, mine: NDArray, clip: float | None) -> Answers:
    """What a model says of some test records: all are asked, as one program, unless they are many more than these."""
    rows = 1 << int(len(mine) - 1).bit_length()
    if len(everybody[0]) < max(MANY, 16 * rows):
        return say(problem, x, *everybody, clip).take(mine)
    some = np.resize(mine, rows)  # of few lengths, so that few programs are compiled
    return say(problem, x, everybody[0][some], everybody[1][some], clip).take(np.arange(len(mine)))


def _outside(
    experiment: Experiment, by: str, other: Outsider, run: NDArray, centre: NDArray | None, clip: float | None
) -> WorthRow:  # fmt: skip
    """What the parties' average model is worth to a site that took no part."""
    test, given = other.test, run.mean(axis=1)  # what it would be handed, of every seed
    mine = other.features, other.targets
    return _row(experiment.network.problem, by, other.name, mine, (test.features, test.targets), given, centre, clip)


def own_worth(
    problem: Problem, name: str, records: Pair, test: Pair, point: NDArray, *, measure: str | None = None,
    clip: float | None = None,
) -> Worth:  # fmt: skip
    """What one party's private model is worth to it, as in result.json, by its own records alone.

    `records` and `test` are features and targets in the problem's coding; all of it is computed at home.
    """
    need_measure(problem, measure)
    by = measure or default_measure(problem, numbered(problem, test[1]))
    row = _row(problem, by, name, records, test, np.asarray(point, float)[None], None, clip)
    return {
        "metric": by, "meaning": MEASURES[by], "better": "less" if by in LESS else "more", "of": 1, "seeds": 1,
        "parties": [row], "outsiders": [], "splits": 1,
        "mean": {
            "alone": row["alone"], "private": row["private"], "blend": row["blend"],
            "gain": row["gain"], "low": row["low"], "high": row["high"], "verdict": row["verdict"],
        },
    }  # fmt: skip


def _row(
    problem: Problem, by: str, name: str, records: Pair, test: Pair, given: NDArray, centre: NDArray | None,
    clip: float | None,
) -> WorthRow:  # fmt: skip
    """A site's own model, the models that it is given (of every seed), and their blend, on its own test records."""
    home = at_home(problem, *records, given[:1])
    ask = lambda x, clip=None: say(problem, x, *test, clip)  # noqa: E731
    alone, private = ask(home.alone), [ask(x, clip) for x in given]
    (blend,) = home.blends
    scored: ModelScores = {
        "alone": value(by, alone), "private": _value(by, private),
        "blend": value(by, ask(blend, _clip(clip, blend, given[0]))),
    }  # fmt: skip
    if centre is not None:
        scored["pooled"] = value(by, ask(centre))
    found = gain(by, private, alone)
    told = UNKNOWN if found is None else found.told()
    return {"name": name, "records": len(records[1]), "test_records": len(test[1]), **scored, **told}


def _clip(clip: float | None, blend: NDArray, private: NDArray) -> float | None:
    """With which clip a blend was trained: the private model's where it is that model, none at home."""
    return clip if np.array_equal(blend, private) else None


def _value(by: str, said: Sequence[Answers]) -> float | None:
    found = [value(by, one) for one in said]
    return None if any(v is None for v in found) else float(np.mean([v for v in found if v is not None]))


def _one_sided(experiment: Experiment) -> list[str]:
    """Parties all of whose records are of one class: alone they learn a constant. At home only, as all scores."""
    problem = experiment.network.problem
    if problem.labels.classes is None or problem.released or problem.coupled:
        return []
    names, dealt = experiment.network.names, Parts.of(experiment.parts)
    held, first = gather(numbered(problem, experiment.targets), dealt.rows), dealt.ends[:-1]
    one_class = np.minimum.reduceat(held, first) == np.maximum.reduceat(held, first)
    alike = [names[i] for i in np.flatnonzero(one_class)]
    if not alike:
        return []
    who = ", ".join(alike) if len(alike) <= 3 else f"{len(alike)} of {len(names)} parties"
    return [f"all records of {who} are of one class: there is nothing to tell apart there"]


def _complaints(
    said: list[list[Answers]], found: dict[str, dict[str, float]], worth: Worth | None
) -> list[str]:  # fmt: skip
    """What must not go unsaid: a model that is a constant, or no better than one, or than staying alone."""
    out, models = [], [one for seed in said for one in seed]
    if models[0].classes is not None:
        constant = [one for one in models if one.predicted.min() == one.predicted.max()]
        if constant:
            every = "the model says" if len(constant) == len(models) else f"{len(constant)} of {len(models)} models say"
            out.append(f"{every} one class of every test record, which is as right as a constant")
        right = float(np.mean([np.mean(one.predicted == one.truth) for one in models]))
        constant_right = found.get("majority", {}).get("test_score")
        if not constant and constant_right is not None and right < constant_right:
            out.append(f"accuracy {right:.4f} is below {constant_right:.4f}, what the larger class alone would reach")
    if worth is not None and worth["mean"]["verdict"] == "loses":
        out.append("on their own test records the parties do better alone, without any ε")
    return out
