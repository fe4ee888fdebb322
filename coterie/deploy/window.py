"""The owner's window on a running party: Prometheus text and a small live page, read only, on a loopback port.

    /             the page (one file, no other resource)
    /status.json  what it polls
    /metrics      for Prometheus

Off unless asked for. Anybody who can reach the port can read it, so it binds 127.0.0.1 and ::1 unless told otherwise,
and shows nothing that comes from a record. A page of somebody else cannot read it through the owner's browser: a name
that was pointed at this machine (DNS rebinding) is not among the hosts that are answered, nothing is allowed across
origins, and nothing here changes anything.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import ipaddress
import json
import re
import socket
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from coterie.deploy.exposition import CONTENT_TYPE, exposition
from coterie.deploy.journal import log
from coterie.deploy.watch import Watch
from coterie.errors import InputError
from coterie.names import host_and_port

__all__ = ["Window", "WindowPlace"]

READERS = 8  # at a time: anybody on this machine may ask, and nobody may use up its descriptors
SLOWEST = 5.0  # seconds for a request
LOOPBACK = ("127.0.0.1", "::1")
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
HEADERS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class WindowPlace(NamedTuple):
    """Where the window is: addresses, and a port."""

    hosts: tuple[str, ...]
    port: int

    @classmethod
    def read(cls, text: str, anywhere: bool = False) -> WindowPlace:
        """PORT, for the loopback addresses, or ADDRESS:PORT; another address than those only if it is insisted on."""
        if re.fullmatch(r"[0-9]{1,5}", text) and 1 <= int(text) <= 65535:
            return cls(LOOPBACK, int(text))
        try:
            host, port = host_and_port(text)
            address = ipaddress.ip_address(host)
        except (InputError, ValueError):
            raise InputError(f"--metrics needs a port from 1 to 65535, or ADDRESS:PORT, got {text!r}") from None
        if not (address.is_loopback or anywhere):
            raise InputError(
                f"--metrics {text}: {host} is no loopback address, and whoever reaches it could read rounds, names, ε "
                "and log lines without a password; --metrics-anywhere, if you mean it"
            )
        return cls((host,), port)

    @property
    def is_open(self) -> bool:
        """Whether others than this machine may reach it."""
        return not all(ipaddress.ip_address(host).is_loopback for host in self.hosts)

    def answers(self, host: str) -> bool:
        """Whether a request's Host header may be answered: not a name that others could point here."""
        name, colon, port = host.rpartition(":")
        if not (colon and port == str(self.port)):
            name, port = host, "80"
        if int(port) != self.port:
            return False
        if name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return self.is_open and name.lower() in _own_names()
        return address.is_loopback or self.is_open


@cache
def _own_names() -> frozenset[str]:
    """What this machine calls itself, with and without its domain."""
    return frozenset(name.lower() for name in (socket.gethostname(), socket.getfqdn()))


class Window:
    """Serves the window while it is entered; nothing at all without a place.

    Args:
        place: where.
        watch: what there is to see.
    """

    def __init__(self, place: WindowPlace | None, watch: Watch):
        self.place, self.watch = place, watch
        self._servers: list[asyncio.Server] = []
        self._readers = asyncio.Semaphore(READERS)

    async def __aenter__(self) -> Window:
        if self.place is None:
            return self
        for host in self.place.hosts:
            try:
                self._servers.append(await asyncio.start_server(self._admit, host, self.place.port, limit=8192))
            except OSError as error:
                if host == "::1" and self._servers and error.errno != errno.EADDRINUSE:  # a machine without IPv6
                    continue
                self.close()
                raise InputError(f"--metrics {self.place.port}: {error.strerror}") from None
        first = self.place.hosts[0]
        log.info("shows itself at http://%s:%d/", f"[{first}]" if ":" in first else first, self.place.port)
        if self.place.is_open:
            log.warning("--metrics at %s: anybody who reaches this address can read it, without a password", first)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        for server in self._servers:
            server.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._readers.locked():
            writer.transport.abort()
            return
        async with self._readers:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(SLOWEST):
                    writer.write(self.answer(await reader.readuntil(b"\r\n\r\n")))
                    writer.close()
                    await writer.wait_closed()
            writer.transport.abort()  # whoever does not take the answer would keep it here, and its descriptor

    def answer(self, request: bytes) -> bytes:
        """The whole answer to a request's head."""
        first, *lines = request.decode("latin-1").split("\r\n")
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        parts = first.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or len(hosts) != 1:
            return _reply(400, "text/plain", "not a request\n")
        assert self.place is not None
        if not self.place.answers(hosts[0]):
            return _reply(403, "text/plain", "ask for this machine by its loopback address\n")
        if parts[0] != "GET":
            return _reply(405, "text/plain", "read only\n", Allow="GET")
        match parts[1].partition("?")[0]:
            case "/":
                page, policy = _page()
                return _reply(200, "text/html; charset=utf-8", page, **{"Content-Security-Policy": policy})
            case "/status.json":
                return _reply(200, "application/json", json.dumps(self.watch.everything()))
            case "/metrics":
                return _reply(200, CONTENT_TYPE, exposition(self.watch.everything(), self.watch.agent.pace))
        return _reply(404, "text/plain", "there are /, /status.json and /metrics\n")


def _reply(code: int, kind: str, body: str, **more: str) -> bytes:
    content = body.encode()
    policy = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
    headers = {"Content-Type": kind, "Content-Length": str(len(content))} | HEADERS | policy | more
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {code} {REASONS[code]}\r\n{head}\r\n".encode() + content


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy that allows its one script and its one style, by their hashes, and nothing else."""
    page = files("coterie.deploy").joinpath("window.html").read_text("utf-8")
    found = {tag: re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL) for tag in ("script", "style")}
    (script,), (style,) = found["script"], found["style"]
    return page, (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
