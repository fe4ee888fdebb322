"""The records that a plan asks for: which loader with which options, who holds what, and what is read to make them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.data.bins import Bins, Finish, bins_of
from coterie.data.dataset import Dataset
from coterie.data.loaders import find_source, load, origins
from coterie.data.partition import by_site, by_size, deal, stated_sizes
from coterie.data.parts import lengths_of
from coterie.data.sources import SOURCES
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.plan import Plan

__all__ = [
    "agents_of", "check_bins", "check_source", "finish_of", "knows_people", "leaks_of", "load_planned", "options_of",
    "parts_of", "people_of", "planned_bins", "public_sizes", "sizes_of",
]  # fmt: skip

log = logging.getLogger("coterie.data")


def check_source(plan: Plan) -> None:
    """Refuse a source that cannot be found by this plan, or options that it does not take, before data is read.

    Parties of a deployment read tables of their own, so there the options are not the source's.
    """
    data, source = plan.data, find_source(plan.data.source)
    if source.needs_path and data.path is None and plan.deploy is None:
        raise InputError(f"data.path is needed for data.source = {data.source!r}")
    if source.stream is not None:
        fields = type(data).model_fields
        for key in ("test_fraction", "options", "label", "site", "person", "records_per_person"):
            if getattr(data, key) != fields[key].get_default(call_default_factory=True):
                raise InputError(
                    f"data.{key} does not apply to data.source = {data.source!r}: it holds encoded records, with test "
                    "records of its own"
                )
    elif plan.deploy is None:
        for key in ("label", "site", "person"):
            if getattr(data, key) is not None and not source.takes(key):
                raise InputError(f"data.{key} does not apply to data.source = {data.source!r}")
        source.checked(options_of(plan), "data", "options")


def options_of(plan: Plan, source: str | None = None) -> dict[str, Any]:
    """The loader's options, as the whole plan gives them: a stated loss says whether the label is a class.

    A deployed party reads a table of its own, whatever `source` the plan has for a simulation.
    """
    data, loss, found = plan.data, plan.problem.loss, find_source(source or plan.data.source)
    options: dict[str, object] = dict(data.options)
    for key in ("label", "site", "person"):
        if getattr(data, key) is not None:
            options[key] = getattr(data, key)
    if found.made and found.takes("sites") and plan.partition.agents:
        options.setdefault("sites", plan.partition.agents + len(plan.partition.outsiders))
    if found.takes("task") and loss is not None and options.get("classes") is None:
        options.setdefault("task", "classification" if plan.problem.of_classes else "regression")
    return options


def knows_people(plan: Plan) -> bool:
    """Whether the plan's records say whose they are, known before one is read.

    Records that are handed over in Python, lie in a store, or are kept by a deployed party in a file without a label
    column say it if the plan does.
    """
    source = find_source(plan.data.source)
    if (
        source.handed
        or (source.stream is not None and plan.deploy is None)
        or (plan.deploy is not None and plan.data.label is None)
    ):
        return plan.data.unit is not None
    if plan.deploy is not None or source.people is None:
        return options_of(plan).get("person") is not None
    return bool(source.people(**source.checked(options_of(plan))))


def people_of(plan: Plan, training: Dataset) -> np.ndarray | None:
    """Whose each record is, where the person is the unit of privacy."""
    if not plan.by_person:
        return None
    if training.people is None:
        raise InputError(f"data.unit = 'person', but the records of {training.name!r} do not say whose they are")
    return training.people


def planned_bins(plan: Plan) -> Bins | None:
    """The bins of an additive model, by the plan alone: of the source's code book, or of what it says of a table."""
    if not plan.problem.additive:
        return None
    name = plan.data.source if plan.deploy is None else "csv"  # parties read tables of their own
    source = find_source(name)
    if source.book is None:
        known = [other for other in SOURCES.names if SOURCES.ours(other) and find_source(other).book is not None]
        raise InputError(
            f"problem.model = 'additive' needs records with a code book, and data.source = {name!r} has none: use "
            f"{', '.join(known)}"
        )
    book = source.book(**source.checked(options_of(plan, name), "data", "options"))
    p = plan.problem
    alike = 0.0 if p.loss in SUMMED else p.alike
    return bins_of(book, p.bins, p.pairs or (), alike=alike, key="problem.bins")


def finish_of(plan: Plan) -> Finish:
    """What is made of an additive model once it is released."""
    return Finish(plan.problem.smooth or 0.0, tuple(sorted((plan.problem.monotone or {}).items())))


SUMMED = ("moments",)  # sums over bins, which are counts: what is alike is for the model that is made of them
BINNED = ("logistic", "hinge", "squared", "softmax", *SUMMED)  # losses of scores, which bins can add up to


def check_bins(plan: Plan) -> None:
    """Refuse bins that cannot be, and what is said about bins where there are none, before data is read."""
    p = plan.problem
    if not p.additive:
        for key in ("bins", "pairs", "alike", "smooth", "monotone"):
            if getattr(p, key) is not None:
                raise InputError(f"problem.{key} belongs to problem.model = 'additive', not {p.model or 'linear'!r}")
        return
    if p.loss not in (None, *BINNED):
        raise InputError(f"problem.model = 'additive' goes with problem.loss = {', '.join(BINNED)}, not {p.loss!r}")
    for key in ("smooth", "monotone") if p.loss in SUMMED else ():
        if getattr(p, key) is not None:
            raise InputError(f"problem.{key} is for curves that were trained, not for problem.loss = {p.loss!r}")
    bins = planned_bins(plan)
    assert bins is not None
    try:
        finish_of(plan).check(bins)
    except InputError as error:
        raise InputError(f"problem.{error}") from None
    if p.dim not in (None, bins.width):
        raise InputError(f"problem.dim = {p.dim}, but there are {bins.width} bins: leave it out")


def leaks_of(plan: Plan) -> tuple[str, ...]:
    """What the plan has a loader read from the records, known before one is.

    A store says it for itself once it is opened, and so do the files of parties without a label column, which refuse
    what is not public. Of records that are handed over in Python a plan knows nothing: what is unknown is not public.
    """
    source = find_source(plan.data.source)
    if source.stream is not None or (plan.deploy is not None and plan.data.label is None):
        return ()
    if source.handed:
        return (f"data.source = {plan.data.source!r}: a plan cannot tell what was read from records handed over",)
    return origins(plan.data.source, **options_of(plan)).leaks


def load_planned(plan: Plan) -> Dataset:
    """The plan's data set; what happened to its records is said on standard error, to whoever runs a simulation."""
    data = load(
        plan.data.source, path=plan.data.path, seed=plan.data.seed, bins=planned_bins(plan), **options_of(plan)
    )  # fmt: skip
    for _, words in data.remarks:
        log.warning("%s: %s", data.name, words)
    return data


def agents_of(plan: Plan) -> int | None:
    """How many parties the plan asks for, None where the data's sites say it; refuses a plan of which neither is so."""
    p = plan.partition
    agents = p.agents or (len(p.sizes) if p.sizes else None)
    if agents is None and not by_site(p.kind):
        raise InputError(f"partition.kind = {p.kind!r} needs partition.agents")
    if by_site(p.kind) and find_source(plan.data.source).takes("site") and options_of(plan).get("site") is None:
        raise InputError(
            f"partition.kind = {p.kind!r} needs data.site, the column that says it: or use 'iid' and agents = N"
        )
    return agents


def parts_of(plan: Plan, training: Dataset) -> Sequence[np.ndarray]:
    """The rows of each agent."""
    p = plan.partition
    agents = agents_of(plan)
    if by_site(p.kind) and training.sites is None:
        raise InputError(
            f"partition.kind = {p.kind!r} but data set {training.name!r} has no sites: use 'iid' and agents = N"
        )
    sizes = p.sizes if by_size(p.kind) else None
    if training.people is not None and not plan.by_person and (sizes or public_sizes(plan) is not None):
        raise InputError(
            f"sizes cannot be kept for {training.name!r}: a person's records stay together, so sizes are numbers of "
            "people: use data.unit = 'person'"
        )
    parts = deal(training, agents, p.kind, p.chosen("kind"), seed=plan.data.seed, sizes=sizes)
    if p.sizes is not None and (found := sizes_of(parts, people_of(plan, training))) != list(p.sizes):
        raise InputError(f"partition.sizes says {p.sizes}, but the data gives {found}")
    return parts


def sizes_of(parts: Sequence[np.ndarray], people: np.ndarray | None) -> list[int]:
    """Records of each agent, or people where these are given."""
    return lengths_of(parts).tolist() if people is None else [len(np.unique(people[rows])) for rows in parts]


def public_sizes(plan: Plan) -> np.ndarray | None:
    """Records (or people) of each agent, if the plan states them, so that accounting needs no data."""
    p = plan.partition
    if p.sizes is not None:
        return np.array(p.sizes)
    stated = None if p.agents is None else stated_sizes(p.kind, p.agents, p.chosen("kind"))
    return None if stated is None else np.array(stated)
