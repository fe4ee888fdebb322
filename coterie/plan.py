"""A plan: one TOML file that says what is trained, on which graph, by which algorithm, at which price.

The same plan drives simulation, accounting and deployment. Reading one checks every key, type and range before any
data is touched; a mistake is an InputError of one line that names the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from coterie.algorithms import ALGORITHMS
from coterie.arguments import check_arguments
from coterie.errors import InputError
from coterie.names import host_and_port, party_name

if TYPE_CHECKING:
    from coterie.algorithms.base import Config

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
    "default_plan",
    "read_plan",
    "refuse_ignored",
    "stated_seeds",
    "validate",
]  # fmt: skip

REFERENCES = {
    "pooled": "The optimum of all agents' data in one place: what decentralized learning tries to reach. Not private.",
    "alone": "Every agent trains on its own data and sends nothing: what it gets without the others.",
}
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the plan: unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _at_home(
    section: Section, table: str, homes: Mapping[str, str | tuple[str, ...]], key: str, chosen: str | None
) -> None:
    """Refuse a setting that nothing would obey: one that belongs to another choice of `key` than was made."""
    for name, home in homes.items():
        # compared with the default, as a plan that was written out states defaults too
        fit = (home,) if isinstance(home, str) else home
        if getattr(section, name) != type(section).model_fields[name].default and chosen not in fit:
            made = "none was chosen" if chosen is None else f"not {chosen!r}"
            raise ValueError(f"{table}.{name} belongs to {table}.{key} = {' or '.join(map(repr, fit))}, {made}")


class DataPlan(Section):
    """[data] Which records."""

    source: str = Field(
        "clinics", description="clinics (made here), adult, mnist, cifar10, heart, diabetes, csv, parquet, store"
    )
    path: Path | None = Field(
        None, description="file, for csv and parquet; folder of a store; or where a named data set lies"
    )
    label: str | None = Field(None, description="label column, for csv and parquet")
    site: str | None = Field(None, description="column that says which site a record belongs to")
    test_fraction: float = Field(0.2, gt=0, lt=1, description="share of records held out for testing")
    seed: int = Field(0, ge=0, description="seed of the train/test split and of made data (public)")
    options: dict[str, Any] = Field(default_factory=dict, description="loader options, e.g. coding = 'onehot'")


class PartitionPlan(Section):
    """[partition] Who holds which records."""

    kind: Literal["iid", "site", "dirichlet"] = Field("site", description="how records are split over agents")
    agents: int | None = Field(None, ge=2, description="number of agents; by site: all sites")
    records: int | None = Field(None, ge=1, description="records per agent (iid); default: all of them")
    sizes: list[Count] | None = Field(None, description="records of each agent: sizes are public and fix the noise")
    concentration: Positive = Field(0.5, description="Dirichlet concentration: smaller = more unlike agents")

    @model_validator(mode="after")
    def _belongs(self) -> PartitionPlan:
        _at_home(self, "partition", {"concentration": "dirichlet", "records": "iid"}, "kind", self.kind)
        return self


class GraphPlan(Section):
    """[graph] Who talks to whom."""

    kind: Literal[
        "ring", "path", "star", "complete", "grid", "regular", "erdos-renyi", "gnm", "small-world", "listed", "file"
    ] = Field("ring", description="topology")
    mixing: Literal["metropolis", "laplacian", "two-thirds", "uniform"] = Field(
        "metropolis", description="mixing matrix"
    )
    kappa: Positive | None = Field(None, description="κ of I − L/κ (mixing = 'laplacian'); default λ_max")
    seed: int = Field(0, ge=0, description="seed of a random graph (public)")
    degree: int | None = Field(None, ge=1, description="regular")
    p: float | None = Field(None, ge=0, le=1, description="edge probability (erdos-renyi), rewiring (small-world)")
    k: int | None = Field(None, ge=2, description="neighbours before rewiring (small-world)")
    edges: int | None = Field(None, ge=1, description="number of edges (gnm)")
    rows: int | None = Field(None, ge=1, description="rows of a grid")
    pairs: tuple[tuple[int, int], ...] | None = Field(None, description="who talks to whom, by number from 0 (listed)")
    path: Path | None = Field(None, description="edge list (file)")

    @model_validator(mode="after")
    def _belongs(self) -> GraphPlan:
        _at_home(self, "graph", {"seed": ("regular", "erdos-renyi", "gnm", "small-world")}, "kind", self.kind)
        _at_home(self, "graph", {"kappa": "laplacian"}, "mixing", self.mixing)
        from coterie.graphs.make import KINDS

        check_arguments(f"graph kind {self.kind!r}", KINDS[self.kind], self.params())
        return self

    def params(self) -> dict[str, Any]:
        """The parameters that were given for this kind of graph."""
        names = ("degree", "p", "k", "edges", "rows", "pairs", "path")
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}


class ProblemPlan(Section):
    """[problem] What is minimised."""

    loss: Literal["logistic", "hinge", "squared", "softmax", "mlp", "mean"] | None = Field(
        None, description="default: logistic for two classes, softmax for more, squared for numbers"
    )
    ridge: float = Field(1e-3, ge=0, description="ridge/2 ‖x‖² added to every agent's objective")
    weighting: Literal["agents", "records"] = Field("agents", description="what counts equally: agents or records")
    dim: Count | None = Field(None, description="number of features, where accounting without data needs it")
    classes: int | None = Field(
        None, ge=2, description="number of classes, where no data is there to tell (softmax, mlp)"
    )
    width: Positive = Field(0.5, description="half-width of the smoothed corner of the hinge")
    hidden: list[Count] = Field([50], description="hidden layers of the mlp")
    activation: Literal["sigmoid", "tanh", "relu"] = Field("tanh", description="of the mlp's hidden layers")
    radius: Positive | None = Field(
        None,
        description="keep the point in a ball of this radius; of a mean: its records lie in a box of this half-width",
    )

    @model_validator(mode="after")
    def _belongs(self) -> ProblemPlan:
        homes = {"width": "hinge", "hidden": "mlp", "activation": "mlp"}
        _at_home(self, "problem", homes, "loss", self.loss)
        return self


class AlgorithmPlan(BaseModel):
    """[algorithm] How. `name` and the algorithm's own keys (see `coterie algorithms`)."""

    model_config = ConfigDict(frozen=True, extra="allow")
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
        algorithm = find(self.name)
        try:
            return algorithm.config(**extra)
        except ValidationError as error:
            raise InputError(_one_line(error, algorithm.config, ("algorithm",))) from None


class PrivacyPlan(Section):
    """[privacy] At which price. A budget, never a noise level."""

    epsilon: Positive | Annotated[list[Positive], Field(min_length=1)] = Field(
        1.0, description="ε of the whole run; a list gives each agent its own"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of the whole run")
    schedule: Literal["uniform", "periodic", "iteration", "power", "optimal"] = Field(
        "uniform", description="how the budget is spread over rounds"
    )
    schedule_options: dict[str, float] = Field(default_factory=dict, description="e.g. rate, period, contraction")
    claim: Literal["tight", "paper"] = Field(
        "tight", description="'paper': also show what the paper would have printed for the same noise"
    )
    tuned_on_private_data: bool = Field(False, description="say so if settings were chosen by looking at the data")

    @model_validator(mode="after")
    def _taken(self) -> PrivacyPlan:
        from coterie.privacy import schedules

        schedules.make(self.schedule, 2, **self.schedule_options)  # refuses options that the schedule does not take
        return self


class RunPlan(Section):
    """[run] How long, how often."""

    rounds: int | None = Field(None, ge=1, description="rounds; default: the algorithm's own rule from public sizes")
    seeds: int = Field(1, ge=1, description="independent repetitions")
    seed: int = Field(0, ge=0, description="first seed")
    every: int | None = Field(None, ge=1, description="measure each so many rounds; default: about 50 times")
    dtype: Literal["float64", "float32"] = Field("float64", description="float32 is faster and only for trials")


class ExchangePlan(Section):
    """[exchange] How messages travel ([what each kind promises](exchange.md))."""

    kind: Literal["broadcast", "quantized", "secret-sum"] = Field(
        "broadcast", description="to every neighbour; rounded to few bits; or only as the sum over all agents"
    )
    bound: Positive | None = Field(
        None, description="largest absolute value of a number in a message; quantized: 8, secret-sum: 2^20"
    )
    bits: int = Field(16, ge=1, le=32, description="bits per number (quantized)")
    rounding: Literal["stochastic", "nearest"] = Field("stochastic", description="of quantized messages")
    fraction_bits: int = Field(24, ge=0, le=62, description="the grid of a secret sum is 2^-fraction_bits")
    threshold: int | None = Field(
        None, ge=3, description="agents that must answer (secret-sum); none: all of them, or the round is lost"
    )
    honest: int | None = Field(
        None, ge=2, description="also say what the opened sums cost if so many agents are honest (secret-sum)"
    )
    noise: Literal["local", "central"] = Field(
        "local", description="what the budget pays for: every message, or ('central') the opened sums under `honest`"
    )

    @model_validator(mode="after")
    def _belongs(self) -> ExchangePlan:
        homes = {"bits": "quantized", "rounding": "quantized"} | dict.fromkeys(
            ("fraction_bits", "threshold", "honest", "noise"), "secret-sum"
        )
        _at_home(self, "exchange", homes, "kind", self.kind)
        if self.bound is not None and self.kind == "broadcast":
            raise ValueError("exchange.bound belongs to exchange.kind = 'quantized' or 'secret-sum', not 'broadcast'")
        if self.noise == "central" and self.honest is None:
            raise ValueError("exchange.noise = 'central' needs exchange.honest, the number of honest agents")
        return self


def _reachable(address: str) -> str:
    host_and_port(address)
    return address


class PartyPlan(Section):
    """One party of a deployment, in the order of the graph's nodes."""

    name: Annotated[str, AfterValidator(party_name)] = Field(description="what the others call it; in its certificate")
    address: Annotated[str, AfterValidator(_reachable)] | None = Field(
        None, description="host:port where it listens; without one it only dials out"
    )


class DeployPlan(Section):
    """[deploy] Between whom, and what happens when a party is late. Simulation ignores it."""

    parties: Annotated[list[PartyPlan], Field(min_length=2)] = Field(description="one per node of the graph")
    bound: Positive = Field(
        1e3, description="largest number in a message: a party cuts its own to it, and refuses a larger one"
    )
    deadline: Positive = Field(60.0, description="seconds a round waits for a neighbour that the algorithm can miss")
    patience: Positive = Field(3600.0, description="seconds without a needed message after which the party gives up")
    tick: float = Field(0.0, ge=0, description="seconds between sends: hides how long a computation took; 0: at once")

    @model_validator(mode="after")
    def _distinct(self) -> DeployPlan:
        names = [p.name for p in self.parties]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise ValueError(f"deploy.parties names {twice!r} twice")
        return self


class Plan(Section):
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
        if self.data.source in ("csv", "parquet", "store") and self.data.path is None and self.deploy is None:
            raise ValueError(f"data.path is needed for data.source = {self.data.source!r}")
        if self.data.source == "store" and self.data.test_fraction != DataPlan.model_fields["test_fraction"].default:
            raise ValueError(
                "data.test_fraction does not apply to data.source = 'store': it has test records of its own"
            )
        budgets = self.privacy.epsilon if self.privacy is not None else None
        known = self.partition.agents or (len(self.partition.sizes) if self.partition.sizes else None)
        if isinstance(budgets, list) and known not in (None, len(budgets)):
            raise ValueError(f"privacy.epsilon lists {len(budgets)} budgets for {known} agents")
        if self.partition.sizes is not None and self.partition.agents not in (None, len(self.partition.sizes)):
            raise ValueError(
                f"partition.agents is {self.partition.agents} but partition.sizes lists {len(self.partition.sizes)}"
            )
        return self

    def as_json(self) -> dict[str, Any]:
        """The plan as plain data, the way it is stored in results."""
        return self.model_dump(mode="json", exclude_none=True)


def read_plan(path: Path | None, changes: list[str] | None = None) -> Plan:
    """Read and check a plan (the embedded default without a path); `changes` are "table.key=value" overrides."""
    where = str(path) if path is not None else "default plan"
    try:
        text = default_plan() if path is None else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read plan {path}: {reason}") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not valid TOML: {error}") from None
    for change in changes or []:
        _apply(tree, change)
    try:
        return validate(tree)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def validate(tree: dict[str, Any], foreign: bool = False) -> Plan:
    """Check plain data as a plan, the algorithm's own settings included.

    A `foreign` plan came from somebody else: it may name what is installed as an algorithm, and not any module, since
    to look a module up is to run it.
    """
    try:
        plan = Plan.model_validate(tree)
    except ValidationError as error:
        raise InputError(_one_line(error, Plan)) from None
    if foreign and "." in plan.algorithm.name:
        raise InputError(
            f"algorithm.name = {plan.algorithm.name!r} is a module: a plan of others takes an algorithm that is "
            "installed under a name (entry point in the group coterie.algorithms)"
        )
    plan.algorithm.config()
    return plan


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


def default_plan() -> str:
    """The text of the embedded default plan."""
    return resources.files("coterie").joinpath("plans/default.toml").read_text(encoding="utf-8")


def _apply(tree: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set needs key=value such as run.rounds=50, got {change!r}")
    try:
        parsed = tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a string: --set graph.kind=star
    *tables, last = key.strip().split(".")
    for name in tables:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise InputError(f"--set {change}: {name!r} is not a table")
    tree[last] = parsed


def _one_line(error: ValidationError, model: type[BaseModel], prefix: tuple[str, ...] = ()) -> str:
    """The first problem of a validation, in one line with the key, the bad value and what was expected."""
    first = error.errors()[0]
    keys = [*prefix, *(str(k) for k in first["loc"])]
    where = ".".join(keys)
    if first["type"] == "extra_forbidden":
        known = _known(model, first["loc"][:-1])
        return f"unknown key {where}; expected one of {', '.join(known)}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    got = "" if first["type"] == "value_error" else f" (got {first['input']!r})"
    more = len(error.errors()) - 1
    return f"{where}: {message}{got}".removeprefix(": ") + (f"; and {more} more" if more else "")


def _known(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for key in path:
        field = model.model_fields.get(str(key))
        kind = field.annotation if field is not None else None
        options = [
            k for k in (kind, *getattr(kind, "__args__", ())) if isinstance(k, type) and issubclass(k, BaseModel)
        ]
        if not options:
            break
        model = options[0]
    return list(model.model_fields)
