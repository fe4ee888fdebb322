"""The wire: one gRPC stream per edge of the graph, over mutual TLS. There is no other mode.

**Who is let in.** A party that listens accepts a connection only if TLS has verified a certificate of the consortium's
authority, within its dates, *and* its key is the one pinned in the agreement, *and* its name is that party's, *and*
that party is a neighbour whose part it is to call. All this before a byte of the stream is read; then come the opening
and the hello (`hello`), before any frame is parsed. How many may knock at a time is the door's part (`door`).

**Whom is called.** gRPC does not show a client the certificate of its server, so the caller first makes a bare TLS
connection, verifies the certificate (authority, dates, name, pin), and then gives that one certificate to gRPC as the
only one to trust. Whoever answers the call holds the pinned key.

**How long.** An open connection outlives its certificate, so both ends renew every connection after `Timing.age`, and
the listener has gRPC end those that do not. Certificates are read again when their file changes: a rotation needs no
restart. A party without an address opens no listening socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log repeats what we log, without saying of whom
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
from cryptography import x509

from coterie.deploy.agreement import Agreement
from coterie.deploy.calls import Calls, P, log
from coterie.deploy.courier import Courier
from coterie.deploy.door import Door, listening_sockets
from coterie.deploy.frames import BadFrame
from coterie.deploy.host import handed_over
from coterie.deploy.keys import Identity
from coterie.deploy.parcels import Relay
from coterie.deploy.peers import Correspondent
from coterie.deploy.post import PostOffice
from coterie.deploy.transport import Link
from coterie.errors import InputError
from coterie.names import host_and_port, route_name

__all__ = ["METHOD", "GrpcPost", "GrpcTransport", "GrpcWire", "admit", "asked_for"]

SERVICE, NAME = "coterie.Edge", "Talk"
METHOD = f"/{SERVICE}/{NAME}"
STRANGERS = 256  # certificates of strangers that are remembered
GRACE = 2.0  # seconds that gRPC gives an over-aged connection to end by itself
Options = Sequence[tuple[str, object]]


class _Stream:
    """A gRPC stream as a link; both kinds of end have the same two calls."""

    def __init__(self, end: grpc.aio.StreamStreamCall | grpc.aio.ServicerContext) -> None:
        self._end = end

    async def read(self) -> bytes | None:
        try:
            data = await self._end.read()
        except grpc.RpcError as error:
            raise EOFError(_reason(error)) from None
        return None if data is grpc.aio.EOF else data

    async def write(self, data: bytes) -> None:
        try:
            await self._end.write(data)
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.InternalError) as error:
            raise EOFError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error)


def admit(calls: Calls[P], context: dict[str, Sequence[bytes]]) -> P:
    """The neighbour that an authenticated connection belongs to; BadFrame with the reason if it is none.

    Args:
        calls: who is called.
        context: gRPC's `auth_context()`: what TLS has verified of the caller.
    """
    pem = context.get("x509_pem_cert")
    if not pem or context.get("transport_security_type") != [b"ssl"]:
        raise BadFrame("no certificate")
    try:
        identity = Identity.of(x509.load_pem_x509_certificate(bytes(pem[0])))
        identity.check_dates()  # a resumed TLS session is not verified again
    except ValueError as error:
        raise BadFrame(str(error)) from None
    party = calls.agreement.identify(identity.pin)
    if party is None:
        raise BadFrame(f"the key of the certificate of {identity.name!r} is not in the agreement")
    if party.name != identity.name:
        raise BadFrame(f"the certificate names {identity.name!r}, its key belongs to {party.name!r}")
    peer = calls.peers.get(party.name)
    if peer is None or not calls.agreement.dials(party.name, calls.me):
        raise BadFrame(f"{party.name} has no call to make here")
    peer.expires = identity.certificate.not_valid_after_utc
    return peer


def asked_for(identity: Identity, agreement: Agreement) -> str:
    """The name under which gRPC asks for a party, and which its certificate must have: the route, if it can."""
    return route_name(agreement.plan_hash, identity.name) if identity.routed else identity.name


class GrpcWire(Calls[P]):
    """The wire of a deployment. Arguments as the conversation that is carried, and

    Args:
        listen: host:port to bind, where it differs from the address that others call (behind a router).
        behind: folder of a host (`coterie.deploy.host`) that listens for this party and others.

    Files are read again from the party's folder while this runs; one that is missing or wrong by then ends new
    connections, not old ones, and is logged.
    """

    def __init__(self, *arguments: Any, listen: str | None = None, behind: Path | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._behind = behind
        self._address = listen or self.agreement.party(self.me).address
        self._server: grpc.aio.Server | None = None
        self._door: Door | None = None
        self._strangers: dict[bytes, tuple[int, float]] = {}  # certificate → refusals, and until when it must wait
        self._stamp, self._served = self.keys.stamp, b""  # of the file that was read last; what callers are shown
        self._options: list[tuple[str, object]] = [
            ("grpc.max_receive_message_length", self.longest),
            ("grpc.max_send_message_length", self.longest),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a few bytes could stand for gigabytes …
            ("grpc.per_message_decompression", 0),  # … and older versions count only after unpacking
            ("grpc.http2.max_frame_size", 2**20),  # 15 % less work on a frame of 4 MB
            ("grpc.keepalive_time_ms", _ms(self.timing.keepalive)),
            ("grpc.keepalive_timeout_ms", _ms(self.timing.keepalive)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]

    async def start(self) -> None:
        """Listen, if anybody is to call this party, and dial the others."""
        callers = [name for name in self.peers if self.agreement.dials(name, self.me)]
        if callers:
            await self._listen(len(callers))
        await super().start()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        await super().close()
        if self._door is not None:
            self._door.close()
        if self._server is not None:
            await self._server.stop(0)

    # ---- being called ----

    async def _listen(self, callers: int) -> None:
        """Open the door, and gRPC behind it at a Unix socket that nobody else can reach."""
        assert self._address is not None
        if self._behind is None:
            sockets = listening_sockets(self._address)
        else:
            sockets = [handed_over(self._behind, route_name(self.agreement.plan_hash, self.me))]
        options = [
            *self._options,
            ("grpc.max_connection_age_ms", _ms(self.timing.age)),
            ("grpc.max_connection_age_grace_ms", _ms(GRACE)),
            ("grpc.server_handshake_timeout_ms", _ms(self.timing.hello)),
            ("grpc.max_concurrent_streams", 2),
            ("grpc.http2.min_ping_interval_without_data_ms", _ms(self.timing.keepalive / 2)),
        ]
        self._server = grpc.aio.server(options=options)
        handler = grpc.stream_stream_rpc_method_handler(self._called)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {NAME: handler}),))
        credentials = grpc.dynamic_ssl_server_credentials(
            self._server_certificate(), self._fresh_server_certificate, require_client_authentication=True
        )
        try:
            with tempfile.TemporaryDirectory(prefix="coterie-") as folder:  # ours alone, and gone when the door is open
                self._server.add_secure_port(f"unix:{folder}/door", credentials)
                await self._server.start()
                refused = partial(self.refusals.add, "stranger")
                self._door = Door(sockets, f"{folder}/door", callers, self.timing.hello, refused)
        except BaseException as error:
            for one in sockets:
                one.close()
            if isinstance(error, RuntimeError | OSError):
                raise InputError(f"cannot listen at {self._address}: {error}") from None
            raise
        self._door.start()

    def _server_certificate(self) -> grpc.ServerCertificateConfiguration:
        self._served = self.keys.identity.pem
        pair = (self.keys.tls_key_pem, self._served)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=self.keys.authority.pem)

    def _fresh_server_certificate(self) -> grpc.ServerCertificateConfiguration | None:
        """gRPC asks before every handshake, in a thread of its own; our own call may have read the new one."""
        self._refresh()
        return None if self._served == self.keys.identity.pem else self._server_certificate()

    def _refresh(self) -> None:
        """Read the folder again if the certificate has changed."""
        try:
            stamp = self.keys.stamp
            if stamp == self._stamp:
                return
            fresh = self.keys.reread()
            self.agreement.check_keys(fresh.identity)
        except (InputError, OSError) as error:
            log.error("%s: the new certificate is not used: %s", self.me, error)
            return
        self.keys, self._stamp = fresh, stamp
        log.info("%s: new certificate, valid until %s", self.me, fresh.identity.certificate.not_valid_after_utc)

    async def _called(self, requests: object, context: grpc.aio.ServicerContext) -> None:
        """Serve one stream, and then end its connection."""
        assert self._door is not None
        try:
            await self._serve(context, self._door)
        finally:
            self._door.part(context.peer())

    async def _serve(self, context: grpc.aio.ServicerContext, door: Door) -> None:
        """Admission first, then the conversation."""
        shown = context.auth_context()
        who = b"".join(shown.get("x509_pem_cert", []))
        if time.monotonic() < self._strangers.get(who, (0, 0.0))[1]:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
        try:
            peer = admit(self, shown)
        except BadFrame as error:
            self._keep_away(who)
            log.warning("%s: refused a caller from %s: %s", self.me, door.origin(context.peer()), error)
            self.refused["stranger"] += 1
            self.refusals.add("stranger", str(error))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "refused")
            return
        door.know(context.peer(), peer.name)
        if time.monotonic() < peer.blocked_until:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
        try:
            await self.converse(_Stream(context), peer)
        except BadFrame:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
        except (OSError, EOFError, TimeoutError) as error:
            self._lost(peer, error)

    def _keep_away(self, who: bytes) -> None:
        """Let a certified stranger wait, twice as long each time: the authority knows few, so they can be counted."""
        shortest, longest = self.timing.retry
        times = self._strangers.get(who, (0, 0.0))[0]
        self._strangers[who] = min(times + 1, 30), time.monotonic() + min(shortest * 2**times, longest)
        while len(self._strangers) > STRANGERS:
            self._strangers.pop(next(iter(self._strangers)))

    # ---- calling ----

    def connect(self, peer: P) -> AbstractAsyncContextManager[Link]:
        """A new stream to a neighbour, whose key was checked."""
        return self._call(peer)

    @asynccontextmanager
    async def _call(self, peer: P) -> AsyncIterator[Link]:
        self._refresh()
        try:
            self.keys.identity.check_dates()
        except InputError as error:
            raise ConnectionError(str(error)) from None
        address = self.agreement.party(peer.name).address
        assert address is not None
        identity, target = await self._verified(peer, address)
        credentials = grpc.ssl_channel_credentials(identity.pem, self.keys.tls_key_pem, self.keys.identity.pem)
        options: Options = [
            *self._options,
            ("grpc.ssl_target_name_override", asked_for(identity, self.agreement)),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own, with the certificate of today
            ("grpc.enable_http_proxy", 0),
        ]
        async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
            call = channel.stream_stream(METHOD)()
            try:
                yield _Stream(call)
            finally:
                call.cancel()

    async def _verified(self, peer: P, address: str) -> tuple[Identity, str]:
        """Whom a neighbour's certificate names, after checking authority, dates, name and pin; and where it answered.

        Of a name with several addresses, IPv6 or IPv4, the first that answers is taken; each has its part of the time.
        """
        host, port = host_and_port(address)
        context = ssl.create_default_context(cadata=self.keys.authority.pem.decode())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.keys.folder / "certificate.pem", self.keys.folder / "tls.key")
        context.set_alpn_protocols(["h2"])
        context.check_hostname = False  # it asks for a route; the name is checked with the pin
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        places = [_literal(place) for *_, place in found]
        for left, place in zip(range(len(places), 0, -1), places, strict=True):
            try:
                async with asyncio.timeout(self.timing.hello / len(places)):
                    der = await self._shown(peer, place, port, context)
            except (OSError, TimeoutError):
                if left == 1:
                    raise
                continue
            break
        try:
            identity = Identity.of(x509.load_der_x509_certificate(der))
            if identity.name != peer.name:
                raise InputError(f"{identity.name} answers, not {peer.name}")
            self.agreement.check_keys(identity)
        except InputError as error:
            raise ConnectionError(f"{address}: {error}") from None
        peer.expires = identity.certificate.not_valid_after_utc
        return identity, f"ipv6:[{place}]:{port}" if ":" in place else f"ipv4:{place}:{port}"

    async def _shown(self, peer: P, place: str, port: int, context: ssl.SSLContext) -> bytes:
        """The certificate that is shown at an address, verified by TLS."""
        route = route_name(self.agreement.plan_hash, peer.name)
        _, writer = await asyncio.open_connection(place, port, ssl=context, server_hostname=route)
        try:
            return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)  # type: ignore[no-any-return]
        finally:
            writer.transport.abort()


class GrpcTransport(GrpcWire[Correspondent], Courier):
    """Rounds of frames over gRPC. Arguments as `Courier` and `GrpcWire`."""


class GrpcPost(GrpcWire[Relay], PostOffice):
    """Packets over gRPC. Arguments as `PostOffice` and `GrpcWire`."""


def _literal(place: tuple) -> str:
    """An address in digits; one that holds on a single link, with that link."""
    return f"{place[0]}%{place[3]}" if len(place) == 4 and place[3] and "%" not in place[0] else str(place[0])


def _ms(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
