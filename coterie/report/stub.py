"""`coterie/__init__.pyi`: what type checkers and editors see of the package, made from the code itself.

The functions of algorithms and of kinds of graph are found when they are asked for, so only a generated file can show
their signatures before. `python -m coterie.report.pages` writes it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import coterie
from coterie.api import methods, names, parties

__all__ = ["PLACE", "stub"]

PLACE = Path("coterie", "__init__.pyi")
HEAD = '''"""{doc}

Generated, not to be edited: python -m coterie.report.pages.
"""

from collections.abc import Sequence
from typing import Literal, Optional

from coterie.api.bounds import Bounds
from coterie.api.sites import Sites
from coterie.audit.claims import attack_task as audit
{imports}
from coterie.tables.algorithm import AlgorithmPlan

__version__: str
__all__ = {listed}
'''


def stub() -> str:
    """The text of the file."""
    homes: dict[str, tuple[str, ...]] = vars(coterie)["_HOMES"]
    ours = [f"from {home} import {', '.join(f'{n} as {n}' for n in known)}" for home, known in homes.items()]
    doc = (coterie.__doc__ or "").splitlines()[0]
    parts = [HEAD.format(doc=doc, imports="\n".join(ours), listed=dir(coterie))]
    parts += [_function(parties.constructor(kind), "Parties") for kind in names.graphs().values()]
    parts += [_function(methods.constructor(name), "AlgorithmPlan") for name in names.algorithms().values()]
    return "\n".join(parts)


def _function(made: Callable[..., object], returns: str) -> str:
    """Its signature, and the first line of what it says of itself."""
    shown = []
    for p in inspect.signature(made).parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = "" if p.default is p.empty else f" = {p.default!r}"
        shown.append(f"{p.name}: {_type(p.annotation)}{default}")
    words = inspect.cleandoc(made.__doc__ or "").splitlines()[0]
    return f'def {made.__name__}({", ".join(shown)}) -> {returns}:\n    """{words}"""\n'


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(collections\.abc|typing|pathlib)\.", "", text).replace("NoneType", "None")
