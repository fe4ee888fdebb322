"""What tests share with the examples in the package's docstrings: no fit is remembered, whatever ran before them."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _nothing_fitted_before() -> None:
    if (fits := sys.modules.get("coterie.estimators.fits")) is not None:  # else nothing was
        fits.forget_fits()
