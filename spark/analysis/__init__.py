"""Questions that people ask about an offsets log, each a function from records to a DataFrame.

The records are those of the data source, and ``day``: ``records`` reads them from a data folder, from a history, or
from both. ``callboard analyse`` (questions.py) asks one, ``callboard report`` (report.py) all of them, with plots.
"""

from __future__ import annotations

from .commits import frequent_commits, gaps, rewinds, skew
from .expiring import expiring
from .growth import forecast, growth
from .rebalances import generations, storms
from .sources import records
from .zombies import zombie_groups, zombie_topics

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
