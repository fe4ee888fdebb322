"""What the papers got wrong, measured: for each privacy-breaking erratum that an attack can reach, claim and bound.

`python -m reproduction claims --table` runs all of them and prints the table of docs/audit.md. A case fits the noise so
that the *paper's* formula says ε, attacks what the paper printed, and beside it the corrected method at the same ε.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, nbinom

from coterie.algorithms._quantized import printed_epsilon
from coterie.algorithms.base import find
from coterie.audit.audit import Verdict, audit
from coterie.audit.claims import Found
from coterie.audit.setting import Setting, make_setting
from coterie.errors import InputError
from coterie.report.markdown import code, table

__all__ = ["CASES", "Case", "Measured", "carried_state_epsilon", "jobs", "measure", "redrawn_test_epsilon"]

SURE = 0.99  # confidence of the bounds in docs/audit.md


@dataclass(frozen=True)
class Case:
    """One erratum: what is run as printed, and what corrects it."""

    algorithm: str
    where: str
    what: str
    epsilon: float
    delta: float = 1e-5
    trials: int = 2000
    as_printed: bool = True  # False: the algorithm is right and the paper's formula for its cost is not
    changes: dict[str, Any] = field(default_factory=dict)  # of the configuration
    options: dict[str, Any] = field(default_factory=dict)  # of `make_setting`
    rounds: int = 6

    def setting(self, printed: bool = True) -> Setting:
        """The claim as the paper makes it, or (not `printed`) the corrected method with its own accounting."""
        algorithm = find(self.algorithm)
        options = dict(self.options)
        cfg = None
        if self.changes:
            tolerance = {"tolerance": 1e-10} if "tolerance" in algorithm.config.model_fields else {}
            cfg = algorithm.example.replace(**(tolerance | self.changes))
        common: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "rounds": self.rounds}
        if printed:
            return make_setting(algorithm, cfg, printed=self.as_printed, claim="paper", **common, **options)
        options.pop("noise", None)
        if self.epsilon == 0:
            common["epsilon"] = 1.0
        return make_setting(algorithm, cfg, **common, **options)


@dataclass(frozen=True)
class Measured:
    """A case's two audits (qdpsgd2's long run has a closed form in place of the first)."""

    case: Case
    printed: Verdict
    corrected: Verdict


CASES = (
    Case("dvp", "Alg. 2 line 5", "noise half as large as the proof needs", 0.3, 0.0, 20_000, rounds=1,
         changes={"penalty": 0.25, "noise": "gamma"}, options={"records": 20, "ridge": 0.1}),
    Case("dvp", "Cor. 1.1", "rounds do not add up", 0.5, 0.0, 20_000, as_printed=False, rounds=10,
         changes={"penalty": 0.25, "noise": "gamma"}, options={"records": 20, "ridge": 0.1}),
    Case("pvp", "Alg. 3, final iteration", "the last step starts from points sent without noise", 1.0, 0.0),
    Case("dp-consensus-gd", "Alg. 1 line 8", "the last gradient step is sent without noise", 1.0),
    Case("qdpsgd2", "Lemma 19, Thm 15", "the state that is sent carries all gradients without noise", 1.0,
         trials=20_000,
         changes={"scheme": "fixed", "batch": 4, "grid": 1e-4, "range": 4096.0, "step": 0.5, "averaging": 0.2},
         options={"self_weight": 0.5}, rounds=40),
    Case("qdpsgd1", "Thm 11", "one price for every batch size, used where a batch is a single record", 1.0,
         trials=10_000, as_printed=False, rounds=2,
         changes={"scheme": "fixed", "batch": 1, "bits": 28, "range": 1024.0}, options={"records": 100}),
    Case("ldp-admm", "Thm 2.2, App. E", "one coordinate's move charged for the whole vector", 1.0, 0.0, 20_000,
         as_printed=False, rounds=1),
    Case("ldp-dgd", "Thm 2.2, App. E", "one coordinate's move charged for the whole vector", 1.0, 0.0, 20_000,
         as_printed=False, rounds=1),
    Case("pp-admm", "Lemma on b₂", "output noise for one solver's error where two can point apart", 2.0, 1e-3, 20_000,
         changes={"split": 0.9, "tolerance": 0.5}, options={"slip": 0.5, "records": 1000}, rounds=1),
    Case("pr-admm", "Thm 3", "the first release is forgotten: one round would be free", 0.0, trials=2000,
         options={"noise": 1.0, "records": 1}, rounds=1),
    Case("priv-rcd", "App. K", "no ln(1/δ) in the noise", 1.0, trials=20_000, as_printed=False),
    Case("sdm", "privacy theorem (as remembered)", "a mask saves a flat factor", 1.0, trials=50_000, as_printed=False,
         changes={"batch": None, "keep": 0.05}, rounds=1),
)  # fmt: skip


def measure(case: Case, trials: int | None = None, progress: Callable[[float], None] = lambda _: None) -> Measured:
    """Audit what was printed, and the corrected method."""
    count = trials or case.trials
    printed = audit(case.setting(), count, confidence=SURE, progress=lambda p: progress(p / 2))
    corrected = audit(case.setting(False), count, confidence=SURE, progress=lambda p: progress(0.5 + p / 2))
    return Measured(case, printed, corrected)


def carried_state_epsilon(
    claimed: float = 1.0, rounds: int = 1000, self_weight: float = 0.5, batch: int = 20, records: int = 1000,
    delta: float = 1e-5, averaging: float | None = None,
) -> float:  # fmt: skip
    r"""ε that the printed `qdpsgd2` spends at δ, at least, where Theorem 15 prints `claimed`: in closed form.

    Linear loss, every other record's gradient −Ku, the one in question Ku, no rounding. A record used in round τ moves
    the state by 2αhK/b, the state keeps the share a = 1 − h + h w_ii of it each round, so Σ_t z_t moves by
    c_τ = (2αhK/b)(1 − a^{T−1−τ})/(1 − a) for every τ in which it was sampled, independently with chance b/m, beside
    noise of variance T(αhKσ)². Both laws are Fourier inverted; δ(ε) is the larger of the two directions.
    """
    h = min(1.0, 11 / np.sqrt(rounds)) if averaging is None else averaging
    sigma = brentq(lambda s: printed_epsilon(s, records, rounds, delta) - claimed, 1e-6, 1e3)
    keep = 1 - h + h * self_weight
    moves = 2 / batch * (1 - keep ** (rounds - 1 - np.arange(rounds))) / (1 - keep) / (np.sqrt(rounds) * sigma)
    rate = batch / records
    mean = rate * moves.sum()
    spread = np.sqrt(1 + rate * np.sum(moves**2))
    half = mean + 14 * spread  # in units of the noise of Σ z_t
    n = 1 << 13
    x = np.linspace(-half, half, n, endpoint=False)
    omega = 2 * np.pi * np.fft.fftfreq(n, d=2 * half / n)
    near = np.abs(omega) < 9  # beyond, the noise's own characteristic function is below 1e-17
    phases = np.log1p(rate * np.expm1(1j * moves[:, None] * omega[None, near]))
    phi = np.zeros(n, complex)
    phi[near] = np.exp(-(omega[near] ** 2) / 2 + phases.sum(axis=0))
    density = np.fft.fftshift(np.fft.fft(phi).real) / (2 * half)
    other = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    density = np.clip(density, 0.0, None)

    def delta_at(epsilon: float) -> float:
        gaps = (density - np.exp(epsilon) * other, other - np.exp(epsilon) * density)
        return max(float(np.clip(g, 0, None).sum() * (x[1] - x[0])) for g in gaps)

    return 0.0 if delta_at(0.0) <= delta else float(brentq(lambda e: delta_at(e) - delta, 0.0, 60.0, xtol=1e-6))


def redrawn_test_epsilon(pure: float, broadcasts: int, rounds: int, delta: float) -> float:
    r"""ε at δ that the printed tests of `ipp-admm` alone spend, at least, with ε₁ + ε₂ = `pure`: in closed form.

    One record, whose part in the query is C in one world and −C in the other, in every round: no query can move
    farther, since it lies in [−C, C]. Query noise Lap(4cC/ε₂) and threshold noise Lap(2cC/ε₁), with ε₁ : ε₂ as
    1 : (2c)^{2/3}, are redrawn in every round, so the bits are coins with chance p or p′ until c of them show heads or
    T are thrown; the threshold is the one that tells most. Theorem 10 charges √(2 ln 1/δ) (ε₁ + ε₂) for them.
    """
    c, ratio = broadcasts, (2 * broadcasts) ** (2 / 3)
    over, above = 4 * c * (1 + ratio) / (pure * ratio), 2 * c * (1 + ratio) / pure  # C = 1
    thrown, shown = np.arange(c, rounds + 1), np.arange(c)

    def law(threshold: float, query: float) -> np.ndarray:
        x = threshold - query
        tail = (over**2 * np.exp(-abs(x) / over) - above**2 * np.exp(-abs(x) / above)) / (2 * (over**2 - above**2))
        p = tail if x >= 0 else 1 - tail
        ended = nbinom.pmf(thrown - c, c, p)
        return np.concatenate([ended, binom.pmf(shown, rounds, p)])

    best = 0.0
    for threshold in np.linspace(-3, 12, 61) * over:
        worlds = law(threshold, 1.0), law(threshold, -1.0)
        for one, two in (worlds, worlds[::-1]):
            room = lambda e: float(np.sum(np.clip(one - np.exp(e) * two, 0, None))) - delta  # noqa: B023, E731
            if room(0.0) > 0:
                best = max(best, float(brentq(room, 0.0, 60.0)))
    return best


def jobs(algorithms: list[str], trials: int | None) -> list[tuple]:
    """What `coterie.commands.audit.report` does for these algorithms' claims, or for all."""
    known = list(dict.fromkeys(c.algorithm for c in CASES))
    for name in algorithms:
        if name not in known:
            raise InputError(f"no erratum of {name!r} is measured; there are {', '.join(known)}")

    def work(case: Case, progress: Any) -> Found:
        setting = case.setting()
        return Found(case.where, setting, audit(setting, trials or case.trials, progress=progress))

    chosen = [c for c in CASES if not algorithms or c.algorithm in algorithms]
    return [(f"{c.algorithm}, {c.where}", partial(work, c), trials or c.trials) for c in chosen]


def rows() -> Iterator[tuple[str, ...]]:
    """The table's rows, one case at a time."""
    for case in CASES:
        found = measure(case)
        yield row(found)
        if case.algorithm == "qdpsgd2":
            for rounds in (1000, 5000):
                bound = carried_state_epsilon(rounds=rounds)
                yield (code("qdpsgd2"), case.where, f"the same, T = {rounds}, b = 20 of 1000, w_ii = ½ (closed form)",
                       "1", f"{bound:.2f}", "", "caught")  # fmt: skip


def row(found: Measured) -> tuple[str, ...]:
    """One case as a row."""
    case, verdict, fixed = found.case, found.printed, found.corrected
    return (
        code(case.algorithm),
        case.where,
        case.what,
        f"{case.epsilon:g}",
        f"{verdict.lower_bound:.2f}{_ratio(verdict)}",
        f"{fixed.lower_bound:.2f} of {fixed.epsilon:.3g}{_ratio(fixed)}",
        "caught" if verdict.violated and not fixed.violated else "not caught",
    )


def _ratio(verdict: Verdict) -> str:
    if verdict.delta > 0 or not verdict.exact:
        return ""
    return f" (ratio {'∞' if np.isinf(verdict.largest_ratio) else format(verdict.largest_ratio, '.3f')})"


HEADER = ("algorithm", "where", "what", "claimed ε", "as printed: ε ≥", "corrected: ε ≥", "verdict")


def main() -> int:
    """Run every case and print the table; exit code 1 if one was not caught, or a corrected method failed."""
    done = []
    for line in rows():
        done.append(line)
        print(f"{line[0]} {line[1]}: {line[6]}", file=sys.stderr, flush=True)
    print(table(HEADER, done))
    return int(any("not" in line[6] for line in done))
