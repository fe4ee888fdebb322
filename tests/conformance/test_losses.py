"""What every loss inherits by being found, and what a broken one is caught by.

The audit among the checks is `tests/audit/test_matrix.py`, which plays every loss that is found.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from coterie.data.bins import bins_of
from coterie.data.encode import Number
from coterie.fair.penalised import CovariancePenalised
from coterie.losses.base import all_losses, find_loss
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.problems import Box, Custom, Problem
from coterie.problems.additive import AdditiveModel
from coterie.testing import check_loss, check_problem
from coterie.testing.losses import LOSS_CHECKS
from tests.support import forget_losses, mostly_slow

EACH = [
    pytest.param(name, check, id=f"{name}-{check}")
    for name in all_losses()
    for check in LOSS_CHECKS
    if check != "audit"
]
HUBER = (Path(__file__).parents[2] / "examples" / "huber_loss.py").read_text("utf-8")


@pytest.mark.parametrize(("name", "check"), EACH)
def test_conforms(name: str, check: str) -> None:
    LOSS_CHECKS[check](find_loss(name))


VARIANTS: dict[str, Problem] = {
    "logistic, long records": Logistic(3, bound=2.0),
    "logistic, in a box": Logistic(3, constraint=Box(-0.3, 0.25)),
    "hinge, sharp": Hinge(3, width=0.1),
    "softmax, short records": Softmax(3, 4, bound=0.5),
    "mean, small box": Mean(3, radius=0.7),
    "network, sigmoid": Perceptron((3, 4, 3), "sigmoid"),
    "network, deep": Perceptron((3, 4, 3, 2), "relu"),
    "own": Custom.make(
        lambda p, f, y: jnp.sqrt(1 + (p @ f - y) ** 2),
        np.zeros(3),
        forecast=lambda p, f: p @ f,
        smoothness=1.0,
        bound=1.0,
    ),
    "additive": AdditiveModel(Logistic(6), bins_of({"a": Number(0, 2), "b": Number(0, 2)}, {"a": [1.0], "b": [1.0]})),
    "penalised": CovariancePenalised.make(Hinge(3), np.eye(3)[:2], alpha=2.0, corner=0.1),
}


@pytest.mark.parametrize("name", mostly_slow(VARIANTS, "logistic, in a box", "network, deep", "own", "additive"))
def test_what_a_plan_cannot_ask_for_conforms_too(name: str) -> None:
    check_problem(VARIANTS[name])


# ---- a stranger's ----------------------------------------------------------------------------------------------------

CLIPS_NOTHING = """    def weighted_gradient(self, x, features, targets, weights, clip=None):
        return super().weighted_gradient(x, features, targets, weights)

"""
BEFORE = "    @property\n    def smoothness"
ADMITS_ALL = """    def admit(self, features, targets):
        return features, targets

"""
BROKEN = {
    "half the curvature": ("facts", "return self.bound**2", "return self.bound**2 / 2", "smoothness = 0.5 is stated"),
    "a slope of one sign": ("facts", "scored: ClassVar[bool] = True",
                            "scored: ClassVar[bool] = True\n    monotone: ClassVar[bool] = True", "monotone is stated"),
    "another gradient": ("derivatives", "jnp.clip(gap, -self.corner, self.corner)",
                         "1.01 * jnp.clip(gap, -self.corner, self.corner)", "weighted_gradient is not"),
    "another curvature": ("derivatives", "jnp.where(inside, 1.0, 0.0)", "jnp.where(inside, 2.0, 0.0)",
                          "weighted_hessian is not"),
    "records of any length": ("clipping", BEFORE, CLIPS_NOTHING + BEFORE, "not clipped to 0 one by one"),
    "records that nobody admits": ("records", BEFORE, ADMITS_ALL + BEFORE, "leaves what is not finite"),
    "no description": ("parts", ', description="beyond this residual the loss is linear"', "", "has no description"),
    "one feature more": ("parts", "return Huber(features,", "return Huber(features + 1,", "3 features and returns 4"),
}  # fmt: skip


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Makes a module of this text in a stranger's package, and says its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "strangers_losses").mkdir()

    def write(text: str) -> str:
        (tmp_path / "strangers_losses" / "huber.py").write_text(text)
        importlib.invalidate_caches()
        return "strangers_losses.huber"

    yield write
    for name in ("strangers_losses", "strangers_losses.huber"):
        sys.modules.pop(name, None)
    forget_losses()


@pytest.mark.parametrize("check", [c for c in LOSS_CHECKS if c != "audit"])
def test_the_example_conforms(check: str) -> None:
    LOSS_CHECKS[check](find_loss("examples.huber_loss"))


@pytest.mark.slow
def test_the_example_passes() -> None:
    check_loss("examples.huber_loss")


def test_a_bound_half_of_the_truth_is_caught(stranger: Callable[[str], str]) -> None:
    old = "return self.corner * self.bound"
    assert HUBER.count(old) == 1
    with pytest.raises(AssertionError, match=r"lipschitz = 0.5 is stated, but a made-up record has a .* norm 1"):
        check_loss(stranger(HUBER.replace(old, old + " / 2")))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_loss_is_caught(name: str, stranger: Callable[[str], str]) -> None:
    check, old, new, words = BROKEN[name]
    assert HUBER.count(old) == 1
    with pytest.raises(AssertionError, match=words):
        LOSS_CHECKS[check](find_loss(stranger(HUBER.replace(old, new))))
