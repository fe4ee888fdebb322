"""Where data files are found: an explicit path, `COTERIE_DATA`, the user's cache, else a checked download into it."""

import gzip
import hashlib
import http.client
import io
import os
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import InputError

__all__ = ["KNOWN", "REMOTES", "Remote", "cache_directory", "digest", "fetch", "locate"]

TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded: `sha256` is of what is kept, after unpacking gzip or the member of a zip."""

    urls: tuple[str, ...]
    sha256: str
    unpack: str = ""  # "", "gzip", or the name of a zip's member


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"


def _mnist(name: str, sha256: str) -> Remote:
    mirrors = ("https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
    return Remote(tuple(f"{mirror}/{name}.gz" for mirror in mirrors), sha256, "gzip")


# data set -> files of its official distribution; the checksums are those of the official bytes
REMOTES: dict[str, dict[str, Remote]] = {
    "adult": {
        "adult.data": Remote(
            (f"{_UCI}/adult/adult.data",), "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
        ),
        "adult.test": Remote(
            (f"{_UCI}/adult/adult.test",), "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
        ),
    },
    "mnist": {
        name: _mnist(name, sha256)
        for name, sha256 in {
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        }.items()
    },
    "cifar10": {
        "cifar-10-binary.tar.gz": Remote(
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        )
    },
    "heart": {
        f"processed.{site}.data": Remote((f"{_UCI}/heart-disease/processed.{site}.data",), sha256)
        for site, sha256 in {
            "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
            "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
            "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
            "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        }.items()
    },
    "diabetes": {
        "diabetic_data.csv": Remote(
            (f"{_UCI}/00296/dataset_diabetes.zip",),
            "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
            "dataset_diabetes/diabetic_data.csv",
        )
    },
}

# other forms of the same data that a directory may hold, with the checksums of the copies used in our reports
KNOWN: dict[str, dict[str, str]] = {
    "adult": {
        "adult_train.csv.gz": "fe24177a5b0df1874e6afc5748b7d9e547ca25880a84c4310f39b7ccf1b0da37",
        "adult_test.csv.gz": "e809ea7e82c113838d8ca6ff3cb3557a163ddce5ece7785639e9fb3e533bb347",
    },
    "mnist": {
        "train-images-idx3-ubyte.gz": "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64",
        "train-labels-idx1-ubyte.gz": "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e",
        "t10k-images-idx3-ubyte.gz": "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341",
        "t10k-labels-idx1-ubyte.gz": "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6",
    },
    "cifar10": {
        "cifar10_train10k_jpeg.npz": "f5591dc7c318f433a434dd783129ea3e92d0224df86cbf9ebe64ddebe6d39416",
        "cifar10_test5k_jpeg.npz": "bea79852573f69386c7052554792e99008a34aa50e23e76dffbd59aaf5bc4e3a",
    },
    "heart": {"heart_disease.csv.gz": "3a6a00734c384d0b1908ee1defd2324b648a42d38690f8e074f3a6ee30eaaf4e"},
    "diabetes": {"diabetes130.csv.gz": "356486d63457b04802fd827134ba7234a8d58d96b2bf0c1448f2b52221b4d0a1"},
}


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/coterie`, or `~/.cache/coterie`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coterie"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def locate(dataset: str, path: str | Path | None = None) -> dict[str, Path]:
    """File name → path of all files of a data set, downloaded if need be.

    With `path` (a directory, or one of the files) nothing else is searched.
    """
    forms = (tuple(KNOWN[dataset]), tuple(REMOTES[dataset]))
    if path is not None:
        given = Path(path)
        found = _complete(given if given.is_dir() else given.parent, forms)
        if not given.exists() or found is None or not (given.is_dir() or given.name in found):
            raise InputError(f"{path} does not hold the data set {dataset!r}: expected {_either(forms)}")
        return found
    cache = cache_directory()
    own = os.environ.get("COTERIE_DATA")
    for directory in (Path(own) if own else None, cache):
        found = _complete(directory, forms) if directory else None
        if found is not None:
            return _checked(dataset, found) if directory == cache else found
    try:
        return {name: fetch(name, remote, cache) for name, remote in REMOTES[dataset].items()}
    except OSError as error:
        raise InputError(
            f"data set {dataset!r} not found: COTERIE_DATA is {own or 'not set'}, nothing in {cache}, "
            f"and the download failed ({error}); set COTERIE_DATA to a directory with {_either(forms)}"
        ) from None


def _complete(directory: Path, forms: tuple[tuple[str, ...], ...]) -> dict[str, Path] | None:
    for names in forms:
        if all((directory / name).is_file() for name in names):
            return {name: directory / name for name in names}
    return None


def _either(forms: tuple[tuple[str, ...], ...]) -> str:
    return " or ".join(", ".join(names) for names in forms)


def _checked(dataset: str, files: dict[str, Path]) -> dict[str, Path]:
    """A cache is ours: what is in it must be what was downloaded."""
    sums: Mapping[str, str] = {name: remote.sha256 for name, remote in REMOTES[dataset].items()} | KNOWN[dataset]
    for name, path in files.items():
        if digest(path) != sums[name]:
            raise InputError(f"{path} is damaged (its sha256 is not {sums[name][:12]}…): delete it and try again")
    return files


def fetch(name: str, remote: Remote, directory: Path) -> Path:
    """Download one file unless it is there, check it, and only then give it its name.

    OSError when no address answers; InputError when one answers with the wrong bytes.
    """
    target = directory / name
    if target.is_file() and digest(target) == remote.sha256:
        return target
    failures = []
    for url in remote.urls:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {error}")
            continue
        try:
            content = _unpacked(content, remote.unpack)
        except (OSError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
            raise InputError(f"{url} sent a file that cannot be unpacked: {error}") from None
        found = hashlib.sha256(content).hexdigest()
        if found != remote.sha256:
            raise InputError(f"{url} sent the wrong file: sha256 is {found}, expected {remote.sha256}")
        directory.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{name}-", dir=directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(part, target)
        except BaseException:
            os.unlink(part)
            raise
        return target
    raise OSError("; ".join(failures))


def _unpacked(content: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.decompress(content)
    if how:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(how)
    return content
