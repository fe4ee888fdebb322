r"""What a list of events costs in total: every accountant that is valid for it, and the tightest.

- "gdp": Σμ² (exact for Gaussian events; an upper bound for their post-processings);
- "objective-perturbation-A": δ ≤ e^{ΣJ} δ_G(μ; ε − 2ΣJ) (zero-out: δ_G(μ; ε − ΣJ)), for monotone objective
  perturbation with or without Gaussian events. The worlds are joined through a third in which the record is left out;
  a Gaussian query answers half-way there, so its two legs are half its sensitivity and μ² adds;
- "pld": convolution of privacy-loss distributions;
- "rdp": sum of Rényi curves, best order;
- "zcdp": sum of ρ, best order of ρα;
- "basic": sum of pure ε.

All hold under adaptive composition with parameters fixed in advance (dominating pairs: Zhu, Dong, Wang 2022, Thm 10).
Parameters that depend on the transcript belong in `coterie.privacy.filter`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

import numpy as np

from coterie.errors import InputError
from coterie.privacy import events as ev
from coterie.privacy import gdp, pld, rdp
from coterie.privacy.roots import brentq

__all__ = ["Account", "account", "curve_of", "delta_of", "forget", "total_mu"]

_ROWS = 5000  # distinct loss laws beyond which convolving them one by one is not worth its time
_TWO = np.array([2.0])


@dataclasses.dataclass(frozen=True)
class Account:
    """A total: (ε, δ), the accountant that proves it, every valid accountant's ε (exact ones first), the adjacency."""

    epsilon: float
    delta: float
    accountant: str
    all: dict[str, float]
    adjacency: str


@dataclasses.dataclass(frozen=True)
class _Bound:
    """One accountant's answer, slack not included: ε for a δ > 0 and δ for an ε ≥ 0."""

    epsilon: Callable[[float], float]
    delta: Callable[[float], float]


def account(events: Iterable[ev.Event], delta: float, *, fast: bool = False) -> Account:
    """The total privacy cost of all events at δ; `fast` leaves out what cannot be smaller, or takes long.

    >>> from coterie.privacy.events import Gaussian
    >>> total = account([Gaussian(1.0, 10.0, times=50)], 1e-5, fast=True)
    >>> total.accountant, round(total.epsilon, 4)
    ('gdp', 2.9432)
    """
    total = _Total(events)
    if not 0 <= delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta}")
    found = _account(total, float(delta), fast)
    return dataclasses.replace(found, all=dict(found.all))


@lru_cache(maxsize=256)
def _account(total: "_Total", delta: float, fast: bool) -> Account:
    """Cached: agents whose places differ only in what no price depends on ask for the same totals."""
    if total.hopeless:
        return Account(np.inf, delta, "non-private", {"non-private": np.inf}, total.adjacency)
    bounds = total.bounds(fast or delta == 0)
    if delta == 0:  # no other accountant has anything to say
        bounds = {name: bound for name, bound in bounds.items() if name == "basic"}
        if not bounds:
            raise InputError("delta must be in (0, 1) for events without a pure guarantee, got 0")
    found = {name: total.epsilon(bound, delta) for name, bound in bounds.items()}
    best = min(found, key=lambda name: found[name])
    return Account(found[best], delta, best, found, total.adjacency)


def forget() -> None:
    """Drop the cached totals, so that the time to work them out can be measured."""
    _account.cache_clear()


def delta_of(events: Iterable[ev.Event], epsilon: float, *, fast: bool = False) -> float:
    """The smallest δ that a valid accountant proves for all events at ε ≥ 0."""
    if not epsilon >= 0:
        raise InputError(f"epsilon must be >= 0, got {epsilon}")
    total = _Total(events)
    if total.hopeless:
        return 1.0
    with np.errstate(over="ignore"):
        extra = total.slack + ((1 + np.exp(epsilon)) * total.tv if total.tv else 0.0)
    return float(min(1.0, extra + min(bound.delta(epsilon) for bound in total.bounds(fast).values())))


def curve_of(events: Iterable[ev.Event]) -> Callable[[float], float]:
    """The smallest ε that a valid accountant with a closed form proves, as a function of δ > 0: quick, and no PLD.

    >>> from coterie.privacy.events import Gaussian
    >>> round(curve_of([Gaussian(1.0, 10.0, times=50)])(1e-5), 4)
    2.9432
    """
    total = _Total(events)
    if total.hopeless:
        return lambda delta: np.inf
    bounds = total.bounds(fast=True, laws=False)
    return lambda delta: float(min(total.epsilon(bound, delta) for bound in bounds.values()))


def total_mu(events: Iterable[ev.Event]) -> float | None:
    """√Σμ² if every event is exactly Gaussian and nothing else is added to δ, else None."""
    total = _Total(events)
    return total.mu() if total.gaussian and total.slack == total.tv == 0 else None


class _Total:
    """Merged events of one adjacency."""

    def __init__(self, events: Iterable[ev.Event]):
        listed = list(events)
        for event in listed:
            if not isinstance(event, ev.Event):
                raise InputError(f"expected a privacy event, got {event!r}")
        named = {event.adjacency for event in listed if not isinstance(event, ev.Free | ev.NonPrivate)}
        if len(named) > 1:
            raise InputError(f"cannot add events of different adjacency: {', '.join(sorted(named))}")
        self.adjacency = named.pop() if named else "replace-one"
        self.parts = [part for part in ev.merge(listed) if part.times.size and not isinstance(part, ev.Free)]
        self.hopeless = any(isinstance(part, ev.NonPrivate) for part in self.parts)
        self.gaussian = all(isinstance(part, ev.Gaussian) for part in self.parts)
        self.slack = sum(float(part.times @ part.slack) for part in self.parts)
        self.tv = sum(float(part.times @ part.tv) for part in self.parts)
        self._curves: dict[bytes, np.ndarray] = {}

    @cached_property
    def _key(self) -> tuple[object, ...]:
        """All that a total is made of, to the last bit."""
        return (self.adjacency, *(ev.bits_of(part) for part in self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Total) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def epsilon(self, bound: _Bound, delta: float) -> float:
        """The bound's ε once slack and the samplers' distance (which costs (1 + e^ε)·tv) are paid from δ."""
        eps = 0.0
        for _ in range(100):
            with np.errstate(over="ignore"):
                rest = delta - self.slack - ((1 + np.exp(eps)) * self.tv if self.tv else 0.0)
            more = bound.epsilon(rest) if rest >= 0 else np.inf
            if not np.isfinite(more) or not self.tv or more <= eps * (1 + 1e-9):
                return more
            eps = more * (1 + 1e-9)  # a rising sequence: its limit is the least ε that pays for itself
        return np.inf

    def bounds(self, fast: bool, laws: bool = True) -> dict[str, _Bound]:
        """Every valid accountant, exact ones first; without `laws`, none that convolves."""
        found: dict[str, _Bound] = {}
        mu = self.mu()
        if mu is not None:
            found["gdp"] = _Bound(
                lambda delta: float(gdp.epsilon_of(mu, delta)) if delta > 0 else _nothing(mu),
                lambda eps: float(gdp.delta_of(mu, eps)),
            )
            if fast and self.gaussian and mu:  # exact: no other bound is smaller
                return found
        theorem = self._objective()
        if theorem is not None:
            found["objective-perturbation-A"] = theorem
        if laws and not (fast and (self.gaussian or theorem is not None)):
            law = self._law()
            if law is not None:
                found["pld"] = _Bound(
                    lambda delta: float(law.get_epsilon_for_delta(delta)) if delta > 0 else np.inf,
                    lambda eps: float(law.get_delta_for_epsilon(eps)),
                )
        integer = any(part.integer_orders for part in self.parts)
        found["rdp"] = _Bound(
            lambda delta: rdp.best_epsilon(self.curve, delta, integer=integer) if delta > 0 else np.inf,
            lambda eps: rdp.best_delta(self.curve, eps, integer=integer),
        )
        rho = sum((float(part.times @ part.zcdp()) for part in self.parts), 0.0)
        if np.isfinite(rho):
            found["zcdp"] = _Bound(
                lambda delta: rdp.best_epsilon(lambda orders: rho * orders, delta) if delta > 0 else _nothing(rho),
                lambda eps: rdp.best_delta(lambda orders: rho * orders, eps),
            )
        pure = sum((float(part.times @ part.pure()) for part in self.parts), 0.0)
        if np.isfinite(pure):
            found["basic"] = _Bound(lambda delta: pure, lambda eps: 0.0 if eps >= pure else 1.0)
        return found

    def mu(self) -> float | None:
        squares = []
        for part in self.parts:
            mu = part.mu()
            if mu is None:
                return None
            squares.append(float(part.times @ mu**2))
        return float(np.sqrt(sum(squares)))

    def curve(self, orders: np.ndarray) -> np.ndarray:
        """The composed Rényi curve; cached, because every δ is tried at the same orders first."""
        asked = orders.tobytes()
        if asked not in self._curves:
            self._curves[asked] = sum((part.times @ part.rdp(orders) for part in self.parts), np.zeros(orders.size))
        return self._curves[asked]

    def _objective(self) -> _Bound | None:
        square, jacobian, applies = 0.0, 0.0, False
        for part in self.parts:
            if isinstance(part, ev.ObjectivePerturbation) and part.monotone:
                applies = True
                square += float(part.times @ part.gaussian_part() ** 2)
                jacobian += float(part.times @ part.jacobian())
            else:
                each = part.mu()
                if each is None:
                    return None
                square += float(part.times @ each**2)
        if not applies:
            return None
        mu, replace = float(np.sqrt(square)), self.adjacency == "replace-one"
        shift, factor = (2 * jacobian, np.exp(jacobian)) if replace else (jacobian, 1.0)

        def delta_at(eps: float) -> float:
            return min(1.0, float(factor * gdp.delta_of(mu, eps - shift)))

        def epsilon_at(delta: float) -> float:
            if delta <= 0:
                return np.inf
            if delta_at(0.0) <= delta:
                return 0.0
            if delta_at(shift) <= delta:  # the Gaussian's own ε is negative there
                return float(brentq(lambda eps: delta_at(eps) - delta, 0.0, shift, xtol=1e-15 + 1e-12 * shift))
            return shift + float(gdp.epsilon_of(mu, delta / factor))

        return _Bound(epsilon_at, delta_at)

    def _law(self) -> pld.PrivacyLossDistribution | None:
        rows: list[tuple[ev.Event, int, int, float]] = []
        for part in self.parts:
            if isinstance(part, ev.Gaussian):  # Gaussians compose to a Gaussian, exactly
                mu = float(np.sqrt(part.times @ part.mu() ** 2))
                part = ev.flat(ev.Gaussian(mu, 1.0))
            squares = part.rdp(_TWO)[:, 0]
            rows += [(part, i, int(part.times[i]), float(squares[i])) for i in range(squares.size) if squares[i] > 0]
        if not rows or len(rows) > _ROWS or not np.isfinite(sum(row[3] for row in rows)):
            return None
        mean = sum(count * square for _, _, count, square in rows) / sum(count for _, _, count, _ in rows)
        tops = [profile for part, i, _, _ in rows if (profile := part.profile(i)) is not None]
        step = pld.grid(mean, max((pld.reach(profile) for profile in tops), default=0.0))
        laws = []
        for part, i, count, _ in rows:
            law = part.law(i, step)
            if law is None:
                return None
            laws.append((law, count))
        return pld.compose(laws)


def _nothing(cost: float) -> float:
    return 0.0 if cost == 0 else np.inf
