"""What a loss is: a module with its settings, a way to make the problem, and a small example of it.

A module in `coterie.losses`, an entry point of that group, or any module that can be imported, is a loss when it has

    make(settings, features, classes) -> Problem   for records with that many features (and classes; 1: none)
    EXAMPLE: Problem                               a problem of two features, to be audited and tried on

and, where they apply,

    Settings                                       what [problem] may say for it; a subclass of `LossSettings`
    MODEL                                          what people call the trained thing, such as "logistic classifier"
    CLASSES                                        how many classes there are where nobody says it; default 2

The problem states the facts that privacy rests on (`coterie.problems.Problem`). Those of a loss that is not of this
package are tried on made-up records before anything runs; `coterie.testing.check_loss` tries them at length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from coterie.data.planned import finish_of, planned_bins
from coterie.errors import InputError
from coterie.losses import LOSSES, by_labels
from coterie.losses.settings import LossSettings
from coterie.problems.additive import AdditiveModel, bare
from coterie.problems.base import Problem
from coterie.problems.facts import try_facts
from coterie.problems.labels import ClassNumbers
from coterie.problems.people import of_people
from coterie.problems.sets import Constraint, try_set

if TYPE_CHECKING:
    from coterie.plan import Plan

__all__ = ["Loss", "LossSettings", "all_losses", "find_loss", "make_problem", "need_facts", "need_set", "problem_of"]


@dataclass(frozen=True)
class Loss:
    """One loss, as a plan names it."""

    name: str
    make: Callable[[LossSettings, int, int], Problem]
    example: Problem
    settings: type[LossSettings]
    model: str
    classes: int  # where nobody says how many
    text: str  # the module's docstring

    @classmethod
    def of(cls, name: str, module: ModuleType) -> Loss:
        """The loss that a module defines; TypeError where something is missing or of another kind."""
        parts = vars(module)
        if missing := [part for part in ("make", "EXAMPLE") if part not in parts]:
            raise TypeError(f"{module.__name__} is not a loss: it lacks {', '.join(missing)}")
        settings, example = parts.get("Settings", LossSettings), parts["EXAMPLE"]
        if not (isinstance(settings, type) and issubclass(settings, LossSettings)):
            raise TypeError(f"{module.__name__}: Settings is no subclass of coterie.losses.base.LossSettings")
        if not isinstance(example, Problem):
            raise TypeError(f"{module.__name__}: EXAMPLE is no coterie.problems.Problem")
        model, text = parts.get("MODEL", f"{name} model"), module.__doc__ or ""
        return cls(name, parts["make"], example, settings, model, parts.get("CLASSES", 2), text)

    @property
    def of_classes(self) -> bool:
        """Whether the labels are classes; else numbers, or not used."""
        return self.example.labels.classes is not None


@cache
def find_loss(name: str) -> Loss:
    """The loss called `name`, or in the module `name` if it has a dot; an error lists what there is."""
    module = LOSSES.load(name)
    try:
        return Loss.of(name, module)
    except TypeError as error:
        if LOSSES.ours(name):
            raise
        raise InputError(f"loss {name!r}: {error}") from None


@cache
def all_losses() -> dict[str, Loss]:
    """Every loss by its name: found, never listed by hand."""
    return {name: find_loss(name) for name in LOSSES.names}


def problem_of(plan: Plan, loss: str, features: int | None = None, classes: int | None = None) -> Problem:
    """The problem of a loss on records with this many features and classes, with the plan's settings and its unit.

    None: as many as the plan states, or the fewest. An additive model has as many features as bins.
    """
    found, stated, bins = find_loss(loss), plan.problem, planned_bins(plan)
    classes = classes or stated.classes or found.classes
    features = (features or stated.dim) if bins is None else bins.width
    made = found.make(stated.settings(loss), features or 1, classes)
    if stated.within is not None and bins is not None and (stated.smooth or stated.monotone):
        raise InputError("problem.smooth and problem.monotone change a model afterwards: leave out problem.within")
    if stated.within is not None:
        made = made.kept_in(stated.constraint(made.dim, known=features is not None))
    if bins is not None:
        over = getattr(made, "over", None)  # sums over records in bins, of which a model is made afterwards
        made = AdditiveModel(made, bins, finish_of(plan)) if over is None else over(bins, stated.alike)
    return of_people(made) if plan.by_person else made


def make_problem(plan: Plan, name: str, features: int, classes: tuple[str, ...] | None) -> Problem:
    """The plan's problem for records with this many features and these classes; `name` is the data's, for errors."""
    many = None if classes is None else len(classes)
    loss = plan.problem.loss or by_labels(many)
    if many is None and isinstance(find_loss(loss).example.labels, ClassNumbers):
        raise InputError(f"problem.loss = {loss!r} needs classes, but the label of {name!r} is a number")
    if plan.problem.dim not in (None, features):
        raise InputError(f"problem.dim = {plan.problem.dim}, but {name!r} has {features} features")
    if plan.problem.classes not in (None, many):
        raise InputError(f"problem.classes = {plan.problem.classes}, but {name!r} has {many}")
    return problem_of(plan, loss, features, many or 1)


def need_set(problem: Problem) -> None:
    """Refuse a set that is not of this package and whose projection a search finds not to be one."""
    kept = problem.constraint
    if kept is None or type(kept).__module__ == Constraint.__module__:
        return
    try_set(kept, problem.dim)


def need_facts(problem: Problem, columns: int) -> None:
    """Refuse a loss whose statements a made-up record contradicts.

    Those of this package are proved where they are stated, and tried by its tests: they are not tried again.
    """
    need_set(problem)
    ours = {LOSSES.place(name) for name in (*LOSSES.names, *dict(LOSSES.apart)) if LOSSES.ours(name)}
    if type(bare(problem)).__module__ in ours:
        return
    try:
        hash(problem)
    except TypeError:  # it holds arrays
        try_facts(problem, columns)
    else:
        _tried(problem, columns)


_tried = lru_cache(maxsize=4)(try_facts)  # a loss is tried when it is priced, and when its records are there
