"""The report of a deployed run, at one party: what was agreed, spent and sent, who made trouble, and what it was worth.

Made from the party's own state folder. All on the page but the worth, and the density below the curves of an additive
model, is public among the parties, or comes from clocks and connections; those two are computed from the party's own
records without noise, if they are given, and the page then says that it is for its owner alone. What the log says of
records is never repeated.
"""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from coterie.errors import InputError
from coterie.graphs import Graph
from coterie.report import charts
from coterie.report.charts import Series
from coterie.report.epsilon import guess
from coterie.report.html import answer, errata_of, render
from coterie.report.shapes import shapes

if TYPE_CHECKING:
    from coterie.deploy.agreement import Agreement
    from coterie.deploy.data import Records
    from coterie.deploy.terms import Terms
    from coterie.worth.verdict import SaidWorth

__all__ = ["is_state", "party_page", "write_party_page"]

SHOWN = 30  # troubles
DRAWN = 300  # parties beyond which the graph is told, not drawn


def is_state(folder: Path) -> bool:
    """Whether this is the folder of a deployed party."""
    return (folder / "ledger.db").is_file()


def write_party_page(state: Path, place: Path, data: Path | None = None, test: Path | None = None) -> None:
    """Write the page of a state folder, readable by its owner alone; `data` and `test` are files as an agent takes."""
    from coterie.deploy.agreement import AGREEMENT, unverified
    from coterie.deploy.data import read_records
    from coterie.deploy.files import write_bytes

    if data is not None and test is None:
        raise InputError(f"--data {data} is compared on test records: give --test too, or neither")
    mine = held = None
    if test is not None:
        plan = unverified(state / AGREEMENT).plan
        if plan.problem.settings().features is not None:
            raise InputError(f"--test {test}: functions that share something predict nothing, so nothing is tested")
        mine, held = (None if path is None else read_records(plan, path) for path in (data, test))
    write_bytes(place, party_page(state, mine, held).encode(), private=True)


def party_page(state: Path, records: Records | None = None, test: Records | None = None) -> str:
    """The page of a party's state folder; its worth too, if its records and test records are given.

    Not for the process that runs the party: reading a ledger there would drop its locks.
    """
    from coterie.deploy.agreement import AGREEMENT, unverified
    from coterie.deploy.reading import look
    from coterie.deploy.succession import in_all
    from coterie.deploy.terms import Terms
    from coterie.deploy.wording import columns, settings
    from coterie.explain import unit_block
    from coterie.privacy.people import unit_words

    if not is_state(state):
        raise InputError(f"{state} holds no ledger.db: give the --state folder of a party")
    book, running = look(state / "ledger.db")
    if not (state / AGREEMENT).is_file():
        raise InputError(f"{state} holds no {AGREEMENT}: start its agent once more, which puts it there")
    agreement = unverified(state / AGREEMENT)
    if agreement.plan_hash != book.meta.plan_hash:
        raise InputError(f"{state / AGREEMENT} is not the agreement of the ledger beside it")
    me, terms = book.meta.agent, Terms.of(agreement.plan)
    node, run = agreement.index(me), book.run
    titles = agreement.titles
    history = _History.of(_lines(state / "log.jsonl"), agreement, me)
    certificate = _certificate(state, agreement, me)
    done = (state / "model.npz").is_file() and history.model
    spent, budget = run.used, book.meta.budget
    epsilon = f"ε = {spent:.3g}"
    worth = None if test is None else _worth(state, terms, titles[node], node, records, test, epsilon)
    shared = _shared(state, terms) if done and terms.network.problem.coupled else None
    head, rows = columns(agreement)
    priced = terms.priced
    law = priced.claims[0].account.accountant
    return render(
        "party.html", agreement=agreement, plan=agreement.plan, me=me, title=titles[node], titles=titles,
        now=f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC", running=running, done=done, stopped=book.stopped,
        rounds=terms.rounds, sent=len(book.rows), bytes_sent=sum(row.frame_bytes for row in book.rows),
        spent=spent, budget=budget, left=_left(spent, budget.epsilon), share=_share(spent, budget.epsilon),
        odds=guess(spent, budget.delta, law), planned=guess(budget.epsilon, budget.delta, law), claims=priced.claims,
        seats=[seat.as_json(budget.delta) for seat in priced.seats if node not in seat.observers], node=node,
        pairs=priced.algorithm.against is not None,
        protects=unit_words(unit_block(agreement.plan, priced), budget.delta),
        earlier=book.earlier, total=in_all([*book.earlier, run]) if book.earlier else None,
        head=head, rows=rows, settings=settings(agreement), opened=_opened(agreement, terms, me),
        neighbours=[titles[agreement.index(n)] for n in agreement.neighbours(me)], history=history,
        pace=_pace(history), evidence=_evidence(state), certificate=certificate, worth=worth, shared=shared,
        shapes=_shapes(state, terms, records), kinds=["alone", "private", "blend"], picture=_picture(agreement, terms),
        summary=priced.algorithm.summary, reference=priced.algorithm.reference.rstrip("."),
        **errata_of(priced.algorithm.errata, priced.algorithm.slug, touched=False),  # a printed method does not deploy
        answer=answer(worth, _unjudged(terms, titles[node], bool(done))),
    )  # fmt: skip


def _shared(state: Path, terms: Terms) -> dict[str, object]:
    """Who has how much of what is shared, and its price: as everybody knows them."""
    from coterie.coupled.functions import CoupledFunctions

    problem = terms.network.problem
    assert isinstance(problem, CoupledFunctions)
    with np.load(state / "model.npz", allow_pickle=False) as stored:
        point = np.asarray(stored["point"], float)
    found = problem.shaped(point)
    made = problem.stated.residual([np.array(share) for share in found["shares"]]) + problem.stated.total
    ends = [list(zip(m.low, m.high, strict=True))[: m.variables] for m in problem.members]
    boxes = ["; ".join(f"{low:g} to {high:g}" for low, high in own) for own in ends]
    return {**found, "boxes": boxes, "made": made.tolist(), "total": problem.total}


def _unjudged(terms: Terms, title: str, done: bool) -> str:
    """Why a page does not say what the run was worth, and what would."""
    if terms.network.problem.coupled:
        return "Nothing is predicted here: who has how much, and at which price, is below."
    if not done:
        return "There is no model yet."
    return (
        f"Only {title} can say, at home and for free, on records of its own that nobody trained on: "
        "coterie report FOLDER --data RECORDS --test TEST."
    )


def _left(spent: float, budget: float) -> float:
    left = budget - spent
    return left if left > 1e-4 * budget else 0.0  # what calibration could not place is no budget


def _share(spent: float, budget: float) -> float:
    return round(100 * min(spent / budget, 1.0), 1)


def _opened(agreement: Agreement, terms: Terms, me: str) -> list[str]:
    """What is opened to whom, in sentences."""
    from coterie.explain import message_size, of_sums

    numbers, _ = message_size(terms.network, terms.priced)
    if terms.sum is not None:
        return of_sums(terms.sum, numbers, terms.rounds)
    around, many = [agreement.titles[agreement.index(n)] for n in agreement.neighbours(me)], "s" if numbers != 1 else ""
    return [
        f"In each of {terms.rounds} rounds one message of {numbers} number{many} goes to {_listed(around)}, who may "
        f"pass it on, and to nobody else. It is this party's step of the model, with noise already on it.",
        "Nothing else is opened: no record, no count, no statistic, no score.",
    ]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# ---- the log ---------------------------------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[dict[str, object]]:
    """The log's lines; one that was cut short is left out."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "event" in found:
            yield found


class Trouble(TypedDict):
    """What the log says of a neighbour, and how often."""

    time: str
    about: str
    text: str
    count: int
    last: str


class _History:
    """What the log says of this agreement's run: times, starts and ends, whom it waited for and turned down."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self.began = self.ended = ""
        self.starts, self.model = 0, False
        self.late: Counter[str] = Counter()  # rounds that went on without a neighbour
        self.refusals: Counter[str] = Counter()
        self.troubles: dict[tuple[str, str], Trouble] = {}
        self.ends: list[Mapping[str, object]] = []

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, object]], agreement: Agreement, me: str) -> _History:
        found, ours, refused = cls(), True, Counter[str]()
        others = {p.name for p in agreement.parties if p.name != me}
        for line in lines:
            match line["event"]:
                case "agreement":
                    ours = line.get("plan_hash") == agreement.plan_hash.hex()
                    if ours and not found.starts:
                        found = cls()  # what an older version wrote before this run was another one's
                    found.refusals += refused
                    refused = Counter()
                    found.starts += ours
                case _ if not ours:
                    continue
                case "sent" | "opened" if isinstance(seconds := line.get("seconds"), int | float):
                    found.seconds[_whole(line["round"])] = float(seconds)
                    found.late.update(n for n in _words(line.get("missing")) if n in others)
                case "late":
                    found.late.update(n for n in _words(line["parties"]) if n in others)
                case "refusals":
                    refused = Counter(_counted(_words(line["counts"])))  # all of this start, each time
                case "model":
                    found.model = True
                case "trouble" if line.get("about") in others and line.get("of") != "records":
                    found._trouble(line)
                case "end":
                    found.ends.append(line)
            if ours:
                found.began = found.began or str(line.get("time", ""))
                found.ended = str(line.get("time", ""))
        found.refusals += refused
        return found

    def _trouble(self, line: Mapping[str, object]) -> None:
        about, text, time = str(line["about"]), str(line["text"]), str(line["time"])
        first: Trouble = {"time": time, "about": about, "text": text, "count": 0, "last": time}
        known = self.troubles.setdefault((about, text), first)
        known["count"] += 1 + _whole(line.get("held_back", 0))
        known["last"] = time

    @property
    def worst(self) -> list[Trouble]:
        """The troubles that came most often."""
        return sorted(self.troubles.values(), key=lambda t: -t["count"])[:SHOWN]


def _whole(number: object) -> int:
    return int(number) if isinstance(number, int | float) else 0


def _words(listed: object) -> list[str]:
    return [str(one) for one in listed] if isinstance(listed, list) else []


def _counted(texts: Iterable[str]) -> dict[str, int]:
    """Refusals as the log tells them, `who: why (how often)`."""
    found = {}
    for text in texts:
        words, _, count = text.rpartition(" (")
        if count[:-1].isdigit():
            found[words] = int(count[:-1])
    return found


def _pace(history: _History) -> dict[str, object] | None:
    """How long rounds took, with a picture."""
    if not history.seconds:
        return None
    rounds, times = zip(*sorted(history.seconds.items()), strict=True)
    series = Series("seconds", "run", rounds, times)
    return {
        "median": statistics.median(times),
        "longest": max(times),
        "at": rounds[times.index(max(times))],
        "chart": charts.line_chart("pace", "Seconds from one message to the next", "round", "seconds", [series], []),
    }


def _evidence(state: Path) -> list[dict[str, object]]:
    """What is kept against parties that broke the rules."""
    found = []
    for path in sorted((state / "evidence").glob("*.json")):
        try:
            found.append({**json.loads(path.read_text("utf-8")), "file": path.name})
        except (OSError, ValueError):
            continue
    return found


def _certificate(state: Path, agreement: Agreement, me: str) -> dict[str, object] | None:
    """What this party's certificate says, and whether it holds, recomputed here and now."""
    from coterie.report.verification import Refuted, parse, verify

    path = state / "certificate.json"
    if not path.is_file():
        return None
    key = agreement.party(me).frame_key
    try:
        content = parse(path.read_text("utf-8"))
        checked = verify(content, key=bytes.fromhex(key), folder=state)
    except (InputError, Refuted, OSError, UnicodeDecodeError) as error:
        return {"holds": False, "reason": str(error), "key": key, "warnings": (), "content": None}
    return {"holds": True, "reason": "", "key": key, "warnings": checked.warnings, "content": content}


def _picture(agreement: Agreement, terms: Terms) -> dict[str, object] | None:
    if len(agreement.parties) > DRAWN:
        return None
    graph = Graph(len(agreement.parties), np.array(agreement.edges), agreement.plan.graph.kind)
    return charts.network(graph, agreement.titles, terms.network.sizes.tolist())


# ---- worth -----------------------------------------------------------------------------------------------------------


def _worth(
    state: Path, terms: Terms, title: str, node: int, records: Records | None, test: Records, epsilon: str
) -> SaidWorth:  # fmt: skip
    """What the model is worth to this party, on its own test records; the private model is the one in the folder."""
    from coterie.worth.judge import own_worth
    from coterie.worth.verdict import sentence

    if records is None:
        raise InputError("test records alone say nothing of staying alone: give this party's own records too (--data)")
    point = _point(state)
    terms.outline(node).shard(records)  # as many, and as wide, as agreed
    problem, priced = terms.network.problem, terms.priced
    width = terms.plan.problem.dim
    if test.features.shape[1] != width:
        raise InputError(f"the plan says {width} features, the test records have {test.features.shape[1]}")
    coded = lambda r: problem.admit(r.features, problem.encode(r.targets, r.classes))  # noqa: E731
    clip = priced.algorithm.clips(priced.cfg)
    found = own_worth(problem, title, coded(records), coded(test), point, measure=terms.plan.run.metric, clip=clip)
    return {**found, "sentence": sentence(found, epsilon)}


def _point(state: Path) -> np.ndarray:
    """The model in the folder."""
    try:
        with np.load(state / "model.npz", allow_pickle=False) as stored:
            return np.asarray(stored["point"], float)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{state} holds no model yet, so nothing can be compared: {error}") from None


def _shapes(state: Path, terms: Terms, records: Records | None) -> dict[str, object] | None:
    """The curves of an additive model, with the density of this party's own records where they are given."""
    from coterie.api.curves import Curves
    from coterie.pricing import price
    from coterie.problems.additive import AdditiveModel
    from coterie.released.bands import released_curves
    from coterie.worth.bands import noise_alone

    problem = terms.network.problem
    if not (state / "model.npz").is_file():
        return None
    if (released := released_curves(problem, _point(state))) is not None:
        return shapes(released.as_json())
    if not isinstance(problem, AdditiveModel):
        return None
    noise = noise_alone(terms.plan, terms.network, price(terms.plan, terms.network, fast=True))
    told = Curves.of(problem, _point(state), noise=noise).as_json()
    if records is not None:
        told["at_home"] = {"shares": problem.bins.shares(records.features).tolist()}
    return shapes(told)
