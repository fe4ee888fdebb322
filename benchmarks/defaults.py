"""Defaults against the best of a grid: `python -m benchmarks.defaults [--quick] [--only NAME]…`.

Every problem of `benchmarks.suite` is trained by `dp-dsgd` over a complete graph at ε = 1 and 8, δ = 1e-5: with its
default settings, and with every setting of the grid

    rounds 25, 100, 400;  clip 1/4, 1/2, 1 of the bound;  travel 10, 30, 100, …, 30000;  ridge 1e-5, 1e-3

(travel: Σ γ/(1 − β) in units of 1/L, with the momentum and step that `tune` gives it). The setting that is best on
validation records, over its seeds of noise, is run again with fresh noise and scored on test records, as the defaults
are: what is compared is settings, not luck. The score is AUC, and the share (default − .5)/(best − .5): a model that
knows the majority only has .5.

`--quick` takes the problems of few records. Data are found through COTERIE_DATA, and downloaded otherwise; a problem
whose data are missing is named in the table.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from sklearn.metrics import roc_auc_score

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
class Row:
    """One line of the table."""

    case: Case
    epsilon: float
    default: float
    best: float
    rounds: int  # of the default
    chosen: str  # the best setting

    @property
    def share(self) -> float:
        """What of the best the default reaches, above the majority's .5."""
        return (self.default - 0.5) / (self.best - 0.5)


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


def rows_of(case: Case, seeds: int) -> Iterator[Row]:
    """Its lines of the table."""
    tried = Tried(case, case.make())
    _, validation, testing = tried.records.parts()
    drawn = seeds * (OFTEN if case.small else 1)
    first, fresh = range(drawn), range(1000, 1000 + 4 * drawn)
    for epsilon in EPSILONS:
        experiment = tried.experiment(epsilon, None, None)
        priced = price(experiment.plan, experiment.network, fast=True)
        default = tried.scores(train(experiment, priced, [priced.cfg], fresh)[0], testing).mean()
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
        score = tried.scores(again, testing).mean()
        yield Row(case, epsilon, float(default), float(score), priced.rounds, chosen)


def table(rows: Sequence[Row], missing: Sequence[str]) -> str:
    """The table for docs."""
    head = ("problem", "half", "ε", "default", "best of grid", "share", "rounds", "best setting")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for r in rows:
        numbers = f"{r.default:.3f} | {r.best:.3f} | {r.share:.3f} | {r.rounds} | {r.chosen}"
        lines.append(f"| {r.case.name} | {r.case.half} | {r.epsilon:g} | {numbers} |")
    lines += [f"| {name} | | | data are missing | | | | |" for name in missing]
    for half, epsilon in itertools.product(("choosing", "reporting"), EPSILONS):
        if shares := [r.share for r in rows if r.case.half == half and r.epsilon == epsilon]:
            lines.append(
                f"| **mean** | {half} | {epsilon:g} | | | **{np.mean(shares):.3f}** | | least {min(shares):.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description="defaults against the best of a grid")
    asked.add_argument("--quick", action="store_true", help="only problems of few records")
    asked.add_argument("--only", action="append", choices=[c.name for c in SUITE], help="only this problem")
    asked.add_argument("--seeds", type=int, default=1, help="draws of noise for a setting (more if records are few)")
    given = asked.parse_args()
    rows, missing, began = [], [], time.monotonic()
    for case in SUITE:
        if given.only and case.name not in given.only:
            continue
        if given.quick and not case.small:
            continue
        try:
            for row in rows_of(case, given.seeds):
                rows.append(row)
                print(f"{case.name}, ε = {row.epsilon:g}: {row.share:.3f}", flush=True)
        except InputError as error:
            missing.append(case.name)
            print(f"{case.name}: {error}", flush=True)
    print(f"\n{table(rows, missing)}\n\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", False)
    main()
