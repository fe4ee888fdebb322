"""Privacy bugs on purpose: small patches of real modules, each with the check that must find it.

A fault is a change of a module's text. `plant` makes the changed algorithm beside the real one, `hunt` says what its
check found. The tests hunt every fault, and show that the same check has nothing to say about the unchanged module.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from coterie.algorithms.base import Algorithm, find
from coterie.audit import checks
from coterie.audit.audit import audit
from coterie.audit.checks import Finding
from coterie.audit.fault_list import FAULTS, Fault
from coterie.audit.setting import make_setting
from coterie.errors import InputError

__all__ = ["FAULTS", "Fault", "hunt", "plant"]


_PLANTED: dict[str, ModuleType] = {}  # by the fault's name, so that what was compiled for it stays


def plant(fault: Fault) -> ModuleType:
    """The fault's module with its lines changed, under a name of its own."""
    if fault.name in _PLANTED:
        return _PLANTED[fault.name]
    package = "coterie." if "." in fault.algorithm else "coterie.algorithms."
    real = importlib.import_module(package + fault.algorithm.replace("-", "_"))
    text = inspect.getsource(real)
    for old, new in fault.patches:
        if text.count(old) != 1:
            raise InputError(
                f"fault {fault.name!r}: {text.count(old)} lines of {real.__name__} read {old!r}, expected 1"
            )
        text = text.replace(old, new)
    module = ModuleType(f"{real.__name__}__broken_{len(_PLANTED)}")
    module.__package__ = real.__package__
    sys.modules[module.__name__] = module  # annotations are looked up there
    exec(compile(text, f"{real.__name__} with {fault.name}", "exec"), module.__dict__)
    _PLANTED[fault.name] = module
    return module


def hunt(fault: Fault, planted: bool = True) -> Finding:
    """What the fault's check says about the changed module, or (not `planted`) about the real one."""
    if fault.check == "driver":
        with _driver(plant(fault) if planted else None):
            return checks.driver(find("dp-dsgd"))
    if fault.check == "wire":
        from coterie.audit.wire import audit_wire

        source = plant(fault).SystemSource() if planted else None
        bytes_ = audit_wire(_deployed(), 250, source=source)
        return Finding("wire", not bytes_.violated, f"μ ≥ {bytes_.mu_bound:.2f}, claimed {bytes_.mu:.2f}")
    real = find(fault.algorithm)
    algorithm = Algorithm(real.slug, plant(fault)) if planted else real
    setting = make_setting(algorithm, _config(algorithm, fault), epsilon=8.0, **fault.options)
    if fault.check == "audit":
        verdict = audit(setting, 250, attack=fault.attack)
        return Finding("audit", not verdict.violated, "; ".join(verdict.reasons))
    return checks.CHECKS[fault.check](checks.gather(setting, fault.attack))


@cache
def _deployed() -> Any:
    """The deployed party whose noise is tampered with."""
    from coterie.audit.wire import make_worlds

    return make_worlds("dp-admm", epsilon=8.0, rounds=6)


def _config(algorithm: Algorithm, fault: Fault) -> Any:
    if not fault.changes:
        return None
    tolerance = {"tolerance": 1e-10} if "tolerance" in algorithm.Config.model_fields else {}
    return algorithm.EXAMPLE.replace(**tolerance, **fault.changes)


@contextmanager
def _driver(module: ModuleType | None) -> Iterator[None]:
    """The simulation's compiled loop taken from another module, for a while."""
    from coterie.drivers import simulate

    real = simulate.Program
    try:
        if module is not None:
            simulate.Program = module.Program  # type: ignore[misc]
        yield
    finally:
        simulate.Program = real  # type: ignore[misc]
