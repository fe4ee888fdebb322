"""Figures of Ding's chapter 3: the printed noise and what it costs, against the golden numbers of the specification."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from coterie.algorithms import ipp_admm, pp_admm
from coterie.algorithms.batches import rows
from coterie.data.sources.census import INCOME
from coterie.experiment import public_network
from reproduction import _dissertation_ch3_runs as runs
from reproduction._admm_runs import claimed_by, settled
from reproduction.base import all_figures
from reproduction.claims import ding_rho
from reproduction.figures import run
from reproduction.pricing import cost_of
from reproduction.runner import MissingData, check_data, reproduce
from reproduction.study import Study
from tests.data.test_census import extract, written

BETA = 10**-3.5


def priced(algorithm, ridge, **settings):
    """An algorithm on five agents with 7,000 records each, from public numbers alone."""
    plan = runs.world().plan("admm", 1, ridge)
    experiment = SimpleNamespace(plan=plan, network=public_network(plan))
    return settled(runs.world(), experiment, algorithm, 30, penalty=0.5, tolerance=BETA, **settings)


@pytest.mark.parametrize(
    ("splits", "epsilon", "true"),
    [(0.001, 0.5, 0.322), (0.001, 1, 0.703), (0.001, 1.5, 1.114), (0.001, 2, 1.549), (0.001, 10, 11.18),
     (0.5, 0.5, 0.547), (0.5, 1, 1.195), (0.5, 1.5, 1.899), (0.5, 2, 2.649), (0.5, 10, 19.9)],
)  # fmt: skip
def test_what_the_printed_noise_costs(splits, epsilon, true):
    noise = runs.printed_pp(epsilon, splits, BETA, 0.5)
    p = priced("pp-admm", noise.ridge, split=noise.split)
    assert cost_of(p.algorithm, p.cfg, p.places, noise.multiplier, 1e-4) == pytest.approx(true, rel=3e-3)
    assert cost_of(p.algorithm, p.cfg, p.places, 1.05 * noise.multiplier, 1e-4) != pytest.approx(true, rel=1e-2)


def test_printed_scales():
    noise = runs.printed_pp(1.0, 0.001, BETA, 0.5)
    assert noise.output == pytest.approx(0.114, rel=0.05)  # the specification's is without the forced regularizer
    assert noise.ridge * 5 == pytest.approx(0.273, abs=1e-3)
    assert runs.printed_pp(0.5, 0.001, BETA, 0.5).ridge * 5 == pytest.approx(0.547, abs=1e-3)
    p = priced("pp-admm", noise.ridge, split=noise.split)
    with jax.enable_x64(True):
        objective, output = pp_admm.scales(p.cfg, rows(p.places, 0), noise.multiplier)
    assert (float(objective), float(output)) == pytest.approx((noise.objective, noise.output), rel=1e-5)


def test_printed_tests_of_ipp_admm_are_noise():
    """At ε = 1 the query carries noise of about 1800 and the threshold of about 8700, where the query is below .11."""
    p = priced("ipp-admm", 1e-3, split=0.001, as_printed=True, broadcasts=15)
    z = (30 / (2 * ding_rho(1.0, 1e-4))) ** 0.5
    with jax.enable_x64(True):
        place = eqx.tree_at(lambda q: q.noise, rows(p.places, 0), jnp.asarray(z))
        query, bar = map(float, ipp_admm._test_noise(p.cfg, place))
    assert (query, bar) == pytest.approx((1800, 8700), rel=0.03)
    assert claimed_by(p, z, 1e-4) == pytest.approx(1.0, rel=0.03)


def test_the_census_samples_are_asked_for_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    entry = all_figures()["dissertation-ch3-fig13"]
    with pytest.raises(MissingData, match=r"ipums-us\.csv.*COTERIE_DATA.*census"):
        check_data(entry)
    assert run(["dissertation-ch3-fig13"], True, tmp_path / "out", False, None, Console()) == 2
    assert "ipums-us.csv" in capsys.readouterr().out
    (tmp_path / "ipums-us.csv").write_text("label\n")
    with pytest.raises(MissingData, match=r"ipums-brazil\.csv"):
        check_data(entry)


@pytest.mark.slow
def test_a_table_of_the_users(tmp_path, monkeypatch):
    frame = extract(37_800, seed=1)  # made records of the schema: who went to school for longer earns more
    rng = np.random.default_rng(1)
    frame[INCOME] = 25_000 + 20_000 * (frame["EDATTAIN"] - 2.5) + 2_000 * rng.normal(size=len(frame))
    written(tmp_path, frame)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    found = runs.pp(
        Study(), version="corrected", epsilon=1.0, splits=0.01, beta=1e-6, eta=0.05, seeds=1, table="ipums-us.csv"
    )
    assert found["test"][0] < 0.2
    assert found["true"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.data
def test_a_quick_figure(tmp_path):
    found = reproduce(all_figures()["dissertation-ch3-fig11"], tmp_path, quick=True)
    words = {c["claim"]: c["verdict"] for c in found["claims"]}
    assert words["IPP-ADMM has a lower error than PP-ADMM at every ε"] == "cannot be decided"  # one graph, one coding
    assert words["IPP-ADMM sends at most half as many messages"] == "holds"
    assert words["the claimed total ε = 10 holds (Theorem 7)"] == "fails"
