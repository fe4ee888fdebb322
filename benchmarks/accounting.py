"""Calibrating Gaussian noise: the closed form against dp-accounting's loss distributions, in the same run.

python -m benchmarks.accounting
"""

import time
from collections.abc import Callable

import dp_accounting
from dp_accounting.pld import PLDAccountant

from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Gaussian

__all__ = ["main"]

GOAL = 1000
EPSILON, DELTA, ROUNDS = 1.0, 1e-5, 50


def closed_form() -> float:
    """Noise multiplier of 50 rounds by our calibration, its own check included."""
    return calibrate(lambda z: [Gaussian(1.0, z, times=ROUNDS)], EPSILON, DELTA)


def library() -> float:
    """The same by dp-accounting: root search over composed loss distributions, default tolerance."""
    relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: PLDAccountant(relation),
            lambda z: dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(z), ROUNDS),
            EPSILON,
            DELTA,
        )
    )


def seconds(work: Callable[[], float], repeat: int) -> tuple[float, float]:
    """(best time of one call, its answer)."""
    best, answer = float("inf"), 0.0
    for _ in range(repeat):
        start = time.perf_counter()
        answer = work()
        best = min(best, time.perf_counter() - start)
    return best, answer


def main() -> None:
    """Print both times, both answers and the ratio."""
    ours, z = seconds(closed_form, 20)
    theirs, reference = seconds(library, 3)
    print(f"calibrate {ROUNDS} Gaussian rounds to ({EPSILON:g}, {DELTA:g})")
    print(f"  closed form     {ours * 1e6:9.1f} us   noise multiplier {z:.6f}")
    print(f"  dp-accounting   {theirs * 1e6:9.1f} us   noise multiplier {reference:.6f}")
    print(
        f"  ratio           {theirs / ours:9.0f} x    (goal {GOAL} x)   excess noise of theirs {reference / z - 1:.2e}"
    )


if __name__ == "__main__":
    main()
