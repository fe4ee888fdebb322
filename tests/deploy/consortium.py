"""A consortium for tests: an authority, parties with keys and certificates, and a signed agreement."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coterie.deploy.agreement import Agreement, draft_agreement
from coterie.deploy.courier import Courier
from coterie.deploy.frames import Wire, seal
from coterie.deploy.keys import (
    Authority,
    Identity,
    PartyKeys,
    init_authority,
    init_party,
    install,
    load_authority,
    load_party,
    read_certificate,
    sign_request,
    write_request,
)
from coterie.deploy.transport import Timing
from coterie.deploy.trial import free_ports
from coterie.plan import Plan, validate

NAMES = ("ada", "ben", "cleo", "dora", "emil")
IN_A_YEAR = dt.datetime.now(dt.UTC) + dt.timedelta(days=365)
QUICK = Timing(hello=2.0, age=600.0, retry=(0.02, 0.2), receipt=0.01)
WIRE = Wire(count=10, width=4, rounds=1000, limit=lambda sender, round: 1_000_000)


@dataclass(frozen=True)
class Consortium:
    """Folders of an authority and its parties, and what they agreed to."""

    folder: Path
    authority: Authority
    agreement_key: Ed25519PrivateKey
    agreement: Agreement

    def keys(self, name: str) -> PartyKeys:
        return load_party(self.folder / name)

    def certify(self, name: str, **options: Any) -> Identity:
        """A new certificate for the same keys, installed: a rotation."""
        return certify(self.folder, name, **options)


def certify(folder: Path, name: str, *, ca: str = "ca", checked: bool = True, **options: Any) -> Identity:
    write_request(name, folder / name, folder / f"{name}.request.json")
    identity = sign_request(folder / f"{name}.request.json", folder / ca, 30, **options)
    if not checked:  # expired, future or foreign ones, which `install` refuses
        identity.write(folder / name / "certificate.pem")
        return identity
    identity.write(folder / f"{name}.pem")
    return install(name, folder / name, folder / f"{name}.pem", folder / ca / "ca.json")


def plan_tree(
    names: tuple[str, ...] = NAMES, addresses: list[str | None] | None = None, **tables: Any
) -> dict[str, Any]:
    addresses = addresses or [f"127.0.0.1:{p}" for p in free_ports(len(names))]
    tree: dict[str, Any] = {
        "name": "trial",
        "data": {"source": "clinics"},
        "partition": {"kind": "iid", "agents": len(names), "records": 40},
        "graph": {"kind": "ring" if len(names) > 2 else "path"},
        "problem": {"loss": "logistic", "ridge": 0.01},
        "algorithm": {"name": "dp-dsgd"},
        "privacy": {"epsilon": 1, "delta": 1e-5},
        "run": {"rounds": 20},
        "deploy": {
            "parties": [
                {"name": n} | ({} if a is None else {"address": a}) for n, a in zip(names, addresses, strict=True)
            ]
        },
    }
    return {k: v for k, v in (tree | tables).items() if v is not None}


def trial_plan(**options: Any) -> Plan:
    return validate(plan_tree(**options))


def make_consortium(
    folder: Path, names: tuple[str, ...] = NAMES, addresses: list[str | None] | None = None, **tables: Any
) -> Consortium:
    if not (folder / "ca").exists():
        init_authority("trial-ca", folder / "ca")
    for name in names:
        if not (folder / name).exists():
            init_party(name, folder / name)
            certify(folder, name)
    authority, key = load_authority(folder / "ca")
    identities = [read_certificate(folder / n / "certificate.pem") for n in names]
    plan = trial_plan(names=names, addresses=addresses, **tables)
    agreement = draft_agreement(plan, identities, authority, IN_A_YEAR).signed(key)
    return Consortium(folder, authority, key, agreement)


class Node:
    """A party in a test: its transport and an outbox that stands for its ledger."""

    def __init__(self, group: Consortium, name: str, kind: Any, **options: Any) -> None:
        self.group, self.name, self.node = group, name, group.agreement.index(name)
        self.outbox: dict[int, bytes] = options.pop("outbox", {})
        self.wire: Wire = options.pop("wire", WIRE)
        self.got: list[tuple[str, int]] = []
        self.transport: Courier = kind(
            group.agreement, name, group.keys(name), wire=self.wire, outbox=self.outbox.get,
            **{"timing": QUICK} | options,
        )  # fmt: skip

    def frame(self, round: int, value: int = 0, **changes: Any) -> bytes:
        payload = np.full(self.wire.count, value or round, self.wire.dtype).tobytes()
        settings = {"plan_hash": self.group.agreement.plan_hash, "sender": self.node, "round": round} | changes
        return seal(self.transport.keys.frame_key, payload=settings.pop("payload", payload), **settings)

    async def say(self, *rounds: int) -> None:
        """Make a round's frame durable, then push it."""
        for round in rounds:
            self.outbox.setdefault(round, self.frame(round))
            await self.transport.push(round, self.outbox[round])

    async def hear(self, count: int, since: int = 0, seconds: float = 10.0) -> list[tuple[str, int]]:
        """The next frames, as (sender, round), after checking what is in them."""
        start = len(self.got)
        async with asyncio.timeout(seconds):
            while len(self.got) < start + count:
                incoming = await self.transport.pull(since)
                assert set(incoming.frame.numbers) == {incoming.round}
                self.got.append((incoming.sender, incoming.round))
        return self.got[start:]

    async def hears_nothing(self, seconds: float = 0.3) -> None:
        """Nothing comes for a while."""
        try:
            extra = await self.hear(1, seconds=seconds)
        except TimeoutError:
            return
        raise AssertionError(f"{self.name} heard {extra}")


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Start these parties, and close them at the end."""
    try:
        for node in nodes:
            await node.transport.start()
        yield
    finally:
        for node in nodes:
            await node.transport.close()


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for a condition that the network brings about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
