"""How many transcripts an audit needs: bets that stop early beside a fixed size, at the same level.

python -m benchmarks.sequential

For each planted fault, 20 audits with other seeds: the median and the largest number of pairs after which the bets
refute the claim, and the least fixed size (of a geometric grid) that refutes it in at least 18 of the 20. Both call a
true claim refuted with a chance of 1e-5 at most.
"""

from __future__ import annotations

import numpy as np

from coterie.algorithms.base import Algorithm
from coterie.audit import audit, make_setting, sequential
from coterie.audit.setting import ATTACKS
from tests.audit.seeded.hunting import FAULTS, plant

AUDITS, MOST = 20, 8000
SIZES = [25, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 8000]
CASES = (("half the noise", 8.0), ("half the noise", 1.0), ("last message without noise", 1.0))


def main() -> None:
    """Print the table."""
    print(f"{'fault':34}{'ε':>4}{'bets, median':>14}{'largest':>9}{'fixed size':>12}")
    for name, epsilon in CASES:
        (fault,) = [f for f in FAULTS if f.name == name]
        setting = make_setting(Algorithm.of(fault.module, plant(fault)), epsilon=epsilon)
        bets = [sequential(setting, MOST, attack=ATTACKS[0], seed=k) for k in range(AUDITS)]
        used = np.array([b.pairs if b.refuted else np.inf for b in bets])
        fixed = np.inf
        for size in SIZES:
            found = sum(audit(setting, size, attack=ATTACKS[0], seed=k).violated for k in range(AUDITS))
            if found >= 0.9 * AUDITS:
                fixed = size
                break
        print(f"{name:34}{epsilon:4g}{np.median(used):14g}{used.max():9g}{fixed:12g}", flush=True)


if __name__ == "__main__":
    main()
