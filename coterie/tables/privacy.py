"""[privacy]: the budget, and what the same records have paid before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from coterie.arguments import MOST
from coterie.errors import InputError
from coterie.found import Kinds
from coterie.privacy.adaptive import RULES
from coterie.privacy.adaptive import make as make_rule
from coterie.privacy.schedules import SCHEDULES
from coterie.privacy.schedules import make as make_schedule
from coterie.settings import Naming, Settings

__all__ = ["BeforePlan", "PrivacyPlan"]

Epsilon = Annotated[float, Field(gt=0, le=MOST)]


class BeforePlan(Settings):
    """[privacy.before] What the same records have paid already, for the settings of this plan."""

    epsilon: Epsilon = Field(description="ε of it, at the plan's δ: it is NOT in privacy.epsilon")
    what: str = Field(description="what was released, in words")

    def words(self, delta: float) -> str:
        """What a reader of this plan's ε has to know."""
        return (
            f"{self.what} came from the same records, and cost (ε, δ) = ({self.epsilon:.4g}, {delta:g}) before this "
            "run, which this ε does NOT cover"
        )


class PrivacyPlan(Naming):
    """[privacy] At what price. A budget, never a noise level."""

    table: ClassVar[str] = "privacy"
    choices: ClassVar[Mapping[str, Kinds]] = {"schedule": SCHEDULES, "adaptive": RULES}
    epsilon: Epsilon | Annotated[list[Epsilon], Field(min_length=1)] = Field(
        1.0, description="ε of the whole run; a list gives each party its own"
    )
    delta: float = Field(1e-5, ge=0, lt=1, description="δ of the whole run; 0: a pure guarantee, where there is one")
    schedule: str = Field("uniform", description="how the budget is spread over rounds; or your own, as package.module")
    schedule_options: dict[str, float | list[float] | list[list[float]]] = Field(
        default_factory=dict, description="e.g. rate, period, contraction; noise or levels of `listed`"
    )
    adaptive: str | None = Field(
        None,
        description="how much noise the next round gets, by a public rule from what was released ([settling]"
        "(theory/adaptive.md)); or your own, as package.module",
    )
    adaptive_options: dict[str, float] = Field(default_factory=dict, description="of that rule, e.g. first, factor")
    claim: Literal["tight", "paper"] = Field(
        "tight", description="'paper': also show what the paper would have printed for the same noise"
    )
    observers: Annotated[list[str], Field(min_length=1)] | None = Field(
        None,
        description="parties whose own view is accounted for, each in a table beside the claim; several who pool what "
        "they know: 'a + b' ([what is proved](theory/observers.md))",
    )
    tuned_on_private_data: bool = Field(False, description="say so if settings were chosen by looking at the data")
    before: BeforePlan | None = Field(
        None,
        description="`epsilon` and `what`: what the same records have paid for the plan's own settings; it is in no "
        "claim, and is said beside each (`coterie stats --next` writes it, [quantiles](additive.md))",
    )

    def check(self) -> None:
        """Refuse a schedule that does not exist, and options that it does not take."""
        make_schedule(self.schedule, self.listed or 2, **self.schedule_options)
        if self.adaptive is None and self.adaptive_options:
            raise InputError("privacy.adaptive_options are of a rule: name it in privacy.adaptive")
        if self.adaptive not in (None, "own"):
            make_rule(str(self.adaptive), self.adaptive_options)

    @property
    def listed(self) -> int | None:
        """For how many rounds the options list numbers; None where they list none."""
        lists = [v[0] if isinstance(v[0], list) else v for v in self.schedule_options.values()
                 if isinstance(v, list) and v]  # fmt: skip
        return len(lists[0]) if lists else None

    @property
    def own_rounds(self) -> bool:
        """Whether each party has a list of its own."""
        return any(isinstance(v, list) and v and isinstance(v[0], list) for v in self.schedule_options.values())
