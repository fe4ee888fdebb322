"""Xiao, Ye, Devadas, Local Differential Privacy in Decentralized Optimization: Fig. 1, 2, B, C and D."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.papers.base import Claim, Figure, Panel, Paper, Result, Series
from coterie.papers.drawing import draw_panel
from coterie.papers.study import Study
from coterie.privacy import realised

__all__ = ["FIGURES", "PAPER"]

PAPER = Paper(
    "Local Differential Privacy in Decentralized Optimization",
    "Hanshen Xiao, Yu Ye, Srinivas Devadas",
    2019,
    ("ldp-admm", "ldp-dgd", "ldp-dgd-range"),
    """Random mixing weights in ADMM and in gradient descent make the loss that is *realised* on a typical output
    smaller than its worst case, by a factor γ. The pictures are right about γ and accuracy. What they call privacy
    loss is not a guarantee: the worst case leaves out the dimension, and a mean over outputs is no worst case at all.
    """,
)

# ---- Fig. 1 ----------------------------------------------------------------------------------------------------------

SHIFT = 0.001  # α B_∞ of Fig. 1
RATES = (2.0, 4.0, 6.0, 8.0, 10.0)


def _fig1(study: Study) -> Result:
    widths = np.linspace(0.1, 1.0, study.pick(37, 19))
    rates = np.linspace(2.0, 10.0, study.pick(33, 17))
    series = []
    for rate in RATES:
        label = f"β = {rate:g}"
        for version, gamma in (("as printed", realised.printed), ("corrected", realised.reduction)):
            series.append(Series("lines", label, version, widths.tolist(), gamma(rate, widths, SHIFT).tolist()))  # type: ignore[arg-type]
    series += [
        Series("surface", f"β = {r:g}", "as printed", widths.tolist(), realised.printed(r, widths, SHIFT).tolist())
        for r in rates
    ]
    printed, exact = (f(rates[:, None], widths, SHIFT) for f in (realised.printed, realised.reduction))
    corner = float(realised.reduction(2.0, 0.1, SHIFT)), float(realised.printed(2.0, 0.1, SHIFT))
    worst = float(realised.reduction(1.208, 1.0, 0.332)), float(realised.printed(1.208, 1.0, 0.332))
    limit = float(np.max(np.abs(exact - limit_gamma(rates[:, None], widths))))
    low, high = realised.bounds(rates[:, None], widths, SHIFT)
    return Result(
        series,
        [
            Claim(
                "γ falls in the width ω and in the noise rate β",
                bool(np.all(np.diff(exact, axis=0) < 0) and np.all(np.diff(exact, axis=1) < 0)),
                f"exact γ falls from {exact[0, 0]:.3f} at (β, ω) = (2, 0.1) to {exact[-1, -1]:.3f} at (10, 1)",
                {"largest": float(exact[0, 0]), "smallest": float(exact[-1, -1])},
            ),
            Claim(
                "(11) is an upper bound of γ (Thm 2.3)",
                bool(np.all(printed >= exact) and worst[1] >= worst[0]),
                f"at (β, ω) = (2, 0.1) exact {corner[0]:.6f}, (11) {corner[1]:.6f}; at (1.208, 1) with αB_∞ = 0.332 "
                f"exact {worst[0]:.4f}, (11) {worst[1]:.4f}",
                {"exact": worst[0], "printed": worst[1], "exact_corner": corner[0], "printed_corner": corner[1]},
                reason="App. D maximises the wrong branch of the density ratio",
                section="spec 01 §1, Thm 2.3 (11)",
            ),
            Claim(
                "in the range of the figure (11) and the exact γ look the same",
                float(np.max(np.abs(exact - printed))) < 5e-3,
                f"largest difference {np.max(np.abs(exact - printed)):.1e}",
                {"difference": float(np.max(np.abs(exact - printed)))},
                who="ours",
            ),
            Claim(
                "γ ≈ (1 − e^{−βω/2})/(βω/2) for small shifts, between its closed-form bounds",
                limit < 1e-2 and bool(np.all((low <= exact) & (exact <= high))),
                f"largest distance {limit:.1e}",
                {"distance": limit},
                who="ours",
            ),
        ],
    )


def limit_gamma(rate: Any, width: Any) -> Any:
    """γ as the shift goes to 0: (1 − e^{−u})/u with u = βω/2."""
    u = np.asarray(rate) * np.asarray(width) / 2
    return -np.expm1(-u) / u


def _draw_fig1(drawn: Any, result: Result) -> None:
    surface = [s for s in result.series if s.panel == "surface"]
    left, right = drawn.add_subplot(1, 2, 1, projection="3d"), drawn.add_subplot(1, 2, 2)
    rates = np.array([float(s.label.split("=")[1]) for s in surface])
    w, b = np.meshgrid(surface[0].x, rates)
    left.plot_surface(w, b, np.array([s.y for s in surface]), cmap="viridis", linewidth=0, antialiased=True)
    left.view_init(elev=24, azim=45)
    left.set(xlabel="ω: interval length", ylabel="β: noise rate", zlabel="γ", title="γ by the printed formula (11)")
    draw_panel(right, FIGURES[0].panels[1], [s for s in result.series if s.panel == "lines"])


FIG1 = Figure(
    "fig1",
    "Fig. 1: mean realised privacy loss γ against interval length ω and noise rate β",
    (
        Panel("surface", "γ by the printed formula (11)", "ω", "γ"),
        Panel("lines", "printed formula (11) and exact γ", "ω: interval length", "γ: share of the worst-case loss"),
    ),
    _fig1,
    setup="""One coordinate is released as a uniform point of an interval of length ω plus Laplace noise of rate β; the
    data can move it by αB_∞ = 0.001. γ is the mean realised loss as a share of the worst case αβB_∞, for ω from 0.1 to
    1 and β from 2 to 10 as in the paper. Printed: formula (11) in closed form. Corrected: γ itself, by quadrature.""",
    differs="""Little that the eye can see: in this range the printed formula is off by at most .003. But it is no upper
    bound, since the proof takes the maximum over the wrong branch; for larger shifts it is too small by several per
    cent. γ is the *mean* over outputs. A share (1 − e^{−βω})/(βω) of all outputs falls outside the interval and loses
    the full αβB_∞, so the pure guarantee does not improve at all.""",
    draw=_draw_fig1,
    size=(10.6, 4.4),
)

FIGURES = (FIG1,)
