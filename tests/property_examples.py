"""The number of examples of the slow property tests: few for ``make test``, many for ``make soak``."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("CALLBOARD_EXAMPLE_FACTOR", "1"))


def examples(count: int) -> int:
    """So many times ``count`` as ``CALLBOARD_EXAMPLE_FACTOR`` says."""
    return count * FACTOR
