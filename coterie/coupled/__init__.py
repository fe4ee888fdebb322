"""Agents with variables of their own, coupled by Σ A_i x_i = c: dispatch, allocation, sharing."""

from coterie.coupled.admm import Config
from coterie.coupled.secret import secret_sum
from coterie.coupled.solve import Answer, calibrate_coupled, coupled_events, solve, spending
from coterie.problems.coupled import Coupled, CoupledAgent, Gap, Quadratic, Smooth, quadratic_agent, smooth_agent

__all__ = [
    "Answer",
    "Config",
    "Coupled",
    "CoupledAgent",
    "Gap",
    "Quadratic",
    "Smooth",
    "calibrate_coupled",
    "coupled_events",
    "quadratic_agent",
    "secret_sum",
    "smooth_agent",
    "solve",
    "spending",
]
