"""Whether a neighbour can be reached and would let this party in, found out without saying anything to it.

A bare TLS connection shows its certificate and whether it takes ours. Where it is our part to call, a stream is opened:
the neighbour speaks first, and its opening says which agreement it holds. Then the line is dropped; no greeting of ours
goes out, since a greeting says what this party has received, and others believe it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
from typing import Literal, NamedTuple

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from cryptography import x509

from coterie.deploy import hello
from coterie.deploy.agreement import Agreement
from coterie.deploy.frames import BadFrame
from coterie.deploy.grpc_transport import METHOD, asked_for
from coterie.deploy.keys import Identity, PartyKeys
from coterie.errors import InputError
from coterie.names import host_and_port, route_name

__all__ = ["SOON", "ReachFinding", "certificate_findings", "reach"]

SOON = 14.0  # days before its end in which a certificate is worth a warning
WAIT = 10.0  # seconds for each step

Level = Literal["ok", "warning", "problem"]


class ReachFinding(NamedTuple):
    """One thing that was looked at."""

    level: Level
    about: str
    text: str


class _Stop(Exception):
    """Nothing more can be found out; carries the last finding."""


async def reach(keys: PartyKeys, agreement: Agreement, name: str) -> list[ReachFinding]:
    """What stands between this party and a neighbour."""
    about, address = f"neighbour {name}", agreement.party(name).address
    if address is None:
        return [ReachFinding("ok", about, "calls us and opens no port")]
    found: list[ReachFinding] = []
    try:
        await _resolve(address)
        if not any(agreement.dials(other, name) for other in agreement.neighbours(name)):
            return [ReachFinding("ok", about, f"calls us; nobody is to call {address}")]
        identity = await _shake(keys, route_name(agreement.plan_hash, name), address)
        found += [ReachFinding(f.level, about, f.text) for f in certificate_findings(identity, keys, agreement)]
        if any(f.level == "problem" for f in found):
            return found
        if agreement.dials(keys.name, name):
            await _listen(keys, agreement, identity, address)
            found.append(ReachFinding("ok", about, f"{address} holds the same agreement and lets us in"))
        else:
            found.append(ReachFinding("ok", about, f"{address} is up and takes our certificate; it is to call us"))
    except _Stop as stop:
        level, text = stop.args
        found.append(ReachFinding(level, about, text))
    return found


def certificate_findings(identity: Identity, keys: PartyKeys, agreement: Agreement | None) -> list[ReachFinding]:
    """What is wrong, or soon will be, with a party's certificate."""
    found, who = [], f"certificate of {identity.name}"
    for check in (
        lambda: keys.authority.check(identity.certificate),
        lambda: identity.check_dates(),
        lambda: None if agreement is None else agreement.check_keys(identity),
    ):
        try:
            check()
        except InputError as error:
            found.append(ReachFinding("problem", who, str(error)))
    now = dt.datetime.now(dt.UTC)
    if now < identity.certificate.not_valid_before_utc:
        behind = f"our clock says {now:%Y-%m-%d %H:%M} UTC: is it behind?"
        found.append(ReachFinding("problem", "clock", f"the {who} is not valid yet, and {behind}"))
    if found:
        return found
    end = identity.certificate.not_valid_after_utc
    days = (end - now).total_seconds() / 86400
    text = f"valid until {end:%Y-%m-%d %H:%M} UTC, {days:.1f} days"
    if days < SOON:
        return [ReachFinding("warning", who, f"the {who} is about to expire: {text}")]
    return [ReachFinding("ok", who, text)]


async def _resolve(address: str) -> None:
    host, port = host_and_port(address)
    try:
        await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _Stop("problem", f"the name {host} cannot be resolved: {error.strerror or error}") from None


async def _shake(keys: PartyKeys, route: str, address: str) -> Identity:
    """Its certificate, whatever it is worth, and whether it takes ours."""
    host, port = host_and_port(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is judged by `certificate_findings`
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(keys.folder / "certificate.pem", keys.folder / "tls.key")
    context.set_alpn_protocols(["h2"])
    writer = None
    try:
        async with asyncio.timeout(WAIT):
            reader, writer = await asyncio.open_connection(host, port)
            await writer.start_tls(context, server_hostname=route)
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            greeted = await reader.read(9)  # gRPC's settings: they come once our certificate is accepted
    except ConnectionRefusedError:
        raise _Stop("warning", f"not up yet: nothing listens at {address}; an agent waits for it") from None
    except ConnectionResetError:
        what = "hangs up at once, as a host does without the agent, or a firewall that forbids TLS"
        raise _Stop("warning", f"not up yet: {address} {what}; an agent waits for it") from None
    except TimeoutError:
        what = (
            "takes the call and says nothing: it is no agent"
            if writer
            else "does not answer: off, or a firewall drops it"
        )
        raise _Stop("problem", f"{address} {what} ({WAIT:g} s)") from None
    except ssl.SSLError as error:
        words = (error.reason or str(error)).replace("_", " ").lower()
        what = "refuses our certificate" if "alert" in words else "does not speak TLS as an agent does"
        raise _Stop("problem", f"{address} {what}: {words}") from None
    except OSError as error:
        raise _Stop("problem", f"{address} cannot be reached: {error.strerror or error}") from None
    finally:
        if writer is not None:
            writer.transport.abort()
    if not greeted:
        raise _Stop("problem", f"{address} hung up on us: it may not accept our certificate")
    try:
        return Identity.of(x509.load_der_x509_certificate(der))
    except ValueError as error:
        raise _Stop("problem", f"{address}: {error}") from None


async def _listen(keys: PartyKeys, agreement: Agreement, identity: Identity, address: str) -> None:
    """Hear the neighbour's opening: which agreement it holds."""
    credentials = grpc.ssl_channel_credentials(identity.pem, keys.tls_key_pem, keys.identity.pem)
    options = [
        ("grpc.ssl_target_name_override", asked_for(identity, agreement)),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        call = channel.stream_stream(METHOD)()
        try:
            async with asyncio.timeout(WAIT):
                opening = await call.read()
            if opening is grpc.aio.EOF:
                raise _Stop("problem", f"{address} hung up before it said anything")
            hello.check_opening(opening, agreement.plan_hash, agreement.index(identity.name))
        except TimeoutError:
            raise _Stop("problem", f"{address} takes our call and says nothing ({WAIT:g} s)") from None
        except grpc.RpcError as error:
            words = {
                grpc.StatusCode.PERMISSION_DENIED: "refuses us: in its agreement it is not our part to call it",
                grpc.StatusCode.RESOURCE_EXHAUSTED: "asks us to call later, after a refusal",
            }
            code = error.code()  # type: ignore[attr-defined]
            raise _Stop("problem", f"{address} {words.get(code, f'ends our call: {error.details()}')}") from None  # type: ignore[attr-defined]
        except BadFrame as error:
            raise _Stop("problem", f"{address} {error}") from None
        finally:
            call.cancel()
