"""The list of seeded faults: which lines of which module become what, and which check finds it."""

from tests.audit.seeded.around import AROUND
from tests.audit.seeded.batches import BATCHES
from tests.audit.seeded.decisions import DECISIONS
from tests.audit.seeded.fault import Fault
from tests.audit.seeded.people import PEOPLE
from tests.audit.seeded.released import RELEASED
from tests.audit.seeded.rounds import ROUNDS
from tests.audit.seeded.states import STATES
from tests.audit.seeded.sums import SUMS

__all__ = ["FAULTS", "Fault"]

FAULTS: tuple[Fault, ...] = (*ROUNDS, *BATCHES, *STATES, *DECISIONS, *SUMS, *RELEASED, *AROUND, *PEOPLE)
