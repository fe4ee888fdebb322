"""The update of `benchmarks.peers` in the terms of other packages; runs in their environments, which lack coterie.

Whether a package averages before or after the gradient step is its choice: `Loop.average_last` says it, the note says
what else differs. Every loop returns the times of `repeats` stretches of `rounds` rounds each, start-up and first round
left out, and the point that it reached after `total` rounds from zero.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peer_task import (
    CLIP,
    DIM,
    PARTIES,
    RECORDS,
    RIDGE,
    SIGMA,
    STEP,
    Clock,
    Found,
    data,
    gradient,
    step,
    timed,
)


def flower(rounds: int, repeats: int) -> Found:
    """Flower's simulation engine: one run; it evaluates centrally after every round, which tells the time."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, clock, points = ClientApp(), ServerApp(), Clock(rounds, repeats), []

    @client.train()
    def train(message: Message, context: Context) -> Message:
        w = message.content["arrays"].to_numpy_ndarrays()[0]
        arrays = ArrayRecord(numpy_ndarrays=[step(int(context.node_config["partition-id"]), w)])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": RECORDS})})
        return Message(content=content, reply_to=message)

    def tell(done: int, arrays: ArrayRecord) -> None:
        if done > 0:
            clock.tick()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(1.0, 0.0, min_train_nodes=PARTIES, min_available_nodes=PARTIES)
        start = ArrayRecord(numpy_ndarrays=[np.zeros(DIM)])
        result = strategy.start(grid, start, num_rounds=clock.total, evaluate_fn=tell)
        points.append(result.arrays.to_numpy_ndarrays()[0])

    run_simulation(server, client, num_supernodes=PARTIES, backend_config={"client_resources": {"num_cpus": 1}})
    return Found(clock.spans(), clock.total, points[0])


def decent_bench(rounds: int, repeats: int) -> Found:
    """decent-bench: DGD agent by agent, with its own network and message boxes; no snapshots."""
    import networkx as nx
    from decent_array import interoperability as arrays
    from decent_bench.agents import Agent
    from decent_bench.algorithms.p2p import DGD
    from decent_bench.costs import L2RegularizerCost, LogisticRegressionCost
    from decent_bench.networks import P2PNetwork

    arrays.set_backend("numpy")
    put, agents = arrays.from_numpy, []
    for x, y in zip(*data(), strict=True):
        records = [(put(a), put(np.array([b]))) for a, b in zip(x, (y + 1) / 2, strict=True)]
        loss = LogisticRegressionCost(records) + RIDGE * L2RegularizerCost((DIM,))
        agents.append(Agent(loss, state_snapshot_period=rounds + 1))
    network, algorithm = P2PNetwork(nx.complete_graph(PARTIES), agents), DGD(step_size=STEP)
    algorithm.run(network, 2)  # it keeps the records as a matrix from the first gradient on
    took = timed(lambda: algorithm.run(network, rounds), repeats)  # every run starts from zero
    return Found(took, rounds, np.asarray(arrays.to_numpy(network.agents()[0].x)))


def gossipy(rounds: int, repeats: int, everybody: bool) -> Found:
    """gossipy: random pairs, its own protocol; or nodes of ours that merge when all nine models have come."""
    import torch
    from gossipy import CACHE, LOG
    from gossipy.core import AntiEntropyProtocol, CreateModelMode, Message, StaticP2PNetwork
    from gossipy.data import DataDispatcher
    from gossipy.data.handler import ClassificationDataHandler
    from gossipy.model.handler import TorchModelHandler
    from gossipy.model.nn import LogisticRegression
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator, SimulationEventReceiver

    LOG.setLevel(logging.ERROR)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    others, clock = PARTIES - 1, Clock(rounds, repeats)

    class Everybody(GossipNode):
        """Sends its model to one other node in each of a round's nine moments, then averages all and steps."""

        arrived: list[TorchModelHandler]

        def timed_out(self, t: int) -> bool:
            self.turn = t % others
            return True

        def get_peer(self) -> int:
            return (self.idx + 1 + self.turn) % PARTIES

        def receive(self, t: int, msg: Message) -> None:
            self.arrived = [*getattr(self, "arrived", []), CACHE.pop(msg.value[0])]
            if len(self.arrived) == others:
                self.model_handler(self.arrived, self.data[0])
                self.arrived = []

    class Ticks(SimulationEventReceiver):
        """Tells the clock."""

        def update_timestep(self, t: int) -> None:
            if (t + 1) % length == 0:
                clock.tick()

        def update_message(self, failed: bool, msg: Message | None = None) -> None: ...
        def update_evaluation(self, round: int, on_user: bool, evaluation: list[dict[str, float]]) -> None: ...
        def update_end(self) -> None: ...

    net = LogisticRegression(DIM, 1)
    net.model = torch.nn.Linear(DIM, 1, bias=False)
    torch.nn.init.zeros_(net.model.weight)
    loss = torch.nn.SoftMarginLoss()  # log(1 + exp(−y w·x))
    sgd = {"lr": STEP, "weight_decay": RIDGE}
    proto = TorchModelHandler(net, torch.optim.SGD, sgd, loss, 1, 0, CreateModelMode.MERGE_UPDATE)  # full batches
    x, y = data()
    handler = ClassificationDataHandler(
        torch.as_tensor(x.reshape(-1, DIM)), torch.as_tensor(y.reshape(-1, 1)), test_size=0
    )
    dispatcher = DataDispatcher(handler, PARTIES, eval_on_user=False, auto_assign=False)
    dispatcher.set_assignments([list(range(k * RECORDS, (k + 1) * RECORDS)) for k in range(PARTIES)], None)
    length = others if everybody else 1
    kind = Everybody if everybody else GossipNode
    nodes = kind.generate(dispatcher, StaticP2PNetwork(PARTIES), proto, length, sync=True)
    simulator = GossipSimulator(nodes, dispatcher, length, AntiEntropyProtocol.PUSH)
    simulator.initialized = True  # nodes start from zero, not from a random point and a step
    simulator.add_receiver(Ticks())
    try:
        simulator.start(n_rounds=clock.total)
    except AttributeError as error:  # it closes rich's progress bar, a generator that has no such method, at the end
        if clock.done < clock.total:
            raise error
    weights = [node.model_handler.model.model.weight.detach().numpy()[0] for node in nodes.values()]
    return Found(clock.spans(), clock.total, np.mean(weights, axis=0) if everybody else None)


def pfl_research(rounds: int, repeats: int) -> Found:
    """pfl-research: its federated averaging and simulated backend on a NumPy model."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import ModelHyperParams
    from pfl.metrics import Metrics
    from pfl.model.base import StatefulModel
    from pfl.stats import MappedVectorStatistics

    class Point(StatefulModel):
        """A vector of weights."""

        def __init__(self) -> None:
            self.w = np.zeros(DIM)

        def get_parameters(self, placeholders: Any = None) -> Any:
            return MappedVectorStatistics({"w": self.w})

        def set_parameters(self, w: Any) -> None:
            self.w = w["w"]

        def get_model_difference(self, other_parameters: Any, clone: bool = False) -> Any:
            return MappedVectorStatistics({"w": self.w - other_parameters["w"]}, weight=1)

        def apply_model_update(self, statistics: Any) -> Any:
            self.w = self.w + statistics["w"]
            return self, Metrics()

        def evaluate(self, dataset: Any, name_formatting_fn: Any, eval_params: Any = None) -> Any:
            return Metrics()

        def save(self, dir_path: str) -> None: ...
        def load(self, dir_path: str) -> None: ...

    class OneStep(FederatedAveraging):
        """Its local training by SGD needs PyTorch, TensorFlow or MLX; this is one full step in NumPy."""

        def train_one_user(self, initial_model_state: Any, model: Any, user_dataset: Any, central_context: Any) -> Any:
            x, y = user_dataset.raw_data
            model.w = model.w - STEP * gradient(x, y, model.w)
            return model.get_model_difference(initial_model_state), Metrics()

    class Ticks(TrainingProcessCallback):
        """Tells the clock."""

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            clock.tick()
            return False, Metrics()

    np.random.seed(0)  # noqa: NPY002 - it draws from the global generator
    clock = Clock(rounds, repeats)
    users = dict(enumerate(zip(*data(), strict=True)))
    federated = FederatedDataset.from_slices(users, get_user_sampler("minimize_reuse", list(users)))
    params = NNAlgorithmParams(clock.total, clock.total + 1, PARTIES, 0)
    model = OneStep().run(
        params, SimulatedBackend(federated, federated), Point(), ModelHyperParams(),
        callbacks=[Ticks()], send_metrics_to_platform=False,
    )  # fmt: skip
    return Found(clock.spans(), clock.total, model.w)


def jax_privacy(rounds: int, repeats: int, double: bool) -> Found:
    """jax-privacy: its clipping of every record's gradient and its noise, in a scan written by hand."""
    import jax
    import jax.numpy as jnp
    from jax_privacy import clipped_grad, noise_addition

    with jax.enable_x64(double):
        dtype = jnp.float64 if double else jnp.float32
        x, y = (jnp.asarray(a, dtype) for a in data())
        loss = lambda w, x, y: jnp.mean(jax.nn.softplus(-y * (x @ w)))  # noqa: E731
        grad = clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), normalize_by=RECORDS)

        @functools.partial(jax.jit, static_argnums=0)
        def run(sigma: float) -> jax.Array:
            noise = noise_addition.gaussian_privatizer(stddev=sigma * CLIP / RECORDS, prng_key=jax.random.key(0))

            def scan(carry: Any, _: None) -> Any:
                w, state = carry
                g, state = noise.update(jax.vmap(grad)(w, x, y), state)
                return (w.mean(0) - STEP * (g + RIDGE * w), state), None

            w = jnp.zeros((PARTIES, DIM), dtype)
            return jax.lax.scan(scan, (w, noise.init(w)), None, length=rounds)[0][0]

        run(SIGMA).block_until_ready()
        took = timed(lambda: run(SIGMA).block_until_ready(), repeats)
        return Found(took, rounds, np.asarray(run(0.0)[0]))  # no record's gradient is longer than CLIP here


def p2pfl_node(start: np.ndarray, records: int, fit: Callable[[np.ndarray], np.ndarray], **options: Any) -> Any:
    """A p2pfl node whose local training is `fit`: parameters to parameters."""
    import datasets
    from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset
    from p2pfl.learning.frameworks.learner import Learner
    from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel
    from p2pfl.node import Node

    class Point(P2PFLModel):
        """A vector of parameters."""

        def get_parameters(self) -> list[np.ndarray]:
            return [self.model]

        def set_parameters(self, params: Any) -> None:
            self.model = np.asarray((self.decode_parameters(params)[0] if isinstance(params, bytes) else params)[0])

        def get_framework(self) -> str:
            return "numpy"

    class Fit(Learner):
        """Calls `fit` once per round."""

        def fit(self) -> P2PFLModel:
            model = self.get_model()
            model.set_parameters([fit(model.get_parameters()[0])])
            model.set_contribution([self.addr], records)
            return model

        def interrupt_fit(self) -> None: ...

        def evaluate(self) -> dict[str, float]:
            return {}

        def get_framework(self) -> str:
            return "numpy"

    held = P2PFLDataset(datasets.Dataset.from_dict({"record": list(range(records))}), dataset_name="records")
    return Node(Point(start), held, learner=Fit(), **options)


def p2pfl_settings(period: float | None) -> None:
    """Without Ray, patient; `period`: seconds between two attempts to pass on messages and models, if not its own."""
    from p2pfl.settings import Settings

    Settings.general.DISABLE_RAY, Settings.general.LOG_LEVEL = True, "ERROR"  # before anything else is imported
    Settings.gossip.AMOUNT_LAST_MESSAGES_SAVED = 10_000  # with its 100, nodes take old messages for new ones
    Settings.heartbeat.TIMEOUT = 60.0  # on a busy machine it loses neighbours after its 5 s, and stops for it
    Settings.gossip.MODE_EXPECTATION_TIMEOUT = 1.0  # a model that came too early is refused for its 60 s otherwise
    if period is not None:
        Settings.gossip.PERIOD = Settings.gossip.MODELS_PERIOD = period
        Settings.gossip.MODE_EXPECTATION_TIMEOUT = 10 * period
        Settings.gossip.EXIT_ON_X_EQUAL_ROUNDS = 1000  # or it gives up on a neighbour after ten periods


def p2pfl(rounds: int, repeats: int, period: float | None) -> Found:
    """p2pfl: nodes of one process that talk through its in-memory protocol, all of them in every round's train set."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes logs where it stands
        p2pfl_settings(period)
        from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol
        from p2pfl.utils.utils import wait_convergence

        clock = Clock(rounds, repeats)
        points: list[np.ndarray] = []

        def fit(k: int, w: np.ndarray) -> np.ndarray:
            if k == 0:
                points.append(w)  # where the rounds before have led
                if len(points) > 1:
                    clock.tick()
            return step(k, w)

        nodes = [
            p2pfl_node(
                np.zeros(DIM), RECORDS, functools.partial(fit, k), addr=f"party-{k}",
                protocol=MemoryCommunicationProtocol(),
            )
            for k in range(PARTIES)
        ]  # fmt: skip
        for node in nodes:
            node.start()
        for k, node in enumerate(nodes):
            for other in nodes[:k]:
                node.connect(other.addr)
        wait_convergence(nodes, PARTIES - 1, only_direct=True, wait=60)
        nodes[0].set_start_learning(rounds=clock.total + 1, epochs=1, trainset_size=PARTIES)
        while clock.done < clock.total:
            time.sleep(0.05)
        os.chdir("/")
    return Found(clock.spans(), clock.total, points[clock.total])


class Loop(NamedTuple):
    """A line of the table."""

    package: str  # its environment
    run: Callable[[int, int], Found]
    rounds: int  # in one repeat
    note: str = ""
    average_last: bool = False
    double: bool = True


LOOPS = {
    "decent-bench DGD": Loop("decent-bench", decent_bench, 200, "the same update"),
    "pfl-research FedAvg, NumPy model": Loop("pfl-research", pfl_research, 200, "averages last", True),
    "gossipy, all to all": Loop(
        "gossipy", functools.partial(gossipy, everybody=True), 20,
        "its simulator with a node class of ours: the package has none that averages over all; PyTorch", True,
    ),
    "gossipy, random pairs": Loop(
        "gossipy", functools.partial(gossipy, everybody=False), 50,
        "another algorithm: each node sends to one other, which averages the two and steps; PyTorch", True,
    ),
    "Flower simulation, FedAvg": Loop("flower", flower, 10, "averages last; Ray actors, all cores", True),
    "p2pfl in memory": Loop(
        "p2pfl", functools.partial(p2pfl, period=None), 1, "averages last; its own timers, without Ray", True,
    ),
    "p2pfl in memory, timers 10 ms": Loop(
        "p2pfl", functools.partial(p2pfl, period=0.01), 2, "averages last; without Ray", True,
    ),
    "jax-privacy in a scan, float64": Loop(
        "jax-privacy", functools.partial(jax_privacy, double=True), 50,
        "privacy on; has no loop over parties: its clipping and noise in our scan",
    ),
    "jax-privacy in a scan, float32": Loop(
        "jax-privacy", functools.partial(jax_privacy, double=False), 50, "the same", double=False,
    ),
}  # fmt: skip


def main() -> None:
    """Run one loop and print what it took as a line of JSON: NAME ROUNDS REPEATS."""
    name, rounds, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = LOOPS[name].run(rounds, repeats)
    point = None if found.point is None else found.point.tolist()
    print("\n" + json.dumps({"spans": found.spans, "total": found.total, "point": point}), flush=True)
    os._exit(0)  # threads and children of some packages do not end by themselves
