"""CIFAR-10: small photographs. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009."""

import tarfile
from pathlib import Path

import numpy as np

from coterie.arguments import choose
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.download import locate
from coterie.data.encode import words
from coterie.data.pictures import PARTS, pictures
from coterie.errors import InputError

__all__ = ["load", "origins"]

CLASSES = words("airplane automobile bird cat deer dog frog horse ship truck")


def load(path: str | Path | None = None, seed: int = 0, *, part: str = "all", row_norm: str = "none") -> Dataset:
    """CIFAR-10: 3,072 float32 features in [0, 1], rows of (height, width, colour).

    The official archive has 50,000 training and 10,000 test images. A directory may instead hold the JPEG-derived
    subset of 10,000 and 5,000 (`notes` says so): do not compare that with published numbers.
    """
    choose("part", part, PARTS)
    files = locate("cifar10", path)
    archive = files.get("cifar-10-binary.tar.gz")
    notes: tuple[str, ...] = ()
    if archive is not None:
        pieces = _cifar_archive(archive, part)
    else:
        notes = ("JPEG-derived subset of 10,000 + 5,000 images, not pixel-exact CIFAR-10",)
        pieces = []
        for file, name in zip(files.values(), ("train", "test"), strict=True):
            if part in ("all", name):
                with np.load(file, allow_pickle=False) as arrays:
                    images, labels = arrays["images"], arrays["labels"]
                pieces.append((images.reshape(len(images), -1), labels, name == "test"))
    names = tuple(f"{colour}_{row}_{column}" for row in range(32) for column in range(32) for colour in "rgb")
    return pictures("cifar10", pieces, CLASSES, names, files, row_norm, notes)


def _cifar_archive(archive: Path, part: str) -> list[tuple[np.ndarray, np.ndarray, bool]]:
    """Records of one label byte and 3 × 32 × 32 colour planes."""
    pieces = []
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                test = name == "test_batch.bin"
                wanted = test or (name.startswith("data_batch_") and name.endswith(".bin"))
                stream = tar.extractfile(member) if wanted and part in ("all", "test" if test else "train") else None
                if stream is None:
                    continue
                records = np.frombuffer(stream.read(), np.uint8).reshape(-1, 3073)
                images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
                pieces.append((name, (images.reshape(len(images), -1), records[:, 0], test)))
    except (OSError, tarfile.TarError, ValueError) as error:
        raise InputError(f"cannot read {archive}: {error}") from None
    return [piece for _, piece in sorted(pieces, key=lambda named: (named[1][2], named[0]))]


def origins(**_: object) -> Origins:
    """Nothing is read: pixels have public ranges, and the classes are known."""
    return ALL_PUBLIC
