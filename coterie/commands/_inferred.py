"""`coterie audit --infer`: attributes and records that are guessed, beside what the claim allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from coterie.errors import InputError

__all__ = ["inferred"]

WORDS = {"holds": "holds", "refuted": "[bold red]REFUTED[/]", "could not check": "[bold red]could not check[/]"}


def inferred(
    targets: list[str], epsilons: list[float], delta: float, trials: int, as_json: bool, out: Path | None,
    console: Console, bar: Callable[[Console], AbstractContextManager[Callable[[str, int, float], None]]],
) -> int:  # fmt: skip
    """Attributes and records that are guessed: algorithms at each ε, and plans at their own."""
    from coterie.algorithms.base import find
    from coterie.audit.inference import Inferred, What, infer
    from coterie.audit.planned import of_plan
    from coterie.audit.setting import make_setting
    from coterie.report.files import check_out, write_json

    if not targets:
        raise InputError("--infer needs algorithms or plans by name, such as dp-dsgd")
    if out is not None:
        check_out(out)
    settings = []
    for target in targets:
        if Path(target).suffix == ".toml":
            settings.append((target, of_plan(Path(target))[1][0].setting))
            continue
        if not find(target).private:
            raise InputError(f"{target} makes no privacy claim: there is nothing to audit")
        settings += [(f"{target} at ε = {e:g}", make_setting(find(target), epsilon=e, delta=delta)) for e in epsilons]
    found = list[Inferred]()
    with bar(Console(quiet=True) if as_json else console) as step:
        for name, setting in settings:
            for what in get_args(What):
                found.append(infer(setting, what, trials, progress=partial(step, f"{name}, {what}", trials)))
    rows = [one.as_json() for one in found]
    if as_json:
        console.print_json(json.dumps(rows))
    else:
        shown = Table(
            header_style="bold", title="what is guessed of one record", title_justify="left", caption_justify="left",
            caption="right: share of guesses; at most: what the claim allows; without noise: the same attack on the "
            "same party if it adds none (could not check: it fails there, or more trials are needed). "
            "What others' records teach about people alike is not in it (docs/audit.md)",
        )  # fmt: skip
        shown.add_column("algorithm", overflow="fold", min_width=12)
        for name in ("claim", "guessed", "from", "chance", "right", "at most", "without noise"):
            shown.add_column(name, justify="left" if name in ("guessed", "from") else "right", no_wrap=True)
        shown.add_column("verdict", no_wrap=True)
        for one in found:
            shown.add_row(
                one.algorithm, f"{one.epsilon:.4g}, {one.delta:g}", one.what, one.seen, f"{1 / one.candidates:.3f}",
                f"{one.share:.3f}", f"{one.bound:.3f}", f"{one.bare:.3f}",
                WORDS[one.verdict],
            )  # fmt: skip
        console.print(shown)
    if out is not None:
        write_json(out / "inference.json", rows)
    return int(any(one.verdict != "holds" for one in found))
