"""One agreement, one ledger: a second one, an old copy, or other records are refused before anything is sent."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.deploy import anchor as anchor_module
from coterie.deploy.anchor import Anchor, RolledBack
from coterie.deploy.ledger import Damaged, DurableLedger, LedgerFailure, read
from coterie.deploy.party import read_records, write_records
from coterie.deploy.process import EXIT, fingerprint, open_party
from coterie.deploy.trial import free_ports, start_agent
from coterie.errors import InputError
from tests.deploy.house import Setting
from tests.deploy.ledger_worker import EVENT, settings
from tests.deploy.test_process import wait_all

PLAN = settings()["plan_hash"]


@contextlib.contextmanager
def ledger(folder: Path, keys: Path, **changes: Any) -> Any:
    """A ledger in a folder, tied to a key folder."""
    folder.mkdir(exist_ok=True)
    with (
        contextlib.closing(Anchor(keys, PLAN)) as tied,
        DurableLedger(folder / "ledger.db", create=True, anchor=tied, **(settings() | changes)) as opened,
    ):
        yield opened


def speak(opened: DurableLedger, rounds: int) -> None:
    for _ in range(rounds):
        opened.release(opened.last + 1, [EVENT], os.urandom(200), b"state", {})


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    return tmp_path / "keys"


def test_a_key_folder_that_cannot_be_written_is_refused_before_a_record_is_read() -> None:
    """As secrets are often mounted; else it would be noticed with all neighbours waiting, at the first message."""
    with tempfile.TemporaryDirectory() as name:
        Anchor(Path(name), PLAN).close()  # the twin
        me = os.geteuid()
        os.chmod(name, 0o555)
        try:
            os.seteuid(me or 65534)  # root may write everywhere
            with pytest.raises(InputError, match=f"{name} cannot be written"):
                Anchor(Path(name), PLAN)
        finally:
            os.seteuid(me)


def test_an_agent_that_starts_during_a_preflight_is_not_refused(tmp_path: Path, keys: Path) -> None:
    """Both have the key folder's word for a moment; a service that is refused with exit code 2 does not come back."""
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 1)
    looking = Anchor(keys, PLAN)
    threading.Timer(0.05, looking.close).start()
    Anchor(keys, PLAN).close()
    with contextlib.closing(Anchor(keys, PLAN)), pytest.raises(InputError, match="in use by another process"):
        Anchor(keys, PLAN)  # one that stays is a second agent


def test_a_second_ledger_of_the_same_agreement_is_refused(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 3)
    with ledger(tmp_path / "one", keys) as opened:  # the twin: the same one goes on
        assert opened.last == 2
        speak(opened, 1)
    with pytest.raises(InputError, match=r"has been started with ledger .* does not exist: a second ledger"), \
            ledger(tmp_path / "two", keys):  # fmt: skip
        pass
    assert not (tmp_path / "two" / "ledger.db").exists()  # not even made
    (tmp_path / "other").mkdir()
    with ledger(tmp_path / "two", tmp_path / "other"):  # made elsewhere, with another key folder, and brought here
        pass
    with pytest.raises(InputError, match="is another one: a second ledger would pay its ε again"), \
            ledger(tmp_path / "two", keys):  # fmt: skip
        pass
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(InputError, match="does not exist"), ledger(tmp_path / "one", keys):
        pass


def test_before_the_first_release_nothing_is_bound(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys):
        pass
    with ledger(tmp_path / "two", keys) as opened:
        speak(opened, 1)
    with pytest.raises(InputError, match="is another one"), ledger(tmp_path / "one", keys):
        pass


def test_of_two_that_are_open_one_may_speak(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys) as first, ledger(tmp_path / "two", keys) as second:
        speak(first, 1)
        with pytest.raises(InputError):
            speak(second, 1)
        assert second._failed
        assert read_rows(tmp_path / "two") == 0
        speak(first, 1)


def read_rows(folder: Path) -> int:
    copy = folder.with_name(folder.name + "-copy")
    shutil.copytree(folder, copy)
    return len(read(copy / "ledger.db").rows)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_an_old_copy_is_refused_without_any_neighbour(tmp_path: Path, keys: Path, lost: int) -> None:
    """Also when all parties put their backups back together, and none of them holds a later message."""
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 3)
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, lost)
    shutil.copytree(tmp_path / "one", tmp_path / "latest")
    shutil.rmtree(tmp_path / "one")
    shutil.copytree(tmp_path / "backup", tmp_path / "one")
    with pytest.raises(RolledBack, match=f"ends at round 2, but round {2 + lost} was released"), \
            ledger(tmp_path / "one", keys):  # fmt: skip
        pass
    shutil.rmtree(tmp_path / "one")
    shutil.copytree(tmp_path / "latest", tmp_path / "one")
    with ledger(tmp_path / "one", keys) as opened:
        assert opened.last == 2 + lost


def test_another_copy_that_came_as_far_is_refused(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 2)
    shutil.copytree(keys, tmp_path / "keys2")
    shutil.copytree(tmp_path / "one", tmp_path / "clone")
    for folder, kept in ((tmp_path / "one", keys), (tmp_path / "clone", tmp_path / "keys2")):
        with ledger(folder, kept) as opened:
            speak(opened, 1)
    with pytest.raises(RolledBack, match="holds another round 2 than was released"), ledger(tmp_path / "clone", keys):
        pass


def test_one_process_at_a_time_even_on_copies(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 1)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with (
        ledger(tmp_path / "one", keys),
        pytest.raises(InputError, match="in use by another process"),
        ledger(tmp_path / "copy", keys),
    ):
        pass


class Cut(BaseException):
    """The power is gone."""


@pytest.mark.parametrize("step", ["bind", "advance"])
def test_a_crash_beside_the_anchor_is_harmless(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After the key folder knows but before the ledger has a row; and after the row but before the mark."""
    real = getattr(Anchor, step)

    def cut(self: Anchor, *arguments: Any) -> None:
        if step == "bind":
            real(self, *arguments)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Anchor, step, cut)
        with pytest.raises(Cut), ledger(tmp_path / "one", keys) as opened:
            speak(opened, 1)
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # the old process still holds its locks
    with ledger(tmp_path / "two", keys) as opened:
        assert opened.last == (-1 if step == "bind" else 0)
        speak(opened, 1)
    with ledger(tmp_path / "two", keys) as opened:
        assert opened.last == (0 if step == "bind" else 1)


def test_a_mark_that_was_cut_short_leaves_the_one_before(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 4)
    (path,) = (keys / anchor_module.FOLDER).iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:1024] + os.urandom(20) + whole[1044:])  # that of round 3
    with contextlib.closing(Anchor(keys, PLAN)) as tied:
        assert tied.mark.number == 2
    path.write_bytes(whole[:512] + os.urandom(1024))
    with pytest.raises(Damaged, match="damaged"):
        Anchor(keys, PLAN)
    path.write_bytes(b"{" + whole[1:512])
    with pytest.raises(InputError, match="damaged"):
        Anchor(keys, PLAN)


def test_a_mark_that_cannot_be_written_ends_the_process(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 1)

        def full(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(LedgerFailure, match="anchor"):
            speak(opened, 1)


def test_only_the_owner_can_look_at_it(tmp_path: Path, keys: Path) -> None:
    with ledger(tmp_path / "one", keys) as opened:
        speak(opened, 1)
    (path,) = (keys / anchor_module.FOLDER).iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# ---- the records -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    return Setting.small(tmp_path_factory.mktemp("anchored") / "t", 4, addresses=places, deadline=2.0, patience=30.0)


def changed(setting: Setting, into: Path, row: int = 5) -> Path:
    records = read_records(setting.plan, setting.site("ada").data)
    features = np.array(records.features)
    features[row] *= 0.5
    write_records(into, records._replace(features=features))
    return into


def test_other_records_after_the_first_release_are_refused(alone: Setting, tmp_path: Path) -> None:
    site, state = alone.site("ada"), tmp_path / "state"
    keys, other = shutil.copytree(site.keys, tmp_path / "keys"), changed(alone, tmp_path / "other.npz")

    def opened(data: Path) -> Any:
        return open_party(alone.agreement_file, keys, data, state)

    with opened(other):
        pass  # nothing has been released: a mistake in the file may still be mended
    with opened(site.data) as party:
        party.ledger.release(0, party.party.charges[0], b"f" * 100, b"", {})
    with opened(site.data):
        pass
    with pytest.raises(InputError, match="the records are not those of the 1 rounds in ledger"), opened(other):
        pass
    book = read(state / "ledger.db")
    plain = read_records(alone.plan, site.data).features.tobytes()
    assert book.fingerprint is not None
    assert plain[:16] not in (state / "ledger.db").read_bytes()
    with opened(site.data) as party:  # keyed: another party's key gives another fingerprint of the same records
        records = read_records(alone.plan, site.data)
        assert fingerprint(party.keys, records) == book.fingerprint
        assert fingerprint(alone.keys["ben"], records) != book.fingerprint


@pytest.mark.slow
def test_an_agreement_does_not_run_twice(alone: Setting) -> None:
    """Three real parties finish; with fresh state folders, or old ones, nobody starts, and nothing new is sent."""
    assert wait_all([start_agent(alone.agreement_file, s) for s in alone.sites]) == [0] * 3
    for site in alone.sites:
        shutil.move(site.state, site.state.with_name("first"))
    assert wait_all([start_agent(alone.agreement_file, s) for s in alone.sites]) == [EXIT["input"]] * 3
    for site in alone.sites:
        assert "a second ledger would pay its ε again" in (site.data.parent / "errors.txt").read_text()
        assert not (site.state / "ledger.db").exists()
