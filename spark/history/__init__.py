"""What Kafka throws away, kept: every record of the offsets log in a table, and what can be asked and done with it.

- table.py: the table's folder, what it says about itself, and how far it has taken the log.
- keep.py: records of closed segments into the table, each exactly once.
- states.py: all offsets as they were at a time, whose they were, and what changed between two times.
- restore.py: offsets written back through a running coordinator, and taken back again.
- changes.py: the notes of that: what it was, by whom, and why.
- commands.py: ``callboard history``.
"""

from __future__ import annotations

from .keep import Kept, keep
from .states import as_of, diff
from .table import HistoryTable

__all__ = ["HistoryTable", "Kept", "as_of", "diff", "keep"]
