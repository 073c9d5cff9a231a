"""The concurrency laboratory: one coordinator, serialised in many ways, under the same load, checked by one oracle.

``callboard bench concurrency`` measures every engine in processes of its own (``one.py``) and writes a report. This
file imports nothing, because the measured process loads it too.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the laboratory with these arguments (``sys.argv`` when None); returns the exit code."""
    from callboard.bench.concurrency.run import main as run_main

    return run_main(argv)
