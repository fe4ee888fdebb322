"""[algorithm], and the references that take its place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict, Field

from coterie.algorithms import ALGORITHMS
from coterie.errors import InputError
from coterie.found import Kinds
from coterie.settings import Naming, read
from coterie.tables.unloaded import algorithm_settings, before_jax

if TYPE_CHECKING:
    from coterie.algorithms.base import Config

__all__ = ["REFERENCES", "AlgorithmPlan"]


REFERENCES = {
    "pooled": "The optimum of all parties' data in one place: what decentralized learning tries to reach. Not private.",
    "alone": "Every party trains on its own data and sends nothing: what it gets without the others.",
}


class AlgorithmPlan(Naming):
    """[algorithm] How. `name` and the algorithm's own keys (see `coterie algorithms`)."""

    model_config = ConfigDict(extra="allow")
    table: ClassVar[str] = "algorithm"
    choices: ClassVar[Mapping[str, Kinds]] = {"name": ALGORITHMS}
    name: str = Field("dp-dsgd", description="see `coterie algorithms`; or your own, as package.module")

    def config(self) -> Config:
        """The algorithm's own configuration, validated by it."""
        extra = dict(self.model_extra or {})
        if self.name in REFERENCES:
            if extra:
                raise InputError(f"algorithm.{next(iter(extra))} is unknown: {self.name} takes no settings")
        else:
            ALGORITHMS.check(self.name)  # said before JAX is loaded to look at one of them
        from coterie.algorithms.base import Config, find

        if self.name in REFERENCES:
            return Config()
        model = find(self.name).config
        self.need_room("name", self.name, model.model_fields)
        return read(model, extra, self.table)

    def check_unloaded(self) -> None:
        """Say what is wrong without JAX, where that can be told."""
        place = None if self.name in REFERENCES else ALGORITHMS.place(ALGORITHMS.check(self.name))
        if before_jax() and isinstance(place, str) and (model := algorithm_settings(place)) is not None:
            with suppress(NameError):  # a check of the file's own that needs the rest of it
                read(model, self.model_extra or {}, self.table)
