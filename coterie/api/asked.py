"""What a call asks for, as a plan: the same checks, the same price and the same certificate as `coterie run`.

    task, parties, algorithm, budget  ->  Plan, problem, public network

No record is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.algorithms.base import PRINTED
from coterie.api.bounds import box
from coterie.api.coding import Coding, class_order, columns_of, columns_taken, misfit
from coterie.api.given import NUMBER, shown
from coterie.api.parties import Parties
from coterie.api.tasks import Task, as_task
from coterie.contracts import check_contract
from coterie.data.dataset import Dataset
from coterie.errors import InputError
from coterie.losses.base import need_facts
from coterie.network import Network
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy.ledger import Budget
from coterie.problems import Custom, Problem, of_people
from coterie.tables.algorithm import AlgorithmPlan

__all__ = ["Asked", "ask", "auto", "check_settings", "need_dimension"]

MEAN_MIXING = 20  # rounds of averaging after a mean's one release: for the parties' own copies, their mean needs none


@dataclass(frozen=True, eq=False)
class Asked:
    """A plan with what it is about."""

    plan: Plan
    task: Task
    problem: Problem
    network: Network  # public
    coding: Coding


def ask(
    task: Task | Problem, parties: Parties, algorithm: AlgorithmPlan | None, budget: Budget | Sequence[Budget] | None,
    *, rounds: int | None = None, seeds: int = 1, seed: int = 0, name: str = "run",
    levels: Sequence[float] | Sequence[Sequence[float]] | None = None,
    away: Mapping[str | int, Sequence[tuple[int, int]]] | None = None, adaptive: bool = False,
) -> Asked:  # fmt: skip
    """The plan of a call; refused where algorithm, budget, graph and loss do not go together.

    `adaptive`: whether a function chooses the noise of each round, from what was released.
    """
    task = as_task(task)
    if not isinstance(parties, Parties):
        raise InputError(f"parties are made by ct.ring(sites) and its like, or by ct.graph; got {shown(parties)}")
    if algorithm is not None and not isinstance(algorithm, AlgorithmPlan):
        raise InputError(
            f"an algorithm is made by ct.dp_dsgd() and its like, or by ct.algorithm; got {shown(algorithm)}"
        )
    if algorithm is None:
        algorithm, rounds = auto(task.name == "mean" or (task.own is not None and task.own.isotropic), {}, rounds)
    columns = list(parties.columns or ())
    where = None if parties.bounds is None or not columns else box(parties.bounds, columns, "features", "bounds")
    width = (parties.features or 1) + int(task.constant and parties.bounds is not None)
    binned = task.attributes is not None
    if binned and parties.bounds is not None:
        raise InputError("bounds: an additive model takes the range of every column from its attributes; leave it out")
    if levels is not None:
        if budget is None:
            raise InputError("levels spread a budget over the rounds: give one, such as ct.Budget(1.0, 1e-5)")
        plain = np.asarray(levels, float).tolist() if len({np.size(row) for row in levels}) == 1 else list(levels)
        rounds = np.shape(plain)[-1] if rounds is None else rounds
    tree: dict[str, Any] = {
        "name": name,
        "graph": parties.network,
        "partition": {"sizes": list(parties.sizes)},
        "problem": task.table | ({} if task.own is not None or not columns or binned else {"dim": width}),
        "algorithm": _settings(algorithm),
        "run": {"seed": seed, "seeds": seeds} | ({} if rounds is None else {"rounds": rounds}),
    }
    if away and len({str(who) for who in away}) < len(away):
        raise InputError(
            f"away names a party by number and by text: {', '.join(map(repr, away))}; give all its spans once"
        )
    if away:
        tree["run"]["away"] = {str(who): [list(span) for span in spans] for who, spans in away.items()}
    if adaptive and budget is None:
        raise InputError("adaptive chooses the noise that a budget pays for: give one, such as ct.Budget(1.0, 1e-5)")
    if budget is not None:
        tree["privacy"] = _privacy(budget, len(parties))
        if levels is not None:
            tree["privacy"] |= {"schedule": "listed", "schedule_options": {"levels": plain}}
        if adaptive:
            tree["privacy"]["adaptive"] = "own"
    tree["data"] = {"source": "memory", "options": {"attributes": task.attributes} if binned else {}}
    if parties.by_person:
        tree["data"]["unit"] = "person"
    problem = task.problem(validate(tree), width)
    width = problem.columns if binned else width
    problem = of_people(problem) if parties.by_person else problem
    names = None if columns == list(map(str, range(len(columns)))) else parties.columns
    coding = Coding(problem, task.labels, where, parties.radius, task.constant, names, _classes(task, parties))
    tree["data"]["options"] |= coding.options()
    plan = validate(tree)
    if (budget is not None) != _private(plan):
        private, advice = "private", "give it a budget, such as ct.Budget(1.0, 1e-5)"
        if budget is not None:
            private, advice = "not private", "it has no price, and takes no budget"
        raise InputError(f"{plan.algorithm.name} is {private}: {advice}")
    check_contract(plan, problem)
    if columns and columns_of(problem) not in (None, width):
        raise InputError(f"the loss takes {columns_of(problem)} features, and the records have {width}")
    if columns and isinstance(problem, Custom) and (why := misfit(problem, width)):
        raise InputError(f"{problem.name} does not fit records of {width} features: {why}")
    if task.own is not None:
        need_facts(problem, width if columns else columns_taken(problem))
    network = Network.of(plan, problem, np.array(parties.sizes), parties.names, leaks=parties.leaks)
    return Asked(plan, task, problem, network, coding)


def _classes(task: Task, parties: Parties) -> tuple[str, ...] | None:
    """The classes of the parties' data sets, in the order of the task's labels."""
    held = [(i, one.classes) for i, one in enumerate(parties.sites or ()) if isinstance(one, Dataset)]
    return class_order(task.labels, held[0][1], f"site {held[0][0]}") if held else None


def need_dimension(asked: Asked, parties: Parties) -> None:
    """Refuse a price that depends on the number of features where nobody has said it."""
    if parties.features is not None or asked.task.own is not None:
        return
    wider = asked.task.problem(asked.plan, 7)
    other = replace(asked.network, problem=of_people(wider) if asked.plan.by_person else wider)
    if not np.allclose(price(asked.plan, asked.network).noise, price(asked.plan, other).noise, rtol=1e-6):
        raise InputError(
            f"the price of {asked.plan.algorithm.name} depends on the number of features: give features=… beside sizes"
        )


def _private(plan: Plan) -> bool:
    from coterie.algorithms.base import find

    return find(plan.algorithm.name).private


def auto(mean: bool, settings: Mapping[str, object], rounds: int | None) -> tuple[AlgorithmPlan, int | None]:
    """The public rule where no algorithm is named: it looks at the kind of problem and at nothing else.

    A mean is one noisy release and free averaging: no method with this adversary has less error.
    """
    if mean:
        made = AlgorithmPlan.model_validate({"name": "dp-consensus-gd", "step": 1.0, "stage_one": 1, **settings})
        return made, 1 + MEAN_MIXING if rounds is None else rounds
    return AlgorithmPlan.model_validate({"name": "dp-dsgd", **settings}), rounds


def check_settings(
    problems: Sequence[Problem], *, epsilon: float | Sequence[float], delta: float, algorithm: str,
    settings: Mapping[str, object] | None, graph: str | Mapping[str, object], rounds: int | None,
) -> None:  # fmt: skip
    """Refuse settings that fit none of these problems; neither records nor parties are needed for that."""
    if algorithm == "auto":
        chosen, rounds = auto(problems[0].isotropic, settings or {}, rounds)
    else:
        chosen = AlgorithmPlan.model_validate({"name": algorithm, **(settings or {})})
    plan = validate(
        {
            "graph": dict(graph) if isinstance(graph, Mapping) else {"kind": graph},
            "problem": {"ridge": 0.0} if problems[0].isotropic else {},
            "algorithm": _settings(chosen),
            "privacy": {"epsilon": epsilon if np.ndim(epsilon) == 0 else list(epsilon), "delta": delta},  # type: ignore[arg-type]
            "run": {} if rounds is None else {"rounds": rounds},
        }
    )
    check_contract(plan, *problems)


def _settings(algorithm: AlgorithmPlan) -> dict[str, object]:
    chosen = algorithm.model_dump()
    if chosen.get(PRINTED):
        raise InputError(f"{PRINTED} runs are for study and not private: ask for one in a plan file")
    return chosen


def _privacy(budget: Budget | Sequence[Budget], parties: int) -> dict[str, object]:
    """The plan's [privacy] of one budget for all, or of one for each."""
    each = [budget] if isinstance(budget, Budget) else list(budget) if isinstance(budget, list | tuple) else []
    if not each or not all(isinstance(one, Budget) for one in each):
        raise InputError(
            f"a budget is ct.Budget(epsilon, delta), or a list with one for each party; got {shown(budget)}"
        )
    for one in each:
        if not all(map(NUMBER.fits, one)):
            raise InputError(
                f"{one} must hold two numbers; for budgets that differ give a list with one for each party"
            )
        one.check()
    if isinstance(budget, Budget):
        return {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}
    if len(each) != parties:
        raise InputError(f"{len(each)} budgets for {parties} parties")
    if len({one.delta for one in each}) > 1:
        raise InputError(f"budgets may differ in epsilon only, got delta {sorted({one.delta for one in each})}")
    return {"epsilon": [float(one.epsilon) for one in each], "delta": float(each[0].delta)}
