"""Data: loaders with public bounds, a synthetic maker, partitions over agents and train/test splits."""

from coterie.data.clinics import make_clinics
from coterie.data.dataset import ALL_PUBLIC, PUBLIC, Dataset, Origins, Truth
from coterie.data.loaders import RecordSource, find_source, load, origins
from coterie.data.partition import partition, split
from coterie.data.partitions import PARTITIONS
from coterie.data.sources import SOURCES

__all__ = [
    "ALL_PUBLIC",
    "PARTITIONS",
    "PUBLIC",
    "SOURCES",
    "Dataset",
    "Origins",
    "RecordSource",
    "Truth",
    "find_source",
    "load",
    "make_clinics",
    "origins",
    "partition",
    "split",
]
