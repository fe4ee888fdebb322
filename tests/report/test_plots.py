"""Pictures of a run show what there is to see."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.image import imread

from coterie.report import plots
from coterie.report.schema import RunResult

DPI = 130


@pytest.mark.parametrize(("gaps", "panels"), [([0.0, 0.2, 0.1], 3), ([0.0, 1e-16, 0.0], 2)])
def test_a_panel_of_disagreement_is_drawn_where_there_is_some(tmp_path: Path, gaps: list[float], panels: int) -> None:
    told = {"train_loss": [0.7, 0.5, 0.4], "test_accuracy": [0.5, 0.7, 0.8], "consensus_gap": gaps}
    result: dict[str, Any] = {
        "curves": {"round": [0, 1, 2], **told, "std": dict.fromkeys(told, [0.0] * 3)}, "references": {}, "seeds": [0],
        "algorithm": {"name": "dgd"}, "privacy": None, "plan": {"name": "small"}, "metric": "accuracy",
    }  # fmt: skip
    plots.curves(cast(RunResult, result), tmp_path / "curves.png")
    assert np.asarray(imread(tmp_path / "curves.png")).shape[1] == DPI * (1 + 4 * panels)
