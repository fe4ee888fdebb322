"""The plan of the next agreement, from the one in force: who leaves, who joins, who moves, what else changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coterie.data.planned import public_sizes
from coterie.deploy.agreement import Agreement
from coterie.errors import InputError
from coterie.graphs import from_outside
from coterie.names import host_and_port
from coterie.plan import Plan, validate
from coterie.written import apply_change

__all__ = ["Newcomer", "amended_plan", "changes_in_words", "newcomer", "plan_tree"]


class Newcomer(NamedTuple):
    """A party that joins."""

    name: str
    records: int
    address: str | None


def newcomer(text: str) -> Newcomer:
    """What `NAME=RECORDS@HOST:PORT` says; a party without an address only dials out.

    >>> newcomer("north=400@north.example:7101")
    Newcomer(name='north', records=400, address='north.example:7101')
    """
    name, _, rest = text.partition("=")
    records, at, address = rest.partition("@")
    if not name or not records.isdecimal() or (at and not address):
        raise InputError(f"--join takes NAME=RECORDS or NAME=RECORDS@HOST:PORT, such as north=400, got {text!r}")
    return Newcomer(name, int(records), address or None)


def plan_tree(agreement: Agreement) -> dict[str, object]:
    """An agreement's plan as plain data, every key as it was signed."""
    tree: dict[str, object] = agreement.model_dump(mode="json")["plan"]
    return tree


def _table(tree: Mapping[str, object], name: str) -> dict[str, Any]:
    found = tree[name]
    assert isinstance(found, dict)
    return found


def amended_plan(
    agreement: Agreement, *, leave: Sequence[str] = (), join: Sequence[Newcomer] = (),
    addresses: Mapping[str, str | None] | None = None, changes: Sequence[str] = (),
) -> tuple[dict[str, object], Plan]:  # fmt: skip
    """The next plan, as plain data and checked. Its budget is in addition to what was spent."""
    tree, moved = plan_tree(agreement), dict(addresses or {})
    deploy, graph, privacy = (_table(tree, name) for name in ("deploy", "graph", "privacy"))
    sizes = public_sizes(agreement.plan)
    assert sizes is not None  # or it could not have been signed
    rows = list(zip(deploy["parties"], sizes.tolist(), strict=True))
    names = [party["name"] for party, _ in rows]
    for name in (*leave, *moved):
        if name not in names:
            raise InputError(f"{name!r} is no party of this agreement: expected one of {', '.join(names)}")
    staying = [k for k, name in enumerate(names) if name not in leave]
    rows = [rows[k] for k in staying]
    for party, _ in rows:
        if party["name"] in moved:
            party.pop("address", None)
            if (address := moved[party["name"]]) is not None:
                host_and_port(address)
                party["address"] = address
    for one in join:
        party = {"name": one.name} | ({} if one.address is None else {"address": one.address})
        rows.append((party, one.records))
    others = leave or join
    if others and from_outside(graph["kind"]) and not any(c.startswith("graph.") for c in changes):
        raise InputError(f"graph.kind = {graph['kind']!r} lists edges: say the new ones by --set graph.…")
    if others:
        tree["partition"] = {"kind": _table(tree, "partition")["kind"], "sizes": [size for _, size in rows]}
    deploy["parties"] = [party for party, _ in rows]
    epsilon = privacy["epsilon"]
    if isinstance(epsilon, list):
        privacy["epsilon"] = [epsilon[k] for k in staying]
        if join and not any(c.startswith("privacy.epsilon") for c in changes):
            raise InputError("privacy.epsilon lists a budget for each party: say --set privacy.epsilon=[…]")
    deploy["follows"] = [*(agreement.deploy.follows or []), agreement.plan_hash.hex()]
    for change in changes:
        apply_change(tree, change)
    return tree, validate(tree)


def changes_in_words(before: Agreement, after: Plan) -> list[str]:
    """What is different, one change a line, for those who sign."""
    assert after.deploy is not None
    old, new = ({p.name: p for p in deploy.parties} for deploy in (before.deploy, after.deploy))
    lines = [f"{name} leaves" for name in old if name not in new]
    lines += [f"{name} joins" for name in new if name not in old]
    lines += [
        f"{name} listens at {new[name].address or 'no address'}, before: {old[name].address or 'no address'}"
        for name in new
        if name in old and new[name].address != old[name].address
    ]
    was, now = _flat(plan_tree(before)), _flat(after.model_dump(mode="json", exclude_none=True))
    for key in dict.fromkeys([*was, *now]):
        known = key.startswith(("deploy.parties", "deploy.follows", "run.seed"))
        if not known and was.get(key) != now.get(key):
            lines.append(f"{key}: {now.get(key, 'not stated')}, before: {was.get(key, 'not stated')}")
    return lines


def _flat(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
