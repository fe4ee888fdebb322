"""Models that leave: any saved folder as a model, an estimator of scikit-learn, and a card for who will use it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from coterie.api.model import Model
from coterie.api.trained import Trained, load
from coterie.errors import InputError
from coterie.plan import Plan
from coterie.problems.additive import AdditiveModel
from coterie.problems.labels import SIGNS

if TYPE_CHECKING:
    from coterie.api.joining import PartyModel

__all__ = ["as_sklearn", "card", "open_model"]


def open_model(folder: str | Path) -> Trained | PartyModel:
    """The model of a run's folder, or of a deployed party's; records are taken as they were to train it."""
    from coterie.api.joining import PartyModel
    from coterie.api.tabled import TableCoding
    from coterie.deploy.agreement import AGREEMENT

    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place} is no folder: give one that run.save, coterie run --out or coterie agent wrote")
    if (place / AGREEMENT).is_file():
        return PartyModel.load(place)
    run = load(place)
    plan = Plan.model_validate(run.result["plan"])
    if plan.data.source in ("csv", "parquet") and plan.data.label is not None:
        stated = plan.data.options.get("classes")
        own = replace(run.coding, labels=None if stated is None else tuple(stated))
        object.__setattr__(run, "coding", TableCoding.of(plan, own))
    return run


# ---- scikit-learn ----------------------------------------------------------------------------------------------------


class _Released(BaseEstimator):
    """A model that is trained already: `fit` is refused, since it would cost again."""

    def __init__(self, model: Model | None = None):
        self.model = model

    def __sklearn_is_fitted__(self) -> bool:
        return self.model is not None

    def fit(self, X: object, y: object = None) -> _Released:
        raise InputError("this model was trained privately: fitting it again costs again, with ct.train")

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels or numbers."""
        assert self.model is not None
        return self.model.predict(X)


class Classifier(ClassifierMixin, _Released):
    """A classifier of scikit-learn around a trained model."""

    @property
    def classes_(self) -> NDArray:
        """The labels, in the order of `predict_proba`'s columns."""
        assert self.model is not None
        known, count = self.model.coding.labels, self.model.coding.problem.labels.classes
        if known is not None:
            return np.array(known)
        return np.array([-1.0, 1.0]) if self.model.coding.problem.labels == SIGNS else np.arange(count or 0)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The chance of every class."""
        assert self.model is not None
        return self.model.predict_proba(X)


class Regressor(RegressorMixin, _Released):
    """A regressor of scikit-learn around a trained model."""


def as_sklearn(model: Model) -> Classifier | Regressor:
    """The model as an estimator that is fitted, for pipelines, scores and calibration curves."""
    if model.coding.problem.labels.classes is None and model.coding.labels is None:
        return Regressor(model)
    return Classifier(model)


# ---- a card ----------------------------------------------------------------------------------------------------------

AT_HOME = "Not on this card: no number about it is covered by ε. `home=True` (`--home`) adds what was measured at home."
STUDY = (
    "The folder that this was made from names the seed, with which noise can be subtracted: publish the model alone."
)
COLUMNS = 40  # that are named
PARTY = "certificate.json, beside the model, lists every event; `coterie verify` recomputes it."


def card(model: Trained | PartyModel, *, home: bool = False) -> str:
    """MODEL.md: what it is, what it cost whom against whom, and what it is worth, as the run's own files say.

    Worth is measured on records without noise, so it is on the card only with `home`, which is then not for others.
    """
    title, facts = _run_facts(model, home) if isinstance(model, Trained) else _party_facts(model)
    return "\n".join(
        [f"# {title}", "", *(line for name, words in facts.items() for line in (f"**{name}.** {words}", ""))]
    )


def _model(model: Trained | PartyModel) -> str:
    who = getattr(model, "party", "")
    made = f"{model.coding.problem.name}, {model.point.size} parameters, {model.algorithm}, {model.rounds} rounds"
    return f"{made}{f', as {who} has it' if who else ''}."


def _predicts(model: Trained | PartyModel, plan: Plan) -> str:
    """What it predicts, and from which columns, as far as anybody has named them."""
    coding, options, made = model.coding, plan.data.options, model.made if isinstance(model, Trained) else None
    binned = coding.problem.bins.names if isinstance(coding.problem, AdditiveModel) else ()
    columns = options.get("features") or binned or coding.columns or (() if made is None else made.columns)
    named = [str(name) for name in columns if not str(name).isdecimal()]
    shown = ", ".join(named[:COLUMNS]) + (f" and {len(named) - COLUMNS} more" if len(named) > COLUMNS else "")
    classes = ", ".join(map(str, coding.labels or options.get("classes") or ()))
    label = plan.data.label or ("a number" if coding.problem.labels.classes is None else "a label")
    return f"{label}{f' ({classes})' if classes else ''}, from {shown or 'numbers without names'}."


def _claim(epsilon: float | None, delta: float, person: bool, adjacency: str, adversary: str) -> str:
    cost = "no bound on ε" if epsilon is None or not np.isfinite(epsilon) else f"ε = {epsilon:.6g}"
    unit = "a person with all of its records at a party" if person else "one record of one party"
    return f"{cost} at δ = {delta:g} for {unit} ({adjacency}). Against one who {adversary}."


def _run_facts(model: Trained, home: bool) -> tuple[str, dict[str, str]]:
    said, plan = model.result, Plan.model_validate(model.result["plan"])
    privacy, facts = said["privacy"], {"Model": _model(model), "Predicts": _predicts(model, plan)}
    if privacy is None:
        facts["Privacy"] = "None: it was trained without noise."
    else:
        facts["Privacy"] = _claim(
            privacy["epsilon"], privacy["delta"], plan.by_person, privacy["adjacency"], privacy["adversary"]
        )  # fmt: skip
        if not privacy["private"]:
            facts["Not private"] = "; ".join(privacy["leaks"]) or "the claim above is not proved."
    sizes = [agent["records"] for agent in said["agents"]]
    many = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    each = f"{len(model.names)} parties with {many} records each"
    facts["Data"] = f"{each}, source {plan.data.source!r}; all in one process: a simulation."
    return plan.name, facts | {"Worth": _worth(model, home), "Use": STUDY}


def _worth(model: Trained, home: bool) -> str:
    from coterie.worth.verdict import sentence

    said = model.result
    if not home:
        return AT_HOME
    if said["worth"] is not None:
        return f"{sentence(said['worth'], f'ε = {model.epsilon:.3g}')} For the parties alone: no ε covers it."
    scores = said["metrics"].get("test_score") or said["metrics"].get(f"test_{said['metric']}")
    if scores is None:
        return "Not measured: no test records were given."
    return f"{said['metric']} {scores['mean']:.4g} on test records. For the parties alone: no ε covers it."


def _party_facts(model: PartyModel) -> tuple[str, dict[str, str]]:
    plan, claim = model.agreement.plan, model.certificate["claim"]
    return plan.name, {
        "Model": _model(model),
        "Predicts": _predicts(model, plan),
        "Privacy": _claim(model.epsilon, model.delta, plan.by_person, claim["adjacency"], claim["adversary"]),
        "Data": f"{len(model.agreement.parties)} parties, each with its own records: deployed.",
        "Worth": "Not in this folder: `coterie report DIR --data … --test …` says it to the party, of its own records.",
        "Use": PARTY,
    }
