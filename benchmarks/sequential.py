"""How many transcripts an audit needs: bets that stop early beside a fixed size, at the same level.

python -m benchmarks.sequential [--audits 20] [--keep]

For each planted fault, 20 audits with other seeds: the number of pairs after which the bets refute the claim, and the
least fixed size (of a geometric grid) that refutes it in at least nine tenths of them. Both call a true claim refuted
with a chance of 1e-5 at most. Bets that refute nothing count as the most pairs that they may see.
"""

from __future__ import annotations

from benchmarks.measured import arguments, beside, finish
from coterie.algorithms.base import Algorithm
from coterie.audit import audit, make_setting, sequential
from coterie.audit.setting import ATTACKS
from tests.audit.seeded.hunting import FAULTS, plant

MOST = 8000
SIZES = [25, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, MOST]
CASES = (("half the noise", 8.0), ("half the noise", 1.0), ("last message without noise", 1.0))


def main() -> None:
    """Print and store a line for each fault."""
    parser = arguments(__doc__)
    parser.add_argument("--audits", type=int, default=20)
    args = parser.parse_args()
    rows, seeds = [], range(args.audits)
    for name, epsilon in CASES:
        (fault,) = [f for f in FAULTS if f.name == name]
        setting = make_setting(Algorithm.of(fault.module, plant(fault)), epsilon=epsilon)
        bets = [sequential(setting, MOST, attack=ATTACKS[0], seed=k) for k in seeds]
        used = [float(b.pairs if b.refuted else MOST) for b in bets]
        missed = sum(not b.refuted for b in bets)
        for size in SIZES:
            if sum(audit(setting, size, attack=ATTACKS[0], seed=k).violated for k in seeds) >= 0.9 * args.audits:
                break
        else:
            raise SystemExit(f"{name}, ε = {epsilon:g}: no fixed size of at most {MOST} pairs refutes it")
        what = f"{name}, ε = {epsilon:g}: bets" + (f", {missed} of {args.audits} refuted nothing" if missed else "")
        rows.append(beside(what, used, "fixed size", size, "{:,.0f} pairs"))
    finish(args, "Transcripts that an audit needs", rows, f"Over {args.audits} audits of each fault.")


if __name__ == "__main__":
    main()
