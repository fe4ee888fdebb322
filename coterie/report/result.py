"""What a run leaves behind: `result.json` (versioned schema), `model.npz`, certificate, report, pictures.

Written atomically.

Schema of result.json, version 1 (docs/result.md):
    schema, coterie, plan, algorithm {name, settings}, seeds, rounds, completed_rounds, interrupted,
    metrics.{train_loss, test_accuracy | test_score, consensus_gap, test_auc, …}.{mean, std, per_seed},
    curves.{round, train_loss, …} (means over seeds), curves.std.{train_loss, …},
    references.{pooled, alone, majority}.{train_loss, test_accuracy | test_score, test_auc, …}, worth (or null),
    additive (the curves of an additive model, or null), covered (null unless asked for),
    privacy (null for an algorithm without), at_home (or null), exchange, evaluation, timing.{compile_s, run_s},
    bytes_sent, noise_source, warnings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.drivers.budget import spending
from coterie.drivers.simulate import Trace
from coterie.exchange.central import shared_events
from coterie.exchange.planned import statement_of
from coterie.exchange.statement import EVERY_MESSAGE, ToldStatement
from coterie.experiment import Experiment
from coterie.explain import unit_block
from coterie.network import Network
from coterie.plan import Plan
from coterie.pricing import Priced
from coterie.privacy.accountants import account
from coterie.problems import Problem
from coterie.report import certificate, sealing
from coterie.report.files import plain, write_atomically, write_json
from coterie.report.released import MODEL, run_model
from coterie.report.schema import CURVES, SCHEMA, Adaptive, AgentRow, PrivacyBlock, RunCurves, RunResult
from coterie.report.statements import assumptions
from coterie.report.units import at_home
from coterie.worth.judge import Judged
from coterie.worth.verdict import SaidWorth, sentence

__all__ = [
    "SCHEMA",
    "build_result",
    "epsilon_words",
    "exchange_block",
    "privacy_block",
    "write_run",
]

CURVES_FILE = "curves.json"  # of an additive model: what was released, for other programs


def build_result(experiment: Experiment, priced: Priced, trace: Trace, seeds: list[int], judged: Judged) -> RunResult:
    """The content of result.json as plain data."""
    with np.errstate(invalid="ignore", over="ignore"):  # a run that diverged has a result too
        return _content(experiment, priced, trace, seeds, judged)


def _content(experiment: Experiment, priced: Priced, trace: Trace, seeds: list[int], judged: Judged) -> RunResult:
    problem, degrees = experiment.network.problem, experiment.network.transport.degrees
    names, sizes = experiment.network.names, experiment.network.sizes
    sent = (trace.bytes * experiment.network.graph.degrees).mean(0)
    score = "test_accuracy" if problem.metric == "accuracy" else "test_score"
    rename = {"test_score": score}
    last = {rename.get(k, k): v[:, -1] for k, v in trace.curves.items()}
    last |= {k: np.array(v) for k, v in judged.metrics.items()}
    privacy = privacy_block(experiment.plan, problem, priced, trace)
    measured = {rename.get(k, k): v for k, v in trace.curves.items()}
    curves: RunCurves = {"round": trace.rounds.tolist()}
    for name in CURVES:
        if name in measured:
            curves[name] = measured[name].mean(0).tolist()
    curves["std"] = {k: v.std(0).tolist() for k, v in measured.items()}
    return {
        "schema": SCHEMA,
        "coterie": coterie.__version__,
        "plan": experiment.plan.as_json(),
        "algorithm": {"name": priced.algorithm.slug, "settings": priced.cfg.model_dump(mode="json")},
        "metric": problem.metric,
        "seeds": seeds[: len(trace.points)],  # of runs one after the other, Ctrl-C leaves those that were done
        "rounds": priced.rounds,
        "completed_rounds": trace.completed,
        "interrupted": trace.completed < priced.rounds,
        "agents": [
            AgentRow(name=n, records=int(c), neighbours=int(k), bytes_sent=float(b))
            for n, c, k, b in zip(*(x[:1000] for x in (names, sizes, degrees, sent)), strict=True)
        ],
        "metrics": {
            k: {"mean": float(v.mean()), "std": float(v.std()), "per_seed": v.tolist()} for k, v in last.items()
        },
        "curves": curves,
        "references": {r: {rename.get(k, k): v for k, v in d.items()} for r, d in judged.references.items()},
        "worth": _worth(judged, privacy),
        "additive": None,
        "covered": judged.covered,
        "privacy": privacy,
        "at_home": at_home(experiment, priced),
        "exchange": exchange_block(experiment, priced),
        "evaluation": "at home only: metrics, curves, references, worth and additive.at_home are computed on the data "
        "without noise: for study, not a release"
        + ("; covered by ε: the numbers under covered" if judged.covered else ""),
        "timing": trace.timing | judged.seconds,
        "bytes_sent": float(sent.sum()),
        "noise_source": "simulation: seeded floating-point noise, for study only; nothing here protects anybody",
        "warnings": priced.warnings
        + _before(experiment.plan)
        + _remarks(experiment)
        + _diverged(trace)
        + _cut(trace)
        + judged.warnings,
    }


def _worth(judged: Judged, privacy: PrivacyBlock | None) -> SaidWorth | None:
    if judged.worth is None:
        return None
    return {**judged.worth, "sentence": sentence(judged.worth, epsilon_words(privacy))}


def _before(plan: Plan) -> list[str]:
    """What the same records have paid before, which is no part of this run's ε."""
    if plan.privacy is None or plan.privacy.before is None:
        return []
    return [plan.privacy.before.words(plan.privacy.delta)]


def _remarks(experiment: Experiment) -> list[str]:
    """What happened to records as they were read: dropped, filled in, moved to the end of a range."""
    return [words for _, words in experiment.dataset.remarks]


def exchange_block(experiment: Experiment, priced: Priced) -> ToldStatement:
    """The `exchange` part of a result: how messages travelled, who learns what from that, and at what price."""
    epsilon = None if priced.spending is None else float(priced.spending.worst.epsilon)
    return statement_of(experiment.plan, experiment.network.graph, epsilon, priced.central).as_json()


def _cut(trace: Trace) -> list[str]:
    count = int(np.sum(trace.extras.get("cut", 0)))
    return [f"{count} numbers in messages were cut to the exchange's bound: raise exchange.bound"] if count else []


def _diverged(trace: Trace) -> list[str]:
    if np.isfinite(trace.points).all():
        return []
    return ["the run diverged: its numbers are not finite; use smaller steps"]


def privacy_block(plan: Plan, problem: Problem, priced: Priced, trace: Trace | None = None) -> PrivacyBlock | None:
    """The `privacy` part of a result: what is guaranteed, against whom, proved by which accountant.

    Its numbers are those of the claim that the plan's budget is for. Other adversaries' stand in `other_claims`.
    """
    if priced.spending is None or plan.privacy is None:
        return None
    budget, (first, *others) = plan.privacy, priced.claims
    worst = first.account
    finite = lambda x: float(x) if np.isfinite(x) else None  # noqa: E731
    each = priced.spending.per_agent if first.local else np.full(len(priced.noise), worst.epsilon)
    return {
        "claim": first.name,
        "epsilon": finite(worst.epsilon),
        "delta": worst.delta,
        "budget": budget.epsilon,
        "adjacency": worst.adjacency,
        "adversary": first.adversary,
        "accountant": worst.accountant,
        "all_accountants": {k: finite(v) for k, v in worst.all.items()},
        "all_seeds_epsilon": finite(_all_seeds(plan, priced)),
        "other_claims": [claim.as_json() for claim in others],
        "observers": [seat.as_json(worst.delta) for seat in priced.seats],
        "per_agent": [finite(e) for e in each[:1000]],
        "noise_multiplier": priced.noise[:1000].tolist(),
        "schedule": budget.schedule,
        "adaptive": None if budget.adaptive is None else _adaptive(budget.adaptive, trace),
        "paper_claim": None if priced.claim is None else finite(priced.claim),
        "private": priced.private,
        "leaks": list(priced.leaks),
        "protects": unit_block(plan, priced),
        "assumptions": [a.statement for a in assumptions(plan, problem, priced.algorithm, priced.cfg, priced.leaks)],
    }


def _adaptive(rule: str, trace: Trace | None) -> Adaptive:
    """Adaptive noise: by which rule it was chosen, and what each run used of the limit, which is ε."""
    runs = [] if trace is None else trace.steered
    return {"rule": rule, "limit": "epsilon is the limit that no choice can pass; spent is no guarantee", "runs": runs}


def epsilon_words(privacy: Mapping[str, object] | None) -> str:
    """The ε that the budget is for, as a headline; it names its adversary unless that is the default one.

    >>> epsilon_words({"epsilon": 0.1, "claim": "central, at least 3 honest parties", "adversary": "sees sums"})
    'ε = 0.1 (central, at least 3 honest parties)'
    """
    if privacy is None:
        return "no privacy"
    epsilon = "ε = ∞" if privacy["epsilon"] is None else f"ε = {privacy['epsilon']:.3g}"
    return epsilon if privacy["adversary"] == EVERY_MESSAGE else f"{epsilon} ({privacy['claim']})"


def _all_seeds(plan: Plan, priced: Priced) -> float:
    """ε of all seeds' runs together, against the adversary of the plan's budget: what releasing them all would cost."""
    first, runs = priced.claims[0], plan.run.seeds
    if runs == 1 or not np.isfinite(first.account.epsilon):
        return float(first.account.epsilon)
    algorithm, cfg, places = priced.algorithm, priced.cfg, priced.places
    if priced.terms is None or first.local:
        return float(spending(algorithm, cfg, places, first.account.delta, fast=True, runs=runs).worst.epsilon)
    main, _ = shared_events(algorithm, cfg, places, priced.terms)
    return float(account([main] * runs, first.account.delta, fast=True).epsilon)


NO_CERTIFICATE = (
    "no certificate: the loss is somebody's own, which a plan cannot state, so nobody could derive its events anew"
)


def write_run(
    out: Path, result: RunResult, plan: Plan, network: Network, priced: Priced, *, points: np.ndarray,
    completed: int, columns: Sequence[str], key: Path | None = None,
) -> list[Path]:  # fmt: skip
    """Write a run's files; pictures first, `result.json` last, so that its presence means all is there.

    The model is that of the first seed (`points`, one row an agent), and so is the certificate. What the other seeds
    gave is in the metrics, which are for study: to store their models too would be to release as many runs. A loss
    that no plan can state has no certificate.
    """
    from coterie.report import html, plots

    (out / "result.json").unlink(missing_ok=True)  # never beside another run's files
    sent = min(completed + 1, priced.rounds)  # a last message may not have been heard
    sent = certificate.charged_rounds(plan, priced.rounds, sent)
    stated = plan.data.source != "memory" or plan.problem.loss is not None
    if not stated:
        result = {**result, "warnings": [*result["warnings"], NO_CERTIFICATE]}
    with ThreadPoolExecutor(1) as aside:  # a million models are packed, hashed and written while pictures are drawn
        what = {"plan": sealing.plan_hash(plan), "rounds": sent, "seed": result["seeds"][0]}
        model = aside.submit(_write_model, out / MODEL, points, columns, **what)
        write_atomically(out / "curves.png", lambda p: plots.curves(result, p))
        write_atomically(out / "graph.png", lambda p: plots.network(network, p))
        files = {MODEL: model.result()}
    written, sealed = ["result.json", MODEL, "curves.png", "graph.png"], None
    for name in ("certificate.json", "report.html", CURVES_FILE):
        (out / name).unlink(missing_ok=True)
    if result["additive"] is not None:
        write_json(out / CURVES_FILE, {key: value for key, value in result["additive"].items() if key != "at_home"})
        written.append(CURVES_FILE)
    if stated:
        sealed = sealing.seal(certificate.certificate(plan, network, priced, completed=sent, files=files), key)
        write_json(out / "certificate.json", sealed)
        written.append("certificate.json")
    if html.available():
        page = html.run_page(plain(result), sealed)
        write_atomically(out / "report.html", lambda p: p.write_text(page, "utf-8"))
        written.append("report.html")
    write_json(out / "result.json", result)
    return [out / n for n in written]


def _write_model(path: Path, *what: Any, **facts: Any) -> str:
    """Write `run_model` of these; its hash."""
    model = run_model(*what, **facts)
    write_atomically(path, lambda p: p.write_bytes(model))
    return sealing.sha256(model)
