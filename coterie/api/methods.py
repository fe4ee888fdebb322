"""Algorithms as functions: `ct.dp_dsgd(clip=1.0)` for every algorithm that is found, `ct.algorithm` for any module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache

from coterie.api.given import TEXT, bind, takes
from coterie.settings import read
from coterie.tables.algorithm import AlgorithmPlan

__all__ = ["algorithm", "constructor"]


@takes(name=TEXT)
def algorithm(name: str, /, **settings: object) -> AlgorithmPlan:
    """An algorithm with settings: one from `coterie algorithms`, or your own as "mypackage.module".

    Settings that are left out are filled in by the algorithm's public rules. To look a module up is to import it.

    >>> import coterie as ct
    >>> ct.algorithm("dp-dsgd", clip=1.0)
    AlgorithmPlan(name='dp-dsgd', clip=1.0)
    """
    made = read(AlgorithmPlan, {**settings, "name": name}, "algorithm")
    made.config()
    return made


@cache
def constructor(name: str) -> Callable[..., AlgorithmPlan]:
    """The function that makes this algorithm: its signature and its text come from its Config."""
    from coterie.algorithms.base import PRINTED, find

    found = find(name)
    fields = {k: f for k, f in found.config.model_fields.items() if k != PRINTED}  # a study: not for `train`
    own = inspect.Parameter.KEYWORD_ONLY
    taken = [
        inspect.Parameter(k, own, annotation=f.annotation, default=f.get_default(call_default_factory=True))
        for k, f in fields.items()  # every setting has a default: `tune` fills in what is left open
    ]

    python = name.replace("-", "_")
    only = inspect.Signature([inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)])

    def make(*none: object, **settings: object) -> AlgorithmPlan:
        bind(python, only, none, settings)
        return algorithm(name, **settings)

    make.__name__ = make.__qualname__ = python
    make.__module__ = "coterie"
    make.__signature__ = inspect.Signature(taken, return_annotation=AlgorithmPlan)  # type: ignore[attr-defined]
    example = found.example.model_dump(exclude_defaults=True)
    said = ", ".join(f"{k}={v!r}" for k, v in example.items())
    lines = [f"        {k}: {f.description or 'see the docs'}" for k, f in fields.items()]
    args = ["    Args:", *lines, ""] if lines else []
    shown = "".join(f", {k}={v!r}" for k, v in example.items())
    make.__doc__ = "\n".join(
        [found.summary, "", f"    `coterie algorithms {name}` and docs/algorithms.md say more.", "", *args,
         "    >>> import coterie as ct", f"    >>> ct.{python}({said})",
         f"    AlgorithmPlan(name={name!r}{shown})", "    "]
    )  # fmt: skip
    return make
