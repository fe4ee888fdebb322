"""Modules that are loaded when they are first used: a deployed party needs few of them, and start and memory count.

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType

__all__ = ["lazily", "loaded_for_good"]


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)


def lazily(name: str) -> ModuleType:
    """Stands for the module of that name, and loads it when something of it is asked for.

    >>> lazily("json").loads("[1]")
    [1]
    """
    return _Lazy(name)


def loaded_for_good(name: str) -> ModuleType:
    """A module, with all that it loads set aside from garbage collection, which else takes a tenth of the start."""
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()
