"""Why a TLS handshake failed, as far as somebody can tell who only carries its bytes.

The door hands ciphertext to gRPC, which says nothing of callers that it turns down. But the order of records is plain,
and so are the alerts that come before the keys are agreed on. Of what TLS 1.3 hides, the place tells: a server that
hangs up after its own hello has not accepted the caller's certificate; a caller that answers with an alert, or not at
all, has not accepted the server's.
"""

from __future__ import annotations

__all__ = ["Handshake"]

HANDSHAKE, ALERT, CHANGE, HIDDEN = 22, 21, 20, 23  # kinds of records
PIECES, RECORDS = 16, 16  # that are looked at, and in each
HIDDEN_ALERT = 19  # bytes of an encrypted alert: two, the kind, and the tag
ALERTS = {
    40: "handshake failure", 42: "bad certificate", 43: "unsupported certificate", 44: "certificate revoked",
    45: "certificate expired", 46: "certificate unknown", 47: "illegal parameter", 48: "unknown authority",
    49: "access denied", 50: "decode error", 51: "decrypt error", 70: "protocol version", 71: "insufficient security",
    80: "internal error", 86: "inappropriate fallback", 109: "missing extension", 112: "unrecognised name",
    116: "certificate required", 120: "no common application protocol",
}  # fmt: skip

WRONG = "expired, from another authority, or for another name"


class Handshake:
    """Overhears the first records of a connection, in both directions."""

    def __init__(self) -> None:
        self._first, self._heard = True, 0
        self._is_tls = True
        self._answered = False  # by the server's hello
        self._only_alert = False  # the caller's whole answer to it
        self._more = False  # the caller has said more
        self._alert = {True: "", False: ""}

    def said(self, data: bytes | memoryview, by_caller: bool) -> None:
        """The next bytes; of the first few pieces only, since strangers must not make this dear."""
        if self._heard >= PIECES:
            return
        self._heard += 1
        kinds = _records(data)
        if self._first:
            self._first, self._is_tls = False, data[0] == HANDSHAKE
            return
        for kind, size, body in kinds:
            if kind == ALERT and size == 2 and len(body) == 2:
                self._alert[by_caller] = ALERTS.get(body[1], f"alert {body[1]}")
            elif not by_caller and kind == HANDSHAKE:
                self._answered = True
        if by_caller and self._answered and not self._more:
            rest = [(kind, size) for kind, size, _ in kinds if kind != CHANGE]
            self._only_alert = rest == [(HIDDEN, HIDDEN_ALERT)]
            self._more = bool(rest)

    def failure(self, by_caller: bool) -> str:
        """What went wrong, given who has hung up; empty: nothing that would be known."""
        if not self._is_tls:
            return "it does not speak TLS"
        if alert := self._alert[True]:
            return f"TLS: the caller says: {alert}"
        if alert := self._alert[False]:
            return f"TLS: {alert}"
        if self._only_alert or (by_caller and self._answered and not self._more):
            return f"TLS: the caller hung up when it saw our certificate: it may be {WRONG}"
        if by_caller:
            return ""
        if self._answered:
            return "TLS: its certificate is missing, expired, or not from our authority"
        return "TLS: the handshake failed"


def _records(data: bytes | memoryview) -> list[tuple[int, int, bytes]]:
    """Kind, length and first bytes of the records that begin in these bytes; the last may be cut short."""
    found: list[tuple[int, int, bytes]] = []
    at = 0
    while (
        len(found) < RECORDS
        and at + 5 <= len(data)
        and data[at] in (CHANGE, ALERT, HANDSHAKE, HIDDEN)
        and data[at + 1] == 3
    ):
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        found.append((data[at], size, bytes(data[at + 5 : at + 7])))
        at += 5 + size
    return found
