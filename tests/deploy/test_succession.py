"""An agreement that amends another one: accounts go on, nothing runs twice, and there is one way on from each."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.deploy import succession
from coterie.deploy.agreement import Agreement, draft_agreement, read_agreement, sign_agreement
from coterie.deploy.amending import Newcomer, amended_plan, changes_in_words
from coterie.deploy.anchor import Anchor, RolledBack
from coterie.deploy.keys import init_party, install, load_authority, read_certificate, sign_request, write_request
from coterie.deploy.ledger import Damaged, DurableLedger, read
from coterie.deploy.party import write_records
from coterie.deploy.process import open_party
from coterie.deploy.records import EarlierRun
from coterie.deploy.succession import ASIDE, carry_over, check_amended, in_all
from coterie.deploy.trial import Site, free_ports, sign_trial, start_agent
from coterie.errors import InputError
from coterie.plan import validate
from coterie.privacy.accountants import account
from coterie.privacy.ledger import BudgetExceeded
from coterie.written import toml_of
from tests.deploy.consortium import IN_A_YEAR, Consortium, make_consortium
from tests.deploy.house import small_plan, small_records
from tests.deploy.ledger_worker import EVENT, settings
from tests.deploy.test_process import wait_all


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return make_consortium(tmp_path_factory.mktemp("group"))


def after(group: Consortium, before: Agreement, **changes: Any) -> Agreement:
    """An agreement that amends this one."""
    _, plan = amended_plan(before, **changes)
    known = [read_certificate(group.folder / p.name / "certificate.pem") for p in plan.deploy.parties]
    return draft_agreement(plan, known, group.authority, IN_A_YEAR).signed(group.agreement_key)


@contextlib.contextmanager
def begun(keys: Path, state: Path, agreed: Agreement, me: str = "ada") -> Any:
    """A party's ledger under an agreement, as `open_party` opens it."""
    state.mkdir(exist_ok=True)
    earlier = carry_over(keys, state, agreed, me)
    given = settings() | {"plan_hash": agreed.plan_hash, "agent": me}
    with (
        contextlib.closing(Anchor(keys, agreed.plan_hash)) as tied,
        DurableLedger(state / "ledger.db", create=True, anchor=tied, earlier=earlier, **given) as opened,
    ):
        agreed.write(state / "agreement.json", private=True)
        yield opened


def spend(keys: Path, state: Path, agreed: Agreement, rounds: int, me: str = "ada") -> tuple[EarlierRun, ...]:
    with begun(keys, state, agreed, me) as opened:
        for _ in range(rounds):
            opened.release(opened.last + 1, [EVENT], os.urandom(50), os.urandom(100_000), {})  # a state beside it
        return opened.earlier


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    return tmp_path / "keys"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_what_was_spent_is_carried_and_the_budget_is_in_addition(group: Consortium, keys: Path, state: Path) -> None:
    first = group.agreement
    second = after(group, first, addresses={"ben": "ben.example:1"})
    third = after(group, second, leave=["dora"])
    assert spend(keys, state, first, 3) == ()
    (state / "model.npz").write_bytes(b"the first model")
    (one,) = spend(keys, state, second, 2)
    assert (one.plan_hash, one.rounds) == (first.plan_hash.hex(), 3)
    assert not (state / "model.npz").exists()  # or the second run would take it for its own
    assert (state / ASIDE / first.plan_hash.hex() / "model.npz").read_bytes() == b"the first model"
    runs = spend(keys, state, third, 4)
    assert [run.rounds for run in runs] == [3, 2]
    assert spend(keys, state, third, 1) == runs  # started again, it goes on
    book = read(state / "ledger.db")
    assert len(book.rows) == 5
    delta = book.meta.budget.delta
    assert [float.fromhex(r.spent) for r in runs] == [account([EVENT] * n, delta, fast=True).epsilon for n in (3, 2)]
    total = in_all([*book.earlier, book.run])
    assert total.delta == pytest.approx(3 * delta)
    assert total.epsilon == pytest.approx(account([EVENT] * 10, 3 * delta, fast=True).epsilon, rel=1e-6)
    assert max(float.fromhex(r.spent) for r in runs) < total.epsilon
    assert total.epsilon < sum(float.fromhex(r.spent) for r in [*runs, book.run])
    for agreed in (first, second):  # each old ledger is whole, and closed for good
        old = read(state / ASIDE / agreed.plan_hash.hex() / "ledger.db")
        assert old.stopped is not None
        assert "follows" in old.stopped


def test_an_amended_agreement_does_not_run_again(group: Consortium, keys: Path, state: Path, tmp_path: Path) -> None:
    """Wherever its ledger lies, and with a fresh folder too."""
    first = group.agreement
    second = after(group, first)
    spend(keys, state, first, 2)
    spend(keys, state, second, 0)  # begun, though nothing has left
    aside = state / ASIDE / first.plan_hash.hex()
    for place in (state, aside, tmp_path / "fresh"):
        with pytest.raises(InputError, match=r"was amended, and this party has begun .* give that agreement"):
            spend(keys, place, first, 1)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"was amended: .* goes on under"):  # a key folder that knows nothing
        spend(tmp_path / "other", state, first, 1)
    with pytest.raises(BudgetExceeded, match="closed"):
        spend(tmp_path / "other", aside, first, 1)


def test_there_is_one_way_on_from_an_agreement(group: Consortium, keys: Path, state: Path, tmp_path: Path) -> None:
    first = group.agreement
    second, fork = after(group, first), after(group, first, addresses={"ada": "ada.example:1"})
    spend(keys, state, first, 2)
    spend(keys, state, second, 1)
    for place in (state, tmp_path / "fresh"):
        with pytest.raises(InputError, match=r"amends .*, and so does .* two ways on from one agreement"):
            spend(keys, place, fork, 1)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"goes on from there under .* amend .* instead"):
        spend(tmp_path / "other", state, fork, 1)
    assert spend(keys, state, after(group, second, addresses={"ada": "ada.example:1"}), 1)[1].rounds == 1  # the way on


def test_who_took_part_brings_its_account(group: Consortium, keys: Path, state: Path, tmp_path: Path) -> None:
    first = group.agreement
    second = after(group, first)
    spend(keys, state, first, 2)
    with pytest.raises(InputError, match=rf"has begun with the ledger at .*{state.name}.*: give its folder as --state"):
        spend(keys, tmp_path / "fresh", second, 1)
    assert not (tmp_path / "fresh" / "ledger.db").exists()
    with pytest.raises(InputError, match="is the account of ada, not of ben"):
        spend(keys, state, second, 1, me="ben")
    stranger = make_consortium(group.folder, run={"rounds": 21}).agreement
    with pytest.raises(InputError, match=r"which .* does not amend"):
        spend(keys, state, stranger, 1)
    assert len(spend(keys, state, second, 1)) == 1
    (tmp_path / "new").mkdir()
    assert spend(tmp_path / "new", tmp_path / "newcomer", second, 1) == ()  # nobody's account: one that joins


def test_who_was_away_brings_what_it_spent_before(group: Consortium, keys: Path, state: Path) -> None:
    first = group.agreement
    without = after(group, first, leave=["emil"])
    again = after(group, without, join=[Newcomer("emil", 40, None)])
    spend(keys, state, first, 3, me="emil")
    (run,) = spend(keys, state, again, 1, me="emil")
    assert run.rounds == 3


def test_an_old_copy_is_no_account(group: Consortium, keys: Path, state: Path, tmp_path: Path) -> None:
    first = group.agreement
    second = after(group, first)
    spend(keys, state, first, 2)
    shutil.copytree(state, tmp_path / "old")
    spend(keys, state, first, 1)
    with pytest.raises(RolledBack, match="ends at round 1, but round 2 was released"):
        spend(keys, tmp_path / "old", second, 1)
    (run,) = spend(keys, state, second, 1)  # the refusal has changed nothing
    assert run.rounds == 3


def test_a_run_that_goes_on_is_not_taken_away(group: Consortium, keys: Path, state: Path) -> None:
    second = after(group, group.agreement)
    with begun(keys, state, group.agreement) as opened:
        opened.release(0, [EVENT], b"f", b"s", {})
        with pytest.raises(InputError, match="in use by another process"):
            carry_over(keys, state, second, "ada")
        opened.release(1, [EVENT], b"f", b"s", {})
    assert spend(keys, state, second, 0)[0].rounds == 2


class Cut(BaseException):
    """The power is gone."""


@pytest.mark.parametrize("nth", range(1, 12))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_on_the_way_loses_nothing(
    group: Consortium, keys: Path, state: Path, monkeypatch: pytest.MonkeyPatch, nth: int, when: str
) -> None:
    """At each step from one ledger to the next; what comes back is the same account, and the next run begins."""
    first = group.agreement
    second = after(group, first)
    spend(keys, state, first, 3)
    (state / "model.npz").write_bytes(b"model")
    count = 0

    def cut(real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == nth and when == "before":
                raise Cut
            done = real(*arguments, **options)
            if count == nth:
                raise Cut
            return done

        return step

    with monkeypatch.context() as patch:
        for name in ("note_amended", "_finish", "sync_folder"):
            patch.setattr(succession, name, cut(getattr(succession, name)))
        patch.setattr(succession.os, "link", cut(os.link))
        patch.setattr(Path, "unlink", cut(Path.unlink))
        with contextlib.suppress(Cut):
            carry_over(keys, state, second, "ada")
    (run,) = spend(keys, state, second, 2)
    assert run.rounds == 3
    assert [r.rounds for r in read(state / "ledger.db").earlier] == [3]
    aside = state / ASIDE / first.plan_hash.hex()
    assert read(aside / "ledger.db").stopped is not None  # its large state is still its own
    assert (aside / "model.npz").read_bytes() == b"model"
    assert not (state / "model.npz").exists()


def test_what_was_carried_cannot_be_changed(group: Consortium, keys: Path, state: Path) -> None:
    second = after(group, group.agreement)
    spend(keys, state, group.agreement, 3)
    spend(keys, state, second, 1)
    whole = (state / "ledger.db").read_bytes()
    place = whole.index(b'"rounds":3')
    (state / "ledger.db").write_bytes(whole[:place] + b'"rounds":2' + whole[place + 10 :])
    with pytest.raises(Damaged, match="earlier agreements does not match"):
        read(state / "ledger.db")


def test_preflight_changes_nothing(group: Consortium, keys: Path, state: Path) -> None:
    spend(keys, state, group.agreement, 2)
    before = sorted((p, p.stat().st_mtime_ns) for folder in (keys, state) for p in folder.rglob("*"))
    (run,) = check_amended(keys, state, after(group, group.agreement), "ada")
    assert run.rounds == 2
    assert sorted((p, p.stat().st_mtime_ns) for folder in (keys, state) for p in folder.rglob("*")) == before


# ---- the plan --------------------------------------------------------------------------------------------------------


def test_an_amended_plan_says_what_changes(group: Consortium) -> None:
    tree, plan = amended_plan(
        group.agreement, leave=["dora"], join=[Newcomer("finn", 55, "finn.example:7")], addresses={"ben": None},
        changes=["run.rounds=7"],
    )  # fmt: skip
    assert [p.name for p in plan.deploy.parties] == ["ada", "ben", "cleo", "emil", "finn"]
    assert plan.partition.sizes == [40, 40, 40, 40, 55]
    assert plan.deploy.follows == [group.agreement.plan_hash.hex()]
    assert validate(tomllib.loads(toml_of(tree))) == plan
    words = changes_in_words(group.agreement, plan)
    assert words[:3] == ["dora leaves", "finn joins", f"ben listens at no address, before: "
                         f"{group.agreement.party('ben').address}"]  # fmt: skip
    assert "run.rounds: 7, before: 20" in words
    assert changes_in_words(group.agreement, amended_plan(group.agreement)[1]) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"leave": ["zoe"]}, "'zoe' is no party of this agreement"),
        ({"addresses": {"zoe": None}}, "'zoe' is no party of this agreement"),
        ({"addresses": {"ada": "nowhere"}}, "an address is host:port"),
        ({"join": [Newcomer("ada", 3, None)]}, "names 'ada' twice"),
        ({"join": [Newcomer("A da", 3, None)]}, "a name has lower-case letters"),
        ({"changes": ["run.rounds=0"]}, "run.rounds"),
    ],
)
def test_a_plan_that_cannot_be_amended_so_is_refused(group: Consortium, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        amended_plan(group.agreement, **changes)


def test_a_budget_for_each_party_is_asked_for(group: Consortium) -> None:
    listed = after(group, group.agreement, changes=["privacy.epsilon=[1.0, 2.0, 3.0, 4.0, 5.0]"])
    assert amended_plan(listed, leave=["ben"])[1].privacy.epsilon == [1.0, 3.0, 4.0, 5.0]
    with pytest.raises(InputError, match=r"--set privacy.epsilon=\["):
        amended_plan(listed, join=[Newcomer("finn", 4, None)])


# ---- the commands ----------------------------------------------------------------------------------------------------


def three(folder: Path, rounds: int = 4) -> tuple[Path, tuple[Site, ...]]:
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    plan = small_plan(rounds, addresses=places, deadline=2.0, patience=60.0)
    return sign_trial(plan, small_records(), folder)


def join_trial(folder: Path, name: str) -> Site:
    """Keys, certificate and records of one more party of a trial."""
    home = folder / name
    init_party(name, home / "keys")
    write_request(name, home / "keys", home / "request.json")
    sign_request(home / "request.json", folder / "authority", 30).write(home / "certificate.pem")
    install(name, home / "keys", home / "certificate.pem", folder / "authority" / "ca.json")
    write_records(home / "data.npz", small_records(9)[0])
    return Site(name, home / "keys", home / "data.npz", home / "state")


def test_amend_sign_verify_and_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agreement, sites = three(tmp_path / "t")
    ada = sites[0]
    with open_party(agreement, ada.keys, ada.data, ada.state) as party:
        party.ledger.release(0, party.party.charges[0], b"f" * 100, b"", {})
    monkeypatch.chdir(tmp_path)
    dora = join_trial(tmp_path / "t", "dora")
    capsys.readouterr()
    amend = ["plan", "amend", str(agreement), "--ca", "t/authority", "--leave", "cleo", "--join", "dora=12",
             "--set", "run.rounds=6"]  # fmt: skip
    assert main(amend) == 0
    said = capsys.readouterr().out
    for line in ("cleo leaves", "dora joins", "run.rounds: 6, before: 4", "in addition to what each party has spent"):
        assert line in said
    assert main(amend) == 2  # nothing is overwritten
    assert "amended.toml exists" in capsys.readouterr().err
    certificates = [p for site in (*sites[:2], dora) for p in ("--certs", str(site.keys / "certificate.pem"))]
    assert main(["plan", "sign", "amended.toml", "--ca", "t/authority", "--out", "next.json", *certificates]) == 0
    assert main(["plan", "verify", "next.json", "--ca", "t/authority/ca.json"]) == 0
    first = json.loads(agreement.read_text())
    assert f"amends agreement {read_agreement(agreement, load_authority(Path('t/authority'))[0]).plan_hash.hex()}" in (
        capsys.readouterr().out
    )
    assert "follows" not in first["plan"]["deploy"]
    with open_party(Path("next.json"), ada.keys, ada.data, ada.state) as party:
        assert [run.rounds for run in party.ledger.earlier] == [1]
        party.ledger.release(0, party.party.charges[0], b"g" * 100, b"", {})
    capsys.readouterr()
    assert main(["ledger", "show", str(ada.state / "ledger.db")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "before it, under agreement" in said
    assert "a record that was in all of them has paid ε" in said
    assert main(["agent", str(agreement), "--me", "ada", "--keys", str(ada.keys), "--data", str(ada.data),
                 "--state", str(ada.state)]) == 2  # fmt: skip
    assert "was amended, and this party has begun" in capsys.readouterr().err


def test_new_keys_are_believed_under_the_next_agreement_only(tmp_path: Path) -> None:
    agreement, sites = three(tmp_path / "t")
    ada, folder = sites[0], tmp_path / "t"
    authority, key = load_authority(folder / "authority")
    with open_party(agreement, ada.keys, ada.data, ada.state) as party:
        party.ledger.release(0, party.party.charges[0], b"f" * 100, b"", {})
    fresh = tmp_path / "new" / "keys"
    init_party("ada", fresh)
    write_request("ada", fresh, tmp_path / "request.json")
    sign_request(tmp_path / "request.json", folder / "authority", 30).write(tmp_path / "ada.pem")
    install("ada", fresh, tmp_path / "ada.pem", folder / "authority" / "ca.json")
    with (
        pytest.raises(InputError, match="new keys need a new agreement"),
        open_party(agreement, fresh, ada.data, ada.state),
    ):
        pass
    _, plan = amended_plan(read_agreement(agreement, authority))
    known = [read_certificate(p / "certificate.pem") for p in (fresh, *(s.keys for s in sites[1:]))]
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    sign_agreement(plan, known, authority, key, until).write(tmp_path / "next.json")
    with (
        pytest.raises(InputError, match="not the agreed one"),
        open_party(tmp_path / "next.json", ada.keys, ada.data, ada.state),
    ):
        pass
    with open_party(tmp_path / "next.json", fresh, ada.data, ada.state) as party:
        assert [run.rounds for run in party.ledger.earlier] == [1]  # the account is the state folder's, not the keys'


@pytest.mark.slow
def test_a_party_leaves_another_joins_and_all_go_on(tmp_path: Path) -> None:
    """Real parties over TLS: a whole run, an amendment, a whole run with the same folders."""
    agreement, sites = three(tmp_path / "t")
    assert wait_all([start_agent(agreement, s) for s in sites]) == [0] * 3
    authority, key = load_authority(tmp_path / "t" / "authority")
    dora = join_trial(tmp_path / "t", "dora")
    _, plan = amended_plan(read_agreement(agreement, authority), leave=["cleo"], join=[Newcomer("dora", 12, None)])
    staying = (*sites[:2], dora)
    known = [read_certificate(s.keys / "certificate.pem") for s in staying]
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    sign_agreement(plan, known, authority, key, until).write(tmp_path / "next.json")
    assert wait_all([start_agent(tmp_path / "next.json", s) for s in staying]) == [0] * 3
    for site, runs in zip(staying, (1, 1, 0), strict=True):
        assert len(read(site.state / "ledger.db").earlier) == runs
        assert main(["verify", "--strict", str(site.state / "certificate.json")]) == 0
    assert wait_all([start_agent(agreement, s) for s in sites[:2]]) == [2, 2]  # the first does not run again
