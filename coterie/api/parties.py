"""Parties: who holds which records, and who talks to whom. `ct.ring(sites)` and its like, `ct.graph` for any other.

Only sizes and numbers of columns are looked at here. Records are read by `train`, after everything public was checked
and the noise was fixed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic.fields import FieldInfo

from coterie.api.given import (
    BOUNDS,
    NOTHING_GIVEN,
    NUMBER,
    TEXT,
    WHOLE,
    Expected,
    bind,
    listed,
    shown,
    takes,
)
from coterie.api.sites import columns_of, party_names, shape_of_site, split_by_site, split_frame, whose_records
from coterie.data.dataset import Dataset
from coterie.errors import InputError
from coterie.graphs.edge_lists import read_edges
from coterie.graphs.graph import Graph
from coterie.graphs.kinds import KINDS
from coterie.settings import read

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike

    from coterie.api.bounds import Bounds
    from coterie.api.sites import Site, Sites

__all__ = ["Parties", "constructor", "graph", "on"]


@dataclass(frozen=True, eq=False)
class Parties:
    """Who holds which records, and who talks to whom; make it with `ct.ring` and its like, or `ct.graph`.

    >>> import coterie as ct
    >>> ct.star(sizes=[100, 200, 300], features=4)
    <3 parties on a star graph: 600 records of 4 features>
    """

    network: dict[str, object]  # the plan's [graph]
    sizes: tuple[int, ...]  # records of each party, or people where these are the unit
    names: tuple[str, ...]
    sites: tuple[Site, ...] | None = None  # their records; None where sizes are all that is known
    columns: tuple[str, ...] | None = None  # of the features
    bounds: Bounds = None
    radius: float | None = None
    leaks: tuple[str, ...] = field(default=())  # what was read from the records to know all this
    people: tuple[np.ndarray, ...] | None = None  # whose each record of each party is, by number over all of them
    by_person: bool = False  # whether they are

    @property
    def features(self) -> int | None:
        """Columns of a record, if known."""
        return None if self.columns is None else len(self.columns)

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        width = "" if self.features is None else f" of {self.features} features"
        kind = self.network["kind"]
        held = f"{sum(self.sizes)} people, whose records have {self.features} features"
        held = (
            held
            if self.by_person and width
            else f"{sum(self.sizes)} {'people' if self.by_person else 'records'}{width}"
        )
        return f"<{len(self)} parties on a {kind} graph: {held}>"


NAME = TEXT | WHOLE  # of a party, or of a column of a frame
PEOPLE = Expected("lists of names, a column, or a truth value", lambda value: True)  # `whose_records` looks at them
TABLE = Expected("the table of a graph", lambda value: isinstance(value, dict))


@takes(
    network=TABLE, sizes=listed(WHOLE) | NOTHING_GIVEN, features=WHOLE | NOTHING_GIVEN,
    names=listed(NAME) | NOTHING_GIVEN, site=NAME | NOTHING_GIVEN, label=NAME | NOTHING_GIVEN,
    bounds=BOUNDS | NOTHING_GIVEN, radius=NUMBER | NOTHING_GIVEN, leaks=listed(TEXT), people=PEOPLE,
)  # fmt: skip
def on(
    network: dict[str, object], sites: Sites | None = None, *, sizes: Sequence[int] | None = None,
    features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None,
    bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (),
    people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None,
) -> Parties:  # fmt: skip
    """Parties on the graph of a plan's [graph] table.

    Args:
        network: the table, such as {"kind": "ring"}.
        sites: for each party (features, targets), or one table where there are no targets, or a `Dataset`; a dictionary
            from name to that; one `Dataset` that has sites; or one frame for all, with the columns `site` and `label`.
        sizes: records of each party, instead of `sites`: enough for `ct.price`.
        features: columns of a record, where only sizes are given.
        names: of the parties. With a frame: all that may stand in the column `site`, in the order of the graph's nodes;
            left out, they are read from the records, which no budget pays for.
        site, label: columns of the frame: who holds a record, and its target (none for a mean).
        bounds: public range of each feature: (low, high), a list of pairs, or a dictionary by column. Values are cut
            to it and mapped to [−1, 1]. For linear models the row is then pulled into a ball of `radius`, and gets a
            constant feature. Never the range of these records. Without it records are taken as they are, and refused
            where they are longer than the loss's price allows.
        radius: of that ball, public; default min(√d, 1 + √d/2) for d features.
        leaks: what was read from private records to make the arrays: the model is then not private, and says so.
        people: whose each record is, which makes the person the unit of privacy: for each party a list of names, one a
            record (in a dictionary, if the sites are); of a frame, the column that says it; True, of data sets that say
            it themselves, or of `sizes`, which are then numbers of people. False: records are the unit, even of data
            sets that know people; left out, these are the unit there.
    """
    leaks = tuple(leaks)
    if (sites is None) == (sizes is None):
        raise InputError("give either sites, the records of each party, or sizes, how many each has")
    if sizes is not None:
        if not (people is None or isinstance(people, bool)):
            raise InputError("people: with sizes, which name nobody, it is True (sizes are numbers of people) or False")
        counts = tuple(_count("sizes", n) for n in sizes)
        width = None if features is None else tuple(map(str, range(_count("features", features))))
        made = Parties(network, counts, party_names(names, len(counts)), None, width, bounds, radius, leaks)
        return _checked(replace(made, by_person=bool(people)))
    if features is not None:
        raise InputError("features belongs to sizes: sites show how many columns they have")
    assert sites is not None
    if isinstance(sites, Dataset):
        sites, names = split_by_site(sites, names)
    if hasattr(sites, "columns") and hasattr(sites, "groupby"):  # a frame
        sites, names, columns, read, people = split_frame(sites, site, label, names, people)  # type: ignore[arg-type]
        leaks += read
    else:
        if site is not None or label is not None:
            other = ": give its to_pandas()" if hasattr(sites, "to_pandas") else ""
            raise InputError(f"site and label are columns of a pandas frame, but the sites are none{other}")
        columns = None
        if isinstance(sites, Mapping):
            if names is not None:
                raise InputError("names are the keys of the dictionary of sites: leave them out")
            if isinstance(people, Mapping):
                if stray := next((name for name in {*sites, *people} if not (name in sites and name in people)), None):
                    raise InputError(f"people and sites name the same parties, and {stray!r} is in one of them only")
                people = [people[name] for name in sites]
            names, sites = list(map(str, sites)), list(sites.values())
    if not isinstance(sites, Sequence | np.ndarray) or isinstance(sites, str):
        raise InputError(f"sites must be a list with one (X, y) for each party, or a frame; got {type(sites).__name__}")
    held = tuple(sites)
    shapes = [shape_of_site(one, f"site {i}") for i, one in enumerate(held)]
    if len({width for _, width in shapes}) > 1:
        raise InputError(f"sites must have the same features, got {sorted({w for _, w in shapes})} columns")
    leaks += tuple(dict.fromkeys(leak for one in held if isinstance(one, Dataset) for leak in one.leaks))
    if columns is None and shapes:
        columns = columns_of(held, shapes[0][1])
    counts = tuple(count for count, _ in shapes)
    whose = whose_records(people, held, counts)
    if whose is not None:
        counts = tuple(len(np.unique(ids)) for ids in whose)
    made = Parties(network, counts, party_names(names, len(held)), held, columns, bounds, radius, leaks)
    return _checked(replace(made, people=whose, by_person=whose is not None))


def _checked(parties: Parties) -> Parties:
    if len(parties) < 2:
        raise InputError(f"a network needs at least 2 sites, got {len(parties)}")
    if parties.bounds is not None and any(isinstance(one, Dataset) for one in parties.sites or ()):
        raise InputError("bounds: the records of a Dataset are scaled already")
    if parties.radius is not None and (parties.bounds is None or not parties.radius > 0):
        raise InputError(f"radius must be > 0 and goes with bounds, got {parties.radius}")
    return parties


def _count(what: str, n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"{what} must be whole numbers from 1 up, got {n!r}")
    return int(n)


# ---- kinds of graph --------------------------------------------------------------------------------------------------


@cache
def constructor(kind: str) -> Callable[..., Parties]:
    """The function that puts parties on this kind of graph."""
    fields: dict[str, FieldInfo] = KINDS.load(kind, "Settings").Settings.model_fields
    own = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=field.annotation,
            default=inspect.Parameter.empty if field.is_required() else field.default,
        )
        for name, field in fields.items()
    ]  # fmt: skip
    mixing = inspect.Parameter("mixing", inspect.Parameter.KEYWORD_ONLY, default="metropolis", annotation=str)
    first, *shared = list(inspect.signature(on).parameters.values())[1:]
    if clash := next((p.name for p in own if p.name in {first.name, mixing.name, *(q.name for q in shared)}), None):
        raise InputError(f"graph kind {kind!r} has a setting {clash!r}, which is an option of all parties: rename it")
    needed = [p for p in own if p.default is p.empty]
    signature = inspect.Signature(
        [first, *needed, *shared, *(p for p in own if p not in needed), mixing], return_annotation="Parties"
    )

    def make(*given: object, **options: object) -> Parties:
        asked = bind(make.__name__, signature, given, options)
        table = {name: asked.pop(name) for name in (*(p.name for p in own), "mixing") if name in asked}
        return on(_planned({"kind": kind, **table}), **asked)

    make.__name__ = make.__qualname__ = kind.replace("-", "_")
    make.__signature__ = signature  # type: ignore[attr-defined]
    make.__module__ = "coterie"
    values = {"p": "0.9", "edges": "8", "degree": "2", "k": "2"}
    example = "".join(f", {p.name}={values.get(p.name, 1)}" for p in needed)
    _, _, shared_args = inspect.cleandoc(on.__doc__ or "").partition('such as {"kind": "ring"}.\n')
    shape = [f"    {p.name}: {fields[p.name].description}." for p in own]
    make.__doc__ = "\n".join(
        [f"Parties on a {kind} graph, each with its records.", "", "Args:", shared_args, *shape,
         "    mixing: the rule of the weights of what neighbours send (docs/plan.md).", "",
         ">>> import coterie as ct", f">>> ct.{make.__name__}(sizes=[100, 200, 300, 400, 500, 600]{example})",
         f"<6 parties on a {kind} graph: 2100 records>", ""]
    )  # fmt: skip
    return make


def _planned(table: dict[str, object]) -> dict[str, object]:
    """The plan's [graph], its kind and its settings checked."""
    from coterie.tables.links import GraphPlan

    read(GraphPlan, table, "graph").check()
    return table


@takes(mixing=TEXT)
def graph(
    given: nx.Graph | Graph | str | Path | Iterable[tuple[object, object]], sites: Sites | None = None, *,
    mixing: str = "metropolis", **options: Any,
) -> Parties:  # fmt: skip
    """Parties on a graph of your own: a NetworkX graph, a list of pairs, or the path of an edge list.

    Its nodes are the parties' names, or their numbers 0, 1, … in the order of `sites`. It must be connected. All other
    options are those of `ct.ring`.

    >>> import coterie as ct
    >>> ct.graph([(0, 1), (1, 2), (2, 3)], sizes=[10, 20, 30, 40])
    <4 parties on a listed graph: 100 records>
    """
    bind("graph", inspect.signature(on), ({}, sites), options)
    made = on({"kind": "listed", "mixing": mixing}, sites, **options)
    nodes, edges = _edges(given)
    if len(nodes) != len(made):
        raise InputError(f"the graph has {len(nodes)} nodes but there are {len(made)} sites")
    places = {name: i for i, name in enumerate(made.names)}
    if not all(str(node) in places for node in nodes):
        if set(map(str, nodes)) != set(map(str, range(len(made)))):
            stray = next(node for node in nodes if str(node) not in places)
            raise InputError(f"node {stray!r} of the graph is neither a party's name nor a number below {len(made)}")
        places = {str(i): i for i in range(len(made))}
    pairs = sorted({tuple(sorted((places[str(a)], places[str(b)]))) for a, b in edges})
    return replace(made, network=_planned({**made.network, "pairs": [list(pair) for pair in pairs]}))


def _edges(
    given: nx.Graph | Graph | str | Path | Iterable[tuple[object, object]],
) -> tuple[list[object], list[tuple[object, object]]]:
    """Nodes and edges of whatever graph was given."""
    if isinstance(given, str | PathLike):
        rows, names = read_edges(given)
        return list(names), [(names[i], names[j]) for i, j in rows.tolist()]
    if isinstance(given, Graph):
        return list(range(given.size)), [(i, j) for i, j in given.edges.tolist()]
    if hasattr(given, "nodes") and hasattr(given, "edges"):
        if given.is_directed():  # type: ignore[union-attr]
            raise InputError("the graph is directed: parties talk to each other, so give an undirected one")
        return list(given.nodes), [(a, b) for a, b, *_ in given.edges]
    try:
        pairs = [(a, b) for a, b in given]
    except (TypeError, ValueError):
        raise InputError(f"a graph is a NetworkX graph, a list of pairs or a path; got {shown(given)}") from None
    return list(dict.fromkeys(node for pair in pairs for node in pair)), pairs
