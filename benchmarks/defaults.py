"""Defaults against the best of a grid: `python -m benchmarks.defaults [--quick] [--only NAME]… [--keep]`.

Every problem of `benchmarks.suite` is trained by `dp-dsgd` over a complete graph at ε = 1 and 8, δ = 1e-5: with its
default settings, and with every setting of the grid

    rounds 25, 100, 400;  clip 1/4, 1/2, 1 of the bound;  travel 10, 30, 100, …, 30000;  ridge 1e-5, 1e-3

(travel: Σ γ/(1 − β) in units of 1/L, with the momentum and step that `tune` gives it). The setting that is best on
validation records, over its seeds of noise, is run again with fresh noise and scored on test records, as the defaults
are: what is compared is settings, not luck. The score is AUC, of every draw of noise, and the share (default −
.5)/(best − .5) of their means: a model that knows the majority only has .5.

`--quick` takes the problems of few records. Data are found through COTERIE_DATA, and downloaded otherwise; a problem
whose data are missing is named.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.measured import Row, arguments, beside, finish
from benchmarks.suite import SUITE, Case, Records
from coterie.algorithms import dp_dsgd
from coterie.data.dataset import ALL_PUBLIC
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.experiment import Experiment, assemble
from coterie.losses.logistic import Logistic
from coterie.plan import validate
from coterie.pricing import Priced, price

EPSILONS, DELTA = (1.0, 8.0), 1e-5
ROUNDS, CLIPS, RIDGES = (25, 100, 400), (0.25, 0.5, 1.0), (1e-5, 1e-3)
TRAVELS = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)
OFTEN = 8  # times as many draws of noise where records are few


@dataclass(frozen=True)
class Tried:
    """A problem with its records at hand."""

    case: Case
    records: Records

    def experiment(self, epsilon: float, ridge: float | None, rounds: int | None) -> Experiment:
        """Its training records with a plan."""
        training, _, _ = self.records.parts()
        plan = validate(
            {
                "name": self.case.name,
                "graph": {"kind": "complete"},
                "problem": {} if ridge is None else {"ridge": ridge},
                "privacy": {"epsilon": epsilon, "delta": DELTA},
                "run": {"dtype": "float32"} | ({} if rounds is None else {"rounds": rounds}),
            }
        )
        x, y = (part[training].astype(np.float32) for part in (self.records.features, self.records.targets))
        parts = np.array_split(np.arange(len(x)), self.case.agents)
        names = [f"agent {i}" for i in range(len(parts))]
        return assemble(plan, Logistic(x.shape[1]), x, y, parts, names=names, origins=ALL_PUBLIC)

    def scores(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """AUC of every run's model."""
        x, positive = self.records.features[rows], self.records.targets[rows] > 0
        return np.array([roc_auc_score(positive, x @ point) for point in points])


def train(
    experiment: Experiment, priced: Priced, configs: Sequence[dp_dsgd.Config], seeds: Sequence[int]
) -> np.ndarray:
    """(configs, seeds, dim): the average model of every run."""
    runs = [Run(seed, cfg, priced.noise) for cfg in configs for seed in seeds]
    layout = experiment.layout(priced.rounds, priced.shape)
    trace = simulate(priced.algorithm, layout, runs, rounds=priced.rounds, every=priced.rounds)
    return np.asarray(trace.points).mean(axis=1).reshape(len(configs), len(seeds), -1)


def grid(rounds: int, smoothness: float, bound: float) -> Iterator[dp_dsgd.Config]:
    """Every clip and travel, with the step and momentum that `tune` gives such a travel."""
    for clip, travel in itertools.product(CLIPS, TRAVELS):
        step, rest = dp_dsgd.paced(travel / smoothness, rounds, smoothness)
        yield dp_dsgd.Config(step=step, momentum=1 - rest, clip=clip * bound, mixing=1)


def rows_of(case: Case, seeds: int) -> Iterator[tuple[float, float, Row]]:
    """For every ε the share, and its line: a ratio of AUC for every draw of noise."""
    tried = Tried(case, case.make())
    _, validation, testing = tried.records.parts()
    drawn = seeds * (OFTEN if case.small else 1)
    first, fresh = range(drawn), range(1000, 1000 + 4 * drawn)
    for epsilon in EPSILONS:
        experiment = tried.experiment(epsilon, None, None)
        priced = price(experiment.plan, experiment.network, fast=True)
        default = tried.scores(train(experiment, priced, [priced.cfg], fresh)[0], testing)
        best = -math.inf, 0, 0.0, priced.cfg
        for rounds, ridge in itertools.product(ROUNDS, RIDGES):
            experiment = tried.experiment(epsilon, ridge, rounds)
            priced_at = price(experiment.plan, experiment.network, fast=True)
            public = priced_at.public
            configs = list(grid(rounds, public.smoothness, public.lipschitz))
            found = train(experiment, priced_at, configs, first)
            for cfg, points in zip(configs, found, strict=True):
                best = max(best, (tried.scores(points, validation).mean(), rounds, ridge, cfg), key=lambda b: b[0])
        _, rounds, ridge, cfg = best
        experiment = tried.experiment(epsilon, ridge, rounds)
        again = train(experiment, price(experiment.plan, experiment.network, fast=True), [cfg], fresh)[0]
        share, travel = cfg.clip / priced.public.lipschitz, cfg.step * rounds / (1 - cfg.momentum)
        chosen = f"T {rounds}, C {share:g}, travel {travel * priced.public.smoothness:.0f}, ridge {ridge:g}"
        score = tried.scores(again, testing)
        reached = float((default.mean() - 0.5) / (score.mean() - 0.5))
        what = f"{case.name} ({case.half}), ε = {epsilon:g}, T {priced.rounds}: AUC, {reached:.3f} of the best above .5"
        theirs = f"best of the grid ({chosen})", score.tolist()
        yield epsilon, reached, beside(what, default.tolist(), *theirs, "{:.3f}", cost=False)


def main() -> None:
    """Print and store a line for every problem and ε."""
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="only problems of few records")
    parser.add_argument("--only", action="append", choices=[c.name for c in SUITE], help="only this problem")
    parser.add_argument("--seeds", type=int, default=1, help="draws of noise for a setting (more if records are few)")
    args = parser.parse_args()
    rows, missing, shares = list[Row](), list[str](), dict[tuple[str, float], list[float]]()
    for case in SUITE:
        if (args.only and case.name not in args.only) or (args.quick and not case.small):
            continue
        try:
            for epsilon, share, row in rows_of(case, args.seeds):
                rows.append(row)
                shares.setdefault((case.half, epsilon), []).append(share)
                print(row.what, flush=True)
        except InputError as error:
            missing.append(case.name)
            print(f"{case.name}: {error}", flush=True)
    for (half, epsilon), values in sorted(shares.items()):
        what = f"{len(values)} problems ({half}), ε = {epsilon:g}: share above .5"
        rows.append(beside(what, values, "best of the grid", 1.0, "{:.3f}", cost=False))
    note = f"Draws of noise: {4 * args.seeds}, and {OFTEN} times as many where records are few."
    note += f" Data are missing: {', '.join(missing)}." if missing else ""
    finish(args, "Defaults beside the best of a grid", rows, note)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", False)
    main()
