"""Five deployed parties beside other packages' deployments: `python -m benchmarks.deploy_peers [--keep]`.

Every party is a process, they talk over TLS on the loopback, and agree on the mean of 100 numbers by gradient rounds
(half a step to the own records' mean, then an average), the cheapest computation there is:
    coterie   `benchmarks.deploy`: ring, mutual TLS, signed frames, noise, a FULL commit before every send
    Flower    SuperLink and five SuperNodes, FedAvg; no client certificates, no noise, state in memory
    p2pfl     five gRPC nodes, all connected, mutual TLS, FedAvg; no noise, no state; with its own timers and with 10 ms
Rounds are medians, start-up and first round left out, and ratios are of the others' single rounds; their answers are
compared with the closed form. Packages live in the environments of `benchmarks.peers`. What does not install, run or
finish within its time limit is said. All processes are killed at the end.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import ipaddress
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured import arguments, beside, finish
from benchmarks.peer_loops import p2pfl_node, p2pfl_settings
from benchmarks.peers import CACHE, ROOT, end_group, environment, last_line

PARTIES, RECORDS, DIM, STEP = 5, 2, 100, 0.5


def records_mean(party: int) -> np.ndarray:
    """The mean of one party's records."""
    return np.random.default_rng(party).uniform(-1, 1, (RECORDS, DIM)).mean(0)


def step(party: int, w: np.ndarray) -> np.ndarray:
    """Half a step towards it."""
    return w - STEP * (w - records_mean(party))


def expected(rounds: int) -> np.ndarray:
    """Where that many rounds lead from zero."""
    return (1 - (1 - STEP) ** rounds) * np.mean([records_mean(k) for k in range(PARTIES)], axis=0)


def certificates(folder: Path) -> None:
    """ca.crt, and tls.crt with tls.key for 127.0.0.1, signed by it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now, root = datetime.datetime.now(datetime.UTC), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark CA")])
    for name, key in (("ca", root), ("tls", ec.generate_private_key(ec.SECP256R1()))):
        subject = issuer if name == "ca" else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(root, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / f"{name}.key").write_bytes(key.private_bytes(*pem))


def ports(count: int) -> list[int]:
    """Free ports on the loopback."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Any]:
    """A function that starts a process in the folder, its output in NAME.log; all are killed in the end."""
    running: list[subprocess.Popen] = []
    home = {"FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}

    def start(name: str, *command: str | Path) -> subprocess.Popen:
        env = {**os.environ, "PYTHONPATH": str(ROOT), **home, "PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}"}
        with (folder / f"{name}.log").open("w") as log:
            running.append(
                subprocess.Popen(
                    [str(part) for part in command], cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
                )
            )
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            end_group(process)


def wait_for(rounds: int, folder: Path, limit: float, processes: Sequence[subprocess.Popen] = ()) -> dict | str:
    """What a deployment wrote after its last round, or why there is nothing; a few rounds count too."""
    found: dict = {"marks": []}
    end, why = time.monotonic() + limit, f"not finished in {limit:.0f} s"
    while time.monotonic() < end:
        if (folder / "found.json").exists():
            found = json.loads((folder / "found.json").read_text())
            if len(found["marks"]) == rounds:
                return found
        if any(process.poll() is not None for process in processes):
            why = f"failed: {last_line((folder / 'first.log').read_text())}"
            break
        time.sleep(0.2)
    return found if len(found["marks"]) > 2 else why


def write(path: Path, marks: list[float], point: np.ndarray) -> None:
    """Hand over, at once, when every round ended and the last point."""
    path.with_suffix(".part").write_text(json.dumps({"marks": marks, "point": point.tolist()}))
    path.with_suffix(".part").rename(path)


# -- Flower -----------------------------------------------------------------------------------------------------------


def flower_client() -> Any:
    """The app of a SuperNode."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        w = message.content["arrays"].to_numpy_ndarrays()[0]
        arrays = ArrayRecord(numpy_ndarrays=[step(int(context.node_config["partition-id"]), w)])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": RECORDS})})
        return Message(content=content, reply_to=message)

    return app


def flower_server() -> Any:
    """The app of the SuperLink: it evaluates centrally after every round, which tells the time."""
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    app, marks = ServerApp(), []

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        def tell(done: int, arrays: ArrayRecord) -> None:
            if done > 0:
                marks.append(time.perf_counter())
                write(Path(str(context.run_config["found"])), marks, arrays.to_numpy_ndarrays()[0])

        strategy = FedAvg(1.0, 0.0, min_train_nodes=PARTIES, min_available_nodes=PARTIES)
        start = ArrayRecord(numpy_ndarrays=[np.zeros(DIM)])
        strategy.start(grid, start, num_rounds=int(context.run_config["rounds"]), evaluate_fn=tell)

    return app


def flower(python: Path, rounds: int, folder: Path, limit: float) -> dict | str:
    """A SuperLink, five SuperNodes and one run of an app on them."""
    certificates(folder)
    link, *nodes = ports(1 + PARTIES)
    app, tools = folder / "app", python.parent
    (app / "mean").mkdir(parents=True)
    (app / "mean" / "__init__.py").write_text(
        "from benchmarks.deploy_peers import flower_client, flower_server\n\n"
        "client = flower_client()\nserver = flower_server()\n"
    )
    (app / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "mean"\nversion = "1.0.0"\ndescription = ""\nlicense = "Apache-2.0"\ndependencies = []\n'
        '[tool.flwr.app]\npublisher = "benchmark"\n'
        '[tool.flwr.app.components]\nserverapp = "mean:server"\nclientapp = "mean:client"\n'
        f'[tool.flwr.app.config]\nrounds = {rounds}\nfound = "{folder / "found.json"}"\n'
    )
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
        f'root-certificates = "{folder / "ca.crt"}"\n'
    )
    tls = ["--ssl-certfile", folder / "tls.crt", "--ssl-keyfile", folder / "tls.key"]
    tls += ["--ssl-ca-certfile", folder / "ca.crt"]
    with started(folder) as start:
        start("link", tools / "flower-superlink", "--port", link, "--disable-runtime-dependency-installation", *tls)
        _listening(link)
        for k, port in enumerate(nodes):
            start(
                f"node{k}", tools / "flower-supernode", "--superlink", f"127.0.0.1:{link}", "--port", port,
                "--root-certificates", folder / "ca.crt", "--node-config", f"partition-id={k}", *tls,
            )  # fmt: skip
        for port in nodes:
            _listening(port)
        run = start("run", tools / "flwr", "run", app, "here")
        if run.wait(60):
            return f"failed: {last_line((folder / 'run.log').read_text())}"
        return wait_for(rounds, folder, limit)


def _listening(port: int, seconds: float = 60) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)


# -- p2pfl ------------------------------------------------------------------------------------------------------------


def p2pfl_party() -> None:
    """One node: PARTY PORTS ROUNDS PERIOD FOLDER; the first starts the learning and writes when it is over."""
    party, rounds, folder = int(sys.argv[1]), int(sys.argv[3]), Path(sys.argv[5])
    addresses = [f"127.0.0.1:{port}" for port in sys.argv[2].split(",")]
    p2pfl_settings(float(sys.argv[4]) or None)
    from p2pfl.settings import Settings

    Settings.ssl.USE_SSL, Settings.ssl.CA_CRT = True, str(folder / "ca.crt")
    Settings.ssl.SERVER_CRT = Settings.ssl.CLIENT_CRT = str(folder / "tls.crt")
    Settings.ssl.SERVER_KEY = Settings.ssl.CLIENT_KEY = str(folder / "tls.key")
    from p2pfl.utils.utils import wait_convergence

    marks: list[float] = []

    def fit(w: np.ndarray) -> np.ndarray:
        marks.append(time.perf_counter())
        if party == 0 and len(marks) > 1:  # w is where the rounds before have led
            write(folder / "found.json", marks[1:], w)
        return step(party, w)

    node = p2pfl_node(np.zeros(DIM), RECORDS, fit, addr=addresses[party])
    node.start()
    for other in addresses[:party]:
        _listening(int(other.partition(":")[2]))
        node.connect(other)
    wait_convergence([node], PARTIES - 1, only_direct=True, wait=60)
    if party == 0:
        time.sleep(3)  # until the others see all neighbours too
        node.set_start_learning(rounds=rounds + 1, epochs=1, trainset_size=PARTIES)
    time.sleep(3600)


def p2pfl(python: Path, rounds: int, folder: Path, limit: float, period: float) -> dict | str:
    """Five processes, a node in each."""
    certificates(folder)
    listen = ",".join(map(str, ports(PARTIES)))
    call = "from benchmarks.deploy_peers import p2pfl_party; p2pfl_party()"
    with started(folder) as start:
        nodes = [
            start(f"node{k}" if k else "first", python, "-c", call, k, listen, rounds, period, folder)
            for k in range(PARTIES)
        ]
        return wait_for(rounds, folder, limit, nodes)


# -- the table --------------------------------------------------------------------------------------------------------

DEPLOYMENTS: dict[
    str, tuple[str, Callable[[Path, int, Path, float], dict | str], int]
] = {  # line -> package, what runs it, rounds
    "Flower, SuperLink and SuperNodes": ("flower", flower, 6),
    "p2pfl, its own timers": ("p2pfl", functools.partial(p2pfl, period=0.0), 6),
    "p2pfl, timers 10 ms": ("p2pfl", functools.partial(p2pfl, period=0.01), 20),
}


def main() -> None:
    """Print and store a line for every deployment."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="*", choices=("flower", "p2pfl"), default=("flower", "p2pfl"))
    parser.add_argument("--rounds", type=int, default=800, help="of coterie's parties")
    parser.add_argument("--limit", type=float, default=150, help="seconds for the rounds of another package")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for the environments")
    args = parser.parse_args()
    from benchmarks.deploy import deployed

    rows, said = [], []
    for line, (package, run, rounds) in DEPLOYMENTS.items():
        if package not in args.only:
            continue
        python = environment(package, args.cache)
        with tempfile.TemporaryDirectory(prefix="coterie-bench-", ignore_cleanup_errors=True) as name:
            found = python if isinstance(python, str) else run(python, rounds, Path(name), args.limit)
        if isinstance(found, str):
            said.append(f"{line}: {found}")
            continue
        with tempfile.TemporaryDirectory(prefix="coterie-bench-") as name:  # beside every one: the machine changes
            ours = 1e3 * deployed(DIM, args.rounds, Path(name) / "trial")[0]
        theirs = [1e3 * float(x) for x in np.diff(found["marks"])]
        done = len(found["marks"])
        apart = np.abs(np.array(found["point"]) - expected(done)).max()
        stood = "" if done == rounds else f", {done} of {rounds} rounds, then it stood still"
        said.append(f"{line}: {apart:.0e} from the closed form{stood}")
        rows.append(beside("a round of dp-dsgd", [ours] * len(theirs), line, theirs, "{:,.1f} ms"))
    finish(
        args,
        "Five deployed parties beside other packages",
        rows,
        f"{PARTIES} parties, {DIM} numbers. {'; '.join(said)}.",
    )


if __name__ == "__main__":
    main()
