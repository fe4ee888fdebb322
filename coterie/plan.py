"""A plan: one TOML file that says what is trained, on which graph, by which algorithm, at what price.

The same plan drives simulation, accounting and deployment. Reading one checks every key, type and range before any
data is touched; a mistake is an InputError of one line that names the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from coterie.data.planned import check_bins, check_source, knows_people, planned_bins
from coterie.errors import InputError
from coterie.settings import Naming, Settings, one_line
from coterie.tables.algorithm import REFERENCES, AlgorithmPlan
from coterie.tables.deploy import DeployPlan
from coterie.tables.links import ExchangePlan, GraphPlan
from coterie.tables.privacy import PrivacyPlan
from coterie.tables.problem import ProblemPlan
from coterie.tables.records import DataPlan, PartitionPlan
from coterie.tables.run import RunPlan
from coterie.written import read_tree

__all__ = [
    "Plan",
    "read_plan",
    "refuse_ignored",
    "stated_seeds",
    "validate",
]  # fmt: skip

MOST_SUMMED = 254  # deployed parties of a secret sum


class Plan(Settings):
    """A whole plan."""

    name: str = Field("unnamed", description="shown in reports")
    data: DataPlan = Field(default_factory=DataPlan)
    partition: PartitionPlan = Field(default_factory=PartitionPlan)
    graph: GraphPlan = Field(default_factory=GraphPlan)
    problem: ProblemPlan = Field(default_factory=ProblemPlan)
    algorithm: AlgorithmPlan = Field(default_factory=AlgorithmPlan)
    privacy: PrivacyPlan | None = None
    exchange: ExchangePlan = Field(default_factory=ExchangePlan)
    run: RunPlan = Field(default_factory=RunPlan)
    deploy: DeployPlan | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        budgets = self.privacy.epsilon if self.privacy is not None else None
        known = self.partition.agents or (len(self.partition.sizes) if self.partition.sizes else None)
        if isinstance(budgets, list) and known not in (None, len(budgets)):
            raise ValueError(f"privacy.epsilon lists {len(budgets)} budgets for {known} parties")
        if self.partition.sizes is not None and self.partition.agents not in (None, len(self.partition.sizes)):
            raise ValueError(
                f"partition.agents is {self.partition.agents} but partition.sizes lists {len(self.partition.sizes)}"
            )
        return self

    @property
    def ridge(self) -> float:
        """The ridge that is run with: `validate` states it where the plan's author did not."""
        assert self.problem.ridge is not None
        return self.problem.ridge

    @property
    def weighting(self) -> Literal["agents", "records"]:
        """What counts equally: `validate` states it too."""
        assert self.problem.weighting is not None
        return self.problem.weighting

    @property
    def by_person(self) -> bool:
        """Whether the unit of privacy is a person: `validate` states it where the data say whose a record is."""
        return self.data.unit == "person"

    def as_json(self) -> dict[str, object]:
        """The plan as plain data, the way it is stored in results."""
        return self.model_dump(mode="json", exclude_none=True)


def read_plan(path: Path | None, changes: list[str] | None = None) -> Plan:
    """Read and check a plan (the embedded default without a path); `changes` are "table.key=value" overrides."""
    tree = read_tree(path, "default.toml", changes)
    try:
        return validate(tree)
    except InputError as error:
        raise InputError(f"{path or 'default plan'}: {error}") from None


def validate(tree: object, foreign: bool = False) -> Plan:
    """Check plain data as a plan, with the settings of all that it names.

    A `foreign` plan came from somebody else: it may name what is installed, and not any module, since to look a module
    up is to run it.
    """
    try:
        plan = Plan.model_validate(tree)
    except ValidationError as error:
        raise InputError(one_line(error, Plan)) from None
    if foreign:
        for name in type(plan).model_fields:
            if isinstance(table := getattr(plan, name), Naming):
                table.refuse_modules()
    plan.partition.check()
    if plan.privacy is not None:
        plan.privacy.check()
    check_source(plan)
    plan = _with_unit(plan, foreign)
    plan.graph.check()
    plan.exchange.check()
    plan.algorithm.check_unloaded()
    plan.problem.check_unloaded()
    plan.algorithm.config()
    plan.problem.settings()
    plan.problem.check_within()
    check_bins(plan)
    _check_sums(plan)
    return _with_objective(plan)


def _with_unit(plan: Plan, foreign: bool) -> Plan:
    """The plan with its unit of privacy stated, where the data say whose a record is.

    An agreement that does not state it was signed when records were the only unit.
    """
    data, known = plan.data, knows_people(plan)
    if data.unit is None and known:
        unit = "record" if foreign else "person"
        plan = plan.model_copy(update={"data": data.model_copy(update={"unit": unit})})
    if data.unit == "person" and not known:
        raise InputError(
            f"data.unit = 'person', but data.source = {data.source!r} does not say whose a record is: state data.person"
        )
    if plan.by_person and data.records_per_person is None and plan.deploy is not None:
        raise InputError(
            "data.records_per_person is needed where parties are deployed and the unit is a person: how many records "
            "somebody has must not show in what a party does"
        )
    if not plan.by_person and data.records_per_person is not None:
        raise InputError(
            f"data.records_per_person = {data.records_per_person} is for data.unit = 'person', and the unit is a record"
        )
    return plan


def _check_sums(plan: Plan) -> None:
    """Refuse sums between more deployed parties than their frames can name."""
    if plan.deploy is not None and plan.exchange.sums is not None and len(plan.deploy.parties) > MOST_SUMMED:
        raise InputError(
            f"deploy.parties lists {len(plan.deploy.parties)} parties, but exchange.kind = 'secret-sum' is deployed "
            f"between at most {MOST_SUMMED}"
        )


def _with_objective(plan: Plan) -> Plan:
    """The plan with its algorithm's ridge, its weighting and the number of its bins: price and agreement name them."""
    from coterie.algorithms.base import Algorithm, find

    stated: dict[str, object] = {}
    if plan.problem.ridge is None:
        stated["ridge"] = Algorithm.ridge if plan.algorithm.name in REFERENCES else find(plan.algorithm.name).ridge
    if plan.problem.dim is None and plan.problem.loss is not None:
        stated |= {} if (features := plan.problem.settings().features) is None else {"dim": features}
    if plan.problem.weighting is None:
        stated["weighting"] = "records" if plan.exchange.central else "agents"
    if plan.problem.dim is None and (bins := planned_bins(plan)) is not None:
        stated["dim"] = bins.width
    return plan.model_copy(update={"problem": plan.problem.model_copy(update=stated)}) if stated else plan


def refuse_ignored(plan: Plan, who: str, *keys: str) -> None:
    """Refuse keys that `who` would not obey, where the plan says anything but their defaults."""
    for key in keys:
        table, _, name = key.partition(".")
        section = getattr(plan, table)
        if section is None:
            continue
        value, default = getattr(section, name), type(section).model_fields[name].get_default(call_default_factory=True)
        if value != default:
            raise InputError(f"{key} = {value!r} is not obeyed by {who}: leave it out")


def stated_seeds(plans: Sequence[Plan], otherwise: int) -> int:
    """How many repetitions the plans ask for; several plans that state a number state the same."""
    stated = {plan.run.seeds for plan in plans if "seeds" in plan.run.model_fields_set}
    if len(stated) > 1:
        raise InputError(f"the plans state different run.seeds, {sorted(stated)}: say --seeds")
    return stated.pop() if stated else otherwise
