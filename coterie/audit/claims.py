"""One audited claim: an algorithm attacked at a budget, on every loss that it accepts or on one task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.algorithms.base import Algorithm, find
from coterie.api.given import NOTHING_GIVEN, WHOLE, of, shown, takes
from coterie.audit.audit import Verdict, audit
from coterie.audit.checks import Finding, examine, gather
from coterie.audit.matrix import cases
from coterie.audit.sequential import Sequential, sequential
from coterie.audit.setting import RIDGE, Setting, make_setting
from coterie.errors import InputError
from coterie.privacy.ledger import Budget

if TYPE_CHECKING:
    from coterie.api.tasks import Task
    from coterie.problems import Problem
    from coterie.tables.algorithm import AlgorithmPlan

__all__ = ["Found", "attack", "attack_task", "attack_whole"]

TRIALS = 1000  # transcripts in each world
Report = Callable[[float], None]


@dataclass(frozen=True, repr=False)
class Found:
    """One audited claim: what transcripts prove, what the bets say, and what the checks found on every loss."""

    what: str  # where a claim as printed comes from; else empty
    setting: Setting
    verdict: Verdict
    bets: Sequential | None = None  # None where claims as printed are measured
    checks: list[tuple[str, Finding]] | None = None  # (loss and way, finding)
    planned: bool = False  # a plan's claim, at the agents that it has

    @property
    def failed(self) -> list[str]:
        """The checks that did not pass, those that could not decide among them."""
        return [f"{where}: {f.check}: {f.detail}" for where, f in self.checks or () if not f.passed]

    @property
    def looked(self) -> list[str]:
        """Where the checks of a plan looked."""
        return list(dict.fromkeys(where for where, _ in self.checks or ())) if self.planned else []

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        refuted = any(f.verdict == "refuted" for _, f in self.checks or ())
        return self.verdict.violated or refuted or (self.bets is not None and self.bets.refuted)

    @property
    def undecided(self) -> bool:
        """Whether something could not be checked: that is no pass either."""
        return not self.violated and bool(self.failed)

    @property
    def holds(self) -> bool:
        """Whether all of it was checked and nothing contradicts the claim."""
        return not self.violated and not self.undecided

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return "REFUTED" if self.violated else "could not check" if self.undecided else "holds"

    def as_json(self) -> dict[str, object]:
        """The verdict with bets and checks."""
        bets = None if self.bets is None else {"pairs": self.bets.pairs, "refuted": self.bets.refuted,
                                               "level": self.bets.level, "wealth": self.bets.wealth}  # fmt: skip
        where = None if self.checks is None else list(dict.fromkeys(w for w, _ in self.checks))
        failed = None if self.checks is None else self.failed
        return {**self.verdict.as_json(), "where": self.what or None, "losses": where, "failed_checks": failed,
                "sequential": bets, "refuted": self.violated, "undecided": self.undecided}  # fmt: skip

    def __repr__(self) -> str:
        v = self.verdict
        checks = "" if self.checks is None else f", {len(self.checks) - len(self.failed)}/{len(self.checks)} checks"
        claim = f"{v.algorithm} claims ε = {v.epsilon:.4g} at δ = {v.delta:g}"
        return f"<{claim}: {self.word}; {v.trials} transcripts prove ε ≥ {v.lower_bound:.3f}{checks}>"


def attack(
    setting: Setting, checks: list[tuple[str, Finding]], trials: int, report: Report, planned: bool = False
) -> Found:
    """Play transcripts, bet on them, and put that beside what the checks found."""
    verdict = audit(setting, trials, progress=report)
    return Found("", setting, verdict, sequential(setting, trials), checks, planned)


def attack_whole(
    algorithm: Algorithm, budget: Budget, trials: int, report: Report, *, person: bool = False
) -> Found:  # fmt: skip
    """An algorithm on every loss that it accepts, in every way that it runs; transcripts of the first.

    `person`: the worlds differ in a person with many records.
    """
    found, todo = [], cases(algorithm, person=person)
    for k, case in enumerate(todo):
        report(0.5 * k / len(todo))
        found += [(f"{case.loss}, {case.way}", f) for f in case.examine(budget.epsilon)]
    problem = todo[0].problem if person else None
    setting = make_setting(algorithm, epsilon=budget.epsilon, delta=budget.delta, problem=problem)
    return attack(setting, found, trials, lambda share: report(0.5 + share / 2))


@takes(budget=of("ct.Budget(epsilon, delta)", Budget) | NOTHING_GIVEN, trials=WHOLE)
def attack_task(
    algorithm: AlgorithmPlan, task: Task | Problem | None = None, budget: Budget | None = None, *,
    trials: int = TRIALS,
) -> Found:  # fmt: skip
    """Attack our own implementation of an algorithm: what it must spend at least, beside what it claims.

    What is attacked is a party of a small network, on made-up records: no record of yours is needed. With a task, its
    loss in two features (a loss of your own: in as many as it takes); without one every loss that the algorithm
    accepts, as `coterie audit NAME` does.

    Args:
        algorithm: such as `ct.dp_dsgd()`; settings that you give are those that are attacked.
        task: such as `ct.logistic()`.
        budget: whose claim is tested; default (1, 1e-5).
        trials: transcripts in each world.
    """
    from coterie.api.tasks import as_task
    from coterie.plan import validate
    from coterie.tables.algorithm import AlgorithmPlan

    if not isinstance(algorithm, AlgorithmPlan):
        raise InputError(
            f"an algorithm is made by ct.dp_dsgd() and its like, or by ct.algorithm; got {shown(algorithm)}"
        )
    found, budget = find(algorithm.name), Budget(1.0, 1e-5) if budget is None else budget
    budget.check()
    if not found.private:
        raise InputError(f"{found.slug} makes no privacy claim: there is nothing to audit")
    if task is None:
        if algorithm.model_extra:
            raise InputError("settings of an algorithm are attacked on a task: give one, such as ct.logistic()")
        return attack_whole(found, budget, trials, lambda share: None)
    asked = as_task(task)
    plan = validate({"problem": asked.table, "algorithm": algorithm.model_dump()})
    problem = asked.problem(plan, 2)
    cfg = algorithm.config() if algorithm.model_extra else None
    setting = make_setting(
        found, cfg, epsilon=budget.epsilon, delta=budget.delta, problem=problem, ridge=plan.ridge or RIDGE
    )
    checks = [(problem.name, one) for one in examine(gather(setting))]
    return attack(setting, checks, trials, lambda share: None)
