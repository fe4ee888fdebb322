"""`coterie report`: one self-contained page about a finished run."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from coterie.report import html
from coterie.report.result import write_atomically

__all__ = ["run"]


def run(folder: Path, console: Console) -> None:
    """Read what the folder holds and write its report.html."""
    page = html.page_of(folder)
    write_atomically(folder / "report.html", lambda p: p.write_text(page, "utf-8"))
    console.print(f"wrote {folder / 'report.html'}", highlight=False, soft_wrap=True)
