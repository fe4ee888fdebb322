"""Ways to deal records to agents, one file each, found and never listed.

A kind has `Settings`, the keys that it adds to [partition], and `deal(dataset, agents, settings, *, sizes, rng)`: the
row numbers of each agent, the same for the same `rng`. Nobody is left without records, and no record has two owners.

    SITED = True             agent k is site k of the data, so `agents` may be None
    SIZED = True             it keeps to `sizes`, records of each agent or of all; others get None
    sizes(agents, settings)  records of each agent, where the settings say it: accounting then reads no data
"""

from coterie.found import Kinds

__all__ = ["PARTITIONS"]

PARTITIONS = Kinds("partition", __name__)
"""Every way to deal records, by name."""
