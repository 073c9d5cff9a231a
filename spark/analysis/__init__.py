"""Common questions about an offsets log. Each is a function from records to a DataFrame.

The records have the data source's columns and ``day``; ``records`` reads them from a data folder, a history, or both.
``callboard analyse`` (questions.py) answers one question, ``callboard report`` (report.py) all of them, with plots.
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
