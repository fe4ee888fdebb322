r"""Fair learning over several parties in a single release: the objective's coefficients are sums over parties.

Parties are agents of one algorithm (`coterie.fair.holders`) and run as all agents do; what differs is who carries their
messages.

`fit_by_consensus`: every party noises its own statistics (local noise: the guarantee needs to trust nobody) and the
noisy values are averaged over the graph by x ← Wx, which is post-processing. The noise of N parties adds up: √N
times that of one party with all records.

`fit_by_secret_sum`: parties round to a common grid, each adds discrete Gaussian noise of variance σ²/(N − colluding)
and only the sum is opened. What the sum costs is a separate, named claim: it holds against those who see the sum (and
what `colluding` parties know), not against those who see a party's own vector. The sum itself is an argument,
`sums`: additive secret sharing by default, with real shares but all parties in one process. Between machines the same
agents run as a plan (docs/fair.md). The sum of N discrete Gaussians of σ₀ ≥ 65,544 grid steps differs from one discrete
Gaussian by less than e^(−10¹⁰) (Kairouz, Liu, Steinke 2021, Thm 1), so it is charged as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.algorithms.base import Algorithm
from coterie.algorithms.batches import rows
from coterie.algorithms.laws import Draw, Grid
from coterie.drivers.layout import make_places
from coterie.drivers.together import Deliver, play_together
from coterie.errors import InputError
from coterie.exchange.additive import Sums, SumsHere
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.statement import Claim
from coterie.exchange.sums import SumTerms
from coterie.fair import holders as agents
from coterie.fair import mechanisms as mech
from coterie.fair.moments import FairMoments, SummedShard
from coterie.fair.noise import GRID_SIGMA, Charge, Law, Noise, on_grid
from coterie.fair.polynomial import Statistics
from coterie.graphs import make_graph, mixing
from coterie.graphs.mixing import Mixing
from coterie.privacy.events import DiscreteGaussian, Event
from coterie.privacy.secure import grid_noise

__all__ = ["FAIR_RELEASE", "Claim", "FairNetwork", "fit_by_consensus", "fit_by_secret_sum"]

Floats = NDArray[np.float64]
FAIR_RELEASE = Algorithm.of("fair-release", agents)


@dataclass(frozen=True, eq=False)
class FairNetwork:
    """What each party ends with, and what the records pay."""

    weights: Floats  # (parties, d)
    claim: Claim
    share: Floats | None
    disagreement: float  # largest distance of a party's weights from the mean


def fit_by_consensus(
    holders: Sequence[Statistics],
    mixing: Mixing,
    method: str = "adfc",
    *,
    epsilon: float,
    delta: float,
    noise: Noise,
    rounds: int = 50,
    signed: bool = True,
    penalty: float = 1.0,
    shares: Sequence[float] | None = None,
    charge: Charge | None = None,
) -> FairNetwork:
    """Noisy local coefficients, averaged over the graph for `rounds` rounds; every party solves what it then holds.

    Each party pays (ε, δ) for all that it ever sends; a record sits at one party, so that is the network's guarantee
    against an adversary who sees every message. Numbers of records are public.

    `charge` hears the events before anything is released, and may refuse.
    """
    if (n := len(holders)) != mixing.graph.size:
        raise InputError(f"{n} parties on a graph of {mixing.graph.size} nodes")
    run = _Holders(holders, mixing, method, epsilon, delta, noise, rounds, signed, shares)
    if charge is not None:
        charge(run.levels.events)
    weights = mixing.dense()
    apart, near = weights - np.diag(np.diag(weights)), (weights != 0) & ~np.eye(n, dtype=bool)

    def deliver(t: int, state: agents.State, message: agents.Message) -> tuple[agents.Message, agents.Message]:
        said = np.asarray(message.values)
        return agents.Message(near @ said), agents.Message(apart @ said)

    who = "sees every message of every party, and knows every record but one"
    order = [(0, i) for i in range(n)] + [(stage, i) for i in range(n) for stage in (1, 2)]
    return run.fit(order, deliver, penalty, Claim("local noise", who, run.levels.account))


class _Shared(Noise):
    """Noise source of a secret sum: each of `holders` adds its part on a common grid; cost as the sum's."""

    secure = True

    def __init__(self, holders: int, colluding: int, rng: np.random.Generator | None) -> None:
        if not 0 <= colluding < holders:
            raise InputError(f"colluding must be in 0 … {holders - 1}, got {colluding}")
        self.honest, self.rng = holders - colluding, rng

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        step = multiplier / np.sqrt(self.honest) / GRID_SIGMA * (1 + 1e-9)
        return DiscreteGaussian(sensitivity + step * np.sqrt(size), multiplier)

    def draw(self, shape: tuple[int, ...], law: Law) -> Grid:
        """One party's part, in grid steps."""
        if self.rng is None:
            return on_grid(grid_noise(GRID_SIGMA, shape)[0])
        return on_grid(np.rint(self.rng.normal(scale=GRID_SIGMA, size=shape)).astype(np.int64))


def fit_by_secret_sum(
    holders: Sequence[Statistics],
    method: str = "adfc",
    *,
    epsilon: float,
    delta: float,
    sums: Sums = SumsHere,
    colluding: int = 0,
    random_state: int | None = None,
    signed: bool = True,
    penalty: float = 1.0,
    shares: Sequence[float] | None = None,
    charge: Charge | None = None,
) -> FairNetwork:
    """One secret-shared sum for each stage: the noise of a single party with all records, none of which has left home.

    `colluding` parties may pool what they know (each party's noise grows to make up for theirs). Noise comes from the
    operating system; an integer `random_state` makes a reproducible run, for study only. Gaussian methods only.
    `charge` hears the events before anything is released, and may refuse.
    """
    _, law, _ = mech.private_method(method, shares)
    if law != "gaussian":
        raise InputError(f"secret sums carry discrete Gaussian noise: use relaxed-fm or adfc, not {method!r}")
    if not np.isfinite(epsilon):
        raise InputError(f"a secret sum needs a finite epsilon: its grid is made from the noise, got {epsilon}")
    n = len(holders)
    source = _Shared(n, colluding, None if random_state is None else np.random.default_rng(random_state))
    all_to_all = mixing(make_graph("complete", n), "uniform")
    run = _Holders(holders, all_to_all, method, epsilon, delta, source, 1, signed, shares, parts=source.honest)
    if charge is not None:
        charge(run.levels.events)
    # float64 holds whole numbers up to 2^53: a message with its noise is one, and so is the sum
    terms = SumTerms(FixedPoint(n, fraction_bits=0, bound=float(min(2**52, 2**61 // n))))

    def deliver(t: int, state: agents.State, message: agents.Message) -> tuple[agents.Message, agents.Message]:
        said = np.asarray(message.values)
        step = run.step(t)
        opened = sums(terms, said.shape[1]).open(list(np.rint(said / step)))
        others = step * opened.steps - said
        return agents.Message(others), agents.Message(others / n)

    name = "secret-sum (one process)" if sums is SumsHere else "secret-sum"
    who = "sees the opened sums" + (f" and all that {colluding} parties know" if colluding else "")
    claim = Claim(name, f"{who}, and knows every record but one; not a party's own vector", run.levels.account)
    return run.fit(product(range(3), range(n)), deliver, penalty, claim)


class _Holders:
    """Parties as agents of `FAIR_RELEASE` on a graph, with the noise that a budget asks for.

    `parts`: over how many parties the noise of one release is divided.
    """

    def __init__(
        self, holders: Sequence[Statistics], mixing: Mixing, method: str, epsilon: float, delta: float, noise: Noise,
        walk: int, signed: bool, shares: Sequence[float] | None, parts: int = 1,
    ) -> None:  # fmt: skip
        _, self.law, split = mech.private_method(method, shares)
        self.size, self.noise, first = len(holders), noise, holders[0]
        d, groups = first.dim, len(first.groups)
        self.levels = mech.levels_for(self.law, d, groups, epsilon=epsilon, delta=delta, shares=split, noise=noise)
        if self.levels.stages[1] is None:
            raise InputError("the objective needs a share of the budget: shares[1] is 0")
        fair = (0, 1, 2) if self.levels.stages[0] is not None else (1,)  # without shares of the groups no covariance
        counts = np.array([h.count for h in holders])
        self.cfg = agents.Config(
            groups=groups, records=counts.sum(), law=self.law, signed=signed, walk=walk, shares=tuple(split),
            stages=tuple(i for i in fair if split[i] > 0),
        )  # fmt: skip
        self.problem, self.sizes = FairMoments(d, groups), mech.sizes_of(d, groups)
        with jax.enable_x64(True):
            places = make_places(self.problem, counts, mixing.graph, mixing, rounds=self.cfg.rounds)
            z = np.full(self.size, self.levels.noise / np.sqrt(parts))
            self.places = eqx.tree_at(lambda p: p.noise, places, jax.device_put(z))
            flat = np.stack([self.problem.flat(h) for h in holders])
            self.shards = SummedShard(
                self.problem, jax.device_put(flat), jax.device_put(counts), places.unit, places.ridge
            )

    def draws(self, order: Iterable[tuple[int, int]]) -> Callable[[int], Draw]:
        """Noise of every round, drawn for each (stage, party) in this order."""
        cfg = self.cfg
        drawn = {at: self.noise.draw((self.sizes[at[0]],), self.law) for at in order if at[0] in cfg.stages}
        whole = any(isinstance(noise, Grid) for noise in drawn.values())
        table = np.zeros((len(cfg.stages), self.size, self.problem.dim), np.int64 if whole else np.float64)
        for (stage, holder), noise in drawn.items():
            table[cfg.stages.index(stage), holder, : self.sizes[stage]] = (
                noise.steps if isinstance(noise, Grid) else noise
            )

        def draw(t: int) -> Draw:
            stage, late = divmod(t, cfg.walk)
            noise = np.zeros_like(table[0]) if late else table[stage]
            return {"noise": on_grid(noise, self.law) if whole else noise}

        return draw

    def step(self, t: int) -> float:
        """The grid of a round."""
        with jax.enable_x64(True):
            return float(agents.wire(self.cfg, rows(self.places, 0), jnp.asarray(t))) / on_grid(np.zeros(0, int)).unit

    def fit(self, order: Iterable[tuple[int, int]], deliver: Deliver, penalty: float, claim: Claim) -> FairNetwork:
        """Run, and solve what every party ends with."""
        points = play_together(
            FAIR_RELEASE, self.cfg, self.places, self.shards, draw=self.draws(order), deliver=deliver
        )
        weights = np.stack([replace(self.problem, penalty=penalty).weights(x) for x in points])
        gap = float(np.max(np.linalg.norm(weights - weights.mean(0), axis=1)))
        share = points[:, : self.cfg.groups].mean(0) / self.cfg.records if 0 in self.cfg.stages else None
        return FairNetwork(weights, claim, share, gap)
