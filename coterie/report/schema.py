"""The form of result.json: what each part of it is called, and of which type ([docs/result.md](docs/result.md))."""

from __future__ import annotations

from typing import Any, TypedDict

from coterie.privacy.people import Protects

__all__ = ["SCHEMA", "AgentRow", "AlgorithmBlock", "MetricValue", "PrivacyBlock", "RunResult"]


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
    settings: dict[str, Any]


class MetricValue(TypedDict):
    """A number at the end of a run, over seeds."""

    mean: float
    std: float
    per_seed: list[float]


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
    other_claims: list[dict[str, Any]]
    observers: list[dict[str, Any]]
    per_agent: list[float | None]
    noise_multiplier: list[float]
    schedule: str
    adaptive: dict[str, Any] | None
    paper_claim: float | None
    private: bool
    leaks: list[str]
    protects: Protects
    assumptions: list[str]


class RunResult(TypedDict):
    """All of it."""

    schema: int
    coterie: str
    plan: dict[str, Any]
    algorithm: AlgorithmBlock
    metric: str
    seeds: list[int]
    rounds: int
    completed_rounds: int
    interrupted: bool
    agents: list[AgentRow]
    metrics: dict[str, MetricValue]
    curves: dict[str, Any]
    references: dict[str, dict[str, float]]
    worth: dict[str, Any] | None
    additive: dict[str, object] | None
    covered: dict[str, object] | None
    privacy: PrivacyBlock | None
    at_home: dict[str, object] | None
    exchange: dict[str, object]
    evaluation: str
    timing: dict[str, float]
    bytes_sent: float
    noise_source: str
    warnings: list[str]
