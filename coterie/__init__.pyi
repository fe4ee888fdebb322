"""coterie: differentially private decentralized learning, with every guarantee checked.

Generated, not to be edited: python -m coterie.report.pages.
"""

from collections.abc import Sequence
from typing import Literal, Optional

from coterie.api.bounds import Bounds
from coterie.api.sites import Sites
from coterie.audit.claims import attack_task as audit
from coterie.api.joining import join as join
from coterie.api.methods import algorithm as algorithm
from coterie.api.parties import Parties as Parties, graph as graph
from coterie.api.tasks import Task as Task, additive as additive, hinge as hinge, logistic as logistic, loss as loss, mean as mean, mlp as mlp, neural as neural, softmax as softmax, squared as squared
from coterie.api.trained import Trained as Trained, load as load
from coterie.api.training import Price as Price, price as price, train as train
from coterie.deploy.accounts import DataAccount as DataAccount
from coterie.errors import InputError as InputError
from coterie.privacy.ledger import Budget as Budget
from coterie.released.statistics import statistics as statistics
from coterie.tables.algorithm import AlgorithmPlan

__version__: str
__all__ = ['Budget', 'DataAccount', 'InputError', 'Parties', 'Price', 'Task', 'Trained', '__version__', 'additive', 'admm', 'algorithm', 'audit', 'complete', 'decor', 'dgd', 'dp_admm', 'dp_consensus_gd', 'dp_dsgd', 'dsgd', 'dvp', 'erdos_renyi', 'gauss_avg_gd', 'gnm', 'graph', 'grid', 'hinge', 'hmv_dgd', 'ipp_admm', 'join', 'ldp_admm', 'ldp_dgd', 'ldp_dgd_range', 'load', 'logistic', 'loss', 'm_admm', 'mean', 'mlp', 'mr_admm', 'neural', 'p_admm', 'path', 'pp_admm', 'pr_admm', 'price', 'priv_rcd', 'pvp', 'qdpsgd1', 'qdpsgd2', 'qdpsgd2_grad', 'quantimed', 'r_admm', 'regular', 'ring', 'sdm', 'small_world', 'softmax', 'squared', 'star', 'statistics', 'train']

def complete(sites: Sites | None = None, *, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, mixing: str = 'metropolis') -> Parties:
    """Parties on a complete graph, each with its records."""

def erdos_renyi(sites: Sites | None = None, *, p: float, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, seed: int = 0, mixing: str = 'metropolis') -> Parties:
    """Parties on a erdos-renyi graph, each with its records."""

def gnm(sites: Sites | None = None, *, edges: int, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, seed: int = 0, mixing: str = 'metropolis') -> Parties:
    """Parties on a gnm graph, each with its records."""

def grid(sites: Sites | None = None, *, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, rows: int | None = None, mixing: str = 'metropolis') -> Parties:
    """Parties on a grid graph, each with its records."""

def path(sites: Sites | None = None, *, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, mixing: str = 'metropolis') -> Parties:
    """Parties on a path graph, each with its records."""

def regular(sites: Sites | None = None, *, degree: int, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, seed: int = 0, mixing: str = 'metropolis') -> Parties:
    """Parties on a regular graph, each with its records."""

def ring(sites: Sites | None = None, *, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, mixing: str = 'metropolis') -> Parties:
    """Parties on a ring graph, each with its records."""

def small_world(sites: Sites | None = None, *, k: int, p: float, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, seed: int = 0, mixing: str = 'metropolis') -> Parties:
    """Parties on a small-world graph, each with its records."""

def star(sites: Sites | None = None, *, sizes: Sequence[int] | None = None, features: int | None = None, names: Sequence[str] | None = None, site: str | None = None, label: str | None = None, bounds: Bounds = None, radius: float | None = None, leaks: Sequence[str] = (), people: str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None = None, mixing: str = 'metropolis') -> Parties:
    """Parties on a star graph, each with its records."""

def admm(*, penalty: float | None = None, tolerance: float = 1e-08) -> AlgorithmPlan:
    """Decentralized ADMM: exact local solves, duals on the edges. Not private; the reference of its family."""

def decor(*, step: float | None = None, momentum: float | None = None, clip: float | None = None, mixing: int | None = None, tail: float | None = None, ratio: float = 10.0, curious: int = 1, missing: int = 0, left: float | None = None, heaviest: float | None = None) -> AlgorithmPlan:
    """Gradient descent whose noise neighbours share: it hides single messages, and most of it cancels in the average."""

def dgd(*, step: float | None = None, decay: float = 0.0) -> AlgorithmPlan:
    """Decentralized gradient descent: mix with the neighbours, step along the own gradient. Not private."""

def dp_admm(*, variant: Literal['decentralised', 'star'] = 'decentralised', penalty: float | None = None, step: float | None = None, decay: float = 0.0, clip: float | None = None, tail: float = 0.5) -> AlgorithmPlan:
    """DP-ADMM: one gradient step per round in place of the local solve, Gaussian noise on what is sent."""

def dp_consensus_gd(*, step: float | None = None, stage_one: int | None = None) -> AlgorithmPlan:
    """Private consensus descent: noisy gradient steps with c/t step sizes, then free averaging of what was released."""

def dp_dsgd(*, step: float | None = None, momentum: float | None = None, clip: float | None = None, mixing: int | None = None, tail: float | None = None, batch: int | None = None, scheme: Literal['without-replacement', 'poisson'] = 'without-replacement') -> AlgorithmPlan:
    """Private decentralized gradient descent with momentum, extra mixing and tail averaging: the strong default."""

def dsgd(*, step: float | None = None, decay: float = 0.0, hold: float = 1.0, batch: int = 20, link: float = 3.0) -> AlgorithmPlan:
    """Decentralized stochastic gradient descent: `dgd` on a random batch of each agent's records. Not private."""

def dvp(*, penalty: float | None = None, noise: Optional[Literal['gamma', 'gaussian']] = None, tail: float = 0.5, tolerance: float = 1e-08, share: float = 0.01) -> AlgorithmPlan:
    """Dual-variable perturbation (Zhang-Zhu): ADMM whose local objective is tilted by fresh noise every round."""

def gauss_avg_gd(*, step: float | None = None) -> AlgorithmPlan:
    """Private averaged descent on a complete graph: everybody steps from the common average, with Gaussian noise."""

def hmv_dgd(*, step: float | None = None, step_ratio: float | None = None, noise_ratio: float | None = None) -> AlgorithmPlan:
    """Private descent with geometric steps and geometric Laplace noise: pure ε however long it runs."""

def ipp_admm(*, penalty: float | None = None, tail: float = 0.5, tolerance: float = 1e-06, split: float = 0.01, broadcasts: int = 15, test: Literal['gauss', 'svt'] = 'gauss', threshold: float = 0.001, clip: float = 2.0, test_share: float = 0.1) -> AlgorithmPlan:
    """IPP-ADMM: PP-ADMM that speaks only when a private test says its loss would fall enough, at most c times."""

def ldp_admm(*, inverse_step: float | None = None, dual_step: float | None = None, clip: float | None = None, tail: float = 0.5) -> AlgorithmPlan:
    """LDP-ADMM (Xiao, Ye, Devadas): first-order ADMM with random penalties and Laplace noise."""

def ldp_dgd(*, step: float | None = None, ratio: float = 1.0, decay: float = 0.5, average: bool = True) -> AlgorithmPlan:
    """Locally private descent on a complete graph: a common average, blurred along the two agents furthest apart."""

def ldp_dgd_range(*, step: float | None = None, ratio: float = 1.0, decay: float = 0.5, average: bool = True) -> AlgorithmPlan:
    """Locally private descent on any graph: start anywhere between the neighbours' extremes, step, add Laplace noise."""

def m_admm(*, penalty: float | None = None, noise: Optional[Literal['gamma', 'gaussian']] = None, tail: float = 0.5, tolerance: float = 1e-08, share: float = 0.01, growth: float = 1.02, limit: float = 2.0) -> AlgorithmPlan:
    """M-ADMM (Zhang, Khalili, Liu): ADMM with a growing penalty whose quadratic term is perturbed."""

def mr_admm(*, penalty: float | None = None, noise: Optional[Literal['gamma', 'gaussian']] = None, tail: float = 0.5, tolerance: float = 1e-08, share: float = 0.01, damping: float = 0.0, growth: float = 1.04, limit: float = 2.0) -> AlgorithmPlan:
    """MR-ADMM (Zhang, Khalili, Liu): recycled ADMM whose penalty grows from one data round to the next."""

def p_admm(*, penalty: float | None = None, tail: float = 0.5, steps: int | None = None, decay: float | None = None) -> AlgorithmPlan:
    """P-ADMM: local solves, Gaussian noise of geometrically falling variance on what is sent."""

def pp_admm(*, penalty: float | None = None, tail: float = 0.5, tolerance: float = 1e-06, split: float = 0.01) -> AlgorithmPlan:
    """PP-ADMM: approximate local solves hidden by noise in the objective and a little noise on the output."""

def pr_admm(*, penalty: float | None = None, tail: float = 0.5, steps: int | None = None, threshold: float | None = None, paper_threshold: bool = False) -> AlgorithmPlan:
    """PR-ADMM: local solves with Gaussian noise on what is sent; neighbours that stray may be left out."""

def priv_rcd(*, step: float | None = None, public_seed: int = 0) -> AlgorithmPlan:
    """Private coordinate descent on a complete graph: one public coordinate a round, one noisy number per message."""

def pvp(*, penalty: float | None = None, noise: Optional[Literal['gamma', 'gaussian']] = None, tail: float = 0.5, tolerance: float = 1e-08, share: float = 0.01, centre: Literal['released', 'own', 'literal'] = 'released', final: float = 1.0) -> AlgorithmPlan:
    """Primal-variable perturbation (Zhang-Zhu): ADMM with noise on what is sent, and a tilted objective in the last round."""

def qdpsgd1(*, step: float | None = None, averaging: float | None = None, batch: int = 20, scheme: Literal['deadline', 'clock', 'fixed', 'poisson'] = 'deadline', link: float = 3.0, bits: int = 3, range: float | None = None, clip: float = 0.5) -> AlgorithmPlan:
    """Q-DPSGD-1: Gaussian noise on deadline-batch gradients, few-bit messages."""

def qdpsgd2(*, step: float | None = None, averaging: float | None = None, batch: int = 20, scheme: Literal['deadline', 'clock', 'fixed', 'poisson'] = 'deadline', link: float = 3.0, clip: float = 0.5, grid: float | None = None, range: float | None = None, failure: float | None = None, convex: bool = False) -> AlgorithmPlan:
    """Q-DPSGD-2, released state: quantize the point, add discrete Gaussian noise, keep nothing else."""

def qdpsgd2_grad(*, step: float | None = None, averaging: float | None = None, batch: int = 20, scheme: Literal['deadline', 'clock', 'fixed', 'poisson'] = 'deadline', link: float = 3.0, bits: int = 3, range: float | None = None, clip: float = 0.5, grid: float | None = None, failure: float | None = None) -> AlgorithmPlan:
    """Q-DPSGD-2 with the noise on the gradient: quantize, add discrete Gaussian noise, send few-bit points."""

def quantimed(*, step: float | None = None, averaging: float | None = None, batch: int = 20, scheme: Literal['deadline', 'clock', 'fixed', 'poisson'] = 'deadline', link: float = 3.0, bits: int = 3, range: float | None = None, clip: float | None = None) -> AlgorithmPlan:
    """QuanTimed-DSGD: few-bit messages and batches cut at a deadline. Not private; `qdpsgd1` without noise."""

def r_admm(*, penalty: float | None = None, noise: Optional[Literal['gamma', 'gaussian']] = None, tail: float = 0.5, tolerance: float = 1e-08, share: float = 0.01, damping: float = 0.0) -> AlgorithmPlan:
    """R-ADMM (Zhang, Khalili, Liu): ADMM with a tilted objective that looks at the data every second round only."""

def sdm(*, step: float | None = None, mixing: float | None = None, keep: float = 0.3, clip: float = 0.5, batch: int | None = 20, scheme: Literal['fixed', 'poisson'] = 'fixed', link: float = 3.0) -> AlgorithmPlan:
    """SDM-DSGD: sparse differential Gaussian-masked SGD; neighbours get a random share of the coordinates of every change."""
