"""How messages travel: to every neighbour, on a grid of few bits, sparse, or only as secret sums of everybody's."""
