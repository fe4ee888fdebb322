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
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.api.accounts import ACCOUNT, as_account
from coterie.api.coding import Coding
from coterie.api.given import FLAG, FUNCTION, NOTHING_GIVEN, PLACE, TEXT, takes
from coterie.api.model import Model
from coterie.api.parties import person_numbers
from coterie.data.planned import options_of
from coterie.deploy.accounts import DataAccount
from coterie.errors import InputError, InputErrors
from coterie.plan import Plan
from coterie.privacy.ledger import Budget

if TYPE_CHECKING:
    from coterie.deploy.agreement import Agreement
    from coterie.deploy.data import Records

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
        from coterie.report.certificate import plan_hash, sha256
        from coterie.report.released import MODEL
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
            if sealed.get("files", {}).get(MODEL) != sha256(content):
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
        from coterie.experiment import public_network, settle

        settled = settle(self.agreement.plan, public_network(self.agreement.plan))
        return settled.algorithm.clips(settled.cfg)

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.agreement.plan.algorithm.name

    @property
    def certificate(self) -> dict[str, Any]:
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
        self, X: Any, y: Any = None, *, people: Any = None, progress: bool | Callable[[dict[str, Any]], None] = True
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
        with _records(self.agreement.plan, X, y, people) as (data, handed):
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
    def report(self, data: Any = None, test: Any = None, out: str | Path | None = None) -> Path:
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
                given.append(None if one is None else stack.enter_context(_records(self.agreement.plan, x, y))[0])
            write_party_page(self.state, place, *given)
        return place

    # -- the process ---------------------------------------------------------------------------------------------------

    def _run(self, data: Path, handed: tuple[int, ...], progress: Any) -> tuple[int, list[str]]:
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

    def _wait(self, process: subprocess.Popen[str], show: Callable[[dict[str, Any]], None]) -> None:
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
def _shown(progress: Any, name: str) -> Iterator[Callable[[dict[str, Any]], None]]:
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
    place = Path(state) if state is not None else Path(f"{own.name}-state")
    behind = None if behind is None else Path(behind).absolute()
    drawn = as_account(account)
    return JoinedParty(path.absolute(), agreed, own.name, folder.absolute(), place.absolute(), listen, behind, drawn)


# ---- records ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _records(plan: Plan, X: Any, y: Any, people: Any = None) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Where an agent reads these records: a file that is there, or anonymous memory and the descriptor of it."""
    if isinstance(X, str | os.PathLike):
        if y is not None:
            raise InputError(f"X is the file {os.fspath(X)!r}, which has the labels too: leave y out")
        if people is not None:
            raise InputError(f"X is the file {os.fspath(X)!r}, which says whose its records are: leave people out")
        yield Path(X).absolute(), ()
        return
    if people is not None and not plan.by_person:
        raise InputError("people are given, and the agreement protects records: its unit was agreed as 'record'")
    content = _packed(plan, X, y, people)
    memory = os.memfd_create("records", os.MFD_CLOEXEC)
    try:
        os.ftruncate(memory, len(content))
        with mmap.mmap(memory, len(content)) as shared:  # handed to nobody by a call
            shared[:] = content
        yield Path(f"/proc/self/fd/{memory}"), (memory,)
    except InputError as error:  # which names a file that nobody knows
        if type(error) not in (InputError, InputErrors):
            raise
        raise InputErrors([text.replace(f"/proc/self/fd/{memory}", "X") for text in error.mistakes]) from None
    finally:
        os.close(memory)


def _packed(plan: Plan, X: Any, y: Any, people: Any) -> bytes:
    """Records as the file that the plan's parties read: a table with the label column, or encoded numbers."""
    if plan.problem.settings().features is not None:
        return _coefficients(plan, X, y)
    if plan.data.label is not None:
        return _owned(plan, _table(plan, X, y), people).to_csv(index=False).encode()  # type: ignore[no-any-return]
    from coterie.deploy.data import write_records

    file = io.BytesIO()
    found = _numbers(plan, X, y)
    if people is not None:
        found = found._replace(people=person_numbers(people, len(found.features), "X"))
    write_records(file, found)
    return file.getvalue()


def _coefficients(plan: Plan, X: Any, y: Any) -> bytes:
    """A party's functions: a table with their columns, or rows in the order of these."""
    from coterie.data.sources.coefficients import columns_of

    if y is not None:
        raise InputError("y: functions that share something have no labels: leave it out")
    if hasattr(X, "to_csv"):
        return X.to_csv(index=False).encode()  # type: ignore[no-any-return]
    rows, names = np.asarray(X, float), columns_of((plan.problem.dim or 0) // 2)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise InputError(f"X: expected rows of {len(names)} numbers ({', '.join(names)}), got shape {rows.shape}")
    lines = [",".join(map(repr, row)) for row in rows.tolist()]
    return "\n".join([",".join(names), *lines, ""]).encode()


def _table(plan: Plan, X: Any, y: Any) -> Any:
    """A frame with the columns that the plan names, the label among them."""
    import pandas as pd

    label, stated = plan.data.label, plan.data.options.get("features")
    if hasattr(X, "columns"):
        frame = pd.DataFrame(X).reset_index(drop=True)
        frame.columns = [str(name) for name in frame.columns]
    else:
        rows = np.asarray(X)
        if rows.ndim != 2:
            raise InputError(f"X: expected records in rows (records, columns), got shape {rows.shape}")
        if stated is None:
            raise InputError(
                "X has no column names, and the plan does not state data.options.features: give a DataFrame"
            )
        if rows.shape[1] != len(stated):
            raise InputError(f"X has {rows.shape[1]} columns, and the plan states {len(stated)}: {', '.join(stated)}")
        frame = pd.DataFrame(rows, columns=list(stated))
    if y is None:
        if label not in frame:
            raise InputError(f"y is not given, and X has no column {label!r}, the plan's label")
        return frame
    if label in frame:
        raise InputError(f"X has the label column {label!r}, and y is given too: leave one out")
    values = np.asarray(y)
    if values.shape != (len(frame),):
        raise InputError(f"y: expected one label for each of {len(frame)} records, got shape {values.shape}")
    return frame.assign(**{str(label): values})


def _owned(plan: Plan, frame: Any, people: Any) -> Any:
    """The frame with the column that says whose a record is, where the plan names one."""
    column = options_of(plan, "csv").get("person")
    if column is None or not plan.by_person:
        return frame
    if (people is None) == (column not in frame):
        gap = "is not given, and X has no" if people is None else "are given, and X has the"
        raise InputError(f"people {gap} column {column!r}, in which the plan says whose a record is")
    return frame if people is None else frame.assign(**{column: person_numbers(people, len(frame), "X")})


def _numbers(plan: Plan, X: Any, y: Any) -> Records:
    """Encoded records of a plan without a label column: features as they are, classes by number."""
    from coterie.deploy.data import Records

    problem = coding_of(plan).problem
    features, targets = np.asarray(X, float), np.asarray(y)
    if y is None or features.ndim != 2 or targets.shape != (len(features),):
        raise InputError(
            f"X, y: expected features (records, columns) and one target each, got {features.shape} and {targets.shape}"
        )
    classes = problem.labels.classes
    if classes is None:
        return Records(features, targets.astype(float), None, ())
    if not (known := np.isin(targets, range(classes))).all():
        stray = targets[~known].tolist()[0]
        raise InputError(f"y: the plan has no label column, so classes are 0 to {classes - 1}, got {stray!r}")
    stated = plan.data.options.get("classes")
    names = tuple(map(str, stated if stated and len(stated) == classes else range(classes)))
    return Records(features, targets.astype(int), names, ())


class TableCoding(Coding):
    """Records as the plan's parties write them: tables with named columns, read by its public ranges and categories."""

    plan: Plan

    @classmethod
    def of(cls, plan: Plan, coding: Coding) -> TableCoding:
        """The same problem and labels, with the plan's way of reading a table."""
        made = cls(coding.problem, coding.labels)
        object.__setattr__(made, "plan", plan)
        return made

    def _read(self, X: Any, y: Any, people: Any = None) -> Records:
        from coterie.deploy.data import read_records

        with _records(self.plan, X, y, people) as (path, _):
            return read_records(self.plan, path)

    def rows(self, features: Any, where: str = "X") -> NDArray[np.float64]:
        """Features as the problem takes them; a label that is there is not looked at."""
        label = str(self.plan.data.label)
        known = self.labels[0] if self.labels else self.plan.data.options.get("bounds", {}).get(label, (0,))[0]
        if hasattr(features, "columns") and label in features:
            features = features.drop(columns=label)
        person = options_of(self.plan, "csv").get("person")
        if hasattr(features, "columns") and person in features:  # whose it is does not matter to a prediction
            features = features.drop(columns=person)
        whose = np.arange(len(features)) if self.plan.by_person else None
        found = self._read(features, np.full(len(features), known), whose).features
        if len(found) != len(features):
            raise InputError(f"{where}: the plan leaves out records with gaps, {len(features) - len(found)} of them")
        return found

    def records(self, site: Any, where: str) -> tuple[NDArray, NDArray]:
        """Features and targets of a table, or of (X, y)."""
        x, y = site if isinstance(site, tuple) else (site, None)
        found, problem = self._read(x, y), self.problem
        return problem.admit(found.features, problem.encode(found.targets, found.classes))


def coding_of(plan: Plan) -> Coding:
    """How records are written for the model of an agreement's plan."""
    from coterie.experiment import public_network

    problem = public_network(plan).problem
    stated, classes = plan.data.options.get("classes"), problem.labels.classes
    if plan.data.label is None:
        return Coding(problem, None if classes is None else tuple(range(classes)))
    return TableCoding.of(plan, Coding(problem, None if stated is None else tuple(stated)))
