"""coterie: differentially private decentralized learning, with every guarantee checked."""

from typing import TYPE_CHECKING, Any

from coterie.compiler import mend

if TYPE_CHECKING:
    from coterie.training import Trained, train

__version__ = "0.1.0"
__all__ = ["Trained", "__version__", "train"]

mend()  # before JAX starts


def __getattr__(name: str) -> Any:
    """`coterie.train` is loaded when it is first used: the rest of the package does not wait for JAX."""
    if name in ("Trained", "train"):
        from coterie import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
