"""A command in a process of its own, beside the one that started it: `coterie agent` for a notebook.

    python -m coterie.commands._beside PARENT ARGUMENTS…

It is asked to stop where its parent ends, however that ends: a kernel that died leaves no party running unseen.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the command that is given; returns its exit code."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        return 130  # it has ended meanwhile
    from coterie.cli import main as command

    return command(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
