"""Faults of the tests that decide whether an agent speaks: `ipp-admm` with a sparse vector or Gaussian noise."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault

__all__ = ["DECISIONS"]

IPP = "ipp-admm"
SVT = {"test": "svt", "broadcasts": 2, "test_share": 0.5}
QUERY = 'passed = add(fall, draw["test"], over)'
BAR = ">= add(jnp.asarray(cfg.threshold, fall.dtype), bar, above)"
KEPT = "jnp.where(t == 0, fresh, state.bar)"
GAP = "return 2 * cfg.clip * place.unit + reach * moves"

DECISIONS = (
    Fault("half the noise on queries", IPP, "noise", ((QUERY, QUERY[:-1] + " / 2)"),), SVT, slow=True),
    Fault(
        "half the noise on Gaussian tests", IPP, "noise", ((QUERY, QUERY[:-1] + " / 2)"),), {"test": "gauss"}, slow=True
    ),
    Fault("a threshold without noise", IPP, "noise", ((BAR, BAR.replace("bar,", "0 * bar,")),), SVT, slow=True),
    Fault("half the noise on the threshold", IPP, "noise", ((BAR, BAR[:-1] + " / 2)"),), SVT, slow=True),
    Fault("a threshold drawn anew in every round", IPP, "noise", ((KEPT, 'draw["bar"]'),), SVT, slow=True),
    Fault(
        "a threshold drawn anew after every message",
        IPP,
        "noise",
        ((KEPT, 'jnp.where((t == 0) | state.spoke, draw["bar"], state.bar)'),),
        SVT | {"threshold": -1.0},
        slow=True,
    ),
    Fault(
        "one draw for all queries",
        IPP,
        "noise",
        ((QUERY, "passed = add(fall, bar, over)"),),
        SVT,
        slow=True,
    ),
    Fault(
        "queries that a record moves further than is charged",
        IPP,
        "replay",
        ((GAP, "return cfg.clip * place.unit / 20"),),
        SVT,
        slow=True,
    ),
    Fault(
        "half as many messages charged as tests allow",
        IPP,
        "ledger",
        (("SparseVector(gap, above, over, spoken,", "SparseVector(gap, above, over, spoken // 2,"),),
        SVT | {"threshold": -1.0},
        slow=True,
    ),
    Fault(
        "a sparse vector that is never charged",
        IPP,
        "replay",
        (("over, spoken, times=t == 0)", "over, spoken, times=t < 0)"),),
        SVT,
        slow=True,
    ),
)
