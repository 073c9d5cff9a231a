"""When records were made, as the batches that have them say."""

from __future__ import annotations

from .batch import read_batch_info
from .partition_log import PartitionLog


def record_time_ms(log: PartitionLog, offset: int) -> int | None:
    """The time of the batch that has the record with this offset, or the next one, since 1970. None if there is none.

    Records before the start of the log are not there any more, so their time is not known.
    """
    if not log.start_offset <= offset < log.end_offset:
        return None
    batches = log.batches.select(offset, log.end_offset, 1, True)
    time_ms = read_batch_info(batches[0]).base_timestamp_ms if batches else -1
    return time_ms if time_ms >= 0 else None
