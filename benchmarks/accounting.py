"""What pricing takes, beside dp-accounting or a goal, and how tight it is: `python -m benchmarks.accounting [--keep]`.

Calibrating Gaussian noise by the closed form against dp-accounting's loss distributions; the whole price of a plan of
qdpsgd1 (batches that a deadline cuts, 1,000 rounds) from nothing against a second; noise of density exp(−‖x‖) in a
million dimensions against Gaussian noise of the same size, which it tends to.
"""

import statistics
import time

import dp_accounting
from dp_accounting.pld import PLDAccountant

from benchmarks.measured import Row, arguments, finish, paired
from coterie.experiment import public_network
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy import accountants
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Gaussian, L2Laplace

__all__ = ["main"]

PRICED = 1.0  # seconds in which qdpsgd1 should be priced
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


def plan() -> Plan:
    """Ten parties on a random graph, whose degrees differ, as do then their places."""
    return validate(
        {
            "data": {"source": "clinics", "options": {"records": 15_000}},
            "partition": {"kind": "iid", "agents": 10, "records": 1000},
            "graph": {"kind": "erdos-renyi", "p": 0.4},
            "problem": {"loss": "logistic"},
            "algorithm": {"name": "qdpsgd1"},
            "privacy": {"epsilon": EPSILON, "delta": DELTA},
            "run": {"rounds": 1000},
        }
    )


def pricing(repeats: int) -> list[float]:
    """Processor seconds of pricing that plan, with nothing kept from before."""
    planned = plan()
    network = public_network(planned)
    price(planned, network)  # compiles
    took = []
    for _ in range(repeats):
        accountants.forget()
        start = time.process_time()
        price(planned, network)
        took.append(time.process_time() - start)
    return took


def main() -> None:
    """Print, and store with `--keep`, one line for each."""
    parser = arguments(__doc__)
    args = parser.parse_args()
    ours, theirs, ratio = paired(closed_form, library, 3)
    excess = library() / closed_form() - 1
    rows = [
        Row("calibrate 50 Gaussian rounds", f"{1e6 * ours:.0f} µs",
            f"dp-accounting {1e6 * theirs:,.0f} µs, noise {excess:.1e} larger", *ratio)
    ]  # fmt: skip
    took = pricing(5)
    rows.append(
        Row("price qdpsgd1, 10 parties, 1,000 rounds", f"{statistics.median(took):.2f} s of processor time",
            f"goal {PRICED:g} s", *(PRICED / x for x in (statistics.median(took), max(took), min(took))))
    )  # fmt: skip
    for shift, dim, rounds in ((1000.0, 10**6, 1), (3.0, 100, 10)):
        size = shift / dim**0.5
        radial = accountants.account([L2Laplace(shift, 1.0, dim, times=rounds)], DELTA)
        normal = accountants.account([Gaussian(size, 1.0, times=rounds)], DELTA).epsilon
        for name in ("pld", "rdp"):
            close = radial.all[name] / normal
            what = f"ε of L2-Laplace noise by {name}, d = {dim:,}, {rounds} rounds"
            rows.append(Row(what, f"{radial.all[name]:.4f}", f"Gaussian of that size {normal:.4f}", *[close] * 3))
    finish(args, "Accounting", rows)


if __name__ == "__main__":
    main()
