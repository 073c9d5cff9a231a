"""ResetWatch: which offsets of the last reset were asked for since, and whether others than members commit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..messages import OffsetFetch
from ..records import OffsetValue
from ..steps import Steps, pieces
from .reset_messages import ResetOffset
from .resets import is_reset_date

NEVER_MS = -1


class ResetWatch:
    """Of one group, since it is in memory. Times are wall-clock times, in milliseconds; -1: never."""

    __slots__ = ("change_id", "fetched_ms", "simple_commit_ms", "unfetched")

    def __init__(self) -> None:
        self.change_id = ""
        self.fetched_ms = NEVER_MS
        self.simple_commit_ms = NEVER_MS
        self.unfetched: dict[tuple[str, int], None] = {}

    def begin(self, change_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        """These partitions are reset."""
        self.change_id, self.fetched_ms = change_id, NEVER_MS
        self.unfetched = dict.fromkeys(partitions)

    def note(self, request: OffsetFetch, now_ms: int) -> None:
        """Somebody asks for offsets. Requests for all offsets of a group are those of tools, not of consumers."""
        for topic, partitions in request.topics or ():
            for partition in partitions:
                if (topic, partition) in self.unfetched:
                    del self.unfetched[topic, partition]
                    self.fetched_ms = now_ms


def simple_commit_ms(
    offsets: Iterable[ResetOffset], find: Callable[[str, int], OffsetValue | None], empty_since_ms: int, now_ms: int
) -> Steps[int]:
    """When one of these offsets was committed last after the group had lost its last member; -1: not since then.

    A date in the future is that of a reset.
    """
    newest_ms = NEVER_MS
    for piece in pieces(offsets):
        for topic, partition, _ in piece:
            value = find(topic, partition)
            date_ms = NEVER_MS if value is None else value.commit_timestamp_ms
            if empty_since_ms < date_ms <= now_ms and not is_reset_date(date_ms, empty_since_ms):
                newest_ms = max(newest_ms, date_ms)
        yield
    return newest_ms
