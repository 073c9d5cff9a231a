"""Common questions about an offsets log. Each is a function from records to a DataFrame.

The records have the data source's columns and ``day``; ``records`` reads them from a data folder, a history, or both.
``callboard analyse`` answers one question, ``callboard report`` all of them, with plots.
"""

from __future__ import annotations

from ..extra import require_extra

require_extra()

from .commits import frequent_commits, gaps, rewinds, skew  # noqa: E402
from .expiring import expiring  # noqa: E402
from .growth import forecast, growth  # noqa: E402
from .rebalances import generations, storms  # noqa: E402
from .sources import records  # noqa: E402
from .zombies import zombie_groups, zombie_topics  # noqa: E402

__all__ = [
    "expiring",
    "forecast",
    "frequent_commits",
    "gaps",
    "generations",
    "growth",
    "records",
    "rewinds",
    "skew",
    "storms",
    "zombie_groups",
    "zombie_topics",
]
