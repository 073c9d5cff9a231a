"""The concurrency laboratory: one coordinator, serialised in eight ways, under the same load, checked by one oracle.

``callboard bench concurrency`` measures every engine in its own processes (``measured_process.py``) and writes a
report. This file imports nothing at module level, because the measured process imports it too.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the laboratory with these arguments (``sys.argv`` when None); returns the exit code."""
    from callboard.bench.concurrency.run import main as run_main

    return run_main(argv)
