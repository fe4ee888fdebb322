"""The checks that every algorithm and every loss here has to pass, to be run on your own.

    from coterie.testing import check_algorithm, check_loss

    def test_mine():
        check_loss("mypackage.huber")
        check_algorithm("mypackage.diffusion")

A check that fails raises an AssertionError that says what is wrong. None of them is a proof: they look for a
counterexample, among hostile records, points and neighbours, and on small settings.
"""

from coterie.testing.algorithms import check_algorithm
from coterie.testing.losses import check_loss, check_problem

__all__ = ["check_algorithm", "check_loss", "check_problem"]
