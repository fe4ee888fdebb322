"""Data: loaders with public bounds, a synthetic maker, partitions over agents and train/test splits."""

from coterie.data.clinics import make_clinics
from coterie.data.dataset import Dataset, Truth
from coterie.data.partition import PARTITIONS, partition, split

__all__ = ["PARTITIONS", "Dataset", "Truth", "make_clinics", "partition", "split"]
