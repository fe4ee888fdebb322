"""`coterie predict`: what a saved model says of the records in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import LEARN
from coterie.commands._saved import Folder, open_saved, write_words

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()


@app.command()
def command(
    model: Folder,
    data: Annotated[
        Path, typer.Argument(metavar="TABLE", help="CSV or Parquet with the columns that it was trained on")
    ],
    out: Annotated[Path | None, typer.Option(help="where to write; default: to the terminal")] = None,
    chances: Annotated[bool, typer.Option(help="the chance of every class too")] = False,
) -> None:
    """Predict the records of a table with a saved model: one line for each, as CSV.

    Example: coterie predict runs/a patients.csv --chances --out predicted.csv
    """
    import pandas as pd

    from coterie.api.leaving import as_sklearn
    from coterie.api.tabled import TableCoding
    from coterie.data.files import read_fields
    from coterie.data.tables import read_table
    from coterie.problems.additive import AdditiveModel

    opened = open_saved(model, out=out)
    by_plan, known = isinstance(opened.coding, TableCoding), opened.coding.columns
    table = read_fields(data) if by_plan else read_table(data)  # a plan takes fields as they are written
    table = table.set_axis(list(map(str, table.columns)), axis=1)
    if not by_plan and known is not None and set(known) <= set(table.columns):
        table = table[list(known)]  # a label may stand beside them
    named = by_plan or known is not None or isinstance(opened.coding.problem, AdditiveModel)
    rows = table if named else table.to_numpy()
    found = pd.DataFrame({"predicted": opened.predict(rows)})
    if chances:
        odds = opened.predict_proba(rows)
        for label, column in zip(as_sklearn(opened).classes_, odds.T, strict=True):  # type: ignore[union-attr]
            found[f"chance of {label}"] = column
    text = found.to_csv(index=False)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_words(out, text, f"{len(found)} predictions to ")
