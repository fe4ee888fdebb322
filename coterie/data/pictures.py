"""Pictures as records: pixels divided by 255, one flat row each."""

from pathlib import Path

import numpy as np

from coterie.data.dataset import ALL_PUBLIC, Dataset
from coterie.data.download import digest
from coterie.data.encode import normalise_rows
from coterie.errors import InputError

__all__ = ["PARTS", "pictures"]

PARTS = ("all", "train", "test")


def pictures(
    name: str,
    pieces: list[tuple[np.ndarray, np.ndarray, bool]],
    classes: tuple[str, ...],
    feature_names: tuple[str, ...],
    files: dict[str, Path],
    row_norm: str,
    notes: tuple[str, ...],
) -> Dataset:
    """A data set from pieces: images, labels, and whether they are for testing."""
    for images, labels, _ in pieces:
        if len(images) != len(labels):
            raise InputError(f"data set {name!r}: {len(images)} images but {len(labels)} labels")
    if not pieces:
        raise InputError(f"data set {name!r} is empty: no images in {', '.join(map(str, files.values()))}")
    pixels = np.concatenate([images for images, _, _ in pieces]).astype(np.float32) / np.float32(255)
    return Dataset(
        name=name,
        features=normalise_rows(pixels, row_norm, float(np.sqrt(pixels.shape[1]))),
        targets=np.concatenate([labels for _, labels, _ in pieces]).astype(np.int64),
        classes=classes,
        feature_names=feature_names,
        test=np.concatenate([np.full(len(labels), test) for _, labels, test in pieces]),
        source=", ".join(map(str, files.values())),
        sha256={file.name: digest(file) for file in files.values()},
        notes=(f"pixels divided by 255, row norm {row_norm!r}", *notes),
        origins=ALL_PUBLIC,
    )
