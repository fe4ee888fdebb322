"""A compiled program of a node, which can be made in one process and run in another."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import jax
import numpy as np
from jax.experimental import serialize_executable
from jaxtyping import PyTree

from coterie.deploy.apart import give_back

__all__ = ["NodeProgram", "given", "without_threads"]


def without_threads() -> None:
    """Run programs in the thread that calls them: a party waits for each at once, and two threads that hand over to one
    another take twice the processor time of a small one. Heeded if JAX has not begun to compute in this process."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


class NodeProgram:
    """A program of a node, compiled once; may be sent to another process of this machine."""

    _sent: tuple

    def __init__(self, function: partial[PyTree], *example: object):
        self._numbers = jax.tree.leaves(function.args)
        leaves, shape = jax.tree.flatten((*function.args, *example))

        def run(*given: PyTree) -> PyTree:
            return function.func(*jax.tree.unflatten(shape, given))

        vars(self)["_run"] = jax.jit(run).lower(*leaves).compile()  # compiled here: nothing has to be loaded

    def __call__(self, *arguments: PyTree) -> PyTree:
        return self._run(*self._numbers, *jax.tree.leaves(arguments))

    def given(self, *first: PyTree) -> Callable[..., PyTree]:
        """The same with its first arguments fixed: they are taken apart and brought to the device once."""
        run = self._run  # loads it
        fixed = [*self._numbers, *jax.device_put(jax.tree.leaves(first))]
        return lambda *rest: run(*fixed, *jax.tree.leaves(rest))

    @cached_property
    def _run(self) -> PyTree:
        self._numbers = jax.device_put(self._numbers)
        loaded = serialize_executable.deserialize_and_load(*self._sent)
        give_back()
        return loaded

    def __getstate__(self) -> dict[str, object]:
        # not loaded before it is run: JAX starts then
        return {"_sent": serialize_executable.serialize(self._run), "_numbers": list(map(np.asarray, self._numbers))}


def given(program: partial[PyTree] | NodeProgram, *first: PyTree) -> Callable[..., PyTree]:
    """A program of a node with its first arguments fixed."""
    return program.given(*first) if isinstance(program, NodeProgram) else partial(program, *first)
