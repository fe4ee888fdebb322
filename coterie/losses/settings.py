"""What a plan's [problem] table may say for a loss: keys that all losses have, beside those of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from coterie.settings import Settings

if TYPE_CHECKING:
    from coterie.problems.sets import Ball

__all__ = ["LossSettings"]


class LossSettings(Settings):
    """Base of every loss's own settings: an unknown key, a wrong type or a value out of range is an error."""

    radius: float | None = Field(None, gt=0, description="keep the point in a ball of this radius")

    @property
    def features(self) -> int | None:
        """How many numbers a record has, where the settings say it; None: a plan does."""
        return None

    @property
    def ball(self) -> Ball | None:
        """The set that the point is kept in, if there is one."""
        from coterie.problems.sets import Ball

        return None if self.radius is None else Ball(self.radius)
