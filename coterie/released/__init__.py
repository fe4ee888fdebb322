"""What is released once, as noisy sums over everybody's records, and all that is made of it afterwards for nothing."""

from coterie.released.second_moments import RidgeModel, SecondMoments

__all__ = ["RidgeModel", "SecondMoments"]
