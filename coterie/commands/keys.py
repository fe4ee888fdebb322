"""`coterie keys`: who is who. Keys are made at the site; only a request and a certificate travel."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from coterie.commands import DEPLOY
from coterie.errors import InputError
from coterie.names import party_name

__all__ = ["CERTIFICATES", "PANEL", "app"]

PANEL = DEPLOY
app = typer.Typer(help="Keys and certificates of the parties of a deployment.", no_args_is_help=True)
console = Console(soft_wrap=True)
CERTIFICATES = "certificates"  # in the authority's folder: all that it has signed, the latest of each party
Name = Annotated[str, typer.Argument(metavar="NAME", help="the party's name, as in the plan")]
Folder = Annotated[Path | None, typer.Option("--dir", help="folder of the keys; default ~/.config/coterie/keys/NAME")]


@app.command()
def init(
    name: Name,
    ca: Annotated[bool, typer.Option("--ca", help="make a consortium authority instead of a party")] = False,
    folder: Folder = None,
) -> None:
    """Make the keys of a party, or of a consortium's authority. Nothing is ever overwritten.

    Example: coterie keys init clinic-a
    """
    keys, where = _keys(), _folder(name, folder)
    if ca:
        authority = keys.init_authority(name, where)
        console.print(f"authority {name} in {where}; give {where / 'ca.json'} to every party", highlight=False)
        console.print(f"fingerprint {authority.fingerprint}", highlight=False)
    else:
        keys.init_party(name, where)
        console.print(f"keys of {name} in {where}; next: coterie keys request {name}", highlight=False)


@app.command()
def request(
    name: Name,
    folder: Folder = None,
    out: Annotated[Path | None, typer.Option(help="the request; default NAME.request.json")] = None,
) -> None:
    """Write a certificate request: all that travels to the authority. Again, for a new certificate of the same keys.

    Example: coterie keys request clinic-a
    """
    out = out or Path(f"{name}.request.json")
    _keys().write_request(name, _folder(name, folder), out)
    console.print(f"wrote {out}; send it to the authority", highlight=False)


@app.command()
def sign(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="NAME.request.json of a party")],
    ca: Annotated[Path, typer.Option(help="the authority's folder")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="how long the certificate is valid")] = 90,
    out: Annotated[Path | None, typer.Option(help="the certificate; default NAME.pem")] = None,
) -> None:
    """Certify a request, at the authority, which keeps a copy. Check by telephone that it came from whom it names.

    Example: coterie keys sign clinic-a.request.json --ca authority --days 90
    """
    identity = _keys().sign_request(request, ca, days)
    out = out or Path(f"{identity.name}.pem")
    identity.write(out)
    kept = ca / CERTIFICATES  # for `plan sign`
    kept.mkdir(exist_ok=True)
    identity.write(kept / f"{identity.name}.pem")
    console.print(f"wrote {out}; send it to {identity.name}", highlight=False)
    console.print(f"pin {identity.pin.hex()}", highlight=False)


@app.command()
def install(
    name: Name,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="NAME.pem from the authority")],
    ca: Annotated[Path, typer.Option(help="the authority's ca.json")],
    folder: Folder = None,
) -> None:
    """Put a certificate into the party's folder. A running agent uses it from its next connection on.

    Example: coterie keys install clinic-a clinic-a.pem --ca ca.json
    """
    identity = _keys().install(name, _folder(name, folder), certificate, ca)
    console.print(f"{name} is certified until {identity.certificate.not_valid_after_utc:%Y-%m-%d}", highlight=False)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="a party's name")] = None, folder: Folder = None
) -> None:
    """Show what a folder of keys says to others: names, fingerprints, dates. Never a private key."""
    if name is None and folder is None:
        raise InputError("give a NAME or --dir")
    keys, where = _keys(), _folder(name or "", folder)
    rows: dict[str, str]
    if (where / "ca.key").exists():
        authority, _ = keys.load_authority(where)
        last = authority.certificate.not_valid_after_utc
        rows = {"authority": authority.name, "fingerprint": authority.fingerprint, "valid until": f"{last:%Y-%m-%d}"}
    else:
        party = keys.load_party(where)
        last = party.identity.certificate.not_valid_after_utc
        rows = {
            "party": party.name,
            "pin": party.identity.pin.hex(),
            "frame key": party.identity.frame_key.hex(),
            "valid until": f"{last:%Y-%m-%d %H:%M} UTC",
            "authority": party.authority.name,
            "fingerprint": party.authority.fingerprint,
        }
    table = Table(box=None, show_header=False)
    for key, value in rows.items():
        table.add_row(key, value)
    console.print(table)


def _keys() -> ModuleType:
    from coterie.deploy import keys

    return keys


def _folder(name: str, folder: Path | None) -> Path:
    return folder if folder is not None else _keys().default_folder(party_name(name))
