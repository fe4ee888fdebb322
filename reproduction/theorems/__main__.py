"""Measure the theorems and write docs/papers/theorems.md: `python -m reproduction.theorems [--write PAGE] [NAME …]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.errors import InputError
from coterie.graphs import make_graph, mixing
from coterie.report.files import write_atomically
from coterie.report.markdown import table
from reproduction.theorems import qdpsgd, xiao
from reproduction.theorems import zhang_zhu as zz
from reproduction.theorems.measured import admm_error, averaged_descent, population_excess

START, END = (
    "<!-- measured: python -m reproduction.theorems --write docs/papers/theorems.md -->",
    "<!-- end measured -->",
)


@dataclass(frozen=True)
class Row:
    """One theorem: what it says, what became of it, how loose it is."""

    name: str
    says: str
    verdict: str
    loose: str


def _records(theorem: int, says: str, verdict: str) -> Row:
    base = zz.Setting(accuracy=0.1, norm=2.0, dim=5)
    enough = next(
        count for k in range(4, 13) if population_excess(theorem, base, count := 2**k, draws=100)[0] <= base.accuracy
    )
    return Row(
        f"zhang-zhu-{theorem}", says, verdict,
        f"accuracy .1, d = 5: printed with constant 1 {zz.printed(theorem, base):,.0f} records, proved "
        f"{zz.needed(theorem, base):,.0f}, measured {enough} are enough: {zz.needed(theorem, base) / enough:.0f} times",
    )  # fmt: skip


UNITS = "wrong: in other units of the loss {} below any need; C² for C. Proved in expectation, with ρ = accuracy/‖f⁰‖²"


def zhang_zhu_3() -> Row:
    """Records for the empirical optimum."""
    return _records(3, "B > β C‖f⁰‖² ln(1/δ)/accuracy² is enough", UNITS.format("it falls"))


def zhang_zhu_4() -> Row:
    """Records for dual variable perturbation."""
    return _records(
        4,
        "… and B > β ‖f⁰‖ d ln(d/δ)/(accuracy α) with noise in the objective",
        UNITS.format("all terms that know d fall"),
    )


def zhang_zhu_5() -> Row:
    """Records for primal variable perturbation."""
    says = "… and B > β C‖f⁰‖³ηNd ln(d/δ)/(accuracy² α), before the last noise"
    return _records(5, says, "first term right in units, second as in 3; proved in expectation")


def zhang_zhu_6() -> Row:
    """Records for what primal variable perturbation sends."""
    return _records(6, "… and three more terms, for the point with its noise", "as 5; proved in expectation")


def _ring() -> np.ndarray:
    return np.asarray(mixing(make_graph("ring", 6)).dense())


def _convex(theorem: int, verdict: str) -> Row:
    centres, over = np.random.default_rng(0).standard_normal((6, 3)), []
    weights = _ring()
    gap = 1 - float(np.sort(np.linalg.eigvalsh(weights))[-2])
    pull = float(np.sum((centres) ** 2))  # E² = 2 Σ ½‖v_i‖²
    for rounds in (1e4, 1e8):
        a, h = qdpsgd.steps(theorem, rounds, 0.4)
        noise = {"sent": 0.1, "own": 0.2} if theorem == 12 else {"sent": 0.3}
        happens = qdpsgd.Quadratic(weights, centres, h, a, **noise).error(int(rounds))
        bound = qdpsgd.printed_strongly_convex(
            theorem, rounds, exponent=0.4, pull=pull, rounding=0.3, noise=0.6, gap=gap
        )
        over.append(f"{bound / happens:.1f}")
    return Row(
        f"dissertation-{theorem}", "strongly convex: (1/n) Σ E‖x_i − x*‖² = O(T^{−δ̃}) for δ̃ < ½", verdict,
        f"quadratics on a ring, δ̃ = .4, constants 1: bound over truth {over[0]} at T = 10⁴, {over[1]} at 10⁸; the rate "
        f"is seen from T = 10^{qdpsgd.first_rounds(0.4):.1f} on at δ̃ = .4, 10^{qdpsgd.first_rounds(0.49):.0f} at .49",
    )  # fmt: skip


def dissertation_12() -> Row:
    """Rate of Q-DPSGD-1, strongly convex."""
    return _convex(12, "right on quadratics for a fixed σ; at a fixed budget σ² ∝ T and the bound grows as T^{1−2δ̃}")


def dissertation_16() -> Row:
    """Rate of Q-DPSGD-2, strongly convex."""
    return _convex(16, "wrong for grids coarser than 1: pK²σ² for pK²σ²/η²; and x_{i,T} has no privacy")


def _other(theorem: int) -> Row:
    over = []
    for rounds in (1e4, 1e12):
        a, h = qdpsgd.steps(theorem, rounds)
        apart = qdpsgd.Quadratic(_ring(), np.ones((6, 3)), h, a, sent=0.25).stationary(int(rounds))[1]
        bound = qdpsgd.printed_stationary(theorem, rounds, agents=6, rounding=0.75, noise=0.0, gap=0.5)[1]
        over.append(f"{apart / bound:.2f}")
    return Row(
        f"dissertation-{theorem}", "mean ‖∇f(x̄)‖² = O(T^{−1/3}), disagreement O(T^{−1/3}) + O(T^{−2/3})",
        "wrong twice: f(0) − f* is missing (without noise the right side is 0), and rounding alone keeps disagreement "
        "at T^{−1/2}, which the bound has at T^{−2/3}",
        f"equal agents, rounding only, constants 1: disagreement over bound {over[0]} at T = 10⁴, {over[1]} at 10¹², "
        "growing as T^{1/6}",
    )  # fmt: skip


def dissertation_13() -> Row:
    """Rate of Q-DPSGD-1, not convex."""
    return _other(13)


def dissertation_17() -> Row:
    """Rate of Q-DPSGD-2, not convex."""
    return _other(17)


def _slope(values: list[float], at: list[int]) -> float:
    return float(np.polyfit(np.log(at), np.log(values), 1)[0])


def xiao_3_3() -> Row:
    """Rate and floor of LDP-ADMM."""
    dims, rounds = [2, 8, 32], [40, 160]
    by_dim, by_rounds = [admm_error(d, 40, 50.0) for d in dims], [admm_error(8, k, 50.0)[0] for k in rounds]
    over = [error / xiao.least_error(0.0, each, 6, 40, 4.0) for error, each in by_dim]
    return Row(
        "xiao-3.3", "E‖u^K − u*‖² ≤ a^K ‖u⁰ − u*‖² + R^K, at a pure ε of order d³N B_∞²/ε²",
        "d³ holds; Õ hides K² and 1/(1 − a), and a is proved only where 1 − a ~ N⁻³",
        f"`ldp-admm` on quadratics at ε = 50: error ∝ d^{_slope([e for e, _ in by_dim], dims):.2f}, "
        f"K^{_slope(by_rounds, rounds):.2f}; {min(over):.2f} to {max(over):.2f} times what noise alone leaves",
    )  # fmt: skip


def xiao_4() -> Row:
    """Independence of d."""
    dims = [8, 64, 512]
    found = [averaged_descent(d) for d in dims]
    whole, bare = [f[0] for f in found], [f[1] for f in found]
    shown = " / ".join(f"{w:.3f}" for w in whole), " / ".join(f"{b:.4f}" for b in bare)
    return Row(
        "xiao-4", "Thm 4.1, 4.2: utility loss independent of d, or logarithmic",
        "only of the loss without its ridge: a release with noise σ/√N costs an m-strongly convex objective at least "
        "m d σ²/(2N); a linear model has m ≤ M C₂²/d, so m^{−3/2} hides d^{3/2}",
        f"`gauss-avg-gd`, data in 4 of d = 8 / 64 / 512 directions, same σ: excess {shown[0]} "
        f"(∝ d^{_slope(whole, dims):.2f}); without the ridge {shown[1]}",
    )  # fmt: skip


EVERY: dict[str, Callable[[], Row]] = {
    "zhang-zhu-3": zhang_zhu_3, "zhang-zhu-4": zhang_zhu_4, "zhang-zhu-5": zhang_zhu_5, "zhang-zhu-6": zhang_zhu_6,
    "dissertation-12": dissertation_12, "dissertation-13": dissertation_13, "dissertation-16": dissertation_16,
    "dissertation-17": dissertation_17, "xiao-3.3": xiao_3_3, "xiao-4": xiao_4,
}  # fmt: skip


def page(rows: list[Row]) -> str:
    """The measured table."""
    cells = [(f"`{r.name}`", r.says, r.verdict, r.loose) for r in rows]
    return table(("theorem", "what it says", "verdict", "how loose, measured"), cells)


def main(arguments: list[str] | None = None) -> int:
    """Measure the named theorems (all by default), print the table or put it into a page."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.theorems", description=main.__doc__)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("names", nargs="*", help=", ".join(EVERY))
    given = parser.parse_args(arguments)
    if unknown := next((name for name in given.names if name not in EVERY), None):
        raise InputError(f"unknown theorem {unknown!r}; there are {', '.join(EVERY)}")
    if given.write is None:
        print(page([EVERY[name]() for name in given.names or EVERY]))
    else:
        write(given.write, given.names)
    return 0


def write(path: Path, names: Sequence[str] = ()) -> None:
    """Measure the named theorems (all by default) and put the table into a page."""
    made = page([EVERY[name]() for name in names or EVERY])
    text = path.read_text(encoding="utf-8")
    head, tail = text.index(START) + len(START), text.index(END)
    write_atomically(path, lambda p: p.write_text(f"{text[:head]}\n{made}\n{text[tail:]}", encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
