"""Synthetic clinics: a documented generator whose truth is known, for examples, tests and the default run.

A patient has p − 1 attributes in reference units u_j: standard deviations from the mean of a public reference
population; yes/no attributes are ±1. Clinic s sees its own case mix,

    u_j = shift_sj + spread_sj · (SEVERITY · f + √(1 − SEVERITY²) · e_j),   f, e_j ~ N(0, 1),

where f is how ill the patient is overall (it enters with the sign of the attribute's effect), shift_sj ~
N(0, SHIFT²), and a share BLIND of each clinic's attributes hardly varies (spread QUIET, else 1): a clinic that
sees only the old cannot learn what age does, the others can. Yes/no attributes take the sign of u_j.

Features are z = (c, v) with the constant c = 1/√p and v = u/√p shrunk, if need be, to norm √(1 − c²): every
record lies in the unit ball by public arithmetic on itself alone. The outcome is
P(y = 1 | z) = 1 / (1 + exp(−θ·z)) at every clinic: only the patients differ.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from coterie.data.dataset import ALL_PUBLIC, Dataset, Truth
from coterie.errors import InputError
from coterie.passes import larger

__all__ = ["EFFECTS", "make_clinics"]

EFFECTS = {  # on the log-odds of one reference unit
    "age": 2.0,
    "systolic_bp": 0.6,
    "bmi": 0.4,
    "glucose": 1.7,
    "cholesterol": 0.2,
    "creatinine": 1.2,
    "heart_rate": 0.2,
    "smoker": 0.7,
    "prior_admissions": 1.0,
    "weekly_exercise": -1.7,
    "male": 0.4,
}
YES_NO = ("smoker", "male")
SITES = ("harbour", "university", "valley", "county", "northside")
SHIFT, SEVERITY, BLIND, QUIET = 0.8, 0.3, 0.65, 0.1
BLOCK = 4096  # records: a cache at a time, as many records take several passes
# beyond MANY records, or CHUNK sites, every CHUNK has a stream of its own, for all cores to draw from
MANY, CHUNK = 1 << 20, 1 << 16


def make_clinics(
    seed: int = 0, sites: int = 5, records: int = 3000, features: int = 12, strength: float = 1.0,
    unlike: float = 1.0,
) -> Dataset:  # fmt: skip
    """Patients of several clinics that differ in size (3 to 1) and case mix but share one truth.

    `features` counts the constant; beyond the named attributes come `marker_1`, … with effects ±0.5. `strength`
    multiplies all effects, `unlike` (0 to 1) SHIFT and BLIND: at 0 every clinic sees the same kind of patients. The
    same seed gives the same patients.

    >>> data = make_clinics(seed=0)
    >>> data.features.shape, [int((data.sites == s).sum()) for s in range(5)]
    ((3000, 12), [300, 450, 600, 750, 900])
    """
    if sites < 1 or records < 10 * sites or features < 2:
        raise InputError(
            "make_clinics needs sites >= 1, records >= 10 a site and features >= 2, "
            f"got sites={sites}, records={records}, features={features}"
        )
    if not 0 <= unlike <= 1:
        raise InputError(f"unlike must lie between 0 and 1, got {unlike}")
    rng = np.random.default_rng(seed)
    extra = {f"marker_{k}": 0.5 if k % 2 else -0.5 for k in range(1, features - len(EFFECTS))}
    names = (*EFFECTS, *extra)[: features - 1]
    effect = np.array([(EFFECTS | extra)[name] for name in names])
    weights = np.linspace(0.5, 1.5, sites) if sites > 1 else np.ones(1)
    bounds = np.round(np.cumsum(weights) / weights.sum() * records).astype(int)
    site = np.repeat(np.arange(sites), np.diff(bounds, prepend=0))

    p, few = features, records <= MANY
    # many are made in float32, which takes half of the memory; a little is left for rounding to stay in the unit ball
    kind, within = (np.float64, 1.0) if few else (np.float32, 1 - 2.0**-17)
    shift, spread = np.empty((sites, p - 1), kind), np.empty((sites, p - 1), kind)
    constant, binary = 1 / np.sqrt(p), np.flatnonzero(np.isin(names, YES_NO))
    theta = strength * np.sqrt(p) * np.concatenate([[0.0], effect])
    ill, own_part, slope = (x.astype(kind) for x in (SEVERITY * np.sign(effect), np.sqrt(1 - SEVERITY**2), theta))
    length, scale = kind(within * np.sqrt(1 - constant**2)), kind(constant)
    z, yes = np.empty((records, p), kind), np.empty((records, len(binary)), bool)
    chance: np.ndarray = np.empty(records, kind)
    outcome = np.empty(records, np.int64)

    def mix(low: int, high: int, stream: np.random.Generator) -> None:
        shift[low:high] = unlike * SHIFT * stream.standard_normal((high - low, p - 1))
        places = stream.permuted(np.tile(np.arange(p - 1, dtype=np.int32), (high - low, 1)), axis=1)
        spread[low:high] = np.where(places < round(unlike * BLIND * (p - 1)), QUIET, 1.0)

    def fill(low: int, high: int, stream: np.random.Generator) -> None:
        common = stream.standard_normal((high - low, 1), kind)
        for start in range(low, high, step := larger(BLOCK)):
            own = slice(start, min(start + step, high))
            units, where = stream.standard_normal((own.stop - start, p - 1), kind), site[own]
            place = where[0] if where[0] == where[-1] else where  # sites stand in order: mostly one, nothing to copy
            units *= own_part
            units += ill * common[start - low : own.stop - low]
            units *= spread[place]
            units += shift[place]
            yes[own] = units[:, binary] > 0
            units[:, binary] = np.where(yes[own], kind(1), kind(-1))
            units *= scale
            norms = np.linalg.norm(units, axis=1) if few else np.sqrt(np.einsum("ri,ri->r", units, units))
            units /= np.maximum(kind(1), norms / length)[:, None]
            z[own, 0], z[own, 1:] = constant, units
            score = z[own] @ slope if few else np.einsum("ri,i->r", z[own], slope)  # no threads of BLAS within these
            chance[own] = 1 / (1 + np.exp(-score))
        outcome[low:high] = stream.random(high - low) < chance[low:high]

    for work, size, most in ((mix, sites, CHUNK), (fill, records, MANY)):
        if size <= most:
            work(0, size, rng)
            continue
        lows = range(0, size, CHUNK)
        with ThreadPoolExecutor() as pool:
            list(pool.map(work, lows, [min(low + CHUNK, size) for low in lows], rng.spawn(len(lows))))
    labels = SITES[:sites] + tuple(f"clinic-{k}" for k in range(len(SITES) + 1, sites + 1))
    return Dataset(
        name="clinics",
        features=z,
        targets=outcome,
        classes=("well", "readmitted"),
        feature_names=("constant", *names),
        sites=site,
        site_names=labels,
        columns={name: yes[:, j] for j, name in enumerate(name for name in names if name in YES_NO)},
        source=f"synthetic seed={seed}",
        notes=("unit ball by per-record arithmetic in public reference units",),
        origins=ALL_PUBLIC,
        truth=Truth(theta, float(np.maximum(chance, 1 - chance).mean())),
    )
