"""What commands on a saved model share: the folder that it lies in, and the file that is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.commands import console

if TYPE_CHECKING:
    from coterie.api.joining import PartyModel
    from coterie.api.trained import Trained

__all__ = ["Folder", "open_saved", "write_words"]

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="what `coterie run --out`, run.save or a party's agent wrote")
]


def open_saved(folder: Path, **written: Path | None) -> Trained | PartyModel:
    """The model of a folder, once the files that flags of these names give can be written."""
    from coterie.api.leaving import open_model
    from coterie.report.files import check_file

    for flag, path in written.items():
        if path is not None:
            check_file(path, f"--{flag}")
    return open_model(folder)


def write_words(path: Path, words: str, what: str = "") -> None:
    """Write a text file whole or not at all, and say so: "wrote (what) (path)"."""
    from coterie.report.files import write_atomically

    write_atomically(path, lambda place: place.write_text(words, "utf-8"))
    console.print(f"wrote {what}{path}", highlight=False, soft_wrap=True)
