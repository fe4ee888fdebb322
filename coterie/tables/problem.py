"""[problem]: what is minimised, and in which set the model is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from coterie.errors import InputError
from coterie.found import Kinds
from coterie.losses import LOSSES
from coterie.losses.settings import LossSettings
from coterie.sets import SETS, check_options, make_set
from coterie.settings import Count, Naming, read
from coterie.tables.unloaded import before_jax, loss_settings

if TYPE_CHECKING:
    from coterie.problems.sets import Constraint

__all__ = ["ProblemPlan"]


class ProblemPlan(Naming):
    """[problem] What is minimised: the keys of all losses, and those of the chosen one ([losses](losses.md))."""

    model_config = ConfigDict(extra="allow")
    table: ClassVar[str] = "problem"
    choices: ClassVar[Mapping[str, Kinds]] = {"loss": LOSSES, "within": SETS}
    loss: Annotated[str, AfterValidator(LOSSES.check)] | None = Field(
        None,
        description="a name, or your own as package.module; "
        "default: logistic for two classes, softmax for more, squared for numbers",
    )
    ridge: float | None = Field(
        None,
        ge=0,
        description="ridge/2 ‖x‖² added to every party's objective; default: the algorithm's own, 1e-5 for dp-dsgd and "
        "1e-3 for the others",
    )
    weighting: Literal["agents", "records"] | None = Field(
        None,
        description="what counts equally: parties (agents) or records; default: records where noise is shared "
        '(`exchange.noise = "central"`), whose heaviest record sets it for all, else agents',
    )
    model: Literal["linear", "additive"] | None = Field(
        None,
        description="'additive': a curve for each attribute over public bins ([additive models](additive.md)); "
        "default: linear in the features, or as the loss says",
    )
    bins: dict[str, bool | float | list[float] | str] | None = Field(
        None,
        description="of an additive model, by attribute: a step, a list of edges, 'log' (quarter decades), or false to "
        "leave it out; default: round numbers from its public range",
    )
    pairs: list[tuple[str, str]] | None = Field(
        None, description="of an additive model: pairs of attributes that have a bin for each two of theirs"
    )
    alike: float | None = Field(
        None,
        ge=0,
        le=0.99,
        description="of an additive model: how alike neighbouring bins of a number are beforehand, from 0 to .99; "
        "default: .5",
    )
    smooth: float | None = Field(
        None, ge=0, description="of an additive model: how much neighbouring bins are pulled together, afterwards"
    )
    monotone: dict[str, Literal["up", "down"]] | None = Field(
        None, description="of an additive model, by attribute: 'up' or 'down', a curve that never falls or never rises"
    )
    within: str | None = Field(
        None,
        description="keep the model in a convex set ([who can](theory/sets.md)): a name, or your own as "
        "package.module; default: nowhere, or the ball of `radius`",
    )
    within_options: dict[str, float | list[float]] | None = Field(
        None, description="of `within`, e.g. radius; low and high; total"
    )
    dim: Count | None = Field(None, description="number of features, where accounting without data needs it")
    classes: int | None = Field(None, ge=2, description="number of classes, where no data is there to tell")

    def settings(self, loss: str | None = None) -> LossSettings:
        """What it says for its loss, or for `loss` if the labels decide that, validated by the loss itself."""
        return self._read(self.loss or loss, _loaded)

    def check_unloaded(self) -> None:
        """Say what is wrong without JAX, where that can be told."""
        if before_jax() and (self.loss is None or LOSSES.ours(self.loss)):
            with suppress(LookupError):
                self._read(self.loss, _unloaded)

    def _read(self, chosen: str | None, of: Callable[[str], type[LossSettings]]) -> LossSettings:
        kind = LossSettings if chosen is None else of(chosen)
        if chosen is not None:
            self.need_room("loss", chosen, kind.model_fields)
        given = dict(self.model_extra or {})
        for key in [key for key in given if key not in kind.model_fields]:
            self._refuse(key, given.pop(key), kind, of)
        return read(kind, given, "problem")

    def check_within(self) -> None:
        """Refuse a set that does not exist, and options that it does not take."""
        if self.within is not None:
            check_options(self.within, self.within_options or {})
        elif self.within_options:
            option = next(iter(self.within_options))
            raise InputError(f"problem.within_options.{option} is for problem.within: name a set")

    def constraint(self, dim: int, known: bool = True) -> Constraint:
        """The set that `within` names, for a model of `dim` numbers (`known`: not a guess)."""
        assert self.within is not None
        options = self.within_options or {}
        if not known and any(isinstance(option, list) for option in options.values()):
            raise InputError("problem.within_options lists a number for each coordinate: state problem.dim too")
        return make_set(self.within, dim, options)

    def _refuse(
        self, key: str, value: object, kind: type[LossSettings], of: Callable[[str], type[LossSettings]]
    ) -> None:
        """Say to which losses of ours a key belongs, or what there is instead.

        The default of another loss changes nothing, and plans that earlier versions wrote out state them.
        """
        fields = {name: of(name).model_fields for name in LOSSES.names if LOSSES.ours(name)}
        if homes := {name: known[key] for name, known in fields.items() if key in known}:
            if any(value == field.default for field in homes.values()):
                return
            made = "none was chosen" if self.loss is None else f"not {self.loss!r}"
            raise InputError(f"problem.{key} belongs to problem.loss = {' or '.join(map(repr, homes))}, {made}")
        known = ", ".join((*type(self).model_fields, *kind.model_fields))
        raise InputError(f"unknown key problem.{key}; expected one of {known}")

    @property
    def additive(self) -> bool:
        """Whether records are put into bins."""
        return self.model == "additive"

    @property
    def of_classes(self) -> bool:
        """Whether the stated loss takes labels that are classes."""
        from coterie.losses.base import find_loss

        return self.loss is not None and find_loss(self.loss).of_classes


def _loaded(loss: str) -> type[LossSettings]:
    from coterie.losses.base import find_loss

    return find_loss(loss).settings


def _unloaded(loss: str) -> type[LossSettings]:
    """The settings of a loss of ours, without JAX; a LookupError where they cannot be told apart from its file."""
    if (settings := loss_settings(str(LOSSES.place(loss)))) is None:
        raise LookupError(loss)
    return settings
