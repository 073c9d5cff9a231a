"""How many connections there may be, so that there is always a file descriptor for the log.

A log that cannot open its next file has no room until it can, and then refuses commits. So clients may not have what it
needs: whoever connects when only that is left is hung up on, and comes again.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable
from contextlib import suppress

from ..common.errors import StartError

RESERVE = 64  # the journal, locks, topics, processes that load or compact, the loop itself: about thirty
HTTP_CONNECTIONS_MAX = 16  # of --metrics: there is always room for one more, since an older one is closed for it
HTTP_FILES = HTTP_CONNECTIONS_MAX + 5  # its listener, its own loop (three), and one more while an older one is closed
CONNECTIONS_MIN = 16  # with fewer a server is of no use
WANTED = 2**20  # Linux refuses more to most, and macOS an unlimited number
TELL_PAUSE_MS = 60_000  # a crowd that comes again and again is one line in the log

log = logging.getLogger("callboard.runtime")


def raise_limit() -> None:
    """Have as many as this user may have: the lower limit is for programs that know only 1024 (``select``)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(partitions: int, *, has_http: bool = False) -> int:
    """How many there may be beside a log of so many partitions, and HTTP. StartError if that makes no sense."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    files = 2 * partitions + RESERVE  # each partition's open segment, and a second descriptor while a checkpoint syncs
    files += HTTP_FILES if has_http else 0
    if soft < files + CONNECTIONS_MIN:
        raise StartError(
            f"this process may open {soft} files, expected {files + CONNECTIONS_MIN} or more for {partitions}"
            f" partitions and {CONNECTIONS_MIN} connections; raise the limit (ulimit -n, or LimitNOFILE of systemd)"
        )
    return soft - files


class Places:
    """Whether one more connection may be there. ``monotonic_ms``: the time, for the pace of log lines."""

    def __init__(self, most: int, monotonic_ms: Callable[[], int]) -> None:
        self.most = most
        self._monotonic_ms = monotonic_ms
        self._told_at_ms: int | None = None

    def are_taken(self, connections: int, peer: str) -> bool:
        """With ``connections`` there already. Told now and then, with one of those that are refused."""
        if connections < self.most:
            return False
        now_ms = self._monotonic_ms()
        if self._told_at_ms is None or now_ms - self._told_at_ms >= TELL_PAUSE_MS:
            self._told_at_ms = now_ms
            log.error(
                "%d connections are too many beside the log's files: %s is hung up on, and all who come now; raise the"
                " limit of open files (ulimit -n), or find who keeps so many",
                connections,
                peer,
            )
        return True
