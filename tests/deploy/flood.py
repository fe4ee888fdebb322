"""Open many connections to one address and hold them; as a process, since they would use up a test's own descriptors.

    python -m tests.deploy.flood HOST PORT COUNT silent|hello|drip SOURCE

Prints "ready" once all were opened, and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator


def client_hello() -> bytes:
    """What TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def flood(host: str, port: int, count: int, kind: str, source: str) -> None:
    """Connect, say what this kind says, and stay until standard input ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    words, held = {"silent": b"", "hello": client_hello(), "drip": b"\x16\x03"}[kind], []
    for _ in range(count):
        with contextlib.suppress(OSError):
            one = socket.create_connection((host, port), 5, source_address=(source, 0) if source else None)
            held.append(one)
            one.sendall(words)
    print("ready", flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.select()


@contextlib.contextmanager
def flooding(address: str, count: int, kind: str = "silent", source: str = "") -> Iterator[None]:
    """All of them are there."""
    host, _, port = address.rpartition(":")
    command = [sys.executable, "-m", "tests.deploy.flood", host, port, str(count), kind, source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    flood(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
