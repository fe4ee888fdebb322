"""A deployed party and its data set's account: drawn whole before the first message, once, and by those that follow."""

from __future__ import annotations

import datetime as dt
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy import drawing as drawing_module
from coterie.deploy.accounts import DataAccount, RolledBack
from coterie.deploy.agreement import read_agreement, sign_agreement
from coterie.deploy.amending import amended_plan
from coterie.deploy.anchor import FOLDER
from coterie.deploy.data import Records
from coterie.deploy.keys import load_authority, read_certificate
from coterie.deploy.ledger import read
from coterie.deploy.party import Terms
from coterie.deploy.preflight import preflight
from coterie.deploy.process import EXIT, ReadyParty, open_party, run_party
from coterie.deploy.trial import free_ports, sign_trial, start_agent
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.plan import validate
from coterie.privacy.accountants import account as total_of
from coterie.privacy.ledger import Budget, BudgetExceeded
from tests.deploy.house import Setting, small_records
from tests.deploy.test_process import wait_all

ROUNDS = 4


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    folder = tmp_path_factory.mktemp("drawn") / "t"
    return Setting.small(folder, ROUNDS, addresses=places, deadline=2.0, patience=30.0)


class Bench:
    """Ada's files, fresh: keys, state, account."""

    def __init__(self, setting: Setting, folder: Path):
        self.setting, self.folder = setting, folder
        self.site = setting.site("ada")
        self.keys = shutil.copytree(self.site.keys, folder / "keys")
        self.state, self.data = folder / "state", self.site.data
        self.agreement = setting.agreement_file

    def open_account(self, epsilon: float = 5.0, path: str = "c.account", **rules: Any) -> DataAccount:
        given = {"data": self.data, "may": ["ada"], "keeper": self.folder / "keeper"} | rules
        return DataAccount.open(self.folder / path, Budget(epsilon, 1e-5), **given)

    def opened(self, account: DataAccount | None, agreement: Path | None = None) -> Any:
        return open_party(agreement or self.agreement, self.keys, self.data, self.state, account=account)

    def amended(self, before: Path, name: str, **changes: Any) -> Path:
        folder = self.setting.agreement_file.parent
        authority, key = load_authority(folder / "authority")
        _, plan = amended_plan(read_agreement(before, authority), **changes)
        known = [read_certificate(folder / p.name / "keys" / "certificate.pem") for p in plan.deploy.parties]  # type: ignore[union-attr]
        signed = sign_agreement(plan, known, authority, key, dt.datetime.now(dt.UTC) + dt.timedelta(days=30))
        signed.write(self.folder / name)
        return self.folder / name


@pytest.fixture
def bench(alone: Setting, tmp_path: Path) -> Bench:
    return Bench(alone, tmp_path)


def speak(party: ReadyParty, rounds: int) -> None:
    for _ in range(rounds):
        t = party.ledger.last + 1
        party.ledger.release(t, party.party.charges[t], b"f" * 100, b"", {})


def test_the_whole_charge_is_drawn_before_the_first_release(bench: Bench) -> None:
    account = bench.open_account()
    with bench.opened(account) as party:
        assert party.ledger.last == -1
        (draw,) = account.statement().draws
        charges = [event for round in party.party.charges for event in round]
    assert (draw.kind, draw.by, draw.unit) == ("agreement", "ada", "record")
    assert draw.key == f"agreement {bench.setting.agreement.plan_hash.hex()} ada"
    assert draw.epsilon == pytest.approx(total_of(charges, 1e-5, fast=True).epsilon, rel=1e-6)
    assert draw.epsilon == pytest.approx(2.0, rel=1e-3)  # the agreement's ε
    with bench.opened(account) as party:
        speak(party, 2)
    with bench.opened(account) as party:  # a restart draws nothing
        speak(party, 1)
    assert len(account.statement().draws) == 1


def test_out_of_budget_stops_the_start_and_sends_nothing(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    account = bench.open_account(epsilon=1.5)
    sent = []
    monkeypatch.setattr("coterie.deploy.process._main", lambda *_: sent.append(1))
    code = run_party(bench.agreement, bench.keys, bench.data, bench.state, account=account)
    assert code == EXIT["budget"]
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert "out of budget: the draw costs ε 2" in said[0]
    assert not sent
    assert not (bench.state / "ledger.db").exists()
    assert account.statement().draws == ()
    assert not list((bench.keys / FOLDER).glob("*.account")) if (bench.keys / FOLDER).exists() else True
    with bench.opened(None) as party:  # the twin: without an account it would run
        assert party.ledger.last == -1


def test_other_records_and_other_parties_are_refused(bench: Bench, tmp_path: Path) -> None:
    account = bench.open_account(data=np.zeros((3, 3)))
    with pytest.raises(InputError, match="is for other records"), bench.opened(account):
        pass
    other = DataAccount.open(
        tmp_path / "d.account", Budget(5.0, 1e-5), data=bench.data, may=["ben"], keeper=tmp_path / "keeper"
    )
    with pytest.raises(InputError, match=r"ada or .* may not draw; .*, ben may"), bench.opened(other):
        pass
    assert not (bench.state / "ledger.db").exists()


def test_a_key_is_enough_to_draw(bench: Bench) -> None:
    key = bench.setting.keys["ada"].identity.frame_key.hex()
    account = bench.open_account(may=[key])
    with bench.opened(account):
        pass
    assert len(account.statement().draws) == 1


def test_two_parties_of_one_agreement_each_draw_on_one_account(bench: Bench, tmp_path: Path) -> None:
    """The same people may be at both: what one party has drawn does not pay for the other's messages."""
    ben = bench.setting.site("ben")
    account = bench.open_account(data={"ada": bench.data, "ben": ben.data}, may=["ada", "ben"])
    with bench.opened(account):
        pass
    keys = shutil.copytree(ben.keys, tmp_path / "ben keys")
    for _ in range(2):  # a restart draws nothing
        with open_party(bench.agreement, keys, ben.data, tmp_path / "ben state", account=account):
            pass
    ada, other = account.statement().draws
    assert (ada.by, other.by) == ("ada", "ben")
    assert account.statement().spent > 1.3 * max(ada.epsilon, other.epsilon)


def test_an_agreement_that_has_drawn_does_not_run_without_its_account(bench: Bench, tmp_path: Path) -> None:
    account = bench.open_account()
    with bench.opened(account) as party:
        speak(party, 1)
    with pytest.raises(InputError, match=r"has drawn on the account at .*c.account: give it as --account"), \
            bench.opened(None):  # fmt: skip
        pass
    other = DataAccount.open(
        tmp_path / "d.account", Budget(5.0, 1e-5), data=bench.data, may=["ada"], keeper=tmp_path / "another"
    )
    with pytest.raises(InputError, match=r"d.account is another one"), bench.opened(other):
        pass
    assert other.statement().draws == ()


def test_a_draw_does_not_pay_for_records_that_came_later(bench: Bench) -> None:
    """Drawn, nothing released yet, and then started with another file: neither as it is nor after a new epoch."""
    account = bench.open_account()
    with bench.opened(account):
        pass
    bench.data = bench.setting.site("ben").data
    with pytest.raises(InputError, match="was drawn for other records"), bench.opened(account):
        pass
    account.epoch(bench.data, all_new=True)
    with pytest.raises(InputError, match="was drawn for other records"), bench.opened(account):
        pass
    assert account.statement().spent == 0.0


def test_an_account_and_its_keeper_put_back_together_are_noticed_by_the_key_folder(bench: Bench) -> None:
    account = bench.open_account()
    shutil.copytree(account.keeper, bench.folder / "old keeper")
    backup = account.path.read_bytes()
    with bench.opened(account):
        pass
    account.path.write_bytes(backup)
    shutil.rmtree(account.keeper)
    shutil.move(bench.folder / "old keeper", account.keeper)
    assert account.statement().draws == ()  # they fit each other
    with pytest.raises(RolledBack, match="does not hold the draw of agreement"), bench.opened(account):
        pass


@pytest.mark.parametrize("step", ["charge", "_note"])
def test_a_crash_around_the_draw_pays_once(bench: Bench, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the draw, and between it and its note."""
    account = bench.open_account()

    def cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "charge":
            patch.setattr(DataAccount, "charge", cut)
        else:
            patch.setattr(drawing_module, "_note", cut)
        with pytest.raises(KeyboardInterrupt), bench.opened(account):
            pass
    assert len(account.statement().draws) == (step == "_note")
    with bench.opened(account) as party:
        speak(party, 1)
    assert len(account.statement().draws) == 1


def test_an_amended_agreement_goes_on_from_the_draw(bench: Bench) -> None:
    """ε = 3 for two agreements of 2 each: the first sent one round of four, and leaves the rest to the second."""
    account = bench.open_account(epsilon=2.7)
    with bench.opened(account) as party:
        speak(party, 1)
        one = party.party.charges[0]
    second = bench.amended(bench.agreement, "second.json")
    with pytest.raises(InputError, match="give it as --account"), bench.opened(None, second):
        pass
    with bench.opened(account, second) as party:
        assert len(party.ledger.earlier) == 1
    first, next_one = account.statement().draws
    assert first.settled is not None
    assert "follows" in first.settled
    assert first.epsilon == pytest.approx(total_of(one, 1e-5, fast=True).epsilon, rel=1e-6)
    assert next_one.settled is None
    before = account.statement()
    with bench.opened(account, second) as party:  # a restart settles and draws nothing
        speak(party, 1)
    assert account.statement() == before


def test_an_agreement_is_not_closed_for_one_that_cannot_be_paid(bench: Bench) -> None:
    account = bench.open_account(epsilon=2.1)
    with bench.opened(account) as party:
        speak(party, 3)
    second = bench.amended(bench.agreement, "second.json", changes=["privacy.epsilon=1.9"])
    with pytest.raises(BudgetExceeded, match="out of budget"), bench.opened(account, second):
        pass
    assert read(bench.state / "ledger.db").stopped is None
    with bench.opened(account) as party:  # nothing is lost: the first one goes on
        speak(party, 1)


def test_what_was_sent_without_an_account_is_drawn_by_the_one_that_follows(bench: Bench) -> None:
    with bench.opened(None) as party:
        speak(party, 2)
    account = bench.open_account()
    second = bench.amended(bench.agreement, "second.json")
    with bench.opened(account, second):
        pass
    old, new = account.statement().draws
    assert (old.key, new.settled) == (f"agreement {bench.setting.agreement.plan_hash.hex()} ada", None)
    assert sum(int(np.sum(event.times)) for event in old.events) == 2
    assert old.settled is not None


UNITS = [("record", "person"), ("person", "record")]


@pytest.mark.parametrize("units", [UNITS[0], pytest.param(UNITS[1], marks=pytest.mark.slow)])
def test_an_agreement_of_another_unit_does_not_follow(tmp_path: Path, units: tuple[str, str]) -> None:
    """What was sent at a record's price would enter an account of people as if it were a person's."""

    def data(unit: str) -> dict[str, Any]:
        own = {"options": {"bounds": {"x": [0, 1]}, "classes": ["0", "1"]}}
        most = {"records_per_person": 4} if unit == "person" else {}
        return {"source": "csv", "label": "y", "person": "who", "unit": unit} | own | most

    plan = validate(
        {
            "name": "people", "partition": {"kind": "iid", "sizes": [12] * 3}, "graph": {"kind": "ring"},
            "data": data(units[0]), "problem": {"loss": "logistic", "dim": 2}, "algorithm": {"name": "dp-dsgd"},
            "privacy": {"epsilon": 1.0}, "run": {"rounds": 3},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in ("ada", "ben", "cleo")]},
        }
    )  # fmt: skip
    x = np.random.default_rng(0).uniform(0, 0.5, (12, 2))
    records = Records(x, np.arange(12) % 2, ("0", "1"), (), people=np.arange(12))
    agreement, (site, *_) = sign_trial(plan, [records] * 3, tmp_path / "t")
    with open_party(agreement, site.keys, site.data, site.state) as party:
        speak(party, 2)
    authority, key = load_authority(tmp_path / "t" / "authority")
    known = [read_certificate(tmp_path / "t" / name / "keys" / "certificate.pem") for name in ("ada", "ben", "cleo")]
    account = DataAccount.open(
        tmp_path / "c.account", Budget(20.0, 1e-5), data=site.data, unit="person", most=4, may=["ada"],
        keeper=tmp_path / "keeper",
    )  # fmt: skip
    for unit in (units[1], units[0]):  # the twin: of the same unit it follows
        tree, _ = amended_plan(read_agreement(agreement, authority))
        after = validate(tree | {"data": data(unit)})
        second = tmp_path / f"{unit}.json"
        sign_agreement(after, known, authority, key, dt.datetime.now(dt.UTC) + dt.timedelta(days=3)).write(second)
        reason = f"the account so far is for each {units[0]}, and this agreement .data.unit. for each {units[1]}"
        found = preflight(second, site.keys, site.data, site.state, "ada", None, None, account)
        said = [f.text for f in found if f.about == "account" and f.level == "problem"]
        if unit == units[0]:
            with open_party(second, site.keys, site.data, site.state, account=account):
                pass
            assert not said
            assert {draw.unit for draw in account.statement().draws} == {unit}
            continue
        assert re.search(reason, said[0])
        with pytest.raises(InputError, match=reason), \
                open_party(second, site.keys, site.data, site.state, account=account):  # fmt: skip
            pass
        assert account.statement().draws == ()
        assert read(site.state / "ledger.db").stopped is None


def test_a_ledger_of_before_is_drawn_whole_unless_it_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its agent could go on without the account: what was sent so far is not what it will cost."""
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(bench.folder / "keeper"))
    with bench.opened(None) as party:
        speak(party, 1)
    account, ledger = bench.open_account(), bench.state / "ledger.db"
    words = ["account", "charge", str(account.path), "--data", str(bench.data), "--what", "before", "--ledger"]
    for _ in range(2):
        assert main([*words, str(ledger)]) == 0
    (draw,) = account.statement().draws
    assert (draw.epsilon, draw.unit) == (pytest.approx(2.0, rel=1e-3), "record")
    assert main([*words, str(ledger), "--unit", "person"]) == 2
    assert "is priced for each record" in capsys.readouterr().err
    with bench.opened(account) as party:  # the draw is the agent's own: a start finds it paid
        speak(party, 1)
    second = bench.amended(bench.agreement, "second.json")
    with bench.opened(account, second) as party:
        one = party.party.charges[0]
    aside = bench.state / "earlier" / bench.setting.agreement.plan_hash.hex() / "ledger.db"
    assert read(aside).stopped is not None
    fresh = bench.open_account(path="fresh.account", keeper=bench.folder / "fresh")
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(bench.folder / "fresh"))
    words[2] = str(fresh.path)
    assert main([*words, str(aside)]) == 0  # closed: two rounds were sent, and no more will be
    (draw,) = fresh.statement().draws
    assert draw.epsilon == pytest.approx(total_of([*one, *one], 1e-5, fast=True).epsilon, rel=1e-6)
    (aside.parent / "agreement.json").unlink()
    assert main([*words, str(aside)]) == 2
    assert "say by --unit what it is priced for" in capsys.readouterr().err


def test_what_was_sent_before_an_amendment_is_drawn_with_its_ledger(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(bench.folder / "keeper"))
    with bench.opened(None) as party:
        speak(party, 2)
    with bench.opened(None, bench.amended(bench.agreement, "second.json")) as party:
        speak(party, 1)
    account = bench.open_account()
    words = ["--data", str(bench.data), "--what", "before", "--ledger", str(bench.state / "ledger.db")]
    assert main(["account", "charge", str(account.path), *words]) == 0
    first, second = account.statement().draws
    assert first.settled is not None
    assert [sum(int(np.sum(e.times)) for e in d.events) for d in (first, second)] == [2, ROUNDS]


def test_preflight_looks_and_draws_nothing(bench: Bench) -> None:
    def findings(account: DataAccount | None) -> list[tuple[str, str]]:
        found = preflight(bench.agreement, bench.keys, bench.data, bench.state, "ada", None, None, account)
        return [(f.level, f.text) for f in found if f.about == "account"]

    account = bench.open_account()
    ((level, text),) = findings(account)
    assert level == "ok"
    assert "the agreement fits" in text
    assert account.statement().draws == ()
    with bench.opened(account):
        pass
    assert "is drawn for this agreement" in findings(account)[0][1]
    ((level, text),) = findings(None)
    assert level == "problem"
    assert "give it as --account" in text
    account.path.unlink()
    assert findings(account)[0][0] == "problem"


def test_against_everybody_a_shared_sum_costs_its_local_claim(tmp_path: Path) -> None:
    """What one party's masked vectors cost if all others collude, the ones sent again at the price of the dearest."""
    plan = validate(
        {
            "name": "shared", "data": {"source": "csv"}, "partition": {"kind": "iid", "sizes": [12] * 3},
            "graph": {"kind": "complete"}, "problem": {"loss": "logistic", "dim": 3, "ridge": 0.1},
            "algorithm": {"name": "dp-dsgd", "mixing": 1}, "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "exchange": {"kind": "secret-sum", "noise": "central", "honest": 2, "retries": 2}, "run": {"rounds": 3},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in ("ada", "ben", "cleo")]},
        }
    )  # fmt: skip
    agreement, sites = sign_trial(plan, small_records(), tmp_path / "t")
    terms = Terms.of(plan)
    charged = {}
    for against in ("agreed", "everybody"):
        account = DataAccount.open(
            tmp_path / f"{against}.account", Budget(50.0, 1e-5), data=sites[0].data, may=["ada"], against=against,  # type: ignore[arg-type]
            keeper=tmp_path / f"keeper {against}",
        )  # fmt: skip
        keys = shutil.copytree(sites[0].keys, tmp_path / f"keys {against}")
        with open_party(agreement, keys, sites[0].data, tmp_path / f"state {against}", account=account):
            pass
        charged[against] = account.statement().draws[0].epsilon
    sharing = Turns.of(terms, 0).sharing
    assert sharing is not None
    dearest = max(sharing.local, key=lambda e: float(np.max(e.sensitivity / e.sigma)))  # type: ignore[attr-defined]
    local = total_of([*sharing.local, dearest, dearest], 1e-5, fast=True).epsilon
    assert charged["agreed"] == pytest.approx(2.0, rel=2e-3)
    assert charged["everybody"] == pytest.approx(local, rel=1e-6)
    assert charged["everybody"] > charged["agreed"]


@pytest.mark.slow
def test_three_parties_draw_and_finish(alone: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, as processes: each draws on its own account, and a second agreement finds too little left."""
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(tmp_path / "keeper"))
    for site in alone.sites:
        words = ["--data", str(site.data), "--epsilon", "2.2", "--delta", "1e-5", "--may", site.name]
        assert main(["account", "open", str(tmp_path / f"{site.name}.account"), *words]) == 0
    given = {s.name: ["--account", str(tmp_path / f"{s.name}.account")] for s in alone.sites}
    agents = [start_agent(alone.agreement_file, s, options=given[s.name]) for s in alone.sites]
    assert wait_all(agents) == [0] * 3
    for site in alone.sites:
        (draw,) = DataAccount(tmp_path / f"{site.name}.account").statement().draws
        assert draw.by == site.name
