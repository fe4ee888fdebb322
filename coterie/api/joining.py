"""One party of an agreement from Python: the command `coterie agent` in a process beside the notebook, and its files.

    party = ct.join("agreement.json", me="harbour")
    model = party.fit(X, y)          # the others run theirs; goes on where an earlier call stopped
    party.spent()                    # from the ledger, at any time

There is one way in which a party runs, and this is it: `fit` starts the very command, with the same files. So an event
loop that runs here is not in its way, an interrupt stops it cleanly, and what is promised of an agent holds for it: no
compiled program is kept, no core is dumped, a ledger that cannot be written ends that process and not the notebook.
Records that are handed over go to it through anonymous memory, never through a file. What the notebook itself does with
them, its memory, its outputs, its own core dumps, is its owner's.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.api.accounts import ACCOUNT, as_account
from coterie.api.coding import Coding
from coterie.api.given import FLAG, FUNCTION, NOTHING_GIVEN, PLACE, TEXT, takes
from coterie.api.model import Model
from coterie.api.tabled import coding_of, handed_over
from coterie.deploy.accounts import DataAccount
from coterie.errors import InputError
from coterie.privacy.ledger import Budget

if TYPE_CHECKING:
    from coterie.api.sites import Table
    from coterie.deploy.agreement import Agreement
    from coterie.deploy.watch import Facts

__all__ = ["JoinedParty", "PartyModel", "Spent", "join"]

GRACE = 30.0  # seconds in which an agent that is asked to stop does so
EVERY = 0.25  # seconds between two looks at its progress
LINES = 40  # of its standard error that are kept


class Spent(NamedTuple):
    """What a party has spent, as its ledger says.

    `epsilon` is for this agreement, at `delta`, in `rounds` rounds, of `budget`; `in_all` adds what was spent under the
    agreements that it amends (None: it amends none that this party was in).
    """

    epsilon: float
    delta: float
    rounds: int
    budget: float
    in_all: Budget | None = None


@dataclass(frozen=True, eq=False, repr=False)
class PartyModel(Model):
    """One party's model after its last round, as `model.npz` of its folder holds it; `PartyModel.load` reads it again.

    It is a function of noisy messages and public numbers: what `epsilon` and `delta` pay for.
    """

    coding: Coding
    folder: Path
    party: str
    agreement: Agreement
    vector: NDArray[np.float64]
    epsilon: float
    delta: float
    rounds: int

    @classmethod
    def load(cls, folder: str | Path) -> PartyModel:
        """The model in a party's state folder, or in one that `save` made; refused where its files do not fit."""
        from coterie.deploy.agreement import AGREEMENT, unverified
        from coterie.report.released import MODEL
        from coterie.report.sealing import plan_hash, sha256
        from coterie.report.verification import parse

        place = Path(folder)
        try:
            content = (place / MODEL).read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                point, named = np.asarray(stored["point"], float), str(stored["plan"])
                facts = float(stored["epsilon"]), float(stored["delta"]), int(stored["rounds"])
        except FileNotFoundError:
            raise InputError(f"{place} holds no {MODEL}: the party has not come to its last round") from None
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{place / MODEL} is damaged: {error}") from None
        agreement = unverified(place / AGREEMENT)
        if named != plan_hash(agreement.plan):
            raise InputError(f"{place / MODEL} is of another plan than {AGREEMENT} beside it")
        certificate, title = place / "certificate.json", ""
        if certificate.is_file():
            sealed = parse(certificate.read_text("utf-8"))
            files = sealed.get("files")
            if not isinstance(files, dict) or files.get(MODEL) != sha256(content):
                raise InputError(f"{place / MODEL} is not the file that certificate.json names")
            title = next((p.name for p in agreement.parties if p.frame_key == sealed.get("signer")), "")
        coding = coding_of(agreement.plan)
        if point.shape != (coding.problem.dim,):
            raise InputError(f"{place / MODEL} has a model of shape {point.shape}, expected {coding.problem.dim}")
        return cls(coding, place, title, agreement, point, *facts)

    @property
    def point(self) -> NDArray[np.float64]:
        """The model as one flat vector, as the loss takes it."""
        return self.vector

    @property
    def clip(self) -> float | None:
        """The norm to which gradients were clipped as it was trained."""
        from coterie.experiment import public_network
        from coterie.pricing import settle

        settled = settle(self.agreement.plan, public_network(self.agreement.plan))
        return settled.algorithm.clips(settled.cfg)

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.agreement.plan.algorithm.name

    @property
    def certificate(self) -> Mapping[str, Any]:
        """What was charged, event by event, signed by this party: certificate.json."""
        from coterie.report.verification import parse

        return parse((self.folder / "certificate.json").read_text("utf-8"))

    @takes(folder=PLACE)
    def save(self, folder: str | Path) -> list[Path]:
        """Copy what may be shown to others into a folder: model, certificate, agreement; no ledger, log or report."""
        from coterie.deploy.agreement import AGREEMENT
        from coterie.deploy.files import write_bytes
        from coterie.report.released import MODEL

        place, written = Path(folder), []
        place.mkdir(parents=True, exist_ok=True)
        for name in (AGREEMENT, "certificate.json", MODEL):
            write_bytes(place / name, (self.folder / name).read_bytes())
            written.append(place / name)
        return written

    def __repr__(self) -> str:
        """What it is of, and what it cost."""
        who = f"{self.party}'s model, " if self.party else ""
        return (
            f"<{who}{self.algorithm} between {len(self.agreement.parties)} parties, {self.rounds} rounds: "
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g}>"
        )


class JoinedParty:
    """One party of an agreement, on this machine: what `ct.join` returns.

    Attributes:
        name: the party's, as certified.
        agreement: what all parties have signed up to.
        state: its folder: ledger, log, model, certificate.
        account: of its data set, if it was given.
    """

    def __init__(
        self, path: Path, agreement: Agreement, name: str, keys: Path, state: Path, listen: str | None,
        behind: Path | None, account: DataAccount | None = None,
    ):  # fmt: skip
        self._path, self._keys, self._listen, self._behind, self.account = path, keys, listen, behind, account
        self.agreement, self.name, self.state = agreement, name, state

    def __repr__(self) -> str:
        """Who it is, and how far it came."""
        plan, spent = self.agreement.plan, self.spent()
        return (
            f"<{self.name} in {plan.name!r}, {spent.rounds} rounds sent: ε = {spent.epsilon:.4g} of {spent.budget:g}>"
        )

    @takes(progress=FLAG | FUNCTION)
    def fit(
        self, X: Table, y: ArrayLike | None = None, *, people: ArrayLike | None = None,
        progress: bool | Callable[[Facts], None] = True,
    ) -> PartyModel:  # fmt: skip
        """Take part to the end, with this party's records, and return the model. The others run theirs meanwhile.

        After an interrupt, a crash or the end of a kernel, call it again with the same records: it goes on from the
        ledger, and nothing is sent or paid twice. After the last round it offers its last message once more to whoever
        needs it, for `deploy.deadline` seconds at most, and returns the model.

        Args:
            X: this party's records as its agent takes them: the path of a table or of an npz; or a table, or rows,
                with `y`. Columns are taken by the names that the plan states; rows without names in its order.
            y: their labels, in the plan's own words; None where X has the label column.
            people: whose each record is, where the agreement protects people and X has no column that says it.
            progress: show a line, or not; or a function that is called with what `coterie agent --status` shows.
        """
        with handed_over(self.agreement.plan, X, y, people) as (data, handed):
            code, said = self._run(data, handed, progress)
            if code:
                raise _failure(code, said)
        return self.model()

    def model(self) -> PartyModel:
        """The model of a party that has come to its last round."""
        return PartyModel.load(self.state)

    def spent(self) -> Spent:
        """What is spent so far, from the ledger: before, while and after it runs."""
        from coterie.deploy.reading import look
        from coterie.deploy.succession import in_all

        privacy, node = self.agreement.plan.privacy, self.agreement.index(self.name)
        assert privacy is not None  # a private algorithm has a budget
        budget = privacy.epsilon[node] if isinstance(privacy.epsilon, list) else privacy.epsilon
        path = self.state / "ledger.db"
        if not path.exists():
            return Spent(0.0, privacy.delta, 0, budget)
        book = look(path).book
        if book.meta.plan_hash == self.agreement.plan_hash:
            run = book.run
            total = in_all([*book.earlier, run]) if book.earlier else None
            return Spent(run.used, privacy.delta, run.rounds, budget, total)
        if book.meta.plan_hash.hex() in (self.agreement.deploy.follows or ()):  # this one has not begun
            return Spent(0.0, privacy.delta, 0, budget, in_all([*book.earlier, book.run]))
        raise InputError(f"ledger {path} was made for agreement {book.meta.plan_hash.hex()[:16]}: give another state")

    @takes(out=PLACE | NOTHING_GIVEN)
    def report(self, data: object = None, test: object = None, out: str | Path | None = None) -> Path:
        """Write the party's page (`coterie report`) and return its path.

        With `data` and `test`, each a path, a table or (X, y), it says what the model is worth on own records that were
        kept back. That is computed here, from the records: such a page is for the party alone.
        """
        from coterie.report.party import write_party_page

        place = Path(out) if out is not None else self.state / "report.html"
        with contextlib.ExitStack() as stack:
            given = []
            for one in (data, test):
                x, y = one if isinstance(one, tuple) else (one, None)
                given.append(None if one is None else stack.enter_context(handed_over(self.agreement.plan, x, y))[0])
            write_party_page(self.state, place, *given)
        return place

    # -- the process ---------------------------------------------------------------------------------------------------

    def _run(self, data: Path, handed: tuple[int, ...], progress: object) -> tuple[int, list[str]]:
        """Run the agent; its exit code, and what it said last."""
        here = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        options = [("--me", self.name), ("--keys", self._keys), ("--state", self.state), ("--data", data)]
        options += [(key, v) for key, v in (("--listen", self._listen), ("--behind", self._behind)) if v is not None]
        places = {}
        if self.account is not None:
            options.append(("--account", self.account.path))
            places = {"COTERIE_ACCOUNTS": str(self.account.keeper)}
        command = [
            sys.executable, "-P", "-m", "coterie.commands._beside", str(os.getpid()), "agent", str(self._path),
            *(str(part) for option in options for part in option), "--log-level", "warning",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **places, "PYTHONPATH": os.pathsep.join(here)}, pass_fds=handed, start_new_session=True,
        )  # fmt: skip
        said: deque[str] = deque(maxlen=LINES)
        reader = threading.Thread(target=_listen, args=(process, said), daemon=True)
        reader.start()
        try:
            with _shown(progress, self.name) as show:
                self._wait(process, show)
        except BaseException:  # an interrupt, or a progress function that fails: stop it, with its ledger in order
            _stop(process)
            raise
        finally:
            reader.join(5.0)
        return process.returncode, list(said)

    def _wait(self, process: subprocess.Popen[str], show: Callable[[Facts], None]) -> None:
        from coterie.deploy.watch import read_status

        seen = None
        while True:
            with contextlib.suppress(InputError):  # nothing is written yet
                facts = read_status(self.state)
                if facts.get("pid") == process.pid and facts["updated"] != seen:
                    seen = facts["updated"]
                    show(facts)
            if process.poll() is not None:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EVERY)


def _listen(process: subprocess.Popen[str], said: deque[str]) -> None:
    """What the agent says: its warnings are shown here as they come; its last words are kept."""
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            said.append(line.rstrip("\n"))
            if " warning: " in line[:24]:
                print(line, end="", file=sys.stderr)


def _stop(process: subprocess.Popen[str]) -> None:
    """Ask an agent to stop, and wait for it; one that does not is ended, which its ledger bears."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _shown(progress: object, name: str) -> Iterator[Callable[[Facts], None]]:
    """How progress is shown: by a function, by a line on a terminal or in a notebook, or not."""
    if callable(progress):
        yield progress
        return
    from rich.console import Console

    from coterie.deploy.watch import line

    console = Console()
    if not progress or not (console.is_terminal or console.is_jupyter):
        yield lambda facts: None
        return
    with console.status(f"{name}: starting") as status:
        yield lambda facts: status.update(line(facts))


def _failure(code: int, said: list[str]) -> BaseException:
    """What an exit code means, with the line that the agent ended with."""
    from coterie.deploy.process import EXIT, REASONS

    errors = [text.removeprefix("error: ") for text in said if text.startswith("error: ")]
    kind = next((kind for kind, number in EXIT.items() if number == code), "")
    if code < 0:
        name = signal.Signals(-code).name
        return RuntimeError(f"the agent's process was ended by {name}: call fit again, it goes on from the ledger")
    if kind == "stopped":
        return KeyboardInterrupt("the agent was asked to stop: call fit again, it goes on from the ledger")
    if kind == "input":
        return InputError("; ".join(errors) or "the agent refused to start")
    if kind in REASONS:
        return REASONS[kind][0]("; ".join(errors) or f"the agent ended with exit code {code}")
    return RuntimeError(f"the agent ended with exit code {code}:\n" + "\n".join(said))


@takes(
    agreement=PLACE, me=TEXT | NOTHING_GIVEN, keys=PLACE | NOTHING_GIVEN, state=PLACE | NOTHING_GIVEN,
    account=ACCOUNT | NOTHING_GIVEN, listen=TEXT | NOTHING_GIVEN, behind=PLACE | NOTHING_GIVEN,
)  # fmt: skip
def join(
    agreement: str | Path, *, me: str | None = None, keys: str | Path | None = None, state: str | Path | None = None,
    account: DataAccount | str | Path | None = None, listen: str | None = None, behind: str | Path | None = None,
) -> JoinedParty:  # fmt: skip
    """One party of a signed agreement, with the same files and rules as `coterie agent`. Nothing is sent yet.

    Args:
        agreement: the file that the authority has signed; refused if it was changed, or is not for these keys.
        me: this party's name; may be left out where `keys` are given.
        keys: its key folder; default: where `coterie keys init` put it.
        state: folder for ledger, log and model, as `coterie agent --state`; default NAME-state.
        account: of the data set: `fit` draws the agreement's whole charge from it, once, before anything is sent.
        listen, behind: as of `coterie agent`.

    >>> import coterie as ct
    >>> party = ct.join("agreement.json", me="harbour")  # doctest: +SKIP
    >>> party.fit("patients.csv").predict(X)  # doctest: +SKIP
    """
    from coterie.deploy.agreement import read_agreement
    from coterie.deploy.keys import default_folder, load_party

    if keys is None and me is None:
        raise InputError("say who this party is: me, its name, or keys, its key folder")
    folder = Path(keys) if keys is not None else default_folder(str(me))
    own = load_party(folder)
    if me not in (None, own.name):
        raise InputError(f"the keys in {folder} belong to {own.name}, not to {me}")
    if listen is not None and behind is not None:
        raise InputError(
            f"listen = {listen!r} and behind = {str(behind)!r}: a party behind a host does not listen itself"
        )
    path = Path(agreement)
    agreed = read_agreement(path, own.authority)
    agreed.check_keys(own.identity)
    agreed.index(own.name)
    behind = None if behind is None else Path(behind).absolute()
    places = folder.absolute(), Path(state if state is not None else f"{own.name}-state").absolute()
    return JoinedParty(path.absolute(), agreed, own.name, *places, listen, behind, as_account(account))
