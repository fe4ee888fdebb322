r"""Checking a certificate without trusting whoever made it.

Three layers, each of which a certificate must pass:

1. **Form.** Every field is there, none is unknown, the digest is that of the content, the signature (if any) is good.
2. **Arithmetic**, from the certificate alone: the plan's hash, every total from the listed events by every accountant,
   the claim from the totals, the budgets from the plan, ε ≤ budget.
3. **Derivation**, with the installed code: settings from the plan and the public sizes, events from the settings and
   the stated noise, the assumptions' words. A certificate made by other code (`made_with.code_sha256`) may rightly
   differ here, so its differences are warnings unless `strict`. Code of others that the plan names (`other_code`) must
   be installed, and be the same.

No data is read, and no file that the certificate names but those of its own folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
from pydantic import ValidationError

import coterie
from coterie.algorithms import ALGORITHMS
from coterie.algorithms.base import PRINTED, find
from coterie.errors import InputError
from coterie.found import OthersCode
from coterie.privacy.codec import to_rows
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.costs import Paid, Sealed
from coterie.report.derivation import EVENTS, Refuted, derive, equal
from coterie.report.form import Certificate
from coterie.report.others import others_kinds
from coterie.report.released import MODEL, contents

__all__ = ["Certificate", "Refuted", "Verified", "parse", "public_key", "verify"]

SEATS = 1e-4  # of an account per observer, which may be searched for
TOTALS = 1e-6  # relative: how far two machines may differ in the last digits of a total


@dataclasses.dataclass(frozen=True)
class Verified:
    """A certificate that holds: what it says, and what the reader should know besides."""

    content: Certificate
    signed_by: str | None
    derived: bool  # whether the events were derived anew from the plan, with the code that made them
    warnings: tuple[str, ...]


def parse(text: str) -> dict[str, object]:
    """The JSON object of a certificate: no key twice, no NaN, no number beyond float64."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise InputError("not a certificate: it has the same key twice")
        return found

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise InputError(f"not a certificate: {digits} is not a number that float64 holds")
        return number

    try:
        content = json.loads(text, object_pairs_hook=once, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError("not a certificate: expected a JSON object")
    return content


def verify(
    content: Mapping[str, object], *, key: bytes | None = None, strict: bool = False, folder: Path | None = None
) -> Verified:
    """Check a certificate; raises `Refuted` with the first thing that is wrong.

    Args:
        content: what `parse` returned.
        key: the 32 bytes of the Ed25519 public key that must have signed it; None takes any signature, or none.
        strict: reject also what was made by other code than the installed one, or could not be derived anew.
        folder: where the released files lie; a file that is there must be the one that the certificate names.
    """
    try:
        parsed = Certificate.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(k) for k in first["loc"]).replace("schema_", "schema")
        raise Refuted(f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}") from None
    _sealed(content, parsed, key)
    stated = cast(Sealed, content)  # `parsed` shows that it has this form
    _arithmetic(stated, parsed)
    _strangers(parsed)
    warnings = list(_released(parsed, folder))
    if parsed.made_with.get("code_sha256") == c.code_hash():
        _versions(parsed)
        warnings += _derivation(stated, parsed)
        derived = True
    else:
        warnings += _other_code(stated, parsed)
        derived = False
    if not parsed.claim.private:
        why = f" ({parsed.public.leaks[0]})" if parsed.public.leaks else ""
        raise Refuted(f"claim.private is false: the numbers are right, but no privacy is claimed{why}")
    if strict and warnings:
        raise Refuted(warnings[0])
    return Verified(parsed, parsed.signer, derived, tuple(warnings))


# ---- form ------------------------------------------------------------------------------------------------------------


def _sealed(content: Mapping[str, object], parsed: Certificate, key: bytes | None) -> None:
    body = {name: value for name, value in content.items() if name not in ("digest", "signature")}
    _same("digest: the file is not as it was made", parsed.digest, sealing.sha256(sealing.canonical(body)))
    if (parsed.signer is None) != (parsed.signature is None):
        raise Refuted("signature: signer and signature must both be there, or neither")
    if key is not None and parsed.signer != key.hex():
        raise Refuted(f"signer: expected {key.hex()}, got {parsed.signer or 'no signature'}")
    if parsed.signer is None or parsed.signature is None:
        return
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise InputError("a signature is checked by the package cryptography: pip install 'coterie[deploy]'") from None
    try:
        signer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(parsed.signer))
        signer.verify(bytes.fromhex(parsed.signature), sealing.signed_text(parsed.digest))
    except (InvalidSignature, ValueError):
        raise Refuted("signature: not made by the signer over this digest") from None


def public_key(given: str) -> bytes:
    """The 32 bytes of an Ed25519 public key: 64 hexadecimal digits, or a PEM file."""
    if len(given) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in given):
        return bytes.fromhex(given)
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise InputError("a key in a file is read by the package cryptography: pip install 'coterie[deploy]'") from None
    try:
        key = load_pem_public_key(Path(given).read_bytes())
    except OSError as error:
        raise InputError(f"cannot read key {given}: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{given} is not a public key in PEM form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{given} is not an Ed25519 key but {type(key).__name__}")
    return key.public_bytes_raw()


def _released(parsed: Certificate, folder: Path | None) -> Iterator[str]:
    """The model beside the certificate is the listed one, of one run of this plan after as many rounds."""
    path = None if folder is None else folder / MODEL
    there = path is not None and path.is_file()
    if MODEL in parsed.files and not there:
        yield f"{MODEL} is not beside the certificate, so it was not compared"
    if there and MODEL not in parsed.files:
        yield f"{MODEL} is beside the certificate, which does not list it"
    if path is None or not there or MODEL not in parsed.files:
        return
    _same(f"files.{MODEL}", parsed.files[MODEL], _file_hash(path))
    simulated, public = parsed.run.noise == c.SIMULATED, parsed.public
    try:
        found = contents(
            path, agents=public.agents, parameters=public.parameters, features=public.features, simulated=simulated
        )
    except ValueError as error:
        raise Refuted(f"files.{MODEL}: {error}") from None
    _same(f"files.{MODEL}, its plan", str(found["plan"]), parsed.plan_sha256)
    done = min(group.rounds for group in parsed.agents)
    _same(f"files.{MODEL}, its rounds", str(found["rounds"]), str(done))
    if simulated:
        _same(f"files.{MODEL}, its seed", str(found["seed"]), str(parsed.run.seed))


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _arithmetic(content: Sealed, parsed: Certificate) -> None:
    """Everything that follows from the certificate alone."""
    _same("plan_sha256", parsed.plan_sha256, sealing.sha256(sealing.canonical(parsed.plan)))
    privacy = parsed.plan.get("privacy")
    if privacy is not None and not (isinstance(privacy, dict) and isinstance(privacy.get("delta"), float)):
        raise Refuted("plan.privacy: expected a table with epsilon and delta")
    delta = None if privacy is None else privacy["delta"]
    count = parsed.public.agents
    budgets = [] if privacy is None else _budgets(privacy.get("epsilon"), count)
    seen = np.zeros(parsed.public.agents, bool)
    for k, (group, raw) in enumerate(zip(parsed.agents, content["agents"], strict=True)):
        where = f"agents[{k}]"
        for first, last in group.members:
            if not first <= last < parsed.public.agents or seen[first : last + 1].any():
                raise Refuted(f"{where}.members: {[first, last]} is no range of parties that are in no other group")
            seen[first : last + 1] = True
            if wrong := next((b for b in budgets[first : last + 1] if b != group.budget), None):
                raise Refuted(f"{where}.budget: the plan says {wrong}, got {group.budget}")
        if (group.budget is None) != (privacy is None):
            raise Refuted(f"{where}.budget: the plan has {'no' if privacy is None else 'a'} budget")
        _totals(where, raw, delta)
    if not seen.all():
        raise Refuted(f"agents: agent {int(np.argmin(seen))} is in no group")
    _in_order([group.members for group in parsed.agents])
    if parsed.public.names is not None and len(parsed.public.names) != parsed.public.agents:
        raise Refuted(f"public.names: expected {parsed.public.agents} names, got {len(parsed.public.names)}")
    if parsed.run.noise not in (c.SIMULATED, c.SECURE):
        raise Refuted(f"run.noise: unknown source {parsed.run.noise!r}")
    if (parsed.run.seed is not None) != (parsed.run.noise == c.SIMULATED):
        raise Refuted("run.noise: a simulation has a seed, and only a simulation has")
    _rounds(parsed)
    _totals("central", content["central"], delta)
    if parsed.central is not None and parsed.central.budget != min(budgets, default=None):
        raise Refuted(f"central.budget: the plan's smallest is {min(budgets, default=None)}")
    exchange = parsed.plan.get("exchange")
    shared = isinstance(exchange, dict) and exchange.get("noise") == "central"
    if (parsed.cap is not None) != shared or (shared and parsed.central is None):
        raise Refuted(f"cap: the plan's noise is {'shared' if shared else 'not shared'}")
    _totals("cap", content["cap"], delta)
    _totals("alone", content.get("alone"), delta)
    _again(parsed)
    if parsed.algorithm.name in ALGORITHMS.names:
        sharing = find(parsed.algorithm.name).own_cost is not None and delta is not None
        if (parsed.alone is not None) != sharing:
            raise Refuted(f"alone: noise is {'' if sharing else 'not '}shared between neighbours")
    printed = parsed.algorithm.settings.get(PRINTED, False) is not False
    words = _words(parsed)
    headline, *others = c.claims(
        content["agents"], content["central"], content["cap"], delta, printed, parsed.public.leaks, words,
        content.get("alone"),
    )  # fmt: skip
    equal("claim", content["claim"], headline, TOTALS)
    equal("other_claims", content["other_claims"], others, TOTALS)
    data = parsed.plan.get("data")
    by_person = isinstance(data, dict) and data.get("unit") == "person"
    told = c.protects(content["agents"], content["central"], content["cap"], delta, by_person=by_person, words=words)
    equal("protects", content["protects"], told, TOTALS)


def _words(parsed: Certificate) -> tuple[str, str] | None:
    """Whom the agents' events are against, where an algorithm that is installed here says so."""
    if parsed.algorithm.name not in ALGORITHMS.names:
        return None
    algorithm = find(parsed.algorithm.name)
    if algorithm.against is None:
        return None
    try:
        return algorithm.against(algorithm.config(**parsed.algorithm.settings))
    except (InputError, ValidationError) as error:
        raise Refuted(f"algorithm.settings: {error}") from None


def _in_order(groups: list[list[list[int]]]) -> None:
    """One certificate has one form: groups by their first member, ranges in order and as long as they can be."""
    if [members[0] for members in groups] != sorted(members[0] for members in groups):
        raise Refuted("agents: groups must be in the order of their first members")
    for k, members in enumerate(groups):
        if any(after[0] <= before[1] + 1 for before, after in pairwise(members)):
            raise Refuted(f"agents[{k}].members: ranges must be in order, and not touch")


def _rounds(parsed: Certificate) -> None:
    """Everybody is charged for all rounds, or for those before an early end.

    A simulation ends for all agents at once. A deployed party knows only where its own ledger ends, and has no model
    before the last round.
    """
    planned, done = parsed.algorithm.rounds, [group.rounds for group in parsed.agents]
    if max(done) > planned:
        raise Refuted(f"agents.rounds: {max(done)} of {planned} rounds")
    privacy = parsed.plan.get("privacy")
    if min(done) < planned and isinstance(privacy, dict) and privacy.get("adaptive") is not None:
        raise Refuted(f"agents.rounds: adaptive noise is charged the limit, all {planned} rounds, got {min(done)}")
    if parsed.run.noise == c.SIMULATED:
        if min(done) < max(done):
            raise Refuted(f"agents.rounds: a simulation ends for all agents at once, not after {min(done)} rounds")
        return
    early = [group for group in parsed.agents if group.rounds < planned]
    if len(early) > 1 or (early and early[0].members != [[early[0].members[0][0]] * 2]):
        raise Refuted("agents.rounds: one party's certificate knows of no other where it ended")
    if early and parsed.files:
        raise Refuted(f"agents.rounds: a party that ended after {early[0].rounds} of {planned} rounds has no model")


def _again(parsed: Certificate) -> None:
    """Vectors are sent again by a deployed party that knows its own ledger, and no more than the plan lets it send."""
    allowed = 0 if parsed.cap is None or parsed.run.noise == c.SIMULATED else parsed.cap.sent_again
    for k, group in enumerate(parsed.agents):
        if group.sent_again > allowed or (group.sent_again and group.members != [[group.members[0][0]] * 2]):
            raise Refuted(f"agents[{k}].sent_again: {group.sent_again} vectors, where {allowed} may be sent again")


def _totals(where: str, stated: Paid | None, delta: float | None) -> None:
    """The events are written as `encode` writes them, and give the stated totals; nothing that is not there does."""
    if stated is None:
        return
    try:
        again = to_rows(c.decode(stated["events"]))
        made = c.totals(again, delta)
    except Exception as error:  # no event that a run has charged: an accountant may fail on it in any way
        raise Refuted(f"{where}.events: {error}") from None
    equal(f"{where}.events", stated["events"], again, 0.0)
    equal(f"{where}.totals", stated["totals"], made["totals"], TOTALS)
    equal(f"{where}.epsilon", stated["epsilon"], made["epsilon"], TOTALS)
    equal(f"{where}.accountant", stated["accountant"], made["accountant"], TOTALS)


def _budgets(epsilon: object, agents: int) -> list[float]:
    listed = epsilon if isinstance(epsilon, list) else [epsilon] * agents
    budgets = [e for e in listed if isinstance(e, float) and e > 0]
    if len(listed) != agents or len(budgets) != agents:
        raise Refuted("plan.privacy.epsilon: expected a number > 0, or one for each party")
    return budgets


# ---- derivation ------------------------------------------------------------------------------------------------------


def _versions(parsed: Certificate) -> None:
    """The code's own version is known; of the libraries only that they are named."""
    _same("made_with.coterie", parsed.made_with.get("coterie", "nothing"), coterie.__version__)
    for name in {*parsed.made_with} ^ {*c.versions()}:
        raise Refuted(f"made_with.{name}: {'unknown' if name in parsed.made_with else 'missing'}")


def _strangers(parsed: Certificate) -> None:
    """What the plan names beside our own is installed here, and is the code that the certificate is for."""
    stated = {one.key: one for one in parsed.other_code}
    named = others_kinds(parsed.plan)
    if [one.key for one in parsed.other_code] != list(named):
        raise Refuted(f"other_code: expected {', '.join(named) or 'nothing'}, got {', '.join(stated) or 'nothing'}")
    for key, (kinds, name) in named.items():
        one = stated[key]
        theirs = OthersCode(one.module, one.distribution, one.version, one.sha256)
        if one.name != name:
            raise Refuted(f"other_code: {key} is {name!r}, got {one.name!r}")
        if name not in kinds.names:
            raise Refuted(f"{key}: {kinds.what} {name!r} is not installed here under that name; it is {theirs}")
        if (here := kinds.code(name)) != theirs:
            raise Refuted(f"{key}: the certificate is for other code: {name!r} is {here} here, it names {theirs}")


def _other_code(content: Sealed, parsed: Certificate) -> Iterator[str]:
    """Warnings: what the installed code would have derived differently, if anything."""
    theirs = parsed.made_with.get("coterie", "unknown")
    yield f"made by other code (coterie {theirs}): totals were recomputed, what the plan asks of it was not proved"
    try:
        _derivation(content, parsed)
    except Refuted as difference:
        yield f"the installed code derives another certificate from the plan: {difference}"


def _derivation(content: Sealed, parsed: Certificate) -> list[str]:
    """Settings, events and words from the plan, the public facts and the stated noise; warns of what was not made."""
    inputs = {
        "plan": content["plan"],
        "public": content["public"],
        "noise": parsed.run.noise,
        "agents": [
            [g["members"], g["records"], g["noise_multiplier"], g["rounds"], g["sent_again"]] for g in content["agents"]
        ],
    }
    made = derive(sealing.canonical(inputs))
    if isinstance(made, str):
        raise Refuted(made)
    equal("algorithm", content["algorithm"], made["algorithm"], EVENTS)
    equal("central", content["central"], made["central"], TOTALS)
    equal("cap", content["cap"], made["cap"], TOTALS)
    equal("alone", content.get("alone"), made["alone"], TOTALS)
    equal("observers", content.get("observers", []), made["observers"], SEATS)
    equal("statements", content["statements"], made["statements"], 0.0)
    if parsed.run.seed not in (None, made["seed"]):
        raise Refuted(f"run.seed: the plan gives {made['seed']}")
    for k, (stated, derived) in enumerate(zip(content["agents"], made["agents"], strict=True)):
        equal(f"agents[{k}].neighbours", stated["neighbours"], derived["neighbours"], 0.0)
        equal(f"agents[{k}].events", stated["events"], derived["events"], EVENTS)
    return list(made["warnings"])


def _same(where: str, got: str, expected: str) -> None:
    if got != expected:
        raise Refuted(f"{where}: expected {expected}, got {got}")
