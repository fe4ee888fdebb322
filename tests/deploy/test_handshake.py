"""Why a caller was turned down before it could speak is in the log, as far as the bytes of TLS tell."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
import ssl
from pathlib import Path

import pytest

from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.handshake import PIECES, RECORDS, Handshake, _records
from coterie.deploy.keys import init_authority, init_party
from coterie.names import host_and_port
from tests.deploy.consortium import Consortium, Node, certify, make_consortium, running, until

OURS = "its certificate is missing, expired, or not from our authority"
REASONS = {
    "plain": "it does not speak TLS",
    "no certificate": OURS,
    "another authority": OURS,
    "expired": OURS,
    "old TLS": "TLS: ",
    "no certificate, TLS 1.2": OURS,
    "does not trust us": "the caller says: unknown authority",
    "does not trust us, and hangs up": "the caller hung up when it saw our certificate",
    "does not trust us, TLS 1.2": "the caller says: unknown authority",
}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    made = make_consortium(tmp_path_factory.mktemp("handshake"), names=("ada", "ben"))
    folder = made.folder
    init_authority("others", folder / "others")
    for name, options in {
        "stranger": {"ca": "others"},
        "late": {"start": dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "lifetime": dt.timedelta(days=1)},
    }.items():
        init_party(name, folder / name)
        certify(folder, name, checked=False, **options)
    return made


def context(folder: Path, how: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED if "trust" in how else ssl.CERT_NONE
    made.set_alpn_protocols(["h2"])
    if "1.2" in how:
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    if how in ("another authority", "expired"):
        mine = folder / {"another authority": "stranger", "expired": "late"}[how]
        made.load_cert_chain(mine / "certificate.pem", mine / "tls.key")
    return made


def shake(place: tuple[str, int], how: ssl.SSLContext) -> None:
    with socket.create_connection(place) as plain, how.wrap_socket(plain):
        pass


async def knock(group: Consortium, how: str) -> None:
    """Call ben in a way that he does not take."""
    host, port = host_and_port(group.agreement.party("ben").address or "")
    with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
        if how == "plain":
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        elif how == "old TLS":  # a hello of TLS 1.0, by hand: no library makes one any more
            reader, writer = await asyncio.open_connection(host, port)
            body = b"\3\1" + bytes(32) + b"\0" + b"\0\2\0\x2f" + b"\1\0"
            message = b"\1" + len(body).to_bytes(3, "big") + body
            writer.write(b"\x16\3\1" + len(message).to_bytes(2, "big") + message)
        elif "trust" in how and "hangs up" not in how:  # with an alert, which asyncio does not send
            await asyncio.to_thread(shake, (host, port), context(group.folder, how))
            return
        else:
            reader, writer = await asyncio.open_connection(host, port, ssl=context(group.folder, how))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1000), 3)
        writer.close()


@pytest.mark.parametrize("how", REASONS)
def test_the_reason_is_logged_and_counted(group: Consortium, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> dict[tuple[str, str], int]:
        ben = Node(group, "ben", GrpcTransport)
        async with running(ben):
            await knock(group, how)
            await until(lambda: ben.transport.refusals.counts)
        return dict(ben.transport.refusals.counts)

    with caplog.at_level(logging.WARNING, "coterie.deploy"):
        ((about, reason),) = asyncio.run(scenario())
    assert about == "stranger"
    assert REASONS[how] in reason
    assert f"refused a caller from 127.0.0.1: {reason}" in caplog.text


@pytest.mark.parametrize("by_caller", [True, False])
def test_an_alert_that_is_encrypted_is_known_by_its_place(by_caller: bool) -> None:
    """As by libraries that change keys first: nothing else has 19 bytes there."""
    heard = Handshake()
    heard.said(b"\x16\3\1\0\5hello", True)
    heard.said(b"\x16\3\3\0\5hello" + b"\x17\3\3\0\x05hides", False)
    heard.said(b"\x14\3\3\0\1\1" + b"\x17\3\3\0\x13" + bytes(19), True)
    assert "the caller hung up when it saw our certificate" in heard.failure(by_caller)


def test_strangers_do_not_make_it_dear() -> None:
    """However many small records they send, few are looked at."""
    heard = Handshake()
    for _ in range(100):
        heard.said(b"\x16\3\3\0\0" * 50_000, True)
    assert heard._heard == PIECES
    assert len(_records(b"\x16\3\3\0\0" * 50_000)) == RECORDS


def test_who_only_looks_at_the_certificate_is_not_called_refused(group: Consortium) -> None:
    """As every caller of ours does first: the twin, so that the reasons above mean something."""

    async def scenario() -> dict[tuple[str, str], int]:
        ben, ada = Node(group, "ben", GrpcTransport), Node(group, "ada", GrpcTransport)
        async with running(ben, ada):
            await until(lambda: ben.transport.alive["ada"])
            for here, there in ((ada, ben), (ben, ada)):  # both know how long the other's certificate is valid
                end = there.transport.keys.identity.certificate.not_valid_after_utc
                assert here.transport.peers[there.name].expires == end
        return dict(ben.transport.refusals.counts)

    assert asyncio.run(scenario()) == {}
