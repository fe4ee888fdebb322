"""How messages travel: on a grid of few bits, sparse, or as sums."""
