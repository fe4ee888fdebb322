"""A round of Flower's SecAgg+, its server's workflow and its clients' mod, all in one process, over messages in memory.

    PYTHON benchmarks/flower_secagg.py DIMENSION REPEATS N:THRESHOLD:SHARES …

Needs flwr and numpy only, so that it can run in an environment of its own; `benchmarks.shared` calls it with --flower
PYTHON. SHARES = N is SecAgg: masks and shares between all clients; fewer is SecAgg+. One JSON line for each: processor
seconds of the whole round, of one client in it and of the server (with the packing of all messages), and bytes of the
messages that a client sends to the server and gets from it.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

CLIP, TARGET = 8.0, 1 << 22


class Office:
    """What stands for the network: every message goes to its client's mod at once, and its answer comes back."""

    def __init__(self, values: np.ndarray):
        self.values = values
        self.contexts = {i + 1: empty(i + 1) for i in range(len(values))}
        self.sent, self.received, self.clients = 0, 0, 0.0

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        """As a Grid does."""
        return [self.one(message) for message in messages]

    def one(self, message: Message) -> Message:
        """A message, and the answer of its client; what both weigh is not part of its time."""
        node = message.metadata.dst_node_id
        packed = recorddict_to_proto(message.content)
        self.received += packed.ByteSize()
        taken = Message(content=recorddict_from_proto(packed), metadata=message.metadata)

        def fit(question: Message, _: Context) -> Message:
            params = ndarrays_to_parameters([self.values[node - 1]])
            found = FitRes(Status(Code.OK, ""), params, num_examples=1, metrics={})
            return Message(compat.fitres_to_recorddict(found, keep_input=False), reply_to=question)

        start = time.process_time()
        answer = secaggplus_mod(taken, self.contexts[node], fit)
        self.clients += time.process_time() - start
        self.sent += recorddict_to_proto(answer.content).ByteSize()
        return answer


class Everybody:
    """A strategy that takes all clients, and keeps what the server worked out."""

    def __init__(self, parties: int):
        self.proxies = [SimpleNamespace(node_id=i + 1) for i in range(parties)]
        self.found: Parameters | None = None

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: object) -> list:
        """Everybody gets the model."""
        return [(proxy, FitIns(parameters, {})) for proxy in self.proxies]

    def aggregate_fit(self, server_round: int, results: list, failures: list) -> tuple[Parameters, dict]:
        """All clients' results are the mean by now."""
        assert len(results) == len(self.proxies)
        assert not failures
        self.found = results[0][1].parameters
        return self.found, {}


def empty(node: int) -> Context:
    """A client's context, or the server's."""
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}, series_id=0)


def one_round(values: np.ndarray, threshold: int, shares: int) -> dict[str, Any]:
    """The mean of all values, by the whole protocol."""
    n, office, strategy = len(values), Office(values), Everybody(len(values))
    context = LegacyContext(empty(0), strategy=strategy, client_manager=SimpleNamespace(num_available=lambda: n))
    start = ndarrays_to_parameters([np.zeros_like(values[0])])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, keep_input=False)
    context.state.config_records[MAIN_CONFIGS_RECORD] = compat.ConfigRecord({Key.CURRENT_ROUND: 1})
    workflow = SecAggPlusWorkflow(
        shares if shares < n else 1.0, threshold, max_weight=1.0, clipping_range=CLIP, quantization_range=TARGET
    )
    began = time.process_time()
    workflow(office, context)
    seconds = time.process_time() - began
    assert strategy.found is not None
    (mean,) = parameters_to_ndarrays(strategy.found)
    assert np.abs(mean - values.mean(0)).max() < 2 * CLIP / TARGET
    each = {"client": office.clients / n, "bytes": office.sent / n, "received": office.received / n}
    return {"seconds": seconds, "server": seconds - office.clients, **each}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0
    dimension, repeats = map(int, sys.argv[1:3])
    for asked in sys.argv[3:]:
        count, least, dealt = map(int, asked.split(":"))
        inputs = np.random.default_rng(0).uniform(-1, 1, (count, dimension))
        best = min((one_round(inputs, least, dealt) for _ in range(repeats)), key=lambda found: found["seconds"])
        print(json.dumps({"parties": count, "threshold": least, "shares": dealt, **best}), flush=True)
