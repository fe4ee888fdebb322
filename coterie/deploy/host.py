"""One port for several agreements: a listener that hands each connection to the party that it is for.

Every agreement has an agent, a process of its own with its own keys, ledger and data. An agent that is started with
`--behind FOLDER` does not listen; it puts a socket there for its route (`coterie.names.route_name`: agreement and
party). The host listens, reads of every connection no more than its first TLS record, in which the caller says by name
whom it wants, and gives the connection itself away to that agent. From then on it is as if the agent had accepted it:
the host sees nothing more of it, holds no key and ends no TLS. So an agent that fails, or is started again, is nobody
else's concern; and a host that is started again ends no connection.

The folder is its owner's alone: whoever could write there could take connections, which without the keys are of no use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import socket
from array import array
from pathlib import Path

from coterie.deploy.files import private_folder
from coterie.deploy.hall import Hall, Visit, crowd_limit, listening_sockets, server_name
from coterie.errors import InputError

__all__ = ["Host", "handed_over", "has_host"]

PATIENCE = 10.0  # seconds in which a caller must say whom it wants
_ROUTE = re.compile(r"[0-9a-f]{32}\.[a-z0-9.-]+")
_AT_WORK = "host"  # a file on which a host holds a lock
_LONGEST = 107  # bytes of a Unix socket's path


def _place(folder: Path, route: str) -> str:
    """Where the agent of a route has its socket; a route itself may be longer than a socket's path."""
    path = str(folder.absolute() / hashlib.sha256(route.encode()).hexdigest()[:16])
    if len(os.fsencode(path)) > _LONGEST:
        raise InputError(f"{folder} is too long a path for sockets, which may have {_LONGEST} bytes: {path}")
    return path


def handed_over(folder: Path, route: str) -> socket.socket:
    """Where the host of this folder hands over a route's connections. What an earlier process left is replaced."""
    private_folder(folder)
    path = _place(folder, route)
    Path(path).unlink(missing_ok=True)
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(path)
    inbox.setblocking(False)
    return inbox


def has_host(folder: Path) -> bool:
    """Whether a host is at work for the agents behind this folder."""
    try:
        lock = os.open(folder / _AT_WORK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


class Host(Hall):
    """Listens at an address for all parties whose agents are behind a folder.

    Args:
        address: host:port, as in the agreements, or where it is bound.
        folder: where the agents are.
    """

    def __init__(self, address: str, folder: Path):
        private_folder(folder)
        _place(folder, "")  # long enough or not, before anybody calls
        places = crowd_limit(1)
        super().__init__(listening_sockets(address), places, places // 4, PATIENCE)
        self._folder = folder
        self._at_work = os.open(folder / _AT_WORK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._at_work, fcntl.LOCK_SH)  # shared: a folder may have a host at each of several addresses
        self._outbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._outbox.setblocking(False)

    def _run(self) -> None:
        super()._run()
        self._outbox.close()
        os.close(self._at_work)

    def _bring(self, visit: Visit) -> None:
        """Give the connection away, or end it: nobody of that name is here, or it has no room."""
        route = server_name(visit.early)
        if _ROUTE.fullmatch(route):
            right = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [visit.outer.fileno()]))
            with contextlib.suppress(OSError, InputError):
                self._outbox.sendmsg([visit.early], [right], 0, _place(self._folder, route))
                self._end(visit)  # here; it is open there
                return
        self._turn_away(visit, "nobody")
