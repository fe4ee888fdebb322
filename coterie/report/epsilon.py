r"""The tables of docs/how-to-read-epsilon.md: what a budget means for somebody who tries to learn about one record.

The question is a test between two worlds that differ in one record. With exact Gaussian accounting a run is
characterised by μ, and the best test with false-alarm rate α detects with probability Φ(Φ⁻¹(α) + μ) (Dong, Roth, Su
2022, Eq. 6). From (ε, δ) alone, detection ≤ e^ε α + δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from coterie.privacy import gdp
from coterie.privacy.events import Gaussian
from coterie.privacy.ledger import Budget
from coterie.privacy.lifetime import Lifetime
from coterie.report.markdown import table

__all__ = ["EPSILON_TABLES", "Guess", "best_guess", "detection", "guess", "posterior"]

DELTA = 1e-5
BUDGETS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
ALARMS = (0.05, 0.01, 0.001)
PRIORS = (0.01, 0.1, 0.5)
REPEATS = (1, 2, 4, 10)
RECORDS = (100, 1_000, 10_000)
PEOPLE = (1, 2, 5, 10, 40)
PARTIES = (1, 2, 3, 5)
LIFE = (0.1, 0.3, 0.5, 1.0, 2.0)
LIFETIME = 3.0


def detection(epsilon: float, delta: float, alarm: float) -> float:
    """Largest probability of detecting the record by a test with false-alarm rate `alarm`, Gaussian noise at (ε, δ).

    >>> round(detection(1.0, 1e-5, 0.01), 4)
    0.0198
    """
    return float(ndtr(ndtri(alarm) + gdp.mu_for(epsilon, delta)))


def best_guess(epsilon: float, delta: float) -> tuple[float, float]:
    """Chance to tell two equally likely worlds apart: with Gaussian noise at (ε, δ), and for any (ε, δ) mechanism."""
    gaussian = float(ndtr(gdp.mu_for(epsilon, delta) / 2))
    return gaussian, float((np.exp(epsilon) + delta) / (np.exp(epsilon) + 1))


class Guess(NamedTuple):
    """How often, in percent, the best guess between two records is right: a figure, or a bound that is rounded up."""

    percent: float
    exact: bool  # by the trade-off of Gaussian noise; otherwise a bound, by (ε, δ) alone
    bound: float  # by (ε, δ) alone


def guess(epsilon: float, delta: float, accountant: str) -> Guess:
    """The figure for a total that `accountant` proved.

    Under "gdp" it is μ-GDP for the μ that (ε, δ) gives: Φ(μ/2), and δ/2 for what samplers may have taken of δ. Any
    other accountant proves no more than (ε, δ).

    >>> guess(1.0, 1e-5, "gdp"), guess(1.0, 1e-5, "rdp").percent
    (Guess(percent=55.3, exact=True, bound=73.2), 73.2)
    """
    up = lambda chance: min(math.ceil(1000 * chance - 1e-9) / 10, 100.0)  # noqa: E731
    bound = 1 - (1 - delta) / (math.exp(min(epsilon, 700.0)) + 1)
    if accountant != "gdp" or not 0 < delta < 1:
        return Guess(up(bound), False, up(bound))
    gaussian = float(ndtr(gdp.mu_for(epsilon, delta) / 2)) + delta / 2
    return Guess(round(100 * min(gaussian, bound), 1), True, up(bound))


def posterior(epsilon: float, prior: float) -> float:
    """Largest belief that δ = 0 allows somebody whose belief was `prior`: odds grow by e^ε at most."""
    return float(prior * np.exp(epsilon) / (1 - prior + prior * np.exp(epsilon)))


def _percent(x: float) -> str:
    return f"{100 * x:.{4 if x > 0.99 else 3}g} %"


def odds_table() -> str:
    """Prior → largest posterior, δ = 0."""
    header = ("ε", "odds grow at most by", *(f"belief {_percent(p)} becomes at most" for p in PRIORS))
    rows = [(f"{e:g}", f"{np.exp(e):,.2f} ×", *(_percent(posterior(e, p)) for p in PRIORS)) for e in BUDGETS]
    return table(header, rows)


def tests_table() -> str:
    """Best guess and detection rates at δ = 1e-5."""
    header = ("ε", "μ", "right guess, Gaussian", "right guess, any mechanism",
              *(f"found at {_percent(a)} false alarms" for a in ALARMS))  # fmt: skip
    rows = []
    for e in BUDGETS:
        guess = best_guess(e, DELTA)
        found = (_percent(detection(e, DELTA, a)) for a in ALARMS)
        rows.append((f"{e:g}", f"{float(gdp.mu_for(e, DELTA)):.4f}", *map(_percent, guess), *found))
    return table(header, rows)


def repeat_table() -> str:
    """What k runs at (1, 1e-5) cost one record, and what one such run costs a person with k records at one agent."""
    mu = float(gdp.mu_for(1.0, DELTA))
    rows = []
    for k in REPEATS:
        runs, group = (float(gdp.epsilon_of(m, DELTA)) for m in (np.sqrt(k) * mu, k * mu))
        rows.append((k, f"{runs:.3f}", k, f"{group:.3f}"))
    header = ("k", "k runs, exact: ε at δ", "k runs, added up: ε at kδ", "one run, a person with k records: ε at δ")
    return table(header, rows)


def noise_table() -> str:
    """Standard deviation of one published share of n records."""
    header = ("records", *(f"ε = {e:g}" for e in BUDGETS))
    rows = []
    for n in RECORDS:
        sigma = (1 / (n * float(gdp.mu_for(e, DELTA))) for e in BUDGETS)
        rows.append((f"{n:,}", *(f"± {100 * s:.2g} points" for s in sigma)))
    return table(header, rows)


def people_table() -> str:
    """What ε = 1 per record means for a person with k records, and the ε per record that gives such a person 1."""
    mu = float(gdp.mu_for(1.0, DELTA))
    rows = []
    for k in PEOPLE:
        person, record = (float(gdp.epsilon_of(m, DELTA)) for m in (k * mu, mu / k))
        rows.append((k, f"{person:.3g}", f"{record:.3g}"))
    return table(("records of the person", "ε of the person at ε = 1 per record",
                  "ε per record at which the person has ε = 1"), rows)  # fmt: skip


def parties_table() -> str:
    """A person known to several parties of one run, each of which spends (1, 1e-5) on it."""
    mu = float(gdp.mu_for(1.0, DELTA))
    rows = []
    for k in PARTIES:
        messages, sums = (float(gdp.epsilon_of(m, DELTA)) for m in (k**0.5 * mu, k * mu))
        rows.append((k, f"{messages:.3g}", f"{sums:.3g}"))
    return table(("parties that know the person", "against a reader of all messages: √Σμ²",
                  "in opened sums with shared noise: Σμ"), rows)  # fmt: skip


def lifetime_table() -> str:
    """How many agreements an account of (3, 1e-5) pays for, exactly and by adding up."""
    rules = Lifetime(Budget(LIFETIME, DELTA))
    rows = []
    for epsilon in LIFE:
        one = rules.price([Gaussian(float(gdp.mu_for(epsilon, DELTA)), 1.0)])
        rows.append((f"{epsilon:g}", rules.limit.units // one.units, int(LIFETIME / epsilon + 1e-9)))
    return table((f"ε of each agreement at δ = {DELTA:g}", "agreements that fit, μ² added up",
                  "if ε were added up"), rows)  # fmt: skip


EPSILON_TABLES: dict[str, Callable[..., str]] = {
    "epsilon-odds": odds_table,
    "epsilon-tests": tests_table,
    "epsilon-repeats": repeat_table,
    "epsilon-noise": noise_table,
    "epsilon-people": people_table,
    "epsilon-parties": parties_table,
    "epsilon-lifetime": lifetime_table,
}
"""Generators for `coterie.report.pages`."""
