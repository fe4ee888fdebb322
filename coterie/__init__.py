"""coterie: differentially private decentralized learning, with every guarantee checked.

    import coterie as ct

    net = ct.ring(sites)                        # [(X, y), …], or a frame with a site column
    run = ct.train(ct.logistic(), net, ct.dp_dsgd(), ct.Budget(1.0, 1e-5))
    run.epsilon, run.score(X, y), run.save("runs/a")

`dir(coterie)` lists what there is. Everything is loaded when it is first used: importing this waits for nothing.
"""

from importlib import import_module

from coterie.compiler import mend

__version__ = "0.1.0"
__all__ = [
    "Budget", "DataAccount", "InputError", "Parties", "Price", "Task", "Trained", "__version__", "additive",
    "algorithm", "audit", "graph", "hinge", "join", "load", "logistic", "loss", "mean", "mlp", "neural", "price",
    "softmax", "squared", "statistics", "train",
]  # fmt: skip

mend()  # before JAX starts

_HOMES = {
    "coterie.api.joining": ("join",),
    "coterie.api.methods": ("algorithm",),
    "coterie.api.parties": ("Parties", "graph"),
    "coterie.api.tasks": (
        "Task",
        "additive",
        "hinge",
        "logistic",
        "loss",
        "mean",
        "mlp",
        "neural",
        "softmax",
        "squared",
    ),
    "coterie.api.trained": ("Trained", "load"),
    "coterie.api.training": ("Price", "price", "train"),
    "coterie.deploy.accounts": ("DataAccount",),
    "coterie.errors": ("InputError",),
    "coterie.privacy.ledger": ("Budget",),
    "coterie.released.statistics": ("statistics",),
}


def __getattr__(name: str) -> object:
    """What is asked for: a name of `__all__`, an algorithm that is found, or a kind of graph."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    if name == "audit":
        return import_module("coterie.audit")  # a package that can be called
    if not name.startswith("_"):
        from coterie.api import names as there

        if name in (known := there.algorithms()):
            return import_module("coterie.api.methods").constructor(known[name])
        if name in (known := there.graphs()):
            return import_module("coterie.api.parties").constructor(known[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and no other: modules are imported by their own names."""
    from coterie.api import names

    return sorted({*__all__, *names.algorithms(), *names.graphs()})
