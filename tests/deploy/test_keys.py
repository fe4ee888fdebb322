"""Keys and certificates: nothing private travels or is readable, and whatever does not belong together is refused."""

from __future__ import annotations

import datetime as dt
import json
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from coterie.cli import main
from coterie.deploy.keys import (
    init_authority,
    init_party,
    install,
    load_authority,
    load_party,
    read_authority,
    read_certificate,
    sign_request,
    write_request,
)
from coterie.errors import InputError
from tests.deploy.consortium import certify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init_authority("trial-ca", tmp_path / "ca")
    init_party("ada", tmp_path / "ada")
    certify(tmp_path, "ada")
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_private(folder: Path) -> None:
    for path in ("ca/ca.key", "ca/agreement.key", "ada/tls.key", "ada/frame.key"):
        assert mode(folder / path) == 0o600
        assert (folder / path).read_bytes().startswith(b"-----BEGIN PRIVATE KEY")
    for path in ("ca/ca.json", "ada/ca.json", "ada/certificate.pem"):
        assert mode(folder / path) == 0o644
    assert mode(folder / "ada") == 0o700
    assert not list(folder.rglob(".*"))  # no temporary file is left


def test_what_travels_holds_no_private_key(folder: Path) -> None:
    secrets = [
        "".join((folder / p).read_text().splitlines()[1:-1])
        for p in ("ca/ca.key", "ca/agreement.key", "ada/tls.key", "ada/frame.key")
    ]
    for travelling in ("ada.request.json", "ada.pem", "ca/ca.json"):
        text = (folder / travelling).read_text().replace("\\n", "").replace("\n", "")
        assert "PRIVATE" not in text
        assert not any(secret in text or secret[24:60] in text for secret in secrets)
    assert "PRIVATE" not in repr(load_party(folder / "ada"))


def test_certificate_says_what_it_should(folder: Path) -> None:
    party = load_party(folder / "ada")
    certificate = party.identity.certificate
    assert party.name == "ada"
    assert party.identity.frame_key == party.frame_key.public_key().public_bytes_raw()
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert not basic.value.ca
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == dt.timedelta(days=30)
    authority = read_authority(folder / "ca")
    assert authority.fingerprint == party.authority.fingerprint
    assert load_authority(folder / "ca")[1].public_key() == authority.agreement_key


def test_rotation_keeps_the_pin(folder: Path) -> None:
    before = load_party(folder / "ada")
    certify(folder, "ada")
    after = before.reread()
    assert after.identity.pin == before.identity.pin
    assert after.identity.certificate.serial_number != before.identity.certificate.serial_number
    assert after.stamp != 0


def test_keys_are_never_overwritten(folder: Path) -> None:
    for make, name in ((init_party, "ada"), (init_authority, "ca")):
        content = {p: p.read_bytes() for p in (folder / name).iterdir()}
        with pytest.raises(InputError, match="never overwritten"):
            make(name, folder / name)
        assert {p: p.read_bytes() for p in (folder / name).iterdir()} == content


@pytest.mark.parametrize("file", ["tls.key", "frame.key", "certificate.pem", "ca.json"])
def test_a_missing_file_is_fatal(folder: Path, file: str) -> None:
    (folder / "ada" / file).unlink()
    with pytest.raises(InputError, match=f"cannot read .*{file}"):
        load_party(folder / "ada")


@pytest.mark.parametrize("file", ["tls.key", "frame.key"])
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_fatal(folder: Path, file: str, bits: int) -> None:
    (folder / "ada" / file).chmod(bits)
    with pytest.raises(InputError, match="read by others"):
        load_party(folder / "ada")


@pytest.mark.parametrize("file", ["tls.key", "frame.key", "certificate.pem", "ca.json"])
def test_damage_is_one_line(folder: Path, file: str) -> None:
    path = folder / "ada" / file
    path.write_bytes(b"{}" + path.read_bytes()[:-40])
    with pytest.raises(InputError, match=file):
        load_party(folder / "ada")


def test_dates(folder: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    load_party(folder / "ada", now + dt.timedelta(days=29))
    with pytest.raises(InputError, match="certificate of ada expired on"):
        load_party(folder / "ada", now + dt.timedelta(days=31))
    with pytest.raises(InputError, match="valid only from"):
        load_party(folder / "ada", now - dt.timedelta(days=1))
    certify(folder, "ada", checked=False, start=now - dt.timedelta(days=2), lifetime=dt.timedelta(days=1))
    with pytest.raises(InputError, match="expired"):
        load_party(folder / "ada")


def test_what_does_not_belong_together_is_refused(folder: Path) -> None:
    init_party("ben", folder / "ben")
    certify(folder, "ben")
    with pytest.raises(InputError, match="another TLS key"):
        install("ben", folder / "ada", folder / "ben.pem", folder / "ca" / "ca.json")
    init_authority("other-ca", folder / "other")
    with pytest.raises(InputError, match="not signed by other-ca"):
        install("ada", folder / "ada", folder / "ada.pem", folder / "other" / "ca.json")
    (folder / "ada" / "frame.key").write_bytes((folder / "ben" / "frame.key").read_bytes())
    with pytest.raises(InputError, match="another frame key"):
        load_party(folder / "ada")
    (folder / "other" / "agreement.key").write_bytes((folder / "ca" / "agreement.key").read_bytes())
    with pytest.raises(InputError, match="not the key named"):
        load_authority(folder / "other")


# ---- proof of possession ---------------------------------------------------------------------------------------------


def test_a_request_must_prove_both_keys(folder: Path) -> None:
    init_party("eve", folder / "eve")
    write_request("eve", folder / "eve", folder / "eve.request.json")
    mine, hers = (json.loads((folder / f"{n}.request.json").read_text()) for n in ("ada", "eve"))
    good = dict(hers)
    assert sign_request(folder / "eve.request.json", folder / "ca", 10).name == "eve"
    bad = [
        good | {"proof": mine["proof"]},  # the frame key of somebody else
        good | {"csr": mine["csr"]},  # the TLS key of somebody else
        good | {"name": "ada"},  # another name than the one that was signed
        good | {"proof": "00" * 64},
        good | {"proof": 7},
        {k: v for k, v in good.items() if k != "csr"},
        good | {"csr": flipped(hers["csr"])},
    ]
    for request in bad:
        (folder / "bad.json").write_text(json.dumps(request))
        with pytest.raises(InputError, match="does not prove"):
            sign_request(folder / "bad.json", folder / "ca", 10)


def flipped(pem: str) -> str:
    """A request whose name was changed after signing."""
    import base64

    der = base64.b64decode("".join(pem.splitlines()[1:-1])).replace(b"eve", b"ada")
    body = base64.b64encode(der).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n"


# ---- the command line ------------------------------------------------------------------------------------------------


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for arguments in (
        ["keys", "init", "trial-ca", "--ca", "--dir", "ca"],
        ["keys", "init", "ada"],
        ["keys", "request", "ada", "--out", "ada.request.json"],
        ["keys", "sign", "ada.request.json", "--ca", "ca", "--days", "90", "--out", "ada.pem"],
        ["keys", "install", "ada", "ada.pem", "--ca", "ca/ca.json"],
    ):
        assert main(arguments) == 0, arguments
    capsys.readouterr()
    party = load_party(tmp_path / "config" / "coterie" / "keys" / "ada")
    assert party.identity == read_certificate(tmp_path / "ada.pem")
    for where in (["ada"], ["--dir", "ca"]):
        assert main(["keys", "show", *where]) == 0
    out = capsys.readouterr().out
    assert party.identity.pin.hex() in out.replace("\n", "")
    assert party.authority.fingerprint in out.replace("\n", "")
    assert "PRIVATE" not in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["keys", "init", "Ada Lovelace"], "a name has lower-case"),
        (["keys", "init", "../ada"], "a name has lower-case"),
        (["keys", "request", "nobody"], "cannot read"),
        (["keys", "show", "nobody"], "cannot read"),
        (["keys", "show"], "NAME or --dir"),
        (["keys", "sign", "no.json", "--ca", "ca"], "cannot read no.json"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert len(error.strip().splitlines()) == 1
