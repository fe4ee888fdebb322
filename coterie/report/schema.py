"""The form of result.json: what each part of it is called, and of which type ([docs/result.md](docs/result.md))."""

from __future__ import annotations

from typing import Literal, TypedDict

from coterie.api.curves import ToldCurves
from coterie.exchange.statement import ToldClaim, ToldStatement
from coterie.network import ToldSeat
from coterie.privacy.people import Protects
from coterie.released.covered import ToldCovered
from coterie.report.units import Home
from coterie.worth.verdict import SaidWorth

__all__ = ["CURVES", "SCHEMA", "AgentRow", "AlgorithmBlock", "MetricValue", "PrivacyBlock", "RunCurves", "RunResult"]


SCHEMA = 1
"""Of result.json: raised when a key changes its meaning."""


class AgentRow(TypedDict):
    """One agent: the first thousand are listed."""

    name: str
    records: int
    neighbours: int
    bytes_sent: float


class AlgorithmBlock(TypedDict):
    """What ran, with every setting."""

    name: str
    settings: dict[str, object]


class MetricValue(TypedDict):
    """A number at the end of a run, over seeds."""

    mean: float
    std: float
    per_seed: list[float]


Score = Literal["test_accuracy", "test_score"]
Curve = Literal["train_loss", "test_accuracy", "test_score", "consensus_gap", "time"]
CURVES: tuple[Curve, ...] = ("train_loss", "test_accuracy", "test_score", "consensus_gap", "time")


class RunCurves(TypedDict, total=False):
    """Means over seeds at each measured round, and their standard deviations; a diverged run has Nones."""

    round: list[int]
    train_loss: list[float | None]
    test_accuracy: list[float | None]
    test_score: list[float | None]
    consensus_gap: list[float | None]
    time: list[float | None]
    std: dict[str, list[float | None]]


class Adaptive(TypedDict):
    """Of noise that followed what was released."""

    rule: str
    limit: str
    runs: list[dict[str, object]]


class PrivacyBlock(TypedDict):
    """What is guaranteed; None stands for an ε without bound."""

    claim: str
    epsilon: float | None
    delta: float
    budget: float | list[float]
    adjacency: str
    adversary: str
    accountant: str
    all_accountants: dict[str, float | None]
    all_seeds_epsilon: float | None
    other_claims: list[ToldClaim]
    observers: list[ToldSeat]
    per_agent: list[float | None]
    noise_multiplier: list[float]
    schedule: str
    adaptive: Adaptive | None
    paper_claim: float | None
    private: bool
    leaks: list[str]
    protects: Protects
    assumptions: list[str]


class RunResult(TypedDict):
    """All of it."""

    schema: int
    coterie: str
    plan: dict[str, object]
    algorithm: AlgorithmBlock
    metric: str
    seeds: list[int]
    rounds: int
    completed_rounds: int
    interrupted: bool
    agents: list[AgentRow]
    metrics: dict[str, MetricValue]
    curves: RunCurves
    references: dict[str, dict[str, float]]
    worth: SaidWorth | None
    additive: ToldCurves | None
    covered: ToldCovered | None
    privacy: PrivacyBlock | None
    at_home: Home | None
    exchange: ToldStatement
    evaluation: str
    timing: dict[str, float]
    bytes_sent: float
    noise_source: str
    warnings: list[str]
