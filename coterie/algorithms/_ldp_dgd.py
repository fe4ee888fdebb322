r"""What `ldp-dgd` and `ldp-dgd-range` share: step sizes, Laplace noise, its cost, and the uniform part beside it.

Round t (from 0) steps by η = step · ratio^t / (t + 1)^decay along ∇f_i at a point that the transcript fixes, from a
start drawn uniformly from an interval of public width ω_l in each coordinate, and adds Laplace noise of scale b_t:

**Sensitivity.** One record moves the step by at most s = η · 2 V unit in L2 and in each coordinate (V:
`lipschitz`), hence by √d s in L1. b_t = noise_t · √d s, so that a round costs pure 1/noise_t.

**Guarantee.** Every round is a post-processing (a further uniform shift) of product Laplace noise: `Laplace`
events, replace-one, every message seen, whatever the weights. The uniform weights give no pure saving. Their saving
in (ε, δ) depends on ω, hence on the transcript: charge `mixture` through a `coterie.privacy.filter.Filter`, never
in a fixed sum.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from pydantic import Field

from coterie.algorithms.base import Auto, Erratum, LaplaceLaw, Law, Needs, Place, Public, Uniform
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, Laplace, LaplaceUniform

__all__ = [
    "ERRATA",
    "Config",
    "claim",
    "cost",
    "draws",
    "mixture",
    "needs",
    "scale",
    "sensitivity",
    "step_size",
    "tune",
    "wire",
]


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="η of the first round; None: 1 / (smoothness + ridge)")
    ratio: float = Field(1.0, gt=0, le=1, description="geometric fall: η_t = step · ratio^t / (t + 1)^decay")
    decay: float = Field(0.5, ge=0, le=1, description="power of the fall; the paper's theorem has 1/2")
    average: bool = Field(True, description="answer with the mean over all rounds, as the theorem does; else the last")


ERRATA = (
    Erratum(
        "Thm 2.2 text, App. E worst case", "Σ_k η_k β_k B_∞", "d times that, or B_1 in its place (`claim`)", "privacy"
    ),
    Erratum(
        "App. E",
        "B_∞ = 1/b_i for one changed sample",
        "2/b_i under replacement; 1/b_i needs {0,1} labels with non-negative features, or zero-out",
        "privacy",
    ),
    Erratum("App. E", "labels {0, 1} in log(1 + e^{−ℓxᵀz})", "±1", "utility"),
    Erratum(
        "Thm 2.3 (11)", "an upper bound on the mean reduction", "App. D takes the wrong branch: too small", "privacy"
    ),
    Erratum("Def. 1 (8)", "Pr ≤ ε(X) Pr' + δ(X)", "factor e^{ε(X)}; ex-post, per output; DP is the sup over X", "typo"),
    Erratum("footnote 1", "strong composition of realised ε(X)", "holds for values fixed in advance only", "privacy"),
    Erratum(
        "(10) as a public report", "realised ε(X)", "it is computed from the gradient: publishing it leaks", "privacy"
    ),
    Erratum("App. C", "equality βt outside the union", "≤; false in the gap when t > ω", "typo"),
    Erratum("(27)", "e^{ωαB}", "e^{βαB}", "typo"),
)


def needs(cfg: Config) -> Needs:
    """Gradients are not clipped: they need a bound. What was released is projected on the problem's set."""
    return Needs(bounded=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """The largest step that never overshoots a record's curvature bound."""
    return cfg if cfg.step is not None else cfg.replace(step=1 / (public.smoothness + public.ridge))


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Standard Laplace noise, and the weights w of the two ends of each coordinate's interval."""
    return {"noise": LaplaceLaw(place.dim), "weight": Uniform(place.dim)}


def step_size(cfg: Config, t: Array) -> Array:
    """η of round t."""
    return cfg.step * cfg.ratio**t / (t + 1) ** cfg.decay


def _reach(cfg: Config, place: Place, t: Array) -> Array:
    """s: how far one record can move the step, in L2 and in one coordinate."""
    return step_size(cfg, t) * 2 * place.lipschitz * place.unit


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """√d s, in L1."""
    return place.dim**0.5 * _reach(cfg, place, t)


def scale(cfg: Config, place: Place, t: Array) -> Array:
    """b = 1/β: scale of each coordinate's Laplace noise."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


wire = scale  # deployed, a message lies on the grid of its Laplace noise; random weights only move where it starts


def cost(cfg: Config, place: Place, t: Array, message: object = None) -> Event:
    """Product Laplace noise; what the random weights save is not claimed."""
    s = _reach(cfg, place, t)
    return Laplace(sensitivity(cfg, place, t), 1 / scale(cfg, place, t), place.dim, linf=s, l2=s)


def mixture(cfg: Config, place: Place, t: Array, width: Array) -> LaplaceUniform:
    """The round's exact events, one per coordinate, given the public widths: for a filter, or to see what was saved."""
    return LaplaceUniform(
        jnp.full_like(width, 1 / scale(cfg, place, t)), width, jnp.full_like(width, _reach(cfg, place, t))
    )


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's pure worst case Σ_k η_k β_k B_∞, as if a record changed one coordinate: 1/√d of ours."""
    with np.errstate(divide="ignore"):
        return float(np.sum(1 / (float(place.noise) * np.asarray(place.shape, float)))) / place.dim**0.5
