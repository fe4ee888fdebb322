"""coterie: differentially private decentralized learning, with every guarantee checked."""

__version__ = "0.1.0"
