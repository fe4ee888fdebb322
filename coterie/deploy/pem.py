"""Private keys in files of their own: apart from `files`, since accounts need no cryptography, an extra."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from coterie.deploy.files import read_bytes
from coterie.errors import InputError

__all__ = ["private_pem", "read_ecdsa", "read_ed25519"]


def private_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    """A private key as an unencrypted PEM file: agents start without a person at the keyboard."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_ed25519(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key in a private file."""
    key = _private_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} holds another kind of key: expected Ed25519")
    return key


def read_ecdsa(path: Path) -> ec.EllipticCurvePrivateKey:
    """The ECDSA key in a private file."""
    key = _private_key(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} holds another kind of key: expected ECDSA P-256")
    return key


def _private_key(path: Path) -> PrivateKeyTypes:
    content = read_bytes(path, private=True)
    try:
        return serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError):
        raise InputError(f"{path} is not a private key") from None
