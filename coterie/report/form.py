"""The form of certificate.json: every field with its type, and no other field (docs/certificate.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LARGEST", "Certificate"]

LARGEST = 5_000_000  # agents, rounds, made records: beyond it a certificate is refused, not computed

Whole = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Number = float | Literal["inf"]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Claim(_Table):
    name: str
    adversary: str
    private: bool
    epsilon: Number
    delta: Annotated[float, Field(ge=0, lt=1)] | None
    accountant: str
    adjacency: str


class _Protects(_Table):
    unit: Literal["record", "person"]
    record: float | None
    person: float | None
    person_at_two_parties: float | None
    of_records: dict[str, float | None]


class _Public(_Table):
    agents: Annotated[int, Field(ge=1, le=LARGEST)]
    names: list[str] | None
    edges: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]] | None
    leaks: list[str]
    loss: str
    features: Annotated[int, Field(ge=1, le=10**9)]
    classes: Annotated[int, Field(ge=1, le=10**6)] | None
    parameters: Annotated[int, Field(ge=1)]


class _Algorithm(_Table):
    name: str
    rounds: Annotated[int, Field(ge=1, le=LARGEST)]
    settings: dict[str, object]


class _Paid(_Table):
    events: list[dict[str, Any]]
    totals: Annotated[dict[str, Number], Field(min_length=1)]
    epsilon: Number
    accountant: str


class _FormGroup(_Paid):
    members: Annotated[list[Annotated[list[Whole], Field(min_length=2, max_length=2)]], Field(min_length=1)]
    records: Annotated[int, Field(ge=1)]
    neighbours: Whole
    budget: Annotated[float, Field(gt=0)] | None
    noise_multiplier: Annotated[float, Field(ge=0)]
    rounds: Annotated[int, Field(ge=1)]
    sent_again: Whole


class _Central(_Paid):
    name: str
    adversary: str
    budget: Annotated[float, Field(gt=0)]
    colluders: Whole
    must_answer: Whole
    fraction_bits: Whole


class _Cap(_Paid):
    name: str
    adversary: str
    sent_again: Whole


class _Alone(_Paid):
    name: str
    adversary: str


class _Seat(_Table):
    observer: str
    adversary: str
    members: Annotated[list[Whole], Field(min_length=1)]
    epsilon: list[Annotated[float, Field(ge=0)] | None]


class _Run(_Table):
    noise: str
    seed: Whole | None


class _Said(_Table):
    statement: str
    trust: str


class _Code(_Table):
    key: str
    name: str
    module: str
    distribution: str | None
    version: str | None
    sha256: Hash | None


class Certificate(_Table):
    """Schema 5 of certificate.json; docs/certificate.md says what each field means."""

    schema_: Literal[5] = Field(alias="schema")
    claim: _Claim
    other_claims: list[_Claim]
    protects: _Protects | None
    plan: dict[str, object]
    plan_sha256: Hash
    public: _Public
    algorithm: _Algorithm
    agents: Annotated[list[_FormGroup], Field(min_length=1)]
    central: _Central | None
    cap: _Cap | None
    alone: _Alone | None = None  # there only where neighbours share noise
    observers: Annotated[list[_Seat], Field(min_length=1)] | None = None  # there only where the plan names some
    statements: list[_Said]
    run: _Run
    files: dict[Literal["model.npz"], Hash]
    made_with: dict[str, str]
    other_code: list[_Code]
    signer: Hash | None
    digest: Hash
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")] | None
