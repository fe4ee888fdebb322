"""Tables of settings: a mistake is one line, and a table may choose kinds that have settings of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Annotated, ClassVar, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from coterie.errors import InputError
from coterie.found import Kinds

__all__ = ["Choosing", "Count", "Naming", "Positive", "Settings", "Written", "one_line", "read"]

SHOWN = 80  # letters of a value that is wrong
Count = Annotated[int, Field(ge=1, le=2**31)]
Positive = Annotated[float, Field(gt=0)]


class Written(BaseModel):
    """Something that is written out and read back: without Nones it still states each None that is no default."""

    @model_serializer(mode="wrap")
    def _written(self, own: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, object]:
        written: dict[str, object] = own(self)
        if info.exclude_none:
            left_out = (name for name, value in self if value is None and name not in written)
            written |= {name: None for name in left_out if _said(type(self), name)}
        return written

    @model_validator(mode="before")
    @classmethod
    def _flags_are_no_numbers(cls, given: object) -> object:
        """`epsilon = true` would be ε = 1: as a word it is refused where it stands."""
        if not isinstance(given, Mapping) or not any(isinstance(value, bool) for value in given.values()):
            return given
        numbers = {name for name, field in cls.model_fields.items() if _kinds(field.annotation) <= NUMBERS}
        return {k: str(v).lower() if isinstance(v, bool) and k in numbers else v for k, v in given.items()}


def _said(model: type[BaseModel], name: str) -> bool:
    """Whether None says something there: it is not what stands there when nothing is said."""
    field = model.model_fields.get(name)
    return field is None or field.get_default(call_default_factory=True) is not None


class Settings(Written):
    """Keys with types and ranges; anything else is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


NUMBERS = frozenset({int, float, type(None)})


def _kinds(annotation: object) -> frozenset[object]:
    """The types that an annotation is made of."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _kinds(inner[0])
    return frozenset().union(*map(_kinds, inner)) if inner else frozenset({annotation})


S = TypeVar("S", bound=BaseModel)


def read(model: type[S], given: Mapping[str, object], *where: str) -> S:
    """Settings from plain data; a mistake is one line that begins with `where` they stand."""
    try:
        return model(**given)
    except ValidationError as error:
        raise InputError(one_line(error, model, where)) from None


class Naming(Written):
    """A table some of whose keys name kinds that are found."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    table: ClassVar[str]
    choices: ClassVar[Mapping[str, Kinds]]  # by the key that names one

    def refuse_modules(self) -> None:
        """Refuse names that are modules and not installed under a name: to look a module up is to run it."""
        for key, kinds in self.choices.items():
            name = getattr(self, key) or ""  # none is chosen
            if "." in name and name not in kinds.names:
                article = "an" if kinds.what[0] in "aeiou" else "a"
                raise InputError(
                    f"{self.table}.{key} = {name!r} is a module: a plan of others takes {article} {kinds.what} that is "
                    f"installed under a name (entry point in the group {kinds.package})"
                )

    def need_room(self, key: str, name: str, fields: Iterable[str]) -> None:
        """Refuse a kind with a setting that has the name of a key of the table itself: a plan could not say both."""
        if clash := next((field for field in fields if field in type(self).model_fields), None):
            raise InputError(
                f"{self.choices[key].what} {name!r} has a setting {clash!r}, which is a key of [{self.table}] itself: "
                "rename it"
            )


class Choosing(Naming):
    """A table that chooses kinds by name: the keys that are not its own are settings of what it chose.

    Of a kind nothing is loaded before its settings are asked for. Written out, a table states them all.
    """

    model_config = ConfigDict(extra="allow")

    def chosen(self, key: str) -> Settings:
        """The settings of what `key` names, checked by it."""
        name = getattr(self, key)
        model: type[Settings] = self.choices[key].load(name, "Settings").Settings
        self.need_room(key, name, model.model_fields)
        given = {name: value for name, value in self._rest.items() if name in model.model_fields}
        return read(model, given, self.table)

    def check(self) -> None:
        """Refuse settings that are wrong, or that nothing which was chosen would obey."""
        taken = {key: type(self.chosen(key)).model_fields for key in self.choices}
        for one, other in combinations(taken, 2):
            if clash := next((name for name in taken[one] if name in taken[other]), None):
                raise InputError(
                    f"{self.table}.{one} = {getattr(self, one)!r} and {self.table}.{other} = {getattr(self, other)!r} "
                    f"both have a setting {clash!r}: a plan could not say both"
                )
        for name, value in self._rest.items():
            if not any(name in fields for fields in taken.values()):
                self._refuse(name, value, taken)

    def _refuse(self, name: str, value: object, taken: Mapping[str, Mapping[str, object]]) -> None:
        """Say to which kinds of ours a key belongs, or what there is instead.

        The default of another kind changes nothing, and plans that earlier versions wrote out state them.
        """
        for key, kinds in self.choices.items():
            fields = {kind: kinds.load(kind).Settings.model_fields for kind in kinds.names if kinds.ours(kind)}
            if homes := {kind: known[name] for kind, known in fields.items() if name in known}:
                usual = [field.get_default(call_default_factory=True) for field in homes.values()]
                if value in usual or any(value in earlier(field) for field in homes.values()):
                    return
                fit, takes = " or ".join(map(repr, homes)), ", ".join(taken[key]) or "none"
                raise InputError(
                    f"{self.table}.{name} belongs to {self.table}.{key} = {fit}, not {getattr(self, key)!r}, which "
                    f"takes {takes}"
                )
        own = ", ".join(type(self).model_fields)
        more = [f"{key} = {getattr(self, key)!r} takes {', '.join(taken[key]) or 'none'}" for key in taken]
        raise InputError(f"unknown key {self.table}.{name}; expected one of {own}; {'; '.join(more)}")

    @property
    def _rest(self) -> dict[str, object]:
        return self.model_extra or {}

    def __eq__(self, other: object) -> bool:
        """Whether both come to the same: a default that is stated is the same as one that is not."""
        return isinstance(other, Choosing) and type(other) is type(self) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @model_serializer(mode="wrap")
    def _written(self, own: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, object]:
        written: dict[str, object] = own(self)
        for key in self.choices:
            written |= self.chosen(key).model_dump(mode=info.mode, exclude_none=info.exclude_none)
        return written


def earlier(field: FieldInfo) -> tuple[object, ...]:
    """Defaults that a key had in earlier versions."""
    extra = field.json_schema_extra
    return tuple(extra.get("earlier", ())) if isinstance(extra, dict) else ()  # type: ignore[arg-type]


EXPECTED = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of fewer digits", "float_parsing": "a number", "float_type": "a number",
    "finite_number": "a finite number", "bool_type": "true or false", "bool_parsing": "true or false",
    "string_type": "text", "list_type": "a list", "tuple_type": "a list", "dict_type": "a table",
    "is_instance_of": "a list", "sequence_str": "a list", "too_short": "a list that is not empty",
    "model_type": "a table", "model_attributes_type": "a table", "path_type": "a path",
}  # fmt: skip
"""Types in words, by the name that pydantic gives their errors."""
LISTS = ("list_type", "tuple_type", "is_instance_of", "sequence_str", "too_short")
_BRANCH = re.compile(r"(constrained-|list\[|tuple\[|dict\[|set\[|literal\[|function-|nullable|is-instance)|"
                     r"(float|int|str|bool|none|path|number)$")  # fmt: skip


def one_line(error: ValidationError, model: type[BaseModel], prefix: tuple[str, ...] = ()) -> str:
    """The first problem of a validation, in one line with the key, the bad value and what was expected."""
    told: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for found in error.errors():
        told.setdefault(_key(found["loc"]), []).append(found)
    loc, same = next(iter(told.items()))
    for deeper, others in told.items():  # of a key that takes one value or a list: what is wrong in the list
        if len(deeper) > len(loc) and deeper[: len(loc)] == loc and isinstance(same[0]["input"], list):
            loc, same = deeper, others
    first = same[0]
    where = ".".join([*prefix, *map(str, loc)])
    if first["type"] == "extra_forbidden":
        known = ", ".join(_known(model, loc[:-1]))
        return f"unknown key {where}; {f'expected one of {known}' if known else 'there are none'}"
    if first["type"] == "missing":
        return f"{where} is needed"
    if first["type"] in ("value_error", "assertion_error"):
        message, got = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, "), ""
        message = message[0].lower() + message[1:]
    else:
        if isinstance(first["input"], int | float):  # that it is no list is not what is wrong with a number
            same = [found for found in same if found["type"] not in LISTS] or same
        elif isinstance(first["input"], list):
            same = [found for found in same if found["type"] in LISTS] or same
        message = f"input should be {' or '.join(dict.fromkeys(map(_expected, same)))}"
        shown = " ".join(repr(first["input"]).split())
        got = f" (got {shown if len(shown) <= SHOWN else f'{shown[:SHOWN]}…'})"
    more = len([key for key in told if key[: len(loc)] != loc and loc[: len(key)] != key])
    return f"{where}: {message}{got}".removeprefix(": ") + (f"; and {more} more" if more else "")


def _key(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where something is wrong, as a plan spells it: without the branches of types that were tried."""
    return tuple(part for k, part in enumerate(loc) if not (k and isinstance(part, str) and _BRANCH.match(part)))


def _expected(found: ErrorDetails) -> str:
    plain = found["msg"].removeprefix("Input should be ").removeprefix("Input should ")
    return EXPECTED.get(found["type"], plain[:1].lower() + plain[1:])


def _known(model: type[BaseModel], path: tuple[object, ...]) -> list[str]:
    for key in path:
        field = model.model_fields.get(str(key))
        kind = field.annotation if field is not None else None
        options = [
            k for k in (kind, *getattr(kind, "__args__", ())) if isinstance(k, type) and issubclass(k, BaseModel)
        ]
        if not options:
            break
        model = options[0]
    return list(model.model_fields)
