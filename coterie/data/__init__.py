"""Data: loaders with public bounds, a synthetic maker, partitions over agents and train/test splits."""

from coterie.data.clinics import make_clinics
from coterie.data.dataset import Dataset, Truth
from coterie.data.loaders import LOADERS, load
from coterie.data.partition import PARTITIONS, partition, split

__all__ = ["LOADERS", "PARTITIONS", "Dataset", "Truth", "load", "make_clinics", "partition", "split"]
