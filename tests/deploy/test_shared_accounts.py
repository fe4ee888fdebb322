"""Noise that parties share, added up: one person at two parties, two draws on one account, two agreements in a row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy.accounts import DataAccount
from coterie.deploy.agreement import read_agreement, unverified
from coterie.deploy.drawing import Drawing
from coterie.deploy.keys import load_party
from coterie.deploy.ledger import DurableLedger
from coterie.deploy.pairs import PairSecrets
from coterie.deploy.succession import check_amended, refuse_more_curious
from coterie.deploy.terms import Terms
from coterie.deploy.trial import Site, sign_trial
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy.gdp import epsilon_of, mu_for
from coterie.privacy.ledger import Budget
from coterie.privacy.observers import hidden_share
from coterie.report.certificate import SECURE, certificate
from coterie.report.sealing import seal
from coterie.report.verification import Refuted, parse, verify
from tests.deploy.house import small_plan, small_records

ROUNDS = 4
BY_PERSON = {"unit": "person", "person": "who", "records_per_person": 2}


def changed(plan: Plan, **tables: Any) -> Plan:
    """The plan with keys of its tables changed."""
    tree = plan.model_dump(mode="json", exclude_none=True, exclude={"run": {"seed", "seeds"}})
    return validate({**tree, **{name: tree[name] | keys for name, keys in tables.items()}})


class Ended:
    """Three parties of a plan; the first has sent all of its rounds."""

    def __init__(self, plan: Plan, folder: Path):
        self.plan, self.terms = plan, Terms.of(plan)
        self.agreement, self.sites = sign_trial(plan, small_records(), folder / "t")
        self.state = folder / "state"
        self.state.mkdir()
        shutil.copy(self.agreement, self.state / "agreement.json")
        charges = [event for one in self.terms.charges(0) for event in one]
        with DurableLedger(
            self.state / "ledger.db", budget=Budget(2.0, 1e-5), plan_hash=unverified(self.agreement).plan_hash,
            agent="ada", plan=charges, create=True,
        ) as ledger:  # fmt: skip
            for t, event in enumerate(charges):
                ledger.release(t, [event], b"f" * 100, b"", {})

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.db"


@pytest.fixture(scope="module")
def decor(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Ended(small_plan(ROUNDS, "decor"), tmp_path_factory.mktemp("decor"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Ended(small_plan(ROUNDS), tmp_path_factory.mktemp("plain"))


def opened(folder: Path, against: str, *sites: Site) -> DataAccount:
    return DataAccount.open(
        folder / f"{against}.account", Budget(20.0, 1e-5), data={s.name: s.data for s in sites},
        may=[s.name for s in sites], keeper=folder / "keeper", against=against,  # type: ignore[arg-type]
    )  # fmt: skip


# ---- one person ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "factor"), [("decor", 2.0), ("dp-dsgd", 2**0.5)])
def test_a_ledger_says_what_a_person_at_two_parties_has_paid(
    name: str, factor: float, tmp_path: Path, capsys: Any
) -> None:
    """Noise that both share hides the sum of what both move: μ is twice that of one party, not √2 times."""
    ended = Ended(changed(small_plan(ROUNDS, name), data=BY_PERSON), tmp_path)
    assert main(["ledger", "show", str(ended.ledger), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["protects"]
    expected = epsilon_of(factor * mu_for(told["person"], 1e-5), 1e-5)
    assert told["person_at_two_parties"] == pytest.approx(float(expected), rel=1e-3)


def test_two_ends_of_an_edge_cost_twice_as_much() -> None:
    """Why: against a reader of everything, shifts at both ends of an edge add up, where little own noise is left."""
    edges, ratio = np.array([(i, j) for i in range(6) for j in range(i)]), 10.0
    hides = np.eye(6) + ratio**2 * (6 * np.eye(6) - 1)
    both = np.array([1.0, 1.0, 0, 0, 0, 0]) @ np.linalg.inv(hides) @ np.array([1.0, 1.0, 0, 0, 0, 0])
    assert both > 1.98**2 * hidden_share(edges, 6, ratio).max()


# ---- one account -----------------------------------------------------------------------------------------------------


def drawing(ended: Ended, account: DataAccount, node: int) -> Drawing:
    site = ended.sites[node]
    keys = load_party(site.keys)
    return Drawing.of(
        account, read_agreement(ended.agreement, keys.authority), keys, Turns.of(ended.terms, node), site.data
    )


def test_one_account_does_not_pay_for_two_parties_that_share_noise(decor: Ended, plain: Ended, tmp_path: Path) -> None:
    """μ² of both would be added, and a person at both costs 4 μ². Own noise alone adds, as does noise of dp-dsgd."""
    ada, ben, _ = decor.sites
    account = opened(tmp_path, "agreed", ada, ben)
    for _ in range(2):
        drawing(decor, account, 0).draw([])
    for act in (lambda d: d.check([]), lambda d: d.draw([])):
        with pytest.raises(InputError, match=r"has paid for ada in .* whose parties share noise: .* ben needs another"):
            act(drawing(decor, account, 1))
    assert len(account.statement().draws) == 1
    account.close("a new one follows")
    heir = DataAccount.open(
        tmp_path / "heir.account", Budget(20.0, 1e-5), data={s.name: s.data for s in (ada, ben)}, may=["ben"],
        keeper=tmp_path / "keeper",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"heir.account has paid for ada"):
        drawing(decor, heir, 1).check([])
    for ended, against in ((decor, "everybody"), (plain, "plain")):
        (folder := tmp_path / against).mkdir()
        both = opened(folder, "everybody" if ended is decor else "agreed", *ended.sites[:2])
        for node in (0, 1):
            drawing(ended, both, node).draw([])
        assert len(both.statement().draws) == 2


def test_two_that_draw_in_the_same_moment_both_stop(
    decor: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has released anything: who comes second finds the other's draw after its own."""
    account = opened(tmp_path, "agreed", *decor.sites[:2])
    second, charge = drawing(decor, account, 1), DataAccount.charge

    def both(self: DataAccount, *given: Any, **named: Any) -> Any:
        monkeypatch.setattr(DataAccount, "charge", charge)
        drawing(decor, account, 0).draw([])
        return charge(self, *given, **named)

    monkeypatch.setattr(DataAccount, "charge", both)
    with pytest.raises(InputError, match="has paid for ada"):
        second.draw([])
    with pytest.raises(InputError, match="has paid for ben"):
        drawing(decor, account, 0).draw([])


def test_a_ledger_against_few_is_not_charged_to_an_account_against_everybody(
    decor: Ended, plain: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(tmp_path / "keeper"))

    def charged(account: DataAccount, ended: Ended, *more: str) -> int:
        words = ["--data", str(ended.sites[0].data), "--what", "before", "--ledger", str(ended.ledger), *more]
        return main(["account", "charge", str(account.path), *words])

    everybody = opened(tmp_path, "everybody", decor.sites[0])
    assert charged(everybody, decor) == 2
    assert "holds against everybody, and what the rounds of" in capsys.readouterr().err
    assert everybody.statement().draws == ()
    (folder := tmp_path / "other").mkdir()
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(folder / "keeper"))
    agreed = opened(folder, "agreed", decor.sites[0], decor.sites[1])
    assert charged(agreed, decor, "--key", "mine") == 2  # under which another end would not be found
    assert charged(agreed, decor) == 0
    with pytest.raises(InputError, match="has paid for ada"):
        drawing(decor, agreed, 1).check([])
    (folder := tmp_path / "plain").mkdir()
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(folder / "keeper"))
    assert charged(opened(folder, "everybody", plain.sites[0]), plain) == 0  # the twin: noise of its own
    (plain.state / "agreement.json").rename(plain.state / "away.json")
    try:
        (folder := tmp_path / "unknown").mkdir()
        monkeypatch.setenv("COTERIE_ACCOUNTS", str(folder / "keeper"))
        assert charged(opened(folder, "everybody", plain.sites[0]), plain, "--unit", "record") == 2
    finally:
        (plain.state / "away.json").rename(plain.state / "agreement.json")


# ---- one after another -----------------------------------------------------------------------------------------------


def of_sums(honest: int) -> Plan:
    exchange = {"kind": "secret-sum", "noise": "central", "honest": honest}
    return validate(
        small_plan(ROUNDS, graph="complete").model_dump(mode="json", exclude_none=True) | {"exchange": exchange}
    )


def test_an_account_of_sums_is_against_its_colluders_and_no_more() -> None:
    curious = changed(small_plan(ROUNDS, "decor"), algorithm={"curious": 2})
    refuse_more_curious(of_sums(2), of_sums(2))
    refuse_more_curious(of_sums(2), small_plan(ROUNDS, "decor"))
    refuse_more_curious(small_plan(ROUNDS), of_sums(2))
    for after, whom in ((curious, "2"), (small_plan(ROUNDS), "everybody")):
        with pytest.raises(InputError, match=rf"against 1 curious party \(exchange.honest\), and .* against {whom}"):
            refuse_more_curious(of_sums(2), after)


def test_an_account_against_nobody_knows_whom_is_not_gone_on_with(decor: Ended, tmp_path: Path) -> None:
    """Without its agreement a ledger does not say whom its prices are against."""
    keys, state = tmp_path / "keys", shutil.copytree(decor.state, tmp_path / "state")
    shutil.copytree(decor.sites[0].keys, keys)
    agreed = read_agreement(decor.agreement, load_party(keys).authority)
    assert agreed.plan.deploy is not None
    follows = agreed.plan.deploy.model_copy(update={"follows": [agreed.plan_hash.hex()]})
    after = agreed.model_copy(update={"plan": agreed.plan.model_copy(update={"deploy": follows})})
    after.__dict__.pop("body", None), after.__dict__.pop("plan_hash", None)
    after._given = b""
    assert after.plan_hash != agreed.plan_hash
    assert len(check_amended(keys, state, after, "ada")) == 1
    (state / "agreement.json").unlink()
    with pytest.raises(InputError, match=r"for whom and against whom .* is not there: put that agreement back"):
        check_amended(keys, state, after, "ada")


# ---- what others say -------------------------------------------------------------------------------------------------


def test_a_certificate_of_another_version_says_both_claims_too(decor: Ended) -> None:
    """What it leaves out is missed before anything is derived: other code cannot be asked."""
    terms = decor.terms
    charged = {0: [event for one in terms.charges(0) for event in one]}
    body = certificate(terms.plan, terms.network, terms.priced, noise=SECURE, charged=charged)
    older = body | {"made_with": body["made_with"] | {"coterie": "0.0.1", "code_sha256": "0" * 64}}
    assert verify(parse(json.dumps(seal(older)))).warnings
    less = {name: value for name, value in older.items() if name != "alone"} | {"other_claims": []}
    with pytest.raises(Refuted, match="alone: noise is shared"):
        verify(parse(json.dumps(seal(less))))


def test_a_frame_key_that_gives_no_secret_is_refused_in_one_line(decor: Ended) -> None:
    keys = load_party(decor.sites[0].keys)
    agreed = read_agreement(decor.agreement, keys.authority)
    weak = agreed.parties[1].model_copy(update={"frame_key": "01" + "00" * 31})  # of order 1
    parties = (agreed.parties[0], weak, agreed.parties[2])
    with pytest.raises(InputError, match="the frame key 0100000000000000 gives no secret"):
        PairSecrets.of(agreed.model_copy(update={"parties": parties}), keys)
