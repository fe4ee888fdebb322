"""`coterie export`: a saved model as an ONNX file, and its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import LEARN, console

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()


@app.command()
def command(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="what `coterie run --out`, run.save or a party's agent wrote")
    ],
    onnx: Annotated[Path | None, typer.Option(help="write the model as this ONNX file")] = None,
    card: Annotated[Path | None, typer.Option(help="write what it is and what it cost, such as MODEL.md")] = None,
    home: Annotated[bool, typer.Option("--home", help="on the card, what it is worth too: not covered by ε")] = False,
) -> None:
    """Write a saved model for others: as ONNX, with bounds, bins and labels inside, and a card about it.

    Example: coterie export runs/a --onnx model.onnx --card MODEL.md
    """
    from coterie.api.leaving import card as words_of
    from coterie.api.leaving import open_model
    from coterie.api.onnx_file import write_onnx
    from coterie.errors import InputError
    from coterie.report.result import write_atomically

    if onnx is None and card is None:
        raise InputError("say what to write: --onnx FILE, --card FILE, or both")
    opened = open_model(model)
    if onnx is not None:
        console.print(f"wrote {write_onnx(opened, onnx)}", highlight=False, soft_wrap=True)
    if card is not None:
        words = words_of(opened, home=home)
        write_atomically(card, lambda p: p.write_text(words, "utf-8"))
        console.print(f"wrote {card}", highlight=False, soft_wrap=True)
