"""``callboard bench concurrency``: nine ways to serialise requests to groups, with the same load and the same rules.

Every measurement runs in its own process (``measured_process.py``), and an oracle checks the final state. This file
imports little at module level, because the measured process imports it too.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark with these arguments (``sys.argv`` when None); returns the exit code."""
    from callboard.bench.concurrency.run import main as run_main

    return run_main(argv)
