"""MNIST: handwritten digits. LeCun, Cortes & Burges, The MNIST database."""

import gzip
from pathlib import Path

import numpy as np

from coterie.arguments import choose
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.download import locate
from coterie.data.pictures import PARTS, pictures
from coterie.errors import InputError

__all__ = ["load", "origins", "read_idx"]


def load(path: str | Path | None = None, seed: int = 0, *, part: str = "all", row_norm: str = "none") -> Dataset:
    """MNIST: 60,000 training and 10,000 test digits, 784 float32 features in [0, 1]."""
    choose("part", part, PARTS)
    files = {name.removesuffix(".gz"): file for name, file in locate("mnist", path).items()}
    pieces = []
    for prefix, name in (("train", "train"), ("t10k", "test")):
        if part in ("all", name):
            images = read_idx(files[f"{prefix}-images-idx3-ubyte"])
            labels = read_idx(files[f"{prefix}-labels-idx1-ubyte"])
            pieces.append((images.reshape(len(images), -1), labels, name == "test"))
    names = tuple(f"pixel_{row}_{column}" for row in range(28) for column in range(28))
    return pictures("mnist", pieces, tuple(map(str, range(10))), names, files, row_norm, ())


def read_idx(file: Path) -> np.ndarray:
    """The array of unsigned bytes in an idx file, gzipped or not."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read()
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read {file}: {error}") from None
    rank = content[3] if len(content) > 3 else 0
    shape = np.frombuffer(content[4 : 4 + 4 * rank], ">i4") if content[:3] == b"\0\0\x08" else ()
    if not rank or len(shape) != rank or len(content) != 4 + 4 * rank + np.prod(shape, dtype=np.int64):
        raise InputError(f"{file} is not an idx file of unsigned bytes")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def origins(**_: object) -> Origins:
    """Nothing is read: pixels have public ranges, and there are ten digits."""
    return ALL_PUBLIC
