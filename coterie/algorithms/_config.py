"""Hyper-parameters of an algorithm: validated like a pydantic model, traced like a pytree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar, get_args

import jax
from pydantic import ConfigDict

from coterie.settings import Written

__all__ = ["PRINTED", "Config"]

C = TypeVar("C", bound="Config")
PRINTED = "as_printed"  # the setting that runs what a paper printed and is wrong, where an algorithm has one: a study


class Config(Written):
    """Base of every algorithm's hyper-parameters: validated like a pydantic model, traced like a pytree.

    Fields annotated `float` (or `Auto`) are leaves, so a sweep over them is a `vmap`; so are those in `COUNTS`, whole
    numbers that say how long a round's loop is; all others are static structure. An unknown key, a wrong type or a
    value out of range is an error when the plan is read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    COUNTS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        kinds = {n: (f.annotation, *get_args(f.annotation)) for n, f in cls.model_fields.items()}
        numbers = tuple(n for n, kind in kinds.items() if float in kind or n in cls.COUNTS)
        others = tuple(n for n in cls.model_fields if n not in numbers)

        def flatten(cfg: Config) -> tuple[tuple, tuple]:
            return tuple(getattr(cfg, n) for n in numbers), tuple(getattr(cfg, n) for n in others)

        def flatten_with_keys(cfg: Config) -> tuple[tuple, tuple]:
            leaves, static = flatten(cfg)
            return tuple(zip(map(jax.tree_util.GetAttrKey, numbers), leaves, strict=True)), static

        def unflatten(static: tuple, leaves: Iterable) -> Config:
            return cls.model_construct(
                **dict(zip(numbers, leaves, strict=True)), **dict(zip(others, static, strict=True))
            )

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)

    def replace(self: C, **changes: object) -> C:
        """A copy with some fields changed, without validation (the values may be traced)."""
        return self.model_copy(update=changes)

    @property
    def printed(self) -> bool:
        """Whether it runs what a paper printed and is wrong: never private."""
        return bool(getattr(self, PRINTED, False))

    @classmethod
    def can_print(cls) -> bool:
        """Whether there is a printed version that differs."""
        return PRINTED in cls.model_fields

    def as_in_print(self: C) -> C:
        """The same settings for what a paper printed."""
        return self.replace(**{PRINTED: True})

    def corrected(self: C) -> C:
        """The same settings for what is right."""
        return self.replace(**{PRINTED: False}) if self.printed else self
