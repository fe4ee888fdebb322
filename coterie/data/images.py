"""MNIST and CIFAR-10: pixels divided by 255, one flat row per image.

LeCun, Cortes & Burges, The MNIST database; Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

import gzip
import tarfile
from pathlib import Path

import numpy as np

from coterie.arguments import choose
from coterie.data.dataset import ALL_PUBLIC, Dataset
from coterie.data.download import digest, locate
from coterie.data.encode import normalise_rows, words
from coterie.errors import InputError

__all__ = ["load_cifar10", "load_mnist", "read_idx"]

PARTS = ("all", "train", "test")
CIFAR_CLASSES = words("airplane automobile bird cat deer dog frog horse ship truck")


def load_mnist(path: str | Path | None = None, seed: int = 0, *, part: str = "all", row_norm: str = "none") -> Dataset:
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
    return _pictures("mnist", pieces, tuple(map(str, range(10))), names, files, row_norm, ())


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


def load_cifar10(
    path: str | Path | None = None, seed: int = 0, *, part: str = "all", row_norm: str = "none"
) -> Dataset:
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
    return _pictures("cifar10", pieces, CIFAR_CLASSES, names, files, row_norm, notes)


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


def _pictures(
    name: str,
    pieces: list[tuple[np.ndarray, np.ndarray, bool]],
    classes: tuple[str, ...],
    feature_names: tuple[str, ...],
    files: dict[str, Path],
    row_norm: str,
    notes: tuple[str, ...],
) -> Dataset:
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
