"""What a certificate says, statement by statement, and whom one has to trust for each.

Arithmetic needs nobody's word. What a record is, how noise was drawn and how many rounds there were is said by whoever
was there: no file can prove it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.algorithms.base import Algorithm, Config
from coterie.data import find_source
from coterie.exchange.central import central_words, local_words
from coterie.exchange.sums import SumTerms
from coterie.plan import Plan
from coterie.privacy import gdp
from coterie.problems import Problem
from coterie.report.others import others_kinds
from coterie.tables.privacy import BeforePlan, PrivacyPlan

__all__ = ["SECURE", "SIMULATED", "Said", "assumptions", "statements"]

SIMULATED = "simulated, not private on a wire"
SECURE = "whole numbers on a public grid, drawn by each party from its operating system"

NOBODY = "nobody: recomputed from this file"
BESIDE = "nobody: compared with the files, if they are there"
CODE = "the authors of the installed coterie, who proved what its algorithms cost; derived again from the plan"
OWNER = "each party, for its own records"
PROGRAM = "each party, for the program that it ran"
RELEASER = "whoever releases it, and every party that could release more"
READER = "yourself: only you know whom a record is about"


class Said(NamedTuple):
    """A statement, and whom one has to trust for it."""

    statement: str
    trust: str


def assumptions(
    plan: Plan, problem: Problem, algorithm: Algorithm, cfg: Config, leaks: Sequence[str], *, noise: str = SIMULATED
) -> list[Said]:  # fmt: skip
    """What must hold for the claim, in words; the parties answer for these, no file can prove them.

    `leaks` is what a loader read from the records: where there is any, the claim does not hold, and the words say so.
    """
    said = []
    clip = getattr(cfg, "clip", None)
    if problem.premise is not None:
        said.append(Said(f"{problem.premise}{'' if leaks else _kept(plan, deployed=noise == SECURE)}", OWNER))
    if clip is not None:
        whose = "the mean gradient of every person's records" if plan.by_person else "every record's gradient"
        text = f"{whose} is clipped to norm {float(clip):.6g} before anything is done with it"
        said.append(Said(text, PROGRAM))
    if algorithm.needs(cfg).solver:
        text = "every subproblem is solved to the stated tolerance, by steps whose number public constants fix"
        said.append(Said(text, PROGRAM))
    said += [
        Said(f"the numbers of {'people' if plan.by_person else 'records'}, the graph, the settings and the schedule "
             "are public and were fixed beforehand", OWNER),
        Said("noise is drawn from the declared law, used once, and never shown: whoever knows the seed can subtract it",
             PROGRAM),
        *_whose(plan),
        Said("one run is released: k runs on the same records, other seeds included, cost k times the events",
             RELEASER),
        Said("metrics and curves computed from the records without noise are not released, or are paid for elsewhere",
             RELEASER),
    ]  # fmt: skip
    if plan.privacy is not None and plan.privacy.adaptive is not None:
        rule = f"the rule {plan.privacy.adaptive!r}"
        rule = "a function that no file here shows" if plan.privacy.adaptive == "own" else rule
        text = f"the noise of a round was chosen by {rule} from messages that were sent, and from nothing else"
        said.append(Said(f"{text}; ε is the limit of its filter", PROGRAM))
    if plan.run.away:
        said.append(Said("who is away in which rounds was fixed beforehand, and not by what the records say", OWNER))
    if problem.before:
        text = f"{problem.before} were released before, or do not come from the records: this ε does NOT cover them"
        said.append(Said(text, RELEASER))
    if leaks:
        said += [Said(f"this ε does NOT cover what a loader read from the records: {leak}", OWNER) for leak in leaks]
    else:
        paid = plan.privacy is not None and plan.privacy.before is not None
        rest = "no other was" if paid else "none was"
        said.append(Said(f"labels, columns, scales and names were stated in public; {rest} read from the records",
                         OWNER))  # fmt: skip
    if plan.privacy is not None and plan.privacy.before is not None:
        said.append(Said(_before(plan.privacy, plan.privacy.before), RELEASER))
    if plan.privacy is not None and plan.privacy.tuned_on_private_data:
        said.append(Said("settings were tuned on private data, which this ε does NOT cover", RELEASER))
    return said


def _sent(plan: Plan) -> str:
    """How often something was sent."""
    if plan.privacy is None or plan.privacy.adaptive is None:
        return "so many rounds were run, and nothing else was sent"
    return (
        "no more rounds were run, with noise of which a filter kept the sum of prices within that of the listed events,"
        " and nothing else was sent"
    )


def _before(privacy: PrivacyPlan, before: BeforePlan) -> str:
    """What was paid before, and what both come to: without assumptions, and where everything is Gaussian."""
    delta, stated = privacy.delta, privacy.epsilon
    most = max(stated) if isinstance(stated, list) else stated
    text = f"{before.words(delta)}: both together cost no more than ({most + before.epsilon:.4g}, {2 * delta:g})"
    if delta > 0:
        both = float(np.hypot(gdp.mu_for(most, delta), gdp.mu_for(before.epsilon, delta)))
        text += f", and ({gdp.epsilon_of(both, delta):.4g}, {delta:g}) where all their events are Gaussian"
    return text


def _whose(plan: Plan) -> list[Said]:
    """Whom the claim is for."""
    if not plan.by_person:
        text = "the claim is for one record, which one party holds; for a person with k records it is weaker"
        return [Said(text, READER)]
    return [
        Said("the claim is for one person with all of its records at one party; for a person whom several parties know "
             "it is weaker: what all of them send adds up, and so does what the person moves in an opened sum", READER),
        Said("it was said rightly whose every record is: who goes by two names is two people", OWNER),
    ]  # fmt: skip


def _kept(plan: Plan, *, deployed: bool) -> str:
    """How a record comes to be what the price rests on, in words: whose hands it went through, the plan says."""
    source = find_source(plan.data.source)
    if source.handed and not deployed and "bounds" not in plan.data.options:
        return ", as handed over: records that are not were refused, and none was scaled"
    if source.stream is not None or (deployed and plan.data.label is None):
        return ", as stored: a record that is not is pulled back there to the public bound"
    return ", scaled there by public bounds"


def _of_sums(terms: SumTerms) -> list[Said]:
    """What the claim for opened sums rests on, and what is left of it where that fails."""
    h, c, n = terms.honest, terms.colluders, terms.parties
    name, _ = central_words(terms)
    who = f"of those who answered, together with all who did not ({n - terms.dropouts} of {n} must answer)"
    said = [
        Said(f"{name}: at least {h} parties add their noise and keep their messages secret",
             f"some {h} of the parties, whichever they are"),
        Said(f"{name}: no more than {c} parties pool what they know, {who if terms.dropouts else 'whichever they are'}",
             f"all but {c} of the parties"),
    ]  # fmt: skip
    if terms.shared:
        name, _ = local_words(shared=True)
        said.append(
            Said(f"{name}: what is left of the guarantee if all other parties pool what they know against one; a party "
                 f"stops after sending {terms.retries} vectors again, so that it costs no more than the last claim",
                 "nobody else: each party for itself")
        )  # fmt: skip
    return said


def _of_pairs(name: str, *, simulated: bool) -> list[Said]:
    """What the claim for noise that neighbours share rests on, and what is left of it where that fails."""
    local, _ = local_words(shared=True)
    drawn = "simulated, from the seed" if simulated else "drawn by both from keys that the agreement pins"
    return [
        Said(f"{name}: no more parties than that pool what they know, whichever they are; one that shows a secret, or "
             "whose key is known, now or later, is one of them", "all parties but those"),
        Said(f"{name}: what two neighbours share is known to these two alone, and fresh in every round: {drawn}",
             "both ends of every edge"),
        Said(f"{local}: what is left of the guarantee if all other parties pool what they know against one: its own "
             "noise alone hides its messages", "nobody else: each party for itself"),
    ]  # fmt: skip


def statements(
    plan: Plan, problem: Problem, algorithm: Algorithm, cfg: Config, leaks: Sequence[str], *, noise: str,
    terms: SumTerms | None,
) -> list[Said]:  # fmt: skip
    """All that a certificate says, what is recomputed and what is assumed, each with whom one has to trust.

    `terms` are those of the sums that are opened, if only sums are.
    """
    there = "whoever ran the simulation" if noise == SIMULATED else "each party, for its own ledger and its signature"
    drawn = "nobody can: its seed is in the plan" if noise == SIMULATED else f"{PROGRAM}, and its operating system"
    said = [
        Said("the listed events cost what the totals and the claims say, within the plan's budget", NOBODY),
        Said("the plan asks for exactly these events in the stated rounds, sizes and noise given", CODE),
        Said("the listed files are those beside this one, and hold one run's answer after as many rounds", BESIDE),
        Said(_sent(plan), there),
        Said(f"noise: {noise}", drawn),
        Said("names, versions and other free text", "whoever made this file, or its signer if it is signed"),
    ]
    said += [
        Said(f"{key} = {name!r} is not of coterie: it does what it states, by the code that other_code names",
             f"the authors of {name!r}, and every party that it ran this code") for key, (_, name) in
        others_kinds(plan.as_json()).items()
    ]  # fmt: skip
    if plan.privacy is not None and terms is not None and terms.honest is not None:
        said += _of_sums(terms)
    if plan.privacy is not None and algorithm.against is not None:
        said += _of_pairs(algorithm.against(cfg)[0], simulated=noise == SIMULATED)
    return said + assumptions(plan, problem, algorithm, cfg, leaks, noise=noise)
