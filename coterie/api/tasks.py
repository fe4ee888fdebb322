"""Tasks: what is learned. `ct.logistic()` and its like are losses that a plan can state, `ct.loss` is one's own.

A task knows nothing of records: how many features there are, the parties say. Labels are stated here, in public, and
never read from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from coterie.api.given import FACT, FLAG, FUNCTION, NOTHING_GIVEN, NUMBER, TEXT, WHOLE, listed, of, shown, takes
from coterie.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Array, PyTree

    from coterie.plan import Plan
    from coterie.problems import Problem

__all__ = ["Task", "additive", "as_task", "hinge", "logistic", "loss", "mean", "mlp", "neural", "softmax", "squared"]

Weighting = Literal["agents", "records"]
RADIUS = NUMBER | NOTHING_GIVEN
TABLE = of("a dictionary by column", dict)


@dataclass(frozen=True)
class Task:
    """What is learned: a loss with its settings, and the labels that it is about.

    Make one with `ct.logistic`, `ct.hinge`, `ct.squared`, `ct.softmax`, `ct.additive`, `ct.mlp`, `ct.mean`,
    `ct.loss` or `ct.neural`.

    >>> import coterie as ct
    >>> ct.logistic(ridge=1e-4)
    logistic(ridge=0.0001)
    """

    name: str
    settings: dict[str, object] = field(default_factory=dict)  # of the plan's [problem], without the loss
    labels: tuple[object, ...] | None = None  # of the classes, in the order of their codes
    own: Problem | None = None  # a problem that no plan can state
    constant: bool = False  # whether rows that are scaled by public bounds get a constant feature
    attributes: dict[str, list[object]] | None = None  # of an additive model: the range or the levels of every column

    def __repr__(self) -> str:
        if self.own is not None:
            return f"<{self.name}>"
        if self.attributes is not None:
            return f"<additive {self.name} of {len(self.attributes)} attributes>"
        said = [f"{key}={value!r}" for key, value in self.settings.items()]
        return f"{self.name}({', '.join(said)})"

    def within(self, kind: str, **options: float | list[float]) -> Task:
        """The same task, with its model kept in a convex set: "ball", "box", "simplex", or your own as package.module.

        >>> import coterie as ct
        >>> ct.logistic().within("box", low=-1, high=1)
        logistic(within='box', within_options={'low': -1, 'high': 1})
        """
        if self.own is not None:
            from coterie.sets import make_set

            return replace(self, own=self.own.kept_in(make_set(kind, self.own.dim, options)))
        return replace(self, settings={**self.settings, "within": kind, "within_options": options})

    @property
    def table(self) -> dict[str, object]:
        """The plan's [problem], but for what the records decide."""
        many = {"classes": len(self.labels)} if self.own is None and self.name in MANY and self.labels else {}
        stated = {} if self.own is not None else {"loss": self.name}
        return {**stated, **self.settings, **many}

    def problem(self, plan: Plan, features: int) -> Problem:
        """The problem of this task on records with this many features."""
        if self.own is not None:
            return self.own
        from coterie.losses.base import problem_of

        return problem_of(plan, self.name, features, len(self.labels or ()) or 1)


MANY = ("softmax", "mlp")  # losses whose number of classes a plan states


def as_task(task: Task | Problem) -> Task:
    """A task, of a `Problem` too: targets are then in its own coding, and ridge is the plan's default."""
    from coterie.problems import Problem

    if isinstance(task, Problem):
        return Task(task.name, {"ridge": 0.0} if task.isotropic else {}, own=task)
    if not isinstance(task, Task):
        raise InputError(f"a task is made by ct.logistic() and its like, or by ct.loss(fn, params); got {shown(task)}")
    return task


@takes(ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN, radius=RADIUS)
def logistic(
    *, classes: Sequence[object] = (-1, 1), ridge: float | None = None, weighting: Weighting | None = None,
    radius: float | None = None,
) -> Task:  # fmt: skip
    """Logistic regression on labels of two classes.

    Args:
        classes: the two labels, publicly known; the second is the positive one.
        ridge: ridge/2 ‖x‖² is added to every party's objective; default: the algorithm's own, 1e-5 for dp-dsgd.
        weighting: what counts equally, "agents" (parties) or "records"; default: records where noise is shared.
        radius: keep the model in a ball of this radius.

    >>> import coterie as ct
    >>> ct.logistic(classes=["healthy", "ill"]).labels
    ('healthy', 'ill')
    """
    return _classifier("logistic", _two("logistic", classes), ridge, weighting, radius)


@takes(width=NUMBER, ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN, radius=RADIUS)
def hinge(
    *, classes: Sequence[object] = (-1, 1), width: float = 0.5, ridge: float | None = None,
    weighting: Weighting | None = None, radius: float | None = None,
) -> Task:  # fmt: skip
    """A support vector machine: the hinge loss, with a corner smoothed over ± `width`. Otherwise as `logistic`.

    >>> import coterie as ct
    >>> ct.hinge(width=0.25).settings["width"]
    0.25
    """
    return _classifier("hinge", _two("hinge", classes), ridge, weighting, radius, width=width)


@takes(ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN, radius=RADIUS)
def squared(*, ridge: float | None = None, weighting: Weighting | None = None, radius: float | None = None) -> Task:
    """Linear regression with the squared loss; targets are numbers. Its gradients have no bound: clip them.

    >>> import coterie as ct
    >>> ct.squared(ridge=0.01)
    squared(ridge=0.01)
    """
    return _classifier("squared", None, ridge, weighting, radius)


@takes(ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN, radius=RADIUS)
def softmax(
    classes: int | Sequence[object],
    *,
    ridge: float | None = None,
    weighting: Weighting | None = None,
    radius: float | None = None,
) -> Task:
    """Logistic regression on several classes: their number (labels 0, 1, …) or their labels, publicly known.

    >>> import coterie as ct
    >>> ct.softmax(["a", "b", "c"]).labels
    ('a', 'b', 'c')
    """
    return _classifier("softmax", _several("softmax", classes), ridge, weighting, radius)


@takes(
    bins=TABLE | NOTHING_GIVEN, pairs=listed(listed(TEXT)), alike=NUMBER | NOTHING_GIVEN, smooth=NUMBER,
    monotone=TABLE | NOTHING_GIVEN,
    ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN,
)  # fmt: skip
def additive(
    attributes: Mapping[object, Sequence[object]], *, classes: int | Sequence[object] | None = (-1, 1),
    bins: Mapping[object, object] | None = None, pairs: Sequence[tuple[str, str]] = (), alike: float | None = None,
    smooth: float = 0.0, monotone: Mapping[str, Literal["up", "down"]] | None = None, ridge: float | None = None,
    weighting: Weighting | None = None,
) -> Task:  # fmt: skip
    """An additive model: a curve for each attribute over public bins, whose sum is the score.

    Records are tables with one column for each attribute: a number, a text, or nothing, which has a bin of its own.

    Args:
        attributes: by column, what is publicly known of it: (low, high) of a number, or the list of a text's levels.
            Columns of an array are called "0", "1", …
        classes: labels of two classes (logistic loss), or more (softmax), publicly known; None: targets are numbers
            (squared loss).
        bins: by attribute, a step, a list of edges, "log" for quarter decades, or False to leave it out. Default: round
            numbers from the public range, sixteen at most.
        pairs: attributes that have a bin for each two of theirs.
        alike: how alike neighbouring bins of a number are taken to be beforehand, from 0 to .99; default .5.
        smooth: how much neighbouring bins are pulled together, once the model is there: costs nothing.
        monotone: by attribute, "up" or "down": its curve never falls, or never rises. Costs nothing either.
        ridge, weighting: as in `logistic`.

    >>> import coterie as ct
    >>> ct.additive({"age": (0, 100), "smoker": ["no", "yes"]}, bins={"age": 10}, monotone={"age": "up"})
    <additive logistic of 2 attributes>
    """
    if not isinstance(attributes, Mapping):
        raise InputError(f"additive: attributes must be a dictionary by column, got {shown(attributes)}")
    known = {str(name): _known(str(name), rule) for name, rule in attributes.items()}
    if len(known) < len(attributes):
        raise InputError(f"additive: names of attributes are texts, and two are the same: {shown(list(attributes))}")
    labels = None if classes is None else _several("additive", classes)
    name = "squared" if labels is None else "logistic" if len(labels) == 2 else "softmax"
    more: dict[str, object] = {"model": "additive"}
    if bins:
        more["bins"] = {str(column): _plain(rule) for column, rule in bins.items()}
    if len(pairs):
        more["pairs"] = [list(map(str, pair)) for pair in pairs]
    if alike is not None:
        more["alike"] = float(alike)
    if smooth:
        more["smooth"] = float(smooth)
    if monotone:
        more["monotone"] = dict(monotone)
    return Task(name, _stated(ridge, weighting, **more), labels, attributes=known)


def _plain(rule: object) -> object:
    """A rule for bins as a plan writes it."""
    if not isinstance(rule, Iterable) or not listed(NUMBER).fits(rule):
        return rule  # the plan says what it may be
    return [float(edge) for edge in rule]


def _known(name: str, rule: object) -> list[object]:
    """What is known of a column as a plan writes it: two numbers, or texts."""
    said = list(rule) if isinstance(rule, list | tuple) else []
    if said and all(isinstance(level, str) for level in said):
        return said
    if len(said) == 2 and all(map(NUMBER.fits, said)) and said[0] < said[1]:
        return [float(end) for end in said]
    raise InputError(f"additive: attributes[{name!r}] must be (low, high) or a list of texts, got {shown(rule)}")


@takes(hidden=listed(WHOLE), activation=TEXT, ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN)
def mlp(
    classes: int | Sequence[object], *, hidden: Sequence[int] = (50,),
    activation: Literal["sigmoid", "tanh", "relu"] = "tanh", ridge: float | None = None,
    weighting: Weighting | None = None,
) -> Task:  # fmt: skip
    """A dense neural network that tells classes apart, with layers of `hidden` sizes. Classes as in `softmax`.

    >>> import coterie as ct
    >>> ct.mlp(10, hidden=[32]).settings["hidden"]
    [32]
    """
    labels = _several("mlp", classes)
    more = {} if list(hidden) == [50] and activation == "tanh" else {"hidden": list(hidden), "activation": activation}
    return Task("mlp", _stated(ridge, weighting, **more), labels)


@takes(radius=NUMBER, weighting=TEXT)
def mean(*, radius: float = 1.0, weighting: Weighting = "records") -> Task:
    """The mean of records whose every number lies in [−radius, radius]; there are no targets: a site is one table.

    >>> import coterie as ct
    >>> ct.mean()
    mean(ridge=0.0, weighting='records')
    """
    return Task("mean", _stated(0.0, weighting, **({} if radius == 1.0 else {"radius": radius})))


@takes(
    fn=FUNCTION, predict=FUNCTION | NOTHING_GIVEN, ridge=NUMBER | NOTHING_GIVEN, weighting=TEXT | NOTHING_GIVEN,
    convex=FLAG, lipschitz=FACT, smoothness=FACT, bound=FACT | NOTHING_GIVEN,
)  # fmt: skip
def loss(
    fn: Callable[[PyTree, Array, Array], Array], params: PyTree, *,
    predict: Callable[[PyTree, Array], Array] | None = None, classes: int | Sequence[object] | None = None,
    ridge: float | None = None, weighting: Weighting | None = None,
    convex: bool = False, lipschitz: float = float("inf"), smoothness: float = float("inf"),
    bound: float | None = None,
) -> Task:  # fmt: skip
    """A loss of your own, in JAX: `fn(params, x, y)` is the loss of one record, x its features and y its target.

    Algorithms that clip gradients need to know nothing about it. What you can prove of it for all records and all
    parameters you may state, and other algorithms can then be used; it is tried on made-up records.

    Args:
        fn: the loss of one record.
        params: starting parameters, any tree of arrays, not made from the records.
        predict: `predict(params, x)` for one record; without it `run.predict` has nothing to call.
        classes: number of classes or their labels, publicly known: y is then their number, 0, 1, …
        ridge, weighting: as in `logistic`.
        convex, lipschitz, smoothness: whether it is convex; bounds on a record's gradient and curvature.
        bound: features are pulled back to this norm before the loss sees them.

    >>> import coterie as ct
    >>> import jax.numpy as jnp
    >>> def absolute(w, x, y):
    ...     return jnp.sqrt(1 + (w @ x - y) ** 2)
    >>> ct.loss(absolute, jnp.zeros(3))
    <loss 'absolute'>
    """
    from coterie.problems import Custom

    labels = None if classes is None else _several("loss", classes)
    own = Custom.make(
        fn, params, forecast=predict, integer_targets=labels is not None, convex=convex, lipschitz=lipschitz,
        smoothness=smoothness, bound=bound,
    )  # fmt: skip
    return Task(own.name, _stated(ridge, weighting), labels, own)


@takes(
    shape=listed(WHOLE) | NOTHING_GIVEN, loss=FUNCTION | NOTHING_GIVEN, ridge=NUMBER | NOTHING_GIVEN,
    weighting=TEXT | NOTHING_GIVEN,
)  # fmt: skip
def neural(
    module: object, classes: int | Sequence[object] | None = None, *, shape: Sequence[int] | None = None,
    loss: Callable[[Array, Array], Array] | None = None, ridge: float | None = None, weighting: Weighting | None = None,
) -> Task:  # fmt: skip
    """A network written with Equinox or Flax NNX, as it is: its parameters are where training starts.

    `run.model` is the module again, trained. Dropout is off, and layers that look at several records are refused.

    Args:
        module: takes one record's features; gives a score for each class, or one number. Its parameters must not come
            from the records.
        classes: number of classes or their labels, publicly known; None: targets are numbers.
        shape: of what the module takes, such as (1, 28, 28); default: a vector.
        loss: `loss(output, y)` of one record; default: cross-entropy, or half the squared error without classes.
        ridge, weighting: as in `logistic`.

    >>> import coterie as ct
    >>> import equinox as eqx, jax
    >>> ct.neural(eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0)), ["a", "b", "c"])
    <network 'MLP'>
    """
    from coterie.problems.modules import as_network

    labels = None if classes is None else _several("neural", classes)
    own = as_network(module, None if labels is None else len(labels), None if shape is None else tuple(shape), loss)
    return Task(own.name, _stated(ridge, weighting), labels, own)


def _stated(ridge: float | None, weighting: str | None, **more: object) -> dict[str, object]:
    """What differs from a plan's defaults."""
    said: dict[str, object] = {} if ridge is None else {"ridge": ridge}
    return said | ({} if weighting is None else {"weighting": weighting}) | more


def _classifier(
    name: str,
    labels: tuple[object, ...] | None,
    ridge: float | None,
    weighting: str | None,
    radius: float | None,
    **more: object,
) -> Task:
    said = _stated(ridge, weighting, **more, **({} if radius is None else {"radius": radius}))
    return Task(name, said, labels, constant=True)


def _several(name: str, classes: int | Sequence[object]) -> tuple[object, ...]:
    if isinstance(classes, bool) or not isinstance(classes, int):
        labels = (classes,) if isinstance(classes, str) or not hasattr(classes, "__iter__") else tuple(classes)
    else:
        labels = tuple(range(classes))
    labels = tuple(label.item() if getattr(label, "shape", None) == () else label for label in labels)
    if stray := [label for label in labels if not isinstance(label, str | int | float)]:
        raise InputError(f"{name}: a label is text or a number, got {shown(stray[0])}")
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise InputError(
            f"{name}: classes must be a number from 2 up, or two and more different labels; got {shown(classes)}"
        )
    return labels


def _two(name: str, classes: Sequence[object]) -> tuple[object, ...]:
    labels = _several(name, classes)
    if len(labels) != 2:
        raise InputError(f"{name} tells two classes apart, got {len(labels)}: {list(labels)}; use ct.softmax(classes)")
    return labels
