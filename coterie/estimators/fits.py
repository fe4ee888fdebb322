"""A memory of fits: a second fit on the same records costs their owners again, and says so.

Grid searches, cross-validation and loops over settings spend a budget with every fit, and none of the ε that the models
report covers it. So each fit leaves here the salted hashes of its records and what it cost, and a later fit that meets
one of them warns with the total. The memory is this process's own, is never written anywhere, and knows nothing of
other processes: it can miss repetitions, it cannot prevent them.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.accountants import account
from coterie.privacy.events import Event

__all__ = ["RepeatedFitWarning", "forget_fits", "quiet", "remember"]

MOST = 1000  # fits remembered


class RepeatedFitWarning(UserWarning):
    """Records were used by an earlier fit: what they cost adds up."""


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit: whose records, at what price. `events` of the party that paid most, None if only (ε, δ) is known."""

    records: NDArray[np.uint64]
    events: tuple[Event, ...] | None
    epsilon: float
    delta: float


_FITS: list[Fit] = []
_QUIET: list[bool] = []
_SALT = np.random.default_rng(secrets.randbits(128))
_MULTIPLIERS: list[int] = []


def forget_fits() -> None:
    """Forget all fits so far, for example between data sets that share records by chance."""
    _FITS.clear()


@contextmanager
def quiet() -> Iterator[None]:
    """Fits that somebody else accounts for: neither remembered nor warned about."""
    _QUIET.append(True)
    try:
        yield
    finally:
        _QUIET.pop()


def remember(
    table: NDArray[np.float64], events: Sequence[Event] | None, epsilon: float, delta: float, stacklevel: int = 3
) -> None:
    """Note a fit on these records (rows of features, whatever the target was); warn if some were fitted before."""
    if _QUIET:
        return
    records = np.unique(_hashes(table))
    now = Fit(records, None if events is None else tuple(events), epsilon, delta)
    costs, shared = np.zeros(records.size), []
    for fit in _FITS:
        again = np.isin(records, fit.records, assume_unique=True)
        if again.any():
            shared.append((fit, again))
            costs += again * fit.epsilon
    _FITS.append(now)
    del _FITS[:-MOST]
    if not shared:
        return
    worst = int(np.argmax(costs))
    fits = [fit for fit, again in shared if again[worst]] + [now]
    total, at = _total(fits)
    warnings.warn(
        f"fit {len(fits)} on the same records in this process: together they cost ε = {total:.3g} at δ = {at:.3g}, "
        f"not ε = {epsilon:.3g}. Settings chosen by comparing such fits are a release too: use "
        "coterie.estimators.PrivateSearch, whose budget covers the search, or fit once",
        RepeatedFitWarning,
        stacklevel=stacklevel,
    )


def _total(fits: Sequence[Fit]) -> tuple[float, float]:
    """(ε, δ) of all of them: by the tightest accountant if every fit left its events, else by adding."""
    simple = sum(f.epsilon for f in fits), sum(f.delta for f in fits)
    if any(f.events is None for f in fits):
        return simple
    try:
        delta = max(f.delta for f in fits)
        return account([e for f in fits for e in f.events or ()], delta, fast=True).epsilon, delta
    except InputError:  # different adjacencies have no common total but the sum
        return simple


def _hashes(table: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Multilinear hashes of rows, modulo 2⁶⁴, with multipliers that only this process knows."""
    words = np.ascontiguousarray(table + 0.0, dtype=np.float64).view(np.uint64)
    while len(_MULTIPLIERS) < 2 * words.shape[1] + 1:
        _MULTIPLIERS.append(int(_SALT.integers(1 << 63)) * 2 + 1)
    first, *rest = (np.uint64(m) for m in _MULTIPLIERS[: 2 * words.shape[1] + 1])
    with np.errstate(over="ignore"):
        total = np.full(len(words), first)
        for j in range(words.shape[1]):  # 32-bit halves: a product's low bits see the low bits of a word only
            total += (words[:, j] >> np.uint64(32)) * rest[2 * j] + (words[:, j] & np.uint64(0xFFFFFFFF)) * rest[
                2 * j + 1
            ]
        total ^= total >> np.uint64(29)
    return total
