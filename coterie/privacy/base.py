r"""The base of all privacy events, and their flat form on the host.

Fields are scalars or arrays under tracing; accounting works on float64 NumPy vectors with one row for each distinct
parameter set (`flat`), after `check` has looked at every value.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy import pld, profiles

__all__ = ["Event", "bits_of", "check", "fields_of", "flat", "key_of", "merge", "numeric_of", "static", "watch_kinds"]

if TYPE_CHECKING:  # accounting runs without JAX
    from jax import Array

    Number = float | NDArray | np.number | Array  # a traced one, where a cost is mapped over rounds

    class Numeric:
        """The type of an event's numeric field: it takes one number or many, and is read as in the flat form."""

        def __get__(self, event: object, kind: type) -> "Floats": ...
        def __set__(self, event: object, value: Number) -> None: ...

    class MaybeNumeric:
        """The same, of a field that may be None."""

        def __get__(self, event: object, kind: type) -> "Floats | None": ...
        def __set__(self, event: object, value: Number | None) -> None: ...

else:
    Numeric = MaybeNumeric = object

Floats = NDArray[np.float64]
E = TypeVar("E", bound="Event")


_STATIC = {"static": True}


def numbers(*, default: "Number | None", kw_only: bool = False) -> Any:
    """A numeric field with a default."""
    return dataclasses.field(default=default, kw_only=kw_only)


def static(*, default: object = dataclasses.MISSING, kw_only: bool = False) -> Any:
    """A field that is part of an event's structure: the same for all its rows, never traced."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata=_STATIC)


_KINDS: list[type["Event"]] = []
_WATCHERS: list[Callable[[type["Event"]], None]] = []


def watch_kinds(watcher: Callable[[type["Event"]], None]) -> None:
    """Call `watcher` for every kind of event, now and as new ones are defined (JAX makes pytrees of them so)."""
    _WATCHERS.append(watcher)
    for kind in _KINDS:
        watcher(kind)


@dataclass_transform(eq_default=False, field_specifiers=(numbers, static))  # frozen, too; mypy forgets `__get__` then
class _Record:
    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, eq=False)(cls)


class Event(_Record):
    """What one message costs; see `coterie.privacy.events` for the kinds. Every subclass is a frozen dataclass.

    `times` is how often each row is charged, `slack` a δ added per charge, `tv` the total variation distance of the
    noise drawn from the noise declared, `adjacency` what neighbouring data sets are.
    """

    times: Numeric = numbers(default=1, kw_only=True)
    slack: Numeric = numbers(default=0.0, kw_only=True)
    tv: Numeric = numbers(default=0.0, kw_only=True)
    adjacency: str = static(default="replace-one", kw_only=True)

    # field -> what it must satisfy; NaN satisfies nothing
    limits: ClassVar[dict[str, str]] = {}
    # kinds as which a planned event of this kind may be charged, once what was random in it is known
    realised_as: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _KINDS.append(cls)
        for watcher in _WATCHERS:
            watcher(cls)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name), equal_nan=False)
            for f in dataclasses.fields(self)
        )

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in fields_of(type(self))[1])))

    @property
    def integer_orders(self) -> bool:
        """Whether the Rényi curve holds at integer orders only."""
        return False

    def mu(self) -> Floats | None:
        """μ such that each row is dominated by N(0, 1) against N(μ, 1), or None."""
        return None

    def pure(self) -> Floats:
        """Pure ε of each row."""
        return np.full(self.times.shape, np.inf)

    @classmethod
    def purely(cls) -> bool:
        """Whether events of this kind have a pure ε at all."""
        return cls.pure is not Event.pure

    def zcdp(self) -> Floats:
        """ρ such that D_α ≤ ρα at every α > 1."""
        mu = self.mu()
        return np.full(self.times.shape, np.inf) if mu is None else mu**2 / 2

    def rdp(self, orders: Floats) -> Floats:
        """D_α of each row, shape (rows, orders)."""
        raise NotImplementedError(f"{type(self).__name__} has no Rényi curve")

    def profile(self, row: int) -> profiles.Profile | None:
        """The profile of a symmetric pair that dominates one row, or None."""
        mu = self.mu()
        return None if mu is None else profiles.gaussian(mu[row])

    def law(self, row: int, step: float) -> pld.PrivacyLossDistribution | None:
        """The privacy-loss distribution of one row on the grid step·Z, or None."""
        profile = self.profile(row)
        return None if profile is None else pld.from_profile(profile, step)

    def validate(self) -> None:
        """Refuse combinations of settings that no bound covers (ranges are `limits`)."""


_RULES = {
    ">= 0": lambda x: x >= 0,
    "in [0, 1]": lambda x: (x >= 0) & (x <= 1),
    "a whole number >= 0": lambda x: (x >= 0) & (x == np.floor(x)) & (x < np.inf),
}
_COMMON = {"times": "a whole number >= 0", "slack": ">= 0", "tv": ">= 0"}


_FIELDS: dict[type[Event], tuple[tuple[str, ...], tuple[str, ...]]] = {}


def fields_of(kind: type[Event]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the numeric and of the static fields."""
    if kind not in _FIELDS:
        fields = dataclasses.fields(kind)
        static = tuple(field.name for field in fields if field.metadata.get("static", False))
        _FIELDS[kind] = tuple(field.name for field in fields if field.name not in static), static
    return _FIELDS[kind]


def numeric_of(event: Event) -> tuple[str, ...]:
    """Names of the numeric fields that an event has."""
    return tuple(name for name in fields_of(type(event))[0] if getattr(event, name) is not None)


def check(event: Event) -> None:
    """Raise an `InputError` that names the first field out of its range."""
    if not isinstance(event, Event):
        raise InputError(f"expected a privacy event, got {event!r}")
    name, limits = type(event).__name__, {**_COMMON, **type(event).limits}
    for field in numeric_of(event):
        values = getattr(event, field)
        if not isinstance(values, float | int):
            values = np.asarray(values, float)
        good = _RULES[limits[field]](values)
        if good is not True and not np.all(good):
            bad = np.asarray(values)[~np.asarray(good)].flat[0]
            raise InputError(f"{name}: {field} must be {limits[field]}, got {bad}")
    dim = getattr(event, "dim", None)
    if dim is not None and not (isinstance(dim, int | np.integer) and dim >= 1):
        raise InputError(f"{name}: dim must be a whole number >= 1, got {dim!r}")
    event.validate()


def flat(event: E) -> E:
    """The event as float64 vectors with one row for each distinct parameter set; never-charged rows are dropped."""
    check(event)
    return _grouped([event])


def merge(events: Iterable[Event]) -> list[Event]:
    """Flat events, one for each class and static setting; the order in which they came is forgotten."""
    groups: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        check(event)
        static = tuple(getattr(event, name) for name in fields_of(type(event))[1])
        groups.setdefault((type(event), static, numeric_of(event)), []).append(event)
    return [_grouped(group) for group in groups.values()]


def _grouped(events: Sequence[E]) -> E:
    names = numeric_of(events[0])
    at = names.index("times")
    tables = []
    for event in events:
        columns = [np.asarray(getattr(event, name), float) for name in names]
        tables.append(np.stack([column.ravel() for column in np.broadcast_arrays(*columns)]))
    table = np.concatenate(tables, axis=1)
    table = table[:, table[at] > 0]
    times = table[at]
    if times.size > 1:
        rest = np.delete(table, at, axis=0)
        rows, index = np.unique(rest, axis=1, return_inverse=True)
        times = np.bincount(index.ravel(), weights=times, minlength=rows.shape[1])
        table = np.insert(rows, at, times, axis=0)
    values = dict(zip(names, table, strict=True))
    return dataclasses.replace(events[0], **{**values, "times": times.astype(np.int64)})


def key_of(event: Event) -> tuple[object, ...] | None:
    """What two equal events have in common, to look them up by; None for one with arrays."""
    key = (type(event), *vars(event).values())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def bits_of(event: Event) -> tuple[object, ...]:
    """What two equal flat events have in common, to the last bit of every number."""
    numbers, static = fields_of(type(event))
    whole = [getattr(event, name) for name in numbers]
    return (
        type(event), *(getattr(event, name) for name in static),
        *(None if x is None else np.ascontiguousarray(x, float).tobytes() for x in whole),
    )  # fmt: skip
