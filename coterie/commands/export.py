"""`coterie export`: a saved model as an ONNX file, and its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import LEARN, console
from coterie.commands._saved import Folder, open_saved, write_words

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()


@app.command()
def command(
    model: Folder,
    onnx: Annotated[Path | None, typer.Option(help="write the model as this ONNX file")] = None,
    card: Annotated[Path | None, typer.Option(help="write what it is and what it cost, such as MODEL.md")] = None,
    home: Annotated[bool, typer.Option("--home", help="on the card, what it is worth too: not covered by ε")] = False,
) -> None:
    """Write a saved model for others: as ONNX, with bounds, bins and labels inside, and a card about it.

    Example: coterie export runs/a --onnx model.onnx --card MODEL.md
    """
    from coterie.api.leaving import card as words_of
    from coterie.api.onnx_file import write_onnx
    from coterie.errors import InputError

    if onnx is None and card is None:
        raise InputError("say what to write: --onnx FILE, --card FILE, or both")
    opened = open_saved(model, onnx=onnx, card=card)
    if onnx is not None:
        console.print(f"wrote {write_onnx(opened, onnx)}", highlight=False, soft_wrap=True)
    if card is not None:
        write_words(card, words_of(opened, home=home))
