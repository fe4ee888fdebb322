"""Where a run is spread: which devices, which processes, and how these find each other.

Every process runs the same command. It learns the coordinator's address, its own number and how many there are from
flags, from COTERIE_COORDINATOR, COTERIE_PROCESS_ID and COTERIE_PROCESSES, or from the step that Slurm's `srun` started
it in; whatever launches processes can set these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coterie.errors import InputError

__all__ = ["Spread"]

HEARTBEAT = 30  # seconds after which a silent process counts as lost
FAREWELL = 86_400  # seconds that the others wait while the first process finishes the report


@dataclass(frozen=True)
class Spread:
    """What the flags of `coterie run` say about devices, processes and checkpoints; `None`: not given."""

    devices: str | None = None
    coordinator: str | None = None
    process_id: int | None = None
    processes: int | None = None
    checkpoint: Path | None = None
    every_rounds: int = 100

    @classmethod
    def read(
        cls, env: Mapping[str, str] = os.environ, *, devices: str | None = None, coordinator: str | None = None,
        process_id: int | None = None, processes: int | None = None, checkpoint: Path | None = None,
        every_rounds: int = 100,
    ) -> Spread | None:  # fmt: skip
        """The flags, and what they leave open from the environment; None for an ordinary run on one device."""
        if devices not in (None, "all") and not (str(devices).isdecimal() and int(devices) > 0):
            raise InputError(f"--devices must be 'all' or a positive number, got {devices!r}")
        one, address = process_id is not None, env.get("COTERIE_COORDINATOR")
        number, count = (
            _number(key, env[key]) if env.get(key) else None for key in ("COTERIE_PROCESS_ID", "COTERIE_PROCESSES")
        )
        if devices and not address and "SLURM_STEP_NUM_TASKS" in env and "SLURM_PROCID" in env:
            tasks = _number("SLURM_STEP_NUM_TASKS", env["SLURM_STEP_NUM_TASKS"])
            if tasks > 1:
                number, count = _number("SLURM_PROCID", env["SLURM_PROCID"]), tasks
        coordinator = address if coordinator is None else coordinator
        process_id = number if process_id is None else process_id
        processes = count if processes is None else processes
        if not (devices or coordinator or processes or checkpoint or one):
            return None
        spread = cls(devices, coordinator, process_id, processes, checkpoint, every_rounds)
        spread._check(slurm="SLURM_STEP_NUM_TASKS" in env)
        return spread

    def _check(self, slurm: bool) -> None:
        if self.every_rounds < 1:
            raise InputError(f"--every-rounds must be at least 1, got {self.every_rounds}")
        if not self.coordinator and not self.processes and self.process_id is None:
            return
        if self.processes is None or self.process_id is None or not (self.coordinator or slurm):
            raise InputError("several processes need --coordinator HOST:PORT, --process-id I and --processes N")
        if not 0 <= self.process_id < self.processes:
            raise InputError(f"--process-id must be from 0 to {self.processes - 1}, got {self.process_id}")

    @property
    def leader(self) -> bool:
        """Whether this process writes and prints the results."""
        return not self.process_id

    @contextmanager
    def joined(self) -> Iterator[Callable[[], dict[str, object]]]:
        """Meet the other processes; gives the options that spread `Experiment.run`. Leaves together with the others.

        Must come before anything is computed with JAX in this process.
        """
        import jax

        if self.devices not in (None, "all") and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
            try:
                jax.config.update("jax_num_cpu_devices", int(self.devices))  # where there is no other kind of device
            except RuntimeError as error:
                raise InputError(f"--devices {self.devices} must be set before JAX has started ({error})") from None
        if self.processes is None:
            yield self._engine
            return
        try:
            jax.distributed.initialize(
                self.coordinator, self.processes, self.process_id,
                heartbeat_timeout_seconds=HEARTBEAT, shutdown_timeout_seconds=FAREWELL,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise InputError(f"the processes did not meet at {self.coordinator or 'the first node'}: {error}") from None
        yield self._engine
        jax.distributed.shutdown()

    def _engine(self) -> dict[str, object]:
        from coterie.drivers.checkpoint import Checkpoint
        from coterie.drivers.sharded import make_mesh, make_shards, simulate_shards

        count = int(self.devices) if self.devices not in (None, "all") else None
        mesh = make_mesh(1 if self.devices is None and self.processes is None else count)
        stored = None if self.checkpoint is None else Checkpoint(self.checkpoint, self.every_rounds)
        return {"make": partial(make_shards, mesh=mesh), "drive": partial(simulate_shards, checkpoint=stored)}


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{name} must be a number, got {text!r}")
    return int(text)
