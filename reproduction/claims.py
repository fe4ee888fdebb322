r"""What a paper prints and no algorithm of ours uses, reported beside the tight value and never instead of it."""

from coterie.privacy.rdp import log_inverse

__all__ = ["ding_rho"]


def ding_rho(epsilon: float, delta: float) -> float:
    """ε²/(4 ln 1/δ), used by Ding (diss., Lemma 3) as if it gave (ε, δ)-DP: false for ε > 7.53 at δ = 1e-4."""
    return epsilon**2 / (4 * log_inverse(delta))
