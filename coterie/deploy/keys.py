"""Who is who: keys made at the site, certificates from a small consortium authority, pins instead of revocation.

A party's folder

    tls.key           ECDSA P-256, proves the connection (0600; BoringSSL, inside gRPC, does not verify Ed25519)
    frame.key         Ed25519, signs every frame (0600)
    certificate.pem   from the authority: name, TLS key, frame key, dates
    ca.json           the authority's certificate and its agreement key

An authority's folder holds ca.key (0600, signs certificates), agreement.key (0600, signs agreements) and ca.json.

Private keys never leave the folder they were made in: what travels is a *request*, which proves that its sender
holds both keys. An agreement names the fingerprint of each party's TLS key (its *pin*) and its frame key. So a new
certificate for the same keys is only a fresh date, and needs no new agreement; a lost key needs a new key and a new
agreement, which ends the old one. There is no revocation list: whoever is not pinned is not let in.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coterie.deploy.files import make_folder, read_bytes, read_json, write_bytes, write_json
from coterie.deploy.pem import private_pem, read_ecdsa, read_ed25519
from coterie.errors import InputError
from coterie.names import party_name, routes_of

__all__ = ["Authority", "Identity", "PartyKeys", "default_folder", "init_authority", "init_party",
           "install", "load_authority", "load_party", "read_authority", "read_certificate", "sign_request",
           "write_request"]  # fmt: skip

FRAME_KEY = x509.ObjectIdentifier("2.25.164987487516654522720503742211502776805")  # extension: the 32 bytes of the key
AUTHORITY_DAYS = 3650
_PROOF = b"coterie request\0"


# ---- what others may know --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """What a certificate says of a party.

    Attributes:
        name: common name and alternative name.
        pin: SHA-256 of the TLS key (of its SubjectPublicKeyInfo).
        frame_key: the 32 bytes of the Ed25519 key that signs its frames.
        certificate: the certificate itself.
    """

    name: str
    pin: bytes
    frame_key: bytes
    certificate: x509.Certificate

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Identity:
        """Read a certificate; it is not checked against an authority here."""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        try:
            alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            frame = certificate.extensions.get_extension_for_oid(FRAME_KEY).value
        except (x509.ExtensionNotFound, ValueError):
            raise InputError(
                "the certificate was not made by `coterie keys sign`: names or frame key missing"
            ) from None
        name = str(names[0].value) if len(names) == 1 else ""
        known = alternative.get_values_for_type(x509.DNSName)
        if known not in ([name], [name, routes_of(name)]) or not isinstance(frame, x509.UnrecognizedExtension):
            raise InputError(f"the certificate names {name!r} but not for connections")
        return cls(name, pin_of(certificate), frame.value, certificate)

    @property
    def routed(self) -> bool:
        """Whether the certificate holds for routes too; those of earlier versions name the party alone."""
        names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return routes_of(self.name) in names.get_values_for_type(x509.DNSName)

    @property
    def pem(self) -> bytes:
        """The certificate as a PEM file."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, path: Path) -> None:
        """Write the certificate, in one step."""
        write_bytes(path, self.pem)

    def check_dates(self, now: dt.datetime | None = None) -> None:
        """Refuse a certificate before or after its time."""
        now = now or dt.datetime.now(dt.UTC)
        first, last = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        if now > last:
            raise InputError(f"the certificate of {self.name} expired on {last:%Y-%m-%d %H:%M} UTC: request a new one")
        if now < first:
            raise InputError(f"the certificate of {self.name} is valid only from {first:%Y-%m-%d %H:%M} UTC")


def pin_of(certificate: x509.Certificate) -> bytes:
    """SHA-256 of a certificate's SubjectPublicKeyInfo."""
    spki = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(spki).digest()


@dataclass(frozen=True)
class Authority:
    """The public side of a consortium authority: who may be believed about names and agreements."""

    name: str
    certificate: x509.Certificate
    agreement_key: Ed25519PublicKey

    @property
    def pem(self) -> bytes:
        """Its certificate, as the root of trust of a connection."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of certificate and agreement key: compare it over the telephone."""
        content = self.certificate.public_bytes(serialization.Encoding.DER) + self.agreement_key.public_bytes_raw()
        return hashlib.sha256(content).hexdigest()

    def write(self, path: Path) -> None:
        """Write ca.json, for everybody."""
        key = self.agreement_key.public_bytes_raw().hex()
        content = {"name": self.name, "certificate": self.pem.decode(), "agreement_key": key}
        write_json(path, "coterie authority", content)

    def check(self, certificate: x509.Certificate) -> None:
        """Refuse a certificate that this authority did not sign."""
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            raise InputError(f"the certificate was not signed by {self.name}") from None


def read_authority(path: Path) -> Authority:
    """Read a ca.json (or the one in a folder)."""
    path = path / "ca.json" if path.is_dir() else path
    content = read_json(path, "coterie authority")
    try:
        certificate = x509.load_pem_x509_certificate(content["certificate"].encode())
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(content["agreement_key"]))
        return Authority(str(content["name"]), certificate, key)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged: expected name, certificate and agreement_key") from None


def read_certificate(path: Path) -> Identity:
    """Read a party's certificate."""
    try:
        return Identity.of(x509.load_pem_x509_certificate(read_bytes(path)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError:
        raise InputError(f"{path} is not a PEM certificate") from None


# ---- a party ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartyKeys:
    """A party's folder, opened: everything it needs to speak, checked to belong together."""

    folder: Path
    identity: Identity
    authority: Authority
    frame_key: Ed25519PrivateKey = field(repr=False)
    tls_key_pem: bytes = field(repr=False)  # an error message that shows this object must not show a key

    @property
    def name(self) -> str:
        """The party's name, as certified."""
        return self.identity.name

    def keyed_hash(self, purpose: bytes, parts: Iterable[bytes]) -> bytes:
        """HMAC-SHA256 of the parts with a key that nobody else can know: it tells others nothing, not even a guess."""
        key = HKDF(hashes.SHA256(), 32, None, b"coterie " + purpose).derive(self.frame_key.private_bytes_raw())
        mac = hmac.new(key, digestmod="sha256")
        for part in parts:
            mac.update(len(part).to_bytes(8, "big") + part)
        return mac.digest()

    def reread(self) -> PartyKeys:
        """The folder as it is now: after a rotation, the new certificate."""
        return load_party(self.folder)

    @property
    def stamp(self) -> int:
        """Changes when the certificate file does."""
        return (self.folder / "certificate.pem").stat().st_mtime_ns


def default_folder(name: str) -> Path:
    """Where a party's keys lie unless it says otherwise."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "coterie" / "keys" / name


def init_party(name: str, folder: Path) -> None:
    """Make both keys of a party. An existing key is never overwritten."""
    party_name(name)
    make_folder(folder, "tls.key", "frame.key")
    write_bytes(folder / "tls.key", private_pem(ec.generate_private_key(ec.SECP256R1())), private=True)
    write_bytes(folder / "frame.key", private_pem(Ed25519PrivateKey.generate()), private=True)


def write_request(name: str, folder: Path, out: Path) -> None:
    """Write the request that travels to the authority: public keys, and proof that both private keys are here."""
    party_name(name)
    tls, frame = read_ecdsa(folder / "tls.key"), read_ed25519(folder / "frame.key")
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .add_extension(x509.UnrecognizedExtension(FRAME_KEY, frame.public_key().public_bytes_raw()), critical=False)
        .sign(tls, hashes.SHA256())
    )
    pem = csr.public_bytes(serialization.Encoding.PEM).decode()
    write_json(out, "coterie request", {"name": name, "csr": pem, "proof": frame.sign(_proof(csr)).hex()})


def install(name: str, folder: Path, certificate: Path, authority: Path) -> Identity:
    """Put a certificate from the authority into a party's folder, after checking that it belongs there.

    A running agent uses it from its next connection on.
    """
    found, trusted = read_certificate(certificate), read_authority(authority)
    if found.name != name:
        raise InputError(f"{certificate} is for {found.name}, not for {name}")
    _belongs(folder, found, trusted)
    found.check_dates()
    trusted.write(folder / "ca.json")
    found.write(folder / "certificate.pem")
    return found


def load_party(folder: Path, now: dt.datetime | None = None) -> PartyKeys:
    """Open a party's folder. Anything missing, readable by others, expired or mismatched is an error."""
    frame, tls_pem = read_ed25519(folder / "frame.key"), read_bytes(folder / "tls.key", private=True)
    identity, authority = read_certificate(folder / "certificate.pem"), read_authority(folder / "ca.json")
    _belongs(folder, identity, authority)
    identity.check_dates(now)
    return PartyKeys(folder, identity, authority, frame, tls_pem)


def _belongs(folder: Path, identity: Identity, authority: Authority) -> None:
    authority.check(identity.certificate)
    if identity.certificate.public_key() != read_ecdsa(folder / "tls.key").public_key():
        raise InputError(f"the certificate of {identity.name} is for another TLS key than {folder / 'tls.key'}")
    if identity.frame_key != read_ed25519(folder / "frame.key").public_key().public_bytes_raw():
        raise InputError(f"the certificate of {identity.name} is for another frame key than {folder / 'frame.key'}")


# ---- an authority ----------------------------------------------------------------------------------------------------


def init_authority(name: str, folder: Path, days: int = AUTHORITY_DAYS) -> Authority:
    """Make a consortium authority: a key for certificates, a key for agreements, and ca.json for everybody."""
    party_name(name)
    make_folder(folder, "ca.key", "agreement.key")
    key, agreement = ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate()
    subject, start = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), _about_now()
    certificate = (
        _builder(subject, subject, key.public_key(), start, start + dt.timedelta(days=_checked(days)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_bytes(folder / "ca.key", private_pem(key), private=True)
    write_bytes(folder / "agreement.key", private_pem(agreement), private=True)
    authority = Authority(name, certificate, agreement.public_key())
    authority.write(folder / "ca.json")
    return authority


def load_authority(folder: Path) -> tuple[Authority, Ed25519PrivateKey]:
    """The authority in a folder and the key with which it signs agreements."""
    authority, key = read_authority(folder), read_ed25519(folder / "agreement.key")
    if key.public_key() != authority.agreement_key:
        raise InputError(f"{folder / 'agreement.key'} is not the key named in ca.json")
    return authority, key


def sign_request(
    request: Path, folder: Path, days: int, *, start: dt.datetime | None = None, lifetime: dt.timedelta | None = None
) -> Identity:
    """Certify a request: both proofs of possession are checked, and only the name and keys in it are used."""
    content = read_json(request, "coterie request")
    try:
        csr = x509.load_pem_x509_csr(content["csr"].encode())
        frame = csr.extensions.get_extension_for_oid(FRAME_KEY).value.value  # type: ignore[attr-defined]
        subject = csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        Ed25519PublicKey.from_public_bytes(frame).verify(bytes.fromhex(content["proof"]), _proof(csr))
        proven = csr.is_signature_valid and len(csr.subject) == len(subject) == 1
        key = csr.public_key()
    except (KeyError, ValueError, TypeError, AttributeError, InvalidSignature, x509.ExtensionNotFound):
        proven = False
    if not proven or content.get("name") != subject[0].value:
        raise InputError(f"{request} does not prove that its sender holds both keys: refused")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(f"{request} holds another kind of key: expected ECDSA P-256")
    name = party_name(str(subject[0].value))
    authority, signer = read_authority(folder), read_ecdsa(folder / "ca.key")
    if signer.public_key() != authority.certificate.public_key():
        raise InputError(f"{folder / 'ca.key'} is not the key named in ca.json")
    start = start or _about_now()
    last, end = start + (lifetime or dt.timedelta(days=_checked(days))), authority.certificate.not_valid_after_utc
    if last > end:
        raise InputError(f"{days} days are too many: {authority.name} itself ends on {end:%Y-%m-%d %H:%M} UTC")
    certificate = (
        _builder(csr.subject, authority.certificate.subject, key, start, last)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), x509.DNSName(routes_of(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.UnrecognizedExtension(FRAME_KEY, frame), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Identity.of(certificate)


def _checked(days: int) -> int:
    if not 1 <= days <= AUTHORITY_DAYS:
        raise InputError(f"days must be from 1 to {AUTHORITY_DAYS}, got {days}")
    return days


def _about_now() -> dt.datetime:
    """A little earlier, since the clocks of parties differ."""
    return dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, first: dt.datetime, last: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(issuer).public_key(key).serial_number(x509.random_serial_number())
        .not_valid_before(first).not_valid_after(last)
    )  # fmt: skip


def _usage(digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature, False, False, False, False, key_cert_sign, key_cert_sign, False, False)


def _proof(csr: x509.CertificateSigningRequest) -> bytes:
    """What the frame key signs in a request: everything the TLS key signed."""
    return _PROOF + csr.tbs_certrequest_bytes
