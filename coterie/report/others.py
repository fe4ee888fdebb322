"""What a plan names that is not of this package: its certificate says whose code that is, and which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import get_args

from coterie.found import Kinds
from coterie.plan import Plan
from coterie.settings import Naming

__all__ = ["other_code", "others_kinds"]


def other_code(plan: Plan) -> list[dict[str, str | None]]:
    """Under which key something is named, whose it is, and the hash of its source."""
    named = others_kinds(plan.as_json())
    found = {key: (name, kinds.code(name)) for key, (kinds, name) in named.items()}
    return [{"key": key, "name": name, **asdict(code)} for key, (name, code) in found.items() if code is not None]


def others_kinds(tree: Mapping[str, object]) -> dict[str, tuple[Kinds, str]]:
    """The kinds named by a plan (as plain data) that are not of this package, by the keys that name them.

    Nothing is looked up: who asks may not have them, or not want to run them.
    """
    found = {}
    for table, field in Plan.model_fields.items():
        for model in (field.annotation, *get_args(field.annotation)):  # a table may be left out
            if not (isinstance(model, type) and issubclass(model, Naming)):
                continue
            for key, kinds in model.choices.items():
                section, default = tree.get(table), model.model_fields[key].default
                name = section.get(key, default) if isinstance(section, Mapping) else default
                if isinstance(name, str) and not kinds.ours(name):
                    found[f"{table}.{key}"] = kinds, name
    return found
