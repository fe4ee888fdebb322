"""The root finder is SciPy's: the noise of every plan depends on its last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq as theirs

from coterie.privacy.roots import brentq

FUNCTIONS = [
    lambda x: np.exp(x) - 2.0,
    lambda x: np.arctan(50 * (x - 0.1)),
    lambda x: (x - 0.3) ** 3,
    lambda x: np.clip(np.log(max(x + 0.6, 1e-300)), -50.0, 50.0),
    lambda x: -1.0 if x < 0.7 else 2.0,
    lambda x: x,
]


@given(st.sampled_from(FUNCTIONS), st.floats(-3, 0), st.floats(0.75, 40), st.sampled_from([2e-12, 1e-6, 1e-3]))
def test_to_the_bit(f, low: float, high: float, xtol: float) -> None:
    asked: list[list[float]] = [[], []]

    def noted(k: int):
        return lambda x: asked[k].append(x) or f(x)

    found = []
    for k, finder in enumerate((brentq, theirs)):
        try:
            found.append(finder(noted(k), low, high, xtol=xtol))
        except RuntimeError:  # a flat root: not within 100 steps
            found.append(None)
    assert found[0] == found[1]
    assert asked[0] == asked[1]


def test_a_bracket_without_a_change_of_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="no change of sign between 1 and 2"):
        brentq(lambda x: x, 1, 2)
