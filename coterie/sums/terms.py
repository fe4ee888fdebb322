"""What all parties of a sum agreed on before it starts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.errors import InputError
from coterie.sums.noise import Layers
from coterie.sums.words import Code

__all__ = ["BATCH", "NOBODY", "ROSTER_BIT", "SharedTerms", "least_threshold", "spares_for"]

ROSTER_BIT = 1 << 31
"""Instances of agreement: round ρ is number ρ, the roster of batch β is number β with this bit set."""

NOBODY = 255

BATCH = 24
"""Rounds whose secrets are dealt at a time."""


def least_threshold(parties: int, colluders: int) -> int:
    """The least t with 2t > N + c: two quorums then share more than c parties, so an honest one.

    >>> [least_threshold(n, c) for n, c in ((3, 1), (5, 1), (8, 1), (10, 2), (20, 4), (20, 9), (100, 10), (100, 49))]
    [3, 4, 5, 7, 13, 15, 56, 75]
    """
    return (parties + colluders) // 2 + 1


def spares_for(parties: int) -> int:
    """Further attempts for which secrets are dealt with those of `BATCH` rounds: as many as 24 d + 200 N bytes allow
    for d = 142 numbers, whatever the number of colluders."""
    return 24 if parties <= 10 else 16 if parties <= 33 else 10 if parties <= 66 else 5


@dataclass(frozen=True)
class SharedTerms:
    """`plan` is the plan's hash; `signing` and `sealing` are everybody's Ed25519 and X25519 public keys.

    `layers` is the noise of every round but those that `otherwise` lists; all have the same levels.

    A batch of secrets serves `rounds` rounds and `spares` further attempts; a round may use `attempts` slots.
    `patience` is the deadline of a round's first ballot; those of later ballots grow in proportion.
    `last`: so many rounds there are in all, and no secrets are dealt for more.
    """

    plan: bytes
    colluders: int
    threshold: int
    dropouts: int
    neighbours: tuple[tuple[int, ...], ...]
    size: int
    layers: Layers
    code: Code
    signing: tuple[bytes, ...]
    sealing: tuple[bytes, ...]
    rounds: int = BATCH
    spares: int = 4
    attempts: int = 4
    patience: float = 8.0
    last: int = ROSTER_BIT
    otherwise: Mapping[int, Layers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, c, t = self.parties, self.colluders, self.threshold
        if not 2 <= n < NOBODY:
            raise InputError(f"a secret sum has 2 to {NOBODY - 1} parties, got {n}")
        if not 0 <= c <= n - 2:
            raise InputError(f"colluders must be in 0..{n - 2} for {n} parties, got {c}")
        if not least_threshold(n, c) <= t <= n:
            raise InputError(f"threshold must be in {least_threshold(n, c)}..{n} (2t > N + c), got {t}")
        if not 0 <= self.dropouts <= n - t:
            raise InputError(f"dropouts must be in 0..{n - t} at threshold {t}, got {self.dropouts}")
        each = {(*made.levels, made.parties, made.colluders) for made in (self.layers, *self.otherwise.values())}
        if self.layers.levels[-1] != self.dropouts or each != {(*self.layers.levels, n, c)}:
            raise InputError("the layers of noise are made for other numbers of parties, colluders or drop-outs")
        if len(self.neighbours) != n or NOBODY in self.tree(0)[1:]:
            raise InputError("the graph is not connected")

    @property
    def parties(self) -> int:
        """N."""
        return len(self.signing)

    def noise(self, round_: int) -> Layers:
        """The layers of a round."""
        return self.otherwise.get(round_, self.layers)

    @property
    def least(self) -> int:
        """The fewest members of a set: N − D."""
        return self.parties - self.dropouts

    @property
    def slots(self) -> int:
        """Slots of one batch."""
        return self.rounds + self.spares

    @property
    def kinds(self) -> int:
        """Secrets of one slot that are shared: B_0 … B_m and a."""
        return self.layers.last + 2

    @property
    def bitmap(self) -> int:
        """Bytes of a set of parties."""
        return (self.parties + 7) // 8

    @property
    def longest(self) -> int:
        """Bytes that no frame exceeds: a roster with everybody's HELD, or a party that shows all that it added."""
        each = 8 * self.size + 32 * self.parties + 512
        return self.parties * each + 64 * self.slots + 17 * self.kinds * self.slots + 4096

    def leader(self, instance: int, ballot: int) -> int:
        """Who leads a ballot."""
        return ((instance & (ROSTER_BIT - 1)) + ballot) % self.parties

    def deadline(self, ballot: int) -> float:
        """How long a ballot may take. It grows, so that parties whose clocks run apart meet in some ballot; in
        proportion and not by doubling, or forty dead leaders in a row would take for ever."""
        return self.patience * (1 + ballot)

    def tree(self, root: int, without: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """Everybody's parent on the way to the root, breadth first in the plan's graph, or `NOBODY`."""
        parent = [NOBODY] * self.parties
        reached, queue = {root, *without}, deque([root])
        while queue:
            i = queue.popleft()
            for j in self.neighbours[i]:
                if j not in reached:
                    reached.add(j)
                    parent[j] = i
                    queue.append(j)
        return tuple(parent)
