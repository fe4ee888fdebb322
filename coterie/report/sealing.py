"""The canonical form of a certificate, its digest and its signature."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from coterie.errors import InputError
from coterie.plan import Plan

if TYPE_CHECKING:  # of the extra `deploy`
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from coterie.report.costs import Certified, Sealed

__all__ = ["canonical", "lossless", "plan_hash", "private_key", "seal", "sha256", "signed_text", "written"]


def canonical(content: object) -> bytes:
    """One byte string for one content: sorted keys, no spaces, UTF-8, the fewest digits that give the same float64."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def sha256(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def plan_hash(plan: Plan) -> str:
    """SHA-256 of the plan's canonical form."""
    return sha256(canonical(plan.as_json()))


def signed_text(digest: str) -> bytes:
    """What an Ed25519 signature signs: a name of its own, so that it can be taken for nothing else, and the digest."""
    return b"coterie certificate 1\n" + digest.encode()


@overload
def seal(body: Certified, key: Path | None = None) -> Sealed: ...
@overload
def seal(body: Mapping[str, object], key: Path | None = None) -> Mapping[str, object]: ...
def seal(body: Mapping[str, object], key: Path | None = None) -> Mapping[str, object]:
    """The certificate with its digest and, with the PEM file of an Ed25519 private key, its signature."""
    private = None if key is None else private_key(key)
    signer = None if private is None else private.public_key().public_bytes_raw().hex()
    content = {**body, "signer": signer}
    digest = sha256(canonical(content))
    signature = None if private is None else private.sign(signed_text(digest)).hex()
    return {**content, "digest": digest, "signature": signature}


def private_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 private key of an unencrypted PEM file."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise InputError("signing needs the package cryptography: pip install 'coterie[deploy]'") from None
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise InputError(f"cannot read key {path}: {error.strerror or error}") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is not an unencrypted private key in PEM form: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} is not an Ed25519 key but {type(key).__name__}")
    return key


def lossless(content: Mapping[str, object]) -> dict[str, object]:
    """Plain data that JSON can hold without loss: infinity as "inf"."""
    return {key: _lossless(value) for key, value in content.items()}


def _lossless(content: object) -> object:
    if isinstance(content, Mapping):
        return lossless(content)
    if isinstance(content, list | tuple):
        return [_lossless(value) for value in content]
    return written(content) if isinstance(content, float | np.floating) else content


def written(number: float | np.floating) -> float | str:
    """A number that JSON can hold: infinity is "inf"."""
    return float(number) if np.isfinite(number) else str(float(number))
