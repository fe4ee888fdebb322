"""What the figures of Ding's chapter 4 share: races against virtual time, and what is claimed of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from reproduction._dissertation_ch4_runs import DELTA, METHODS, SEEDS, ahead, race
from reproduction.base import Budget, Claim, Series, Table, Version
from reproduction.study import Study
from reproduction.verdicts import Outcome, compared, least

__all__ = [
    "BARE", "FREE", "OURS", "PLAIN", "PRINTED", "SDM", "SDMS", "SECOND", "Found", "Which", "World", "budgets", "curve",
    "last", "lines", "races", "run_time", "table",
]  # fmt: skip

Which = tuple[str, Version]
PRINTED: Which = ("Q-DPSGD-1", "as printed")
OURS: Which = ("Q-DPSGD-1", "corrected")
PLAIN: Which = ("DSGD", "reference")
FREE: Which = ("QuanTimed-DSGD", "reference")
SDM: Which = ("SDM", "corrected")
BARE: Which = ("Q-DPSGD-2", "as printed")
SECOND: Which = ("Q-DPSGD-2", "corrected")
SDMS: dict[Which, str] = {  # how SDM's ε may have been counted
    ("SDM", "as printed"): "a factor c on Theorem 11",
    ("SDM, no sampling", "as printed"): "a factor c, no sampling",
}
Found = dict[Which, dict[str, Any]]


class World(NamedTuple):
    """Choices where the dissertation is silent: T, and weights, grid, split, graph and start (`other`)."""

    rounds: int = 1000
    other: bool = False

    def as_tried(self) -> dict[str, str]:
        """By the keys of what is left open."""
        other = {"W": "Metropolis", "grid": "±2", "start": "another"}
        return {"T": str(self.rounds)} | (other if self.other else {"W": "I − L/λ_max", "grid": "±1", "start": "first"})


def races(
    study: Study, data: str, epsilons: list[float], methods: list[Which], batch: int = 20, agents: int = 10,
    at: World = World(),
) -> Found:  # fmt: skip
    """The curves of each method, at every budget where it has one."""
    hidden = study.pick({"mnist": 50, "cifar10": 40}[data], 8)
    return {
        (label, version): study.part(
            race, name=name, version=version, data=data, epsilons=[] if version == "reference" else epsilons,
            batch=batch, agents=agents, records=study.pick(10_000, 2_000) // agents, rounds=study.pick(at.rounds, 24),
            hidden=hidden, seeds=study.pick(SEEDS, 2), sampled="no sampling" not in label, other=at.other,
        )
        for label, name, version in METHODS
        if (label, version) in methods
    }  # fmt: skip


def curve(found: Found, which: Which, k: int, key: str = "loss") -> np.ndarray:
    """(seeds, points) at the k-th budget; methods without privacy have one curve for all."""
    return np.asarray(found[which][key][min(k, len(found[which][key]) - 1)])


def lines(panel: str, found: Found, k: int, key: str = "loss") -> list[Series]:
    """Every method's curve at the k-th budget."""
    out = []
    for which in found:
        label, version = which
        text = f"{label}, leaves the chart" if which == BARE and key == "loss" else label
        out.append(Series.over(panel, text, version, found[which]["time"], curve(found, which, k, key), colour=label))
    return out


def last(found: Found, which: Which, k: int = 0, key: str = "loss") -> float:
    """Mean over the seeds at the end of a run."""
    return float(curve(found, which, k, key)[:, -1].mean())


def _share(found: Found, one: Which, other: Which, k: int) -> float:
    """Share of the time of `one` in which it is ahead of `other`."""
    a, b = found[one], found[other]
    return ahead(a["time"], curve(found, one, k).mean(0), b["time"], curve(found, other, k).mean(0))


def _at(found: Found, which: Which, k: int, time: float) -> float:
    return float(np.interp(time, found[which]["time"], curve(found, which, k).mean(0)))


STEP = """a round is 4.5 times shorter, but the stated step αh is .033 against .2, and clipping and noise come on top:
QuanTimed-DSGD, the same method without these two, is judged below"""
SLOW = """SDM is ahead in some try; its step αθ = .12 is larger than αh = .033, so a quieter
gradient should help it more (that was not tested by itself)"""


def _sooner(found: Found, one: Which, other: Which, k: int) -> list[Outcome]:
    """“`one` is below `other` at equal run-time”: for most of its time (by the mean curves), and at its end."""
    end = float(found[one]["time"][-1])
    mine, theirs = ([np.interp(end, found[w]["time"], c) for c in curve(found, w, k)] for w in (one, other))
    return [Outcome(_share(found, one, other, k) - 0.5), compared(mine, theirs)]


def _tries(tried: dict[World, Found], one: Which, other: Which, budgets: int) -> list[Outcome]:
    """The same at every ε, for each choice of what is left open; of SDM for every way to count its ε."""
    rivals = list(SDMS) if other[0] == "SDM" and one == PRINTED else [other]
    return [
        least(
            [o for k in range(budgets) for o in _sooner(found, one, rival, k)],
            **world.as_tried(), **({"SDM's ε": SDMS[rival]} if rival in SDMS else {}),
        )
        for world, found in tried.items()
        for rival in rivals
        if one in found and rival in found
    ]  # fmt: skip


def run_time(tried: dict[World, Found], epsilons: list[float]) -> list[Claim]:
    """What the dissertation says of Fig. 14 and 15; the numbers told are those of the first try."""
    found = next(iter(tried.values()))
    private = [w for w in (SDM, PRINTED, OURS, SECOND) if w in found]
    losses = {w: [last(found, w, k) for k in range(len(epsilons))] for w in private}
    claims = [
        Claim(
            "the loss of the private methods is larger at ε = 1 than at ε = 1.5",
            all(v[0] > v[1] for v in losses.values()),
            "; ".join(f"{w[0]} ({w[1]}) {v[0]:.3f} and {v[1]:.3f}" for w, v in losses.items()),
            {f"{w[0]} {w[1]} at {e:g}": x for w, v in losses.items() for e, x in zip(epsilons, v, strict=True)},
            reason="the difference is within the spread over seeds",
        )
    ]
    end = float(found[OURS]["time"][-1])
    for one in (PRINTED, OURS):
        for other, why in ((PLAIN, STEP), (SDM if one == OURS else next(iter(SDMS)), SLOW)):
            if one not in found or other not in found:  # a quick version: compiling takes longer than running
                continue
            shares = [_share(found, one, other, k) for k in range(len(epsilons))]
            mine, theirs = ([_at(found, w, k, end) for k in range(len(epsilons))] for w in (one, other))
            claims.append(
                Claim(
                    ("in exact accounting, " if other == SDM else "")
                    + f"Q-DPSGD-1 has a lower loss than {other[0]} at equal run-time",
                    _tries(tried, one, other, len(epsilons)),
                    "; ".join(
                        f"ε = {e:g}: ahead {100 * s:.0f} % of the time, {a:.3f} against {b:.3f} at {end:.0f} s"
                        for e, s, a, b in zip(epsilons, shares, mine, theirs, strict=True)
                    ),
                    {f"share at {e:g}": s for e, s in zip(epsilons, shares, strict=True)},
                    version=one[1],
                    reason=why,
                )
            )
    if SECOND in found:
        claims += [
            Claim(
                "Q-DPSGD-2 converges more slowly than Q-DPSGD-1",
                all(last(found, SECOND, k) > last(found, OURS, k) for k in range(len(epsilons))),
                "; ".join(
                    f"ε = {e:g}: {last(found, SECOND, k):.3f} against {last(found, OURS, k):.3f}"
                    for k, e in enumerate(epsilons)
                ),
                {f"Q-2 minus Q-1 at {e:g}": last(found, SECOND, k) - last(found, OURS, k)
                 for k, e in enumerate(epsilons)},
                version="corrected",
            ),
            Claim(
                "Q-DPSGD-2 trains with the noise of Remark 10 and three-bit messages",
                last(found, BARE, 0) < float(curve(found, BARE, 0)[:, 0].mean()),
                f"at ε = {epsilons[0]:g} the loss of what is sent goes from {curve(found, BARE, 0)[:, 0].mean():.1f} "
                f"to {last(found, BARE, 0):.0f}, test accuracy {last(found, BARE, 0, 'score'):.3f}",
                {"loss": last(found, BARE, 0), "accuracy": last(found, BARE, 0, "score")},
                version="as printed",
                reason="the noise follows 2η√p, the rounding of all p numbers at once, and drowns the weights; three "
                "bits cannot hold it either (the clock charges the bits that it needs)",
                section="errata of qdpsgd2",
            ),
            Claim(
                "quantization and deadlines alone, without noise, give a lower loss than DSGD at equal run-time",
                _tries(tried, FREE, PLAIN, 1),
                "; ".join(
                    f"T = {w.rounds}{', other choices' if w.other else ''}: ahead "
                    f"{100 * _share(f, FREE, PLAIN, 0):.0f} % of the time, "
                    f"{last(f, FREE):.3f} against {_at(f, PLAIN, 0, f[FREE]['time'][-1]):.3f} at its end"
                    for w, f in tried.items()
                ),
                {"QuanTimed": _at(found, FREE, 0, end), "DSGD": _at(found, PLAIN, 0, end)},
                reason="the stated step αh = .033 is small: the lag behind DSGD is not all due to privacy",
            ),
        ]  # fmt: skip
    return claims


def budgets(found: Found, epsilons: list[float]) -> list[Budget]:
    """What each version claims and costs."""
    notes = {
        **{w: f"noise by {how}; exact cost, without replacement" for w, how in SDMS.items()},
        PRINTED: "noise of Remark 6, any batch size",
        OURS: "noise follows the batch size; accounted without replacement",
        SDM: "our calibration; accounted without replacement",
        BARE: "3-bit grid: its rounding term makes the noise so large; the un-noised state charged in full",
        SECOND: "qdpsgd2-grad: discrete noise on the gradient",
    }
    return [
        Budget(w[0], w[1], e, float(found[w]["true"][k]), DELTA, note)
        for w, note in notes.items()
        if w in found
        for k, e in enumerate(epsilons)
    ]


def table(found: Found, epsilons: list[float]) -> Table:
    """Where the runs end."""
    rows = []
    for w, f in found.items():
        for k, e in enumerate(epsilons if w[1] != "reference" else ["none"]):
            rows.append(
                (w[0], w[1], f"{e}", f"{f['time'][-1]:.0f} s", f"{last(found, w, k):.3f}",
                 f"{last(found, w, k, 'score'):.3f}")
            )  # fmt: skip
    head = ("method", "version", "ε", "virtual time of all rounds", "final train loss", "test accuracy")
    return Table("Ends of the runs", head, tuple(rows))
