"""What all parties have signed up to: the plan, the graph, who each party is, and until when.

An agreement is one JSON file, signed by the consortium's authority. Its `plan_hash` (SHA-256 of its canonical bytes)
is in every frame and every greeting, so two parties exchange numbers only if they hold the same agreement to the bit.
It fixes everything that decides what a message means and costs: data ranges, sizes, budget, algorithm, rounds, bounds,
deadlines, the protocol (settings that a plan leaves open are filled by its rules) and, for each party, the only TLS key
and the only frame key that will be believed. `software` says with which version it was drawn up: a party may use
another of the same protocol.

Canonical bytes: UTF-8 JSON, keys sorted, no spaces, all plan keys written out, no signature. What is hashed is what was
signed: a key that the signing version did not know yet is not put in by one that does.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import VerifyKey
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_serializer, field_validator

import coterie
from coterie.deploy.files import read_bytes, write_bytes
from coterie.deploy.keys import Authority, Identity
from coterie.deploy.protocol import PROTOCOL
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.tables.deploy import DeployPlan

__all__ = ["AGREEMENT", "EVER", "AgreedParty", "Agreement", "Ended", "draft_agreement", "read_agreement",
           "sign_agreement", "unverified"]  # fmt: skip

AGREEMENT = "agreement.json"  # in a state folder, as it was given
EVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)  # read at this time, no agreement is over
_DOMAIN = b"coterie agreement\0"
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Ended(InputError):
    """The agreement is over: nothing may be released under it any more."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgreedParty(_Part):
    """One party: its place in the graph, where it listens, and the two keys that are believed."""

    name: str
    node: int = Field(ge=0)
    address: str | None = None
    tls_pin: Hex32
    frame_key: Hex32


class Agreement(_Part):
    """A signed plan between named parties. Make one with `sign_agreement`, read one with `read_agreement`."""

    format: Literal["coterie agreement 1"] = "coterie agreement 1"
    protocol: int = PROTOCOL
    software: str = Field(default_factory=lambda: f"coterie {coterie.__version__}")
    plan: Plan
    edges: tuple[tuple[int, int], ...]
    parties: tuple[AgreedParty, ...]
    valid_until: dt.datetime
    signature: str = Field("", pattern=r"^([0-9a-f]{128})?$")
    _given: bytes = PrivateAttr(b"")  # the canonical bytes that were read

    @field_validator("plan", mode="before")
    @classmethod
    def _whole_plan(cls, value: object) -> Plan:
        return value if isinstance(value, Plan) else validate(value, foreign=True)

    @field_validator("parties")
    @classmethod
    def _in_order(cls, value: tuple[AgreedParty, ...]) -> tuple[AgreedParty, ...]:
        if [p.node for p in value] != list(range(len(value))):
            raise ValueError("parties are listed in the order of their nodes")
        return value

    @field_serializer("plan")
    def _plain_plan(self, plan: Plan) -> dict[str, object]:
        """Every key, defaults too; but no seeds, which a deployment does not have."""
        return plan.model_dump(mode="json", exclude_none=True, exclude={"run": {"seed", "seeds"}})

    @cached_property
    def body(self) -> bytes:
        """The canonical bytes that are signed and hashed."""
        return self._given or _canonical(self.model_dump(mode="json", exclude={"signature"}))

    @cached_property
    def plan_hash(self) -> bytes:
        """SHA-256 of `body`, 32 bytes: the agreement's name in every frame."""
        return hashlib.sha256(self.body).digest()

    @property
    def deploy(self) -> DeployPlan:
        """The plan's [deploy] table."""
        assert self.plan.deploy is not None
        return self.plan.deploy

    @cached_property
    def frame_keys(self) -> dict[int, VerifyKey]:
        """Every party's frame key, by node."""
        return {p.node: VerifyKey(bytes.fromhex(p.frame_key)) for p in self.parties}

    def index(self, name: str) -> int:
        """The node of a party; an unknown name is an InputError."""
        for party in self.parties:
            if party.name == name:
                return party.node
        raise InputError(f"{name!r} is no party of this agreement: expected {', '.join(p.name for p in self.parties)}")

    def party(self, name: str) -> AgreedParty:
        """A party by name."""
        return self.parties[self.index(name)]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Names of a party's neighbours, in the order of their nodes."""
        node = self.index(name)
        nodes = sorted({i + j - node for i, j in self.edges if node in (i, j)})
        return tuple(self.parties[n].name for n in nodes)

    def dials(self, a: str, b: str) -> bool:
        """Whether a calls b (and b waits): the one without an address calls; if both have one, the lower node."""
        first, second = self.party(a), self.party(b)
        if first.address is None or second.address is None:
            return first.address is None
        return first.node < second.node

    def identify(self, pin: bytes) -> AgreedParty | None:
        """The party whose TLS key has this pin."""
        return next((p for p in self.parties if p.tls_pin == pin.hex()), None)

    def check_keys(self, identity: Identity) -> None:
        """Refuse an identity whose keys are not the agreed ones."""
        party = self.party(identity.name)
        pairs = {"TLS": (party.tls_pin, identity.pin), "frame": (party.frame_key, identity.frame_key)}
        for what, (agreed, found) in pairs.items():
            if agreed != found.hex():
                raise InputError(f"the {what} key of {party.name} is not the agreed one: new keys need a new agreement")

    def signed(self, key: Ed25519PrivateKey) -> Agreement:
        """The same agreement with the authority's signature."""
        return self.model_copy(update={"signature": key.sign(_DOMAIN + self.body).hex()})

    def check_date(self, now: dt.datetime | None = None) -> None:
        """Refuse to go on after its time."""
        if (now or dt.datetime.now(dt.UTC)) > self.valid_until:
            raise Ended(f"the agreement ended on {self.valid_until:%Y-%m-%d %H:%M} UTC: sign a new agreement")

    def write(self, path: Path, *, private: bool = False) -> None:
        """Write the agreement, in one step; `private`: where nobody else looks for it."""
        tree = json.loads(self.body) | {"signature": self.signature}
        text = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_bytes(path, text.encode(), private=private)

    @property
    def titles(self) -> tuple[str, ...]:
        """What people call the parties, in the order of their nodes."""
        return tuple(party.shown for party in self.deploy.parties)


def read_agreement(path: Path, authority: Authority, now: dt.datetime | None = None) -> Agreement:
    """Read an agreement and check signature, date and protocol: what is returned may be acted upon."""
    tree, signature = _parts(path)
    body = _canonical(tree)
    try:
        authority.agreement_key.verify(signature, _DOMAIN + body)
    except InvalidSignature:
        raise InputError(
            f"{path} was changed, or was not signed by {authority.name}: its signature does not fit"
        ) from None
    if tree.get("protocol") != PROTOCOL:
        raise InputError(
            f"{path} is for protocol {tree.get('protocol')} ({tree.get('software')}), coterie {coterie.__version__} "
            f"speaks protocol {PROTOCOL}: install a version that speaks that one"
        )
    agreement = _agreement(path, tree, signature)
    if not _holds(agreement.model_dump(mode="json"), tree):
        raise InputError(f"{path} means something else to coterie {coterie.__version__} than it says")
    agreement._given = body
    if agreement.edges != _edges(agreement.plan, len(agreement.parties)):
        raise InputError(f"{path}: this machine makes another graph of the plan than the one that was signed")
    try:
        agreement.check_date(now)
    except Ended as error:
        raise InputError(f"{path}: {error}") from None
    return agreement


def _holds(understood: object, given: object) -> bool:
    """Whether all that was given was understood as it stands; what a later version adds by default may be more."""
    if isinstance(given, dict) and isinstance(understood, dict):
        return all(key in understood and _holds(understood[key], value) for key, value in given.items())
    if isinstance(given, list) and isinstance(understood, list):
        return len(given) == len(understood) and all(map(_holds, understood, given))
    return type(given) is type(understood) and bool(given == understood)


def unverified(path: Path) -> Agreement:
    """An agreement to look at: nothing says yet that anybody has signed it."""
    tree, signature = _parts(path)
    agreement = _agreement(path, tree, signature)
    agreement._given = _canonical(tree)
    return agreement


def _parts(path: Path) -> tuple[dict[str, object], bytes]:
    text = read_bytes(path)
    try:
        tree = json.loads(text)
        signature = bytes.fromhex(tree.pop("signature"))
        _canonical(tree)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path} is not an agreement") from None
    return tree, signature


def _agreement(path: Path, tree: dict[str, object], signature: bytes) -> Agreement:
    try:
        return Agreement.model_validate({**tree, "signature": signature.hex()})
    except ValidationError as error:
        raise InputError(f"{path}: {error.errors()[0]['msg']}") from None


def sign_agreement(
    plan: Plan, identities: Iterable[Identity], authority: Authority, key: Ed25519PrivateKey, valid_until: dt.datetime
) -> Agreement:
    """Check that a plan can be run between these parties, and sign it.

    Raises:
        InputError: whatever would make the run unsafe, ambiguous or impossible, before anybody starts.
    """
    from coterie.contracts import check_contract
    from coterie.deploy.noise import check_deployable

    check_deployable(plan)
    check_contract(plan)
    return draft_agreement(plan, identities, authority, valid_until).signed(key)


def draft_agreement(
    plan: Plan, identities: Iterable[Identity], authority: Authority, valid_until: dt.datetime
) -> Agreement:
    """The agreement before it is signed: parties, graph, sizes and certificates fit together."""
    from coterie.data.planned import public_sizes

    if plan.deploy is None:
        raise InputError("the plan has no [deploy] table: it must name the parties")
    if given := sorted({"seed", "seeds"} & plan.run.model_fields_set):
        raise InputError(
            f"remove run.{given[0]}: a seed is a password to everybody's noise, and an agent draws its own"
        )
    parties = plan.deploy.parties
    sizes = public_sizes(plan)
    if sizes is None:
        raise InputError("state partition.sizes, or agents and records (iid): sizes are public and fix the noise")
    if len(sizes) != len(parties):
        raise InputError(f"deploy.parties names {len(parties)} parties, but the partition has {len(sizes)}")
    known: dict[str, Identity] = {}
    for identity in identities:
        authority.check(identity.certificate)
        identity.check_dates()
        if (other := known.setdefault(identity.name, identity)).pin != identity.pin:
            raise InputError(f"two certificates with different keys name {other.name}: give the one that counts")
    if missing := [p.name for p in parties if p.name not in known]:
        raise InputError(f"no certificate for {', '.join(missing)}")
    edges = _edges(plan, len(parties))
    for i, j in edges:
        if parties[i].address is None and parties[j].address is None:
            raise InputError(f"{parties[i].name} and {parties[j].name} must talk, but neither has an address")
    listed = tuple(
        AgreedParty(
            name=p.name,
            node=node,
            address=p.address,
            tls_pin=known[p.name].pin.hex(),
            frame_key=known[p.name].frame_key.hex(),
        )
        for node, p in enumerate(parties)
    )
    for what in ("tls_pin", "frame_key"):
        if len({getattr(p, what) for p in listed}) < len(listed):
            raise InputError(f"two parties share one {what.replace('_', ' ')}: each needs its own")
    valid_until = valid_until.astimezone(dt.UTC).replace(microsecond=0)
    if valid_until <= dt.datetime.now(dt.UTC):
        raise InputError(f"valid_until lies in the past: {valid_until:%Y-%m-%d %H:%M} UTC")
    if valid_until > (end := authority.certificate.not_valid_after_utc):
        raise InputError(
            f"valid_until {valid_until:%Y-%m-%d %H:%M} UTC lies after the end of {authority.name}, {end:%Y-%m-%d %H:%M}"
        )
    return Agreement(plan=plan, edges=edges, parties=listed, valid_until=valid_until)


def _edges(plan: Plan, size: int) -> tuple[tuple[int, int], ...]:
    return tuple((int(i), int(j)) for i, j in plan.graph.graph(size).edges)


def _canonical(tree: dict[str, object]) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
