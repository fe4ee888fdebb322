"""Names and addresses of parties: what TLS, a folder or the network would take for something else is refused."""

from __future__ import annotations

import pytest

from coterie.errors import InputError
from coterie.names import host_and_port, party_name
from coterie.plan import validate


@pytest.mark.parametrize("name", ["a", "clinic-a", "7", "north.clinic", "a" * 63, "10-0-0-1", "x1.y2"])
def test_good_names(name: str) -> None:
    assert party_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "10.0.0.1", "1.2", "a..b", ".a", "a.", "-a", "a-", "a.-b", "ada\n", "a b", "Ada", "a/b", "..", "a" * 64, "ä",
     "a_b", "a\x00"],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    with pytest.raises(InputError, match="name"):
        party_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("harbour.example:7101", ("harbour.example", 7101)), ("10.0.0.1:1", ("10.0.0.1", 1)),
     ("[::1]:65535", ("::1", 65535)), ("db_1:80", ("db_1", 80))],
)  # fmt: skip
def test_good_addresses(text: str, expected: tuple[str, int]) -> None:
    assert host_and_port(text) == expected


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":80", "host:0", "host:99999", "host:65536", "host:-1", "host:٣", "a..b:80", "::1:80",
             "[::1]", "[x]:80", "a b:80", "host:80\n", "host:8o", "http://host:80", "h" * 254 + ":80"]
)  # fmt: skip
def test_bad_addresses(text: str) -> None:
    with pytest.raises(InputError, match="host:port with a port from 1 to 65535"):
        host_and_port(text)


@pytest.mark.parametrize(
    ("party", "reason"),
    [({"name": "10.0.0.1"}, "deploy.parties.0.name"), ({"name": "a", "address": "h:99999"}, "1 to 65535")],
)
def test_a_plan_refuses_them(party: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        validate({"deploy": {"parties": [party, {"name": "b"}]}})
