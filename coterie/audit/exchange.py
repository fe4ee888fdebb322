r"""Messages under way: what an algorithm reads of them, and what opened sums tell.

`reads` holds an algorithm to its `READS`. "sums": two neighbours whose messages change by e and −e change nothing that
the agent says later. "total": nor does an own message that is e larger while a neighbour's is e smaller. A claim about
opened sums rests on that.

`opened` looks at a central claim through plan, price and driver: the sum moves by at most the declared sensitivity when
a record is replaced, and the noise of the honest parties in it, measured over many runs, is the declared one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy.stats import chi2

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.audit.setting import Setting, attacks_on, place_of, worlds
from coterie.drivers.agent import begin, facing, hear, speak
from coterie.problems import HeldShard

__all__ = ["SEEDS", "opened", "reads"]

SEEDS = 200  # runs over which noise in sums is measured
RARE = 1e-6  # how rarely `opened` may find fault with correct code
MOVED = 0.7  # by how much messages are exchanged between senders


def reads(setting: Setting) -> str | None:
    """What the agent does that its `READS` denies, if it does."""
    algorithm = setting.algorithm
    if algorithm.reads == "individuals":
        return None
    names = {False: "the sums of what it hears", True: "the sum of everybody's messages"}
    for own in (False, True) if algorithm.reads == "total" else (False,):
        with jax.enable_x64(True):
            apart = _said(setting, own)
        if apart > 1e-9:
            name = names[own]
            return (
                f"it says it reads {algorithm.reads!r}, but what it says next depends on more than {name}: {apart:.2g}"
            )
    return None


def _said(setting: Setting, own: bool) -> float:
    """By how much a later message differs if MOVED goes from one sender to another, the agent itself or a neighbour."""
    algorithm, cfg, pair, degree = setting.algorithm, setting.cfg, attacks_on(setting, 1)[-1], setting.degree
    if degree < 2 and not own:
        return 0.0  # of one neighbour the sum is the message
    place, shard, neighbours = place_of(setting, pair), worlds(setting, pair)[0], pair.neighbours(degree)
    laws = algorithm.draws(cfg, place)
    talk, listen = partial(_talk, algorithm, cfg, place, shard), partial(_listen, algorithm, cfg, place, degree)

    def play(moved: float) -> PyTree:
        state, memory = jax.tree.map(lambda x: x.astype(x.dtype), begin(algorithm, cfg, place, degree))  # no weak types
        last = None
        for step in range(min(3, place.rounds)):
            t = jnp.asarray(step)
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), step), len(laws))
            draw = {n: law.sample(k, jnp.float64) for k, (n, law) in zip(keys, laws.items(), strict=True)}
            before = talk(t, state, draw)[1]
            if own and step == 0:
                draw = {n: d + moved * (laws[n].name != "uniform") for n, d in draw.items()}
            state, last = talk(t, state, draw)
            heard = neighbours.answer(before, t)
            if step == 0:
                heard = jax.tree.map(lambda h, a, b: _passed(h, a, b, own, moved), heard, last, before)
            state, memory = listen(t, state, memory, heard)
        return last

    one, two = (jax.tree.leaves(play(m)) for m in (0.0, MOVED))
    return max(float(jnp.max(jnp.abs(a * 1.0 - b) / (1 + jnp.abs(a)))) for a, b in zip(one, two, strict=True))


@eqx.filter_jit
def _talk(
    algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard, t: Array, state: PyTree, draw: dict[str, Array]
) -> tuple[PyTree, PyTree]:
    """The agent's next state and message."""
    return speak(algorithm, cfg, place, t, state, shard, draw)[:2]


@eqx.filter_jit
def _listen(
    algorithm: Algorithm, cfg: Config, place: Place, degree: int, t: Array, state: PyTree, memory: PyTree, heard: PyTree
) -> tuple[PyTree, PyTree]:
    """What the agent knows when it has heard its neighbours."""
    weight = jnp.full(degree, (1 - place.self_weight) / degree)
    return hear(algorithm, cfg, place, t, state, facing(heard, weight, memory))


def _passed(heard: Array, now: Array, before: Array, own: bool, moved: float) -> Array:
    """The neighbours' messages with the first one changed against the agent's own, or against the second one's."""
    if not jnp.issubdtype(heard.dtype, jnp.floating):
        return heard
    if own:
        return heard.at[0].add(before - now)
    return heard.at[0].add(moved).at[1].add(-moved)


def opened(
    algorithm: str = "gauss-avg-gd", honest: int = 3, epsilon: float = 1.0, *, agents: int = 5, delta: float = 1e-5,
    exchange: dict[str, object] | None = None, settings: dict[str, object] | None = None,
) -> str | None:  # fmt: skip
    """What is wrong with a central claim of some parties of whom so many are honest, if something is."""
    from coterie.exchange.central import shared_events
    from coterie.experiment import prepare
    from coterie.plan import validate
    from coterie.pricing import price

    plan = validate(
        {
            "partition": {"kind": "iid", "agents": agents, "records": 40},
            "problem": {"loss": "hinge"},  # its slope is at its bound where everybody starts
            "algorithm": {"name": algorithm, **(settings or {})},
            "exchange": exchange or {"kind": "secret-sum", "noise": "central", "honest": honest},
            "privacy": {"epsilon": epsilon, "delta": delta},
            "run": {"rounds": 2, "every": 2},
        }
    )
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    with jax.enable_x64(True):
        places = eqx.tree_at(lambda p: p.noise, priced.places, jnp.asarray(priced.noise))
        assert priced.terms is not None
        event = shared_events(priced.algorithm, priced.cfg, places, priced.terms)[0]
    declared = float(event.sensitivity[0] / event.sigma[0])
    if priced.central is None or priced.central.account.epsilon > epsilon * (1 + 1e-6):
        return f"ε = {epsilon:g} was asked for opened sums, and is not what they cost"
    said = []
    for sign in (1.0, -1.0):  # a record and its opposite, both on the bound
        features = np.array(experiment.features)
        features[experiment.parts[0][0]] = sign / np.sqrt(features.shape[1])
        trace = replace(experiment, features=features).run(priced, seeds=list(range(SEEDS)), record=True)
        (messages,) = jax.tree.leaves(trace.messages)
        said.append(np.asarray(messages)[:, 0])  # of the first round: (run, party, number)
    shift = float(np.max(np.linalg.norm(said[1].sum(1) - said[0].sum(1), axis=1)))
    noise = said[0] - said[0].mean(0)
    numbers = (SEEDS - 1) * noise.shape[2]
    least = np.sort(np.sum(noise**2, axis=(0, 2)))[:honest].sum()  # the honest may be those who add least
    most = float(np.sqrt(least / chi2.ppf(RARE, honest * numbers)))  # what one party's noise can be, by chance
    seen = shift / (np.sqrt(honest) * most)
    if seen > declared:
        return f"a record moves an opened sum by {seen:.3f} of the honest parties' noise, declared {declared:.3f}"
    return None
