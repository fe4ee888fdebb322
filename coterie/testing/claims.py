"""How a check says that something is wrong."""

from __future__ import annotations

__all__ = ["need"]


def need(holds: bool, otherwise: str) -> None:
    """Fail with these words unless it holds (`assert` would be silent under python -O)."""
    if not holds:
        raise AssertionError(otherwise)
