"""Faults of shared noise: layers that are too small, left out, taken off too soon, or known to others."""

from __future__ import annotations

from tests.audit.seeded.fault import Fault

__all__ = ["SUMS"]

NOISE, DRAWN = "sums.noise", ("sums.rounds.Rounds.draw_layers",)
FRESH = "drawn = [layers.fresh(size)]"
READ = '"""Layer k ≥ 1 from its seed."""\n        if not self.variance:'
FEW, MANY = {"trials": 300}, {"trials": 6000}

SUMS = (
    Fault(
        "half the noise on sums",
        NOISE,
        "sums",
        (("DiscreteGaussianTable.from_variance(v) for v", "DiscreteGaussianTable.from_variance(v / 4) for v"),),
        options=FEW,
        put=("sums.noise.Layers.tables",),
    ),
    Fault(
        "a layer of shared noise that nobody adds",
        NOISE,
        "sums",
        ((READ, READ[:-1] + " or k == self.last:"),),
        options=MANY | {"drops": (1,)},
        put=("sums.noise.Layers.read",),
        slow=True,
    ),
    Fault(
        "shared noise taken off as if one party fewer were missing",
        NOISE,
        "sums",
        (("if level >= dropped)", "if level >= dropped - 1)"),),
        options=MANY | {"drops": (1,)},
        put=("sums.noise.Layers.keep",),
        slow=True,
    ),
    Fault(
        "an honest party that adds no noise to sums",
        "sums.rounds",
        "sums",
        ((FRESH, "drawn = [layers.fresh(size) * (self.me != 3)]"),),
        options=MANY | {"drops": (0,)},
        put=DRAWN,
        slow=True,
    ),
    Fault(
        "layer 0 of shared noise from the seeds that others hold shares of",
        "sums.rounds",
        "sums",
        ((FRESH, "drawn = [layers.read(0, layer_seed(where, self.me, chain[0], 0), size)]"),),
        options=FEW,
        put=DRAWN,
    ),
    Fault(
        "a local claim that counts everybody's noise",
        "exchange.central",
        "sums",
        (("return opened_event(shift, sigma, 1, bits", "return opened_event(shift, sigma, terms.heard, bits"),),
        options=FEW,
        put=("exchange.central._own",),
        slow=True,
    ),
)
