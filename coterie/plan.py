"""A plan: one TOML file that says what is trained, on which graph, by which algorithm, at what price.

The same plan drives simulation, accounting and deployment. Reading one checks every key, type and range before any
data is touched; a mistake is an InputError of one line that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from coterie.algorithms import ALGORITHMS
from coterie.arguments import MOST
from coterie.data.partitions import PARTITIONS, site
from coterie.data.planned import check_bins, check_source, knows_people, planned_bins
from coterie.data.sources import SOURCES
from coterie.errors import InputError
from coterie.exchange.kinds import KINDS as EXCHANGES
from coterie.exchange.kinds import secret_sum
from coterie.found import Kinds
from coterie.graphs import KINDS as GRAPHS
from coterie.graphs import RULES, Graph, Mixing, build_graph, build_mixing
from coterie.losses import LOSSES
from coterie.losses.settings import LossSettings
from coterie.names import host_and_port, party_name, title_of
from coterie.privacy.adaptive import RULES as ADAPTIVE
from coterie.privacy.adaptive import make as make_rule
from coterie.privacy.schedules import SCHEDULES
from coterie.privacy.schedules import make as make_schedule
from coterie.sets import SETS, check_options, make_set
from coterie.settings import Choosing, Naming, Settings, one_line, read
from coterie.written import read_tree

if TYPE_CHECKING:
    from coterie.algorithms.base import Config
    from coterie.problems.sets import Constraint

__all__ = [
    "REFERENCES",
    "AlgorithmPlan",
    "DataPlan",
    "DeployPlan",
    "ExchangePlan",
    "GraphPlan",
    "PartitionPlan",
    "PartyPlan",
    "Plan",
    "PrivacyPlan",
    "ProblemPlan",
    "RunPlan",
    "read_plan",
    "refuse_ignored",
    "stated_seeds",
    "validate",
]  # fmt: skip

REFERENCES = {
    "pooled": "The optimum of all agents' data in one place: what decentralized learning tries to reach. Not private.",
    "alone": "Every agent trains on its own data and sends nothing: what it gets without the others.",
}
MOST_SUMMED = 254  # deployed parties of a secret sum
Positive = Annotated[float, Field(gt=0)]
Epsilon = Annotated[float, Field(gt=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=2**31)]


class DataPlan(Naming):
    """[data] Which records."""

    table: ClassVar[str] = "data"
    choices: ClassVar[Mapping[str, Kinds]] = {"source": SOURCES}
    source: str = Field("clinics", description="data set, form of a table, or your own, as package.module")
    path: Path | None = Field(
        None,
        description="file, for csv and parquet; folder of a store; or where a named data set lies; "
        "relative to the plan's file",
    )
    label: str | None = Field(None, description="label column, for csv and parquet")
    site: str | None = Field(None, description="column that says which site a record belongs to")
    person: str | None = Field(
        None, description="column that says whose a record is: the person is then the unit of privacy"
    )
    unit: Literal["record", "person"] | None = Field(
        None,
        description="who is protected: one record, or a person with all of its records at a party "
        "([people](people.md)); default: person, where the data say whose a record is",
    )
    records_per_person: Count | None = Field(
        None,
        description="how many records of a person are used at most, its first ones; default: all. A deployment needs "
        "it: nothing that a party does may show how many somebody has",
    )
    test_fraction: float = Field(0.2, gt=0, lt=1, description="share of records held out for testing")
    seed: int = Field(0, ge=0, description="seed of the train/test split and of made data (public)")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="loader options, e.g. coding = 'onehot'; `data.codebook` may name a file that has some of them",
    )


class PartitionPlan(Choosing):
    """[partition] Who holds which records."""

    table: ClassVar[str] = "partition"
    choices: ClassVar[Mapping[str, Kinds]] = {"kind": PARTITIONS}
    kind: str = Field("site", description="how records are split over agents; or your own, as package.module")
    agents: int | None = Field(None, ge=2, le=10**8, description="number of agents; by site: all sites")
    sizes: list[Count] | None = Field(
        None, description="records of each agent (people, where they are the unit): sizes are public and fix the noise"
    )

    @property
    def outsiders(self) -> list[str]:
        """Sites that take no part."""
        found = self.chosen("kind")
        return found.outsiders if isinstance(found, site.Settings) else []


class GraphPlan(Choosing):
    """[graph] Who talks to whom, with which weights."""

    table: ClassVar[str] = "graph"
    choices: ClassVar[Mapping[str, Kinds]] = {"kind": GRAPHS, "mixing": RULES}
    kind: str = Field("ring", description="topology; or your own, as package.module")
    mixing: str = Field("metropolis", description="rule of the mixing matrix; or your own, as package.module")

    def graph(self, size: int) -> Graph:
        """The graph that the table describes, with `size` nodes."""
        return build_graph(self.kind, size, self.chosen("kind"))

    def weights(self, graph: Graph) -> Mixing:
        """The mixing matrix that the table describes, on a graph."""
        return build_mixing(graph, self.mixing, self.chosen("mixing"))


class ProblemPlan(Naming):
    """[problem] What is minimised: the keys of all losses, and those of the chosen one ([losses](losses.md))."""

    model_config = ConfigDict(extra="allow")
    table: ClassVar[str] = "problem"
    choices: ClassVar[Mapping[str, Kinds]] = {"loss": LOSSES, "within": SETS}
    loss: Annotated[str, AfterValidator(LOSSES.check)] | None = Field(
        None,
        description="a name, or your own as package.module; "
        "default: logistic for two classes, softmax for more, squared for numbers",
    )
    ridge: float | None = Field(
        None,
        ge=0,
        description="ridge/2 ‖x‖² added to every agent's objective; default: the algorithm's own, 1e-5 for dp-dsgd and "
        "1e-3 for the others",
    )
    weighting: Literal["agents", "records"] | None = Field(
        None,
        description="what counts equally: agents or records; default: records where noise is shared "
        '(`exchange.noise = "central"`), whose heaviest record sets it for all, else agents',
    )
    model: Literal["linear", "additive"] | None = Field(
        None,
        description="'additive': a curve for each attribute over public bins ([additive models](additive.md)); "
        "default: linear in the features, or as the loss says",
    )
    bins: dict[str, bool | float | list[float] | str] | None = Field(
        None,
        description="of an additive model, by attribute: a step, a list of edges, 'log' (quarter decades), or false to "
        "leave it out; default: round numbers from its public range",
    )
    pairs: list[tuple[str, str]] | None = Field(
        None, description="of an additive model: pairs of attributes that have a bin for each two of theirs"
    )
    alike: float | None = Field(
        None,
        ge=0,
        le=0.99,
        description="of an additive model: how alike neighbouring bins of a number are beforehand, from 0 to .99; "
        "default: .5",
    )
    smooth: float | None = Field(
        None, ge=0, description="of an additive model: how much neighbouring bins are pulled together, afterwards"
    )
    monotone: dict[str, Literal["up", "down"]] | None = Field(
        None, description="of an additive model, by attribute: 'up' or 'down', a curve that never falls or never rises"
    )
    within: str | None = Field(
        None,
        description="keep the model in a convex set ([who can](theory/sets.md)): a name, or your own as "
        "package.module; default: nowhere, or the ball of `radius`",
    )
    within_options: dict[str, float | list[float]] | None = Field(
        None, description="of `within`, e.g. radius; low and high; total"
    )
    dim: Count | None = Field(None, description="number of features, where accounting without data needs it")
    classes: int | None = Field(None, ge=2, description="number of classes, where no data is there to tell")

    def settings(self, loss: str | None = None) -> LossSettings:
        """What it says for its loss, or for `loss` if the labels decide that, validated by the loss itself."""
        chosen, kind = self.loss or loss, LossSettings
        if chosen is not None:
            from coterie.losses.base import find_loss

            kind = find_loss(chosen).settings
            self.need_room("loss", chosen, kind.model_fields)
        given = dict(self.model_extra or {})
        for key in [key for key in given if key not in kind.model_fields]:
            self._refuse(key, given.pop(key), kind)
        return read(kind, given, "problem")

    def check_within(self) -> None:
        """Refuse a set that there is not, and options that it does not take."""
        if self.within is not None:
            check_options(self.within, self.within_options or {})
        elif self.within_options:
            option = next(iter(self.within_options))
            raise InputError(f"problem.within_options.{option} is for problem.within: name a set")

    def constraint(self, dim: int, known: bool = True) -> Constraint:
        """The set that `within` names, for a model of `dim` numbers (`known`: not a guess)."""
        assert self.within is not None
        options = self.within_options or {}
        if not known and any(isinstance(option, list) for option in options.values()):
            raise InputError("problem.within_options lists a number for each coordinate: state problem.dim too")
        return make_set(self.within, dim, options)

    def _refuse(self, key: str, value: object, kind: type[LossSettings]) -> None:
        """Say to which losses of ours a key belongs, or what there is instead.

        The default of another loss changes nothing, and plans that earlier versions wrote out state them.
        """
        from coterie.losses.base import find_loss

        fields = {name: find_loss(name).settings.model_fields for name in LOSSES.names if LOSSES.ours(name)}
        if homes := {name: known[key] for name, known in fields.items() if key in known}:
            if any(value == field.default for field in homes.values()):
                return
            made = "none was chosen" if self.loss is None else f"not {self.loss!r}"
            raise InputError(f"problem.{key} belongs to problem.loss = {' or '.join(map(repr, homes))}, {made}")
        known = ", ".join((*type(self).model_fields, *kind.model_fields))
        raise InputError(f"unknown key problem.{key}; expected one of {known}")

    @property
    def additive(self) -> bool:
        """Whether records are put into bins."""
        return self.model == "additive"

    @property
    def of_classes(self) -> bool:
        """Whether the stated loss takes labels that are classes."""
        from coterie.losses.base import find_loss

        return self.loss is not None and find_loss(self.loss).of_classes


class AlgorithmPlan(Naming):
    """[algorithm] How. `name` and the algorithm's own keys (see `coterie algorithms`)."""

    model_config = ConfigDict(extra="allow")
    table: ClassVar[str] = "algorithm"
    choices: ClassVar[Mapping[str, Kinds]] = {"name": ALGORITHMS}
    name: str = Field("dp-dsgd", description="see `coterie algorithms`; or your own, as package.module")

    def config(self) -> Config:
        """The algorithm's own configuration, validated by it."""
        extra = dict(self.model_extra or {})
        if self.name in REFERENCES:
            if extra:
                raise InputError(f"algorithm.{next(iter(extra))} is unknown: {self.name} takes no settings")
        else:
            ALGORITHMS.check(self.name)  # said before JAX is loaded to look at one of them
        from coterie.algorithms.base import Config, find

        if self.name in REFERENCES:
            return Config()
        model = find(self.name).config
        self.need_room("name", self.name, model.model_fields)
        return read(model, extra, self.table)


class BeforePlan(Settings):
    """[privacy.before] What the same records have paid before this plan, which its settings come from."""

    epsilon: Epsilon = Field(description="ε of it, at the plan's δ: it is NOT in privacy.epsilon")
    what: str = Field(description="what was released, in words")

    def words(self, delta: float) -> str:
        """What a reader of this plan's ε has to know."""
        return (
            f"{self.what} came from the same records, and cost (ε, δ) = ({self.epsilon:.4g}, {delta:g}) before this "
            "run, which this ε does NOT cover"
        )


class PrivacyPlan(Naming):
    """[privacy] At what price. A budget, never a noise level."""

    table: ClassVar[str] = "privacy"
    choices: ClassVar[Mapping[str, Kinds]] = {"schedule": SCHEDULES, "adaptive": ADAPTIVE}
    epsilon: Epsilon | Annotated[list[Epsilon], Field(min_length=1)] = Field(
        1.0, description="ε of the whole run; a list gives each agent its own"
    )
    delta: float = Field(1e-5, ge=0, lt=1, description="δ of the whole run; 0: a pure guarantee, where there is one")
    schedule: str = Field("uniform", description="how the budget is spread over rounds; or your own, as package.module")
    schedule_options: dict[str, float | list[float] | list[list[float]]] = Field(
        default_factory=dict, description="e.g. rate, period, contraction; noise or levels of `listed`"
    )
    adaptive: str | None = Field(
        None,
        description="how much noise the next round gets, by a public rule from what was released ([settling]"
        "(theory/adaptive.md)); or your own, as package.module",
    )
    adaptive_options: dict[str, float] = Field(default_factory=dict, description="of that rule, e.g. first, factor")
    claim: Literal["tight", "paper"] = Field(
        "tight", description="'paper': also show what the paper would have printed for the same noise"
    )
    observers: Annotated[list[str], Field(min_length=1)] | None = Field(
        None,
        description="parties whose own view is accounted for, each in a table beside the claim; several who pool what "
        "they know: 'a + b' ([what is proved](theory/observers.md))",
    )
    tuned_on_private_data: bool = Field(False, description="say so if settings were chosen by looking at the data")
    before: BeforePlan | None = Field(
        None,
        description="`epsilon` and `what`: what the same records have paid for the plan's own settings; it is in no "
        "claim, and is said beside each (`coterie stats --next` writes it, [quantiles](additive.md))",
    )

    def check(self) -> None:
        """Refuse a schedule that there is not, and options that it does not take."""
        make_schedule(self.schedule, self.listed or 2, **self.schedule_options)
        if self.adaptive is None and self.adaptive_options:
            raise InputError("privacy.adaptive_options are of a rule: name it in privacy.adaptive")
        if self.adaptive not in (None, "own"):
            make_rule(str(self.adaptive), self.adaptive_options)

    @property
    def listed(self) -> int | None:
        """For how many rounds the options list numbers; None where they list none."""
        lists = [v[0] if isinstance(v[0], list) else v for v in self.schedule_options.values()
                 if isinstance(v, list) and v]  # fmt: skip
        return len(lists[0]) if lists else None

    @property
    def own_rounds(self) -> bool:
        """Whether each party has a list of its own."""
        return any(isinstance(v, list) and v and isinstance(v[0], list) for v in self.schedule_options.values())


def _forward(span: tuple[int, int]) -> tuple[int, int]:
    if span[0] > span[1]:
        raise ValueError(f"the span of rounds {list(span)} ends before it begins")
    return span


Span = Annotated[tuple[Count, Count], AfterValidator(_forward)]


class RunPlan(Settings):
    """[run] How long, how often."""

    rounds: int | None = Field(
        None, ge=1, le=10**7, description="rounds; default: the algorithm's own rule from public sizes"
    )
    seeds: int = Field(1, ge=1, le=10**4, description="independent repetitions")
    seed: int = Field(0, ge=0, description="first seed")
    every: int | None = Field(None, ge=1, description="measure every so many rounds; default: about 50 times")
    dtype: Literal["float64", "float32"] = Field("float64", description="float32 is faster and only for trials")
    references: Literal["none", "alone", "pooled", "all"] = Field(
        "all", description="what to compare with: every party alone, all records in one place, both or nothing"
    )
    splits: int = Field(
        1, ge=1, le=10**3, description="train/test splits over which parties are judged, each with all seeds"
    )
    metric: Literal["accuracy", "auc", "log-loss", "r2", "loss"] | None = Field(
        None, description="what parties are judged by; default: accuracy, AUC where one of two classes is rare, R²"
    )
    away: dict[str, Annotated[list[Span], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="who is away when, a public list: by a party's name or number, spans [first, last] of rounds, "
        "counted from 1, in which it neither speaks nor hears; simulation only ([leaving and joining](stragglers.md))",
    )
    covered: bool = Field(
        False,
        description="also release accuracy, AUC and calibration on everybody's held-out records, with noise, at the "
        "plan's budget: a record pays for the run or for these ([covered scores](scores.md))",
    )
    specificity: float = Field(0.9, gt=0, lt=1, description="at which the recall of two classes is reported")


class ExchangePlan(Choosing):
    """[exchange] How messages travel ([what each kind promises](exchange.md))."""

    table: ClassVar[str] = "exchange"
    choices: ClassVar[Mapping[str, Kinds]] = {"kind": EXCHANGES}
    kind: str = Field("broadcast", description="how; or your own, as package.module")

    @property
    def sums(self) -> secret_sum.Settings | None:
        """How sums are opened, where nothing else is; None where neighbours get messages."""
        found = self.chosen("kind")
        return found if type(found) is secret_sum.Settings else None  # a stranger's may open anything

    @property
    def central(self) -> bool:
        """Whether the budget pays for opened sums, and not for every message."""
        sums = self.sums
        return sums is not None and sums.noise == "central"


def _reachable(address: str) -> str:
    host_and_port(address)
    return address


class PartyPlan(Settings):
    """One party of a deployment, in the order of the graph's nodes."""

    name: Annotated[str, AfterValidator(party_name)] = Field(description="what the others call it; in its certificate")
    address: Annotated[str, AfterValidator(_reachable)] | None = Field(
        None, description="host:port where it listens; without one it only dials out"
    )
    title: Annotated[str, AfterValidator(title_of)] | None = Field(
        None, description="what people call it (`Klinikum Süd`): in reports and certificates"
    )

    @property
    def shown(self) -> str:
        """What people call it."""
        return self.title or self.name


class DeployPlan(Settings):
    """[deploy] Between whom, and what happens when a party is late. Simulation ignores it."""

    parties: Annotated[list[PartyPlan], Field(min_length=2)] = Field(description="one per node of the graph")
    bound: Positive = Field(
        1e3, description="largest number in a message: a party cuts its own to it, and refuses a larger one"
    )
    deadline: Positive = Field(60.0, description="seconds a round waits for a neighbour that the algorithm can miss")
    patience: Positive = Field(3600.0, description="seconds without a needed message after which the party gives up")
    work: Positive | None = Field(
        None,
        description='seconds for a round\'s batch where it goes by the clock (`scheme = "clock"`): a slow machine '
        "works off less of it; None: all of it",
    )
    tick: float = Field(0.0, ge=0, description="seconds between sends: hides how long a computation took; 0: at once")
    follows: list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] | None = Field(
        None, min_length=1, description="hashes of the agreements that this one amends, the latest last (`plan amend`)"
    )

    @model_validator(mode="after")
    def _distinct(self) -> DeployPlan:
        for names in ([p.name for p in self.parties], [p.shown for p in self.parties], self.follows or []):
            if twice := next((n for n in names if names.count(n) > 1), None):
                raise ValueError(f"deploy.{'follows' if names is self.follows else 'parties'} names {twice!r} twice")
        return self


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
            raise ValueError(f"privacy.epsilon lists {len(budgets)} budgets for {known} agents")
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

    def as_json(self) -> dict[str, Any]:
        """The plan as plain data, the way it is stored in results."""
        return self.model_dump(mode="json", exclude_none=True)


def read_plan(path: Path | None, changes: list[str] | None = None) -> Plan:
    """Read and check a plan (the embedded default without a path); `changes` are "table.key=value" overrides."""
    tree = read_tree(path, "default.toml", changes)
    try:
        return validate(tree)
    except InputError as error:
        raise InputError(f"{path or 'default plan'}: {error}") from None


def validate(tree: dict[str, Any], foreign: bool = False) -> Plan:
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

    stated: dict[str, Any] = {}
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
