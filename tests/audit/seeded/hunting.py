"""Privacy bugs on purpose: small patches of real modules, each with the check that must find it.

A fault is a change of a module's text. `plant` makes the changed module beside the real one, `hunt` says what the
audit finds. The tests hunt every fault, and show that the same check has nothing to say about the unchanged module.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import jax

from coterie.algorithms.base import Algorithm, Config, find
from coterie.audit import checks
from coterie.audit.checks import Finding
from coterie.audit.losses import LOSSES, accepted
from coterie.audit.matrix import LOAD
from coterie.audit.setting import make_setting
from coterie.drivers import compiled
from coterie.errors import InputError
from coterie.problems import of_people
from tests.audit.seeded import FAULTS, Fault
from tests.audit.seeded import checks as surroundings

if TYPE_CHECKING:
    from coterie.audit.wire import Worlds

__all__ = ["FAULTS", "Fault", "config_of", "hunt", "plant", "put_in"]


# checks of parts that are not compiled, and of the loop, whose programs are kept by the class that made them
HOST = ("certificate", "driver", "exchange", "loader", "sums")
_PLANTED: dict[str, ModuleType] = {}  # by the fault's name, so that what was compiled for it stays


def plant(fault: Fault) -> ModuleType:
    """The fault's module with its lines changed, under a name of its own."""
    if fault.name in _PLANTED:
        return _PLANTED[fault.name]
    real = _real(fault)
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


def hunt(fault: Fault, planted: bool = True) -> list[Finding]:
    """What the audit finds wrong in the changed module, or (not `planted`) in the real one; [] if nothing."""
    with put_in(fault if planted else None):
        return [f for f in _find(fault, planted) if not f.passed]


def _find(fault: Fault, planted: bool) -> list[Finding]:
    if fault.check == "driver":
        return [checks.driver(find("dp-dsgd"))]
    if fault.check in ("exchange", "loader", "certificate"):
        return [getattr(surroundings, fault.check)()]
    if fault.check == "sums":
        return [_of_sums(fault)]
    if fault.check == "wire":
        from coterie.audit.wire import audit_wire

        source = plant(fault).SystemSource() if planted else None
        bytes_ = audit_wire(_deployed(), 250, source=source)
        words = f"μ ≥ {bytes_.mu_bound:.2f}, claimed {bytes_.mu:.2f}"
        return [Finding("wire", "refuted" if bytes_.violated else "holds", words)]
    changed = planted and not fault.put
    if fault.problem:
        algorithm = find(fault.runs)
        problem = eval(fault.problem, vars(plant(fault) if changed else _real(fault)))
        problems = {fault.problem: problem}
    else:
        real = find(fault.runs or fault.module)
        algorithm = Algorithm.of(real.slug, plant(fault)) if changed and not fault.runs else real
        cfg = config_of(algorithm, fault) or algorithm.example
        problems = {n: LOSSES[n] for n in (fault.losses or accepted(algorithm, cfg))}
    out = []
    for name, problem in problems.items():
        try:
            unit = of_people(problem) if fault.person else problem
            setting = make_setting(
                algorithm, config_of(algorithm, fault), epsilon=8.0, problem=unit, **{"load": LOAD} | fault.options
            )
            out += checks.examine(checks.gather(setting))
        except (InputError, FloatingPointError) as error:
            out.append(Finding("contract", "refuted", f"{name} is accepted, but: {error}"))
    return out


@cache
def _deployed() -> Worlds:
    """The deployed party whose noise is tampered with."""
    from coterie.audit.wire import make_worlds

    return make_worlds("dp-admm", epsilon=8.0, rounds=6)


def _of_sums(fault: Fault) -> Finding:
    """What colluders find in opened sums of parties that share their noise."""
    from coterie.audit.sums import audit_sums, sum_worlds

    worlds = sum_worlds("gauss-avg-gd", epsilon=20.0, rounds=4)  # not kept: what is claimed may be what is wrong
    found = audit_sums(worlds, fault.options["trials"], drops=fault.options.get("drops"))
    words = "; ".join(f"{v.algorithm}: μ ≥ {v.mu_bound:.2f}, claimed {v.mu:.2f}" for v in found)
    return Finding("sums", "refuted" if any(v.violated for v in found) else "holds", words)


def config_of(algorithm: Algorithm, fault: Fault) -> Config | None:
    if not fault.changes:
        return None
    tolerance = {"tolerance": 1e-10} if "tolerance" in algorithm.config.model_fields else {}
    return algorithm.example.replace(**tolerance, **fault.changes)


def _real(fault: Fault) -> ModuleType:
    package = "coterie." if "." in fault.module else "coterie.algorithms."
    return importlib.import_module(package + fault.module.replace("-", "_"))


@contextmanager
def put_in(fault: Fault | None) -> Iterator[None]:
    """The fault's names taken from the changed module wherever the product uses them, for a while."""
    if fault is None or not fault.put:
        yield
        return
    changed, before = plant(fault), []
    try:
        for place in fault.put:
            home, new, name = _home(place, changed)
            before.append((home, name, getattr(home, name)))
            setattr(home, name, getattr(new, name))
        if fault.check not in HOST:
            _forget_programs()  # what was compiled knows the real ones
        yield
    finally:
        for home, name, real in before:
            setattr(home, name, real)
        if fault.check not in HOST:
            _forget_programs()


def _forget_programs() -> None:
    jax.clear_caches()
    compiled._KEPT.clear()


def _home(place: str, changed: ModuleType) -> tuple[object, object, str]:
    """Where a dotted name below `coterie` is kept, the same spot of the changed module, and its last part."""
    *path, name = place.split(".")
    home: object = importlib.import_module("coterie." + ".".join(path[:2]))
    new: object = changed
    for part in path[2:]:
        home, new = getattr(home, part), getattr(new, part)
    return home, new, name
