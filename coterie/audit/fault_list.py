"""The list of seeded faults: which lines of which module become what, and which check finds it."""

from coterie.audit.fault import Fault
from coterie.audit.fault_list_around import AROUND
from coterie.audit.fault_list_batches import BATCHES
from coterie.audit.fault_list_people import PEOPLE
from coterie.audit.fault_list_released import RELEASED
from coterie.audit.fault_list_rounds import ROUNDS
from coterie.audit.fault_list_states import STATES
from coterie.audit.fault_list_sums import SUMS
from coterie.audit.fault_list_tests import TESTS

__all__ = ["FAULTS", "Fault"]

FAULTS: tuple[Fault, ...] = (*ROUNDS, *BATCHES, *STATES, *TESTS, *SUMS, *RELEASED, *AROUND, *PEOPLE)
