"""[graph] and [exchange]: who talks to whom, and how messages travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from coterie.exchange.kinds import KINDS as EXCHANGES
from coterie.exchange.kinds import secret_sum
from coterie.found import Kinds
from coterie.graphs import KINDS as GRAPHS
from coterie.graphs import RULES, Graph, Mixing, build_graph, build_mixing
from coterie.settings import Choosing

__all__ = ["ExchangePlan", "GraphPlan"]


class GraphPlan(Choosing):
    """[graph] Who talks to whom, with which weights."""

    table: ClassVar[str] = "graph"
    choices: ClassVar[Mapping[str, Kinds]] = {"kind": GRAPHS, "mixing": RULES}
    kind: str = Field("ring", description="topology; or your own, as package.module")
    mixing: str = Field("metropolis", description="rule of the mixing matrix; or your own, as package.module")

    def graph(self, size: int) -> Graph:
        """The graph that the table describes, with `size` nodes."""
        return build_graph(self.kind, size, self.chosen("kind"))

    def weights(self, graph: Graph) -> Mixing:
        """The mixing matrix that the table describes, on a graph."""
        return build_mixing(graph, self.mixing, self.chosen("mixing"))


class ExchangePlan(Choosing):
    """[exchange] How messages travel ([what each kind promises](exchange.md))."""

    table: ClassVar[str] = "exchange"
    choices: ClassVar[Mapping[str, Kinds]] = {"kind": EXCHANGES}
    kind: str = Field("broadcast", description="how; or your own, as package.module")

    @property
    def sums(self) -> secret_sum.Settings | None:
        """How sums are opened, where nothing else is; None where neighbours get messages."""
        found = self.chosen("kind")
        return found if type(found) is secret_sum.Settings else None  # a stranger's may open anything

    @property
    def central(self) -> bool:
        """Whether the budget pays for opened sums, and not for every message."""
        sums = self.sums
        return sums is not None and sums.noise == "central"
