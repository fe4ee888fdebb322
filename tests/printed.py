"""Noise that a printed formula asks for, where tests need it."""

from coterie.privacy.rdp import zcdp_rho


def printed_sigma(epsilon: float, count: int, rounds: int, delta: float) -> float:
    """The σ (noise std over clip norm) that Ding's Theorem 11 asks for a budget (Remark 6, best order)."""
    return float((8 * rounds / zcdp_rho(epsilon, delta)) ** 0.5 / count)
