"""What protecting people, not records, costs on diabetes: `python -m benchmarks.people [--splits 5] [--keep]`.

All 99,343 stays of 69,990 patients (one has 40 of them), dealt to ten parties by patient, a fifth of the patients held
out. Noise is shared, nine of ten parties honest, everything else as it comes. On each split (`data.seed`): the optimum
of all records in one place without privacy, ε per person, ε per record. AUC on the held-out patients' stays, and how
far it is below the pooled one; and what ε per record means for the patient with the most records.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.measured import arguments, beside, finish
from coterie.drivers.references import pooled
from coterie.experiment import prepare
from coterie.explain import unit_block
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.report.units import at_home
from coterie.worth.measures import say, summary

NEAR = 0.006  # of the pooled AUC that people's has to be within


def plan_of(split: int, epsilon: float, unit: str) -> Plan:
    """The plan of one cell."""
    return validate(
        {
            "name": "diabetes, ten parties",
            "data": {"source": "diabetes", "seed": split, "unit": unit, "options": {"encounters": "all"}},
            "partition": {"kind": "iid", "agents": 10},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic"},
            "exchange": {"kind": "secret-sum", "noise": "central", "honest": 9},
            "privacy": {"epsilon": epsilon, "delta": 1e-5},
        }
    )


def cell(split: int, epsilon: float, unit: str) -> dict[str, Any]:
    """AUC of the parties' model, of the pooled optimum (of records), and whom ε is for."""
    experiment = prepare(plan_of(split, epsilon, unit))
    priced, test, problem = price(experiment.plan, experiment.network), experiment.test, experiment.network.problem
    assert test is not None
    auc = lambda x: summary(say(problem, np.asarray(x, float), test.features, test.targets), 0.9)["test_auc"]  # noqa: E731
    trace = experiment.run(priced, [0], every=priced.rounds)
    found: dict[str, Any] = {
        "auc": auc(trace.points[0].mean(0)),
        "rounds": priced.rounds,
        "sizes": int(experiment.network.sizes.sum()),
        "protects": unit_block(experiment.plan, priced),
        "home": at_home(experiment, priced),
    }
    if unit == "record":
        found["pooled"] = auc(pooled(experiment.layout(1)))
    return found


def main() -> int:
    """Print and store what splits gave; exit code 1 if people's AUC is too far below the pooled one."""
    parser = arguments(__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first data.seed")
    parser.add_argument("--epsilon", type=float, default=1.0)
    args = parser.parse_args()
    table = []
    for split in range(args.first, args.first + args.splits):
        record, person = (cell(split, args.epsilon, unit) for unit in ("record", "person"))
        table.append((record["pooled"], person["auc"], record["auc"]))
        row = "  ".join(f"{name} {x:.4f}" for name, x in zip(("pooled", "person", "record"), table[-1], strict=True))
        print(f"split {split}: {row}; {person['sizes']} people, {record['sizes']} records to train on", flush=True)
    whole, people, records = (list(values) for values in zip(*table, strict=True))
    told, per_person = record["protects"], person["protects"]
    rows = [
        beside("AUC, ε per person", people, "pooled, no privacy", whole, "{:.4f}", cost=False),
        beside("AUC, ε per record", records, "pooled, no privacy", whole, "{:.4f}", cost=False),
        beside("AUC, ε per person", people, "ε per record", records, "{:.4f}", cost=False),
        beside("ε of the patient with 40 records, people the unit", [per_person["person"]], "records the unit",
               told["of_records"]["40"], cost=False),
        beside("ε of a patient at two parties, people the unit", [per_person["person_at_two_parties"]], "at one party",
               per_person["person"], cost=False),
    ]  # fmt: skip
    note = f"ε = {args.epsilon:g}, {args.splits} splits; at most {record['home']['most_records']} records of a patient."
    finish(args, "Protecting people, diabetes", rows, note)
    near = float(np.mean(whole) - np.mean(people)) <= NEAR
    print(f"within {NEAR} of pooled: {'yes' if near else 'NO'}")
    return int(not near)


if __name__ == "__main__":
    sys.exit(main())
