"""One party: its turns with its records. No network, no ledger, no randomness of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Float

from coterie.algorithms._sampling import PIECES, Pace
from coterie.deploy.data import Records, read_records, write_records
from coterie.deploy.frames import HEADER_BYTES, SIGNATURE_BYTES, Wire
from coterie.deploy.node_program import given
from coterie.deploy.noise import Source
from coterie.deploy.terms import Terms
from coterie.deploy.work import Carry, Said, Turns, wire_of
from coterie.errors import InputError

__all__ = ["Carry", "Party", "Records", "Terms", "read_records", "wire_of", "write_records"]

T = TypeVar("T")


class Party:
    """One node's turns with its records, ready to take them.

    Attributes:
        node, neighbours, count: as in its turns.
        rounds: of the algorithm.
        charges: what each round costs.
        pace: the share of its work that it got done in the last round.
    """

    def __init__(self, turns: Turns, records: Records):
        self.turns, self.shard = turns, turns.outline.shard(records)
        self.node, self.neighbours, self.count = turns.node, turns.neighbours, turns.count
        self.rounds, self.charges = turns.rounds, turns.charges
        self.pace = np.ones(())
        self._nothing: tuple[object, ...] | None = None

    @classmethod
    def of(cls, terms: Terms, node: int, records: Records) -> Party:
        """The party at one node of the terms."""
        return cls(Turns.of(terms, node), records)

    @property
    def wire(self) -> Wire:
        """Length and limits of everybody's messages."""
        return wire_of(self.turns, self.count)

    @property
    def late(self) -> str:
        """What to do about a late neighbour: "wait", or "reuse" its last message."""
        return self.turns.late

    def speak(self, t: int, carry: Carry, source: Source) -> tuple[Carry, np.ndarray, bool]:
        """The integers of round t, with fresh draws, and whether to send them."""
        draw = source.draw(t, self.turns.laws)
        if self.turns.work is not None:
            self.pace = self._measure(self.turns.work)
            draw |= {name: self.pace for name, law in self.turns.laws.items() if isinstance(law, Pace)}
        return self.turn(t, carry, draw)

    def _measure(self, seconds: float) -> np.ndarray:
        """The share of a round's work that is done in this many seconds: at least one piece.

        Measured by timing one empty piece, so that no record influences it (docs/stragglers.md).
        """
        with jax.enable_x64(True):
            if self._nothing is None:  # and compile
                self._nothing = jax.device_put(self.turns.nothing())
                jax.block_until_ready(self.turns.turn(*self._nothing))
            start = time.perf_counter()
            jax.block_until_ready(self.turns.turn(*self._nothing))
            took = time.perf_counter() - start
        return np.array(min(PIECES, max(1, int(seconds / took))) / PIECES)

    @cached_property
    def _turn(self) -> Callable[..., Said]:
        """The node's turn with its records, made when it is first taken: JAX starts then."""
        return given(self.turns.turn, self.shard)

    def begin(self) -> Carry:
        """Everything before the first round: data-free."""
        return self.turns.first

    def turn(self, t: int, carry: Carry, draw: Mapping[str, object]) -> tuple[Carry, np.ndarray, bool]:
        """Absorb round t − 1's messages (in `carry`) and speak in round t: integers, and whether to send them."""
        with jax.enable_x64(True):
            kept, numbers, sent = self._turn(np.array(t), carry, dict(draw))
            return carry.spoken(kept, numbers), np.asarray(numbers), bool(np.asarray(sent))

    def answer(self, carry: Carry) -> Float[np.ndarray, " dim"]:
        """The model after the last round's messages."""
        with jax.enable_x64(True):
            return np.asarray(self.turns.answer(carry))

    def heard(self, carry: Carry, slot: int, round: int, numbers: np.ndarray) -> Carry:
        """The carry after a neighbour's message has arrived."""
        heard, when = list(carry.heard), np.array(carry.when)
        heard[slot], when[slot] = numbers.astype(carry.heard[slot].dtype, copy=False), round
        return Carry(carry.kept, tuple(heard), when, carry.said)

    def pack(self, carry: Carry) -> list[memoryview]:
        """The carry as bytes of a fixed length, in parts that are not copied; what was said is in the frame, and what
        was heard in the frames that it came in."""
        return self._pack(carry._replace(heard=(), said=()))  # type: ignore[arg-type]

    @staticmethod
    def _pack(carry: object) -> list[memoryview]:
        return [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data for leaf in jax.tree.leaves(carry)]

    def unpack(self, data: bytes, frame: bytes, heard: Sequence[bytes | memoryview] = ()) -> Carry:
        """The carry in such bytes, in the frame of its round, and in what was signed of the neighbours' last ones."""
        first = self.turns.first
        carry = self._unpack(data, first._replace(heard=(), said=()))._replace(heard=first.heard)  # type: ignore[arg-type]
        for slot, signed in zip(np.flatnonzero(carry.when >= 0), heard, strict=True):
            numbers = self.wire.decode(memoryview(signed)[HEADER_BYTES:])
            carry = self.heard(carry, int(slot), int(carry.when[slot]), numbers)
        said = self.wire.decode(memoryview(frame)[HEADER_BYTES:-SIGNATURE_BYTES]) if first.said.size else first.said
        return carry._replace(said=said)

    @staticmethod
    def _unpack(data: bytes, like: T) -> T:
        leaves, structure = jax.tree.flatten(like)
        at, out = 0, []
        for leaf in leaves:
            size = leaf.dtype.itemsize * int(np.prod(leaf.shape))
            out.append(np.frombuffer(data[at : at + size], leaf.dtype).reshape(leaf.shape))
            at += size
        if at != len(data):
            raise InputError(f"the stored state has {len(data)} bytes, this plan's has {at}: made by another version?")
        return jax.tree.unflatten(structure, out)
