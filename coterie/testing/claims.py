"""How a check says that something is wrong, and what all of them ask of settings."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

__all__ = ["need", "need_settings"]


def need(holds: bool, otherwise: str) -> None:
    """Fail with these words unless it holds (`assert` would be silent under python -O)."""
    if not holds:
        raise AssertionError(otherwise)


def need_settings(model: type[BaseModel]) -> None:
    """Every setting has a description, and an unknown one is refused."""
    for name, field in model.model_fields.items():
        need(bool(field.description), f"setting {name} has no description")
    try:
        model(no_such_setting=1)
    except ValidationError:
        return
    need(False, "settings that it does not have are not refused")
