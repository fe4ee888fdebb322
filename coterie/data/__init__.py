"""Data: loaders with public bounds, a synthetic maker, partitions over agents and train/test splits."""

from coterie.data.clinics import make_clinics
from coterie.data.dataset import ALL_PUBLIC, PUBLIC, Dataset, Origins, Truth
from coterie.data.loaders import LOADERS, load, origins
from coterie.data.partition import PARTITIONS, partition, split

__all__ = [
    "ALL_PUBLIC",
    "LOADERS",
    "PARTITIONS",
    "PUBLIC",
    "Dataset",
    "Origins",
    "Truth",
    "load",
    "make_clinics",
    "origins",
    "partition",
    "split",
]
