"""An agreement in words: all that somebody signs up to, so that nothing in it differs only by its hash."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from coterie.data.planned import public_sizes
from coterie.deploy.agreement import Agreement
from coterie.deploy.party import Terms
from coterie.errors import InputError
from coterie.explain import unit_block
from coterie.privacy.people import unit_words

__all__ = ["columns", "headlines", "settings"]


def headlines(agreement: Agreement) -> list[str]:
    """What it costs, how long it goes on and what is sent; and whether agents will run it at all."""
    plan = agreement.plan
    lines = [f"plan {_text(plan.name)}, hash {agreement.plan_hash.hex()}"]
    assert plan.privacy is not None
    budgets, unit = _budgets(agreement), "person with all its records at a party" if plan.by_person else "record"
    largest, smallest = max(budgets), min(budgets)
    each = f"{largest:g} for every party" if largest == smallest else f"{smallest:g} to {largest:g}, party by party"
    lines.append(f"privacy: ε = {each}, δ = {plan.privacy.delta:g}, for one {unit}, for all rounds together")
    if follows := agreement.deploy.follows:
        lines.append(
            f"amends agreement {follows[-1]}: its budget is in addition to what a party has spent under that one"
            f"{f' and {len(follows) - 1} before it' if len(follows) > 1 else ''}"
        )
    if plan.privacy.tuned_on_private_data:
        lines.append("settings were chosen by looking at the data: ε does not cover that")
    if plan.privacy.before is not None:
        lines.append(_text(plan.privacy.before.words(plan.privacy.delta)))
    try:
        terms = Terms.of(plan)
    except InputError as error:
        return [*lines, f"AGENTS WILL REFUSE IT: {error}"]
    priced = terms.priced
    first, *others = priced.claims  # of a private algorithm, and no other is deployed
    worst = first.account
    records, held = terms.network.sizes, "people" if plan.by_person else "records"
    lines += [
        f"cost: ε = {worst.epsilon:.4g} will be spent by the party that spends most ({worst.accountant} accountant), "
        f"against one who {first.adversary}",
        unit_words(unit_block(plan, priced), plan.privacy.delta),
        *(f"another adversary, who {c.adversary}: ε = {c.account.epsilon:.4g} ({c.name})" for c in others),
        f"{priced.rounds} rounds of {plan.algorithm.name}, a {plan.problem.loss} model of {terms.network.problem.dim} "
        f"parameters, {int(records.sum())} {held} at {len(records)} parties on a {plan.graph.kind} graph",
    ]
    return lines


def columns(agreement: Agreement) -> tuple[list[str], list[list[str]]]:
    """A table: what each party spends and has, and whom it talks to."""
    sizes = public_sizes(agreement.plan)
    rows = []
    for party, budget in zip(agreement.parties, _budgets(agreement), strict=True):
        around = agreement.neighbours(party.name)
        calls = [n for n in around if agreement.dials(party.name, n)]
        called = [n for n in around if n not in calls]
        size = "?" if sizes is None else str(sizes[party.node])
        title = agreement.deploy.parties[party.node].title
        name = party.name if title is None else f"{party.name} ({title})"
        rows.append([name, f"{budget:g}", size, party.address or "nowhere", ", ".join(calls) or "-",
                     ", ".join(called) or "-"])  # fmt: skip
    held = "people" if agreement.plan.by_person else "records"
    return ["party", "ε", held, "listens at", "calls", "is called by"], rows


def settings(agreement: Agreement) -> list[str]:
    """Every setting that is signed, the defaults too, one a line."""
    plan = agreement.model_dump(mode="json")["plan"]
    plan["deploy"].pop("parties")  # the table has them
    return [f"{key} = {value}" for key, value in _flat(plan)]


def _budgets(agreement: Agreement) -> list[float]:
    assert agreement.plan.privacy is not None
    epsilon = agreement.plan.privacy.epsilon
    return list(epsilon) if isinstance(epsilon, list) else [epsilon] * len(agreement.parties)


def _flat(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{_text(key) if not key.isidentifier() else key}.")
        else:
            yield f"{prefix}{key if key.isidentifier() else _text(key)}", _text(value)


def _text(value: object) -> str:
    """In one line, whatever is in it: a name must not look like another line."""
    return json.dumps(value)
