"""One core for this process and its libraries, if it is called before they are loaded."""

from __future__ import annotations

import os
import sys

__all__ = ["ONE_CORE", "pin"]

ONE_CORE = "--all-cores" not in sys.argv


def pin() -> None:
    """Pin to one core unless --all-cores is among the arguments."""
    if not ONE_CORE:
        return
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
