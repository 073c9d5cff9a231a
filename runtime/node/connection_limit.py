"""The limit of connections, which keeps file descriptors free for the log.

A log that cannot open its next file rejects commits until it can. So some descriptors are reserved for the log. When
only those are left, the server closes new connections at once, and their clients reconnect later.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable
from contextlib import suppress

from ...actors.text import format_count
from ..common.errors import StartError

RESERVE = 64  # the journal, locks, topics, processes that load or compact, the loop itself: about thirty
HTTP_CONNECTIONS_MAX = 16  # of --metrics; the oldest one is closed for a new one
HTTP_FILES = HTTP_CONNECTIONS_MAX + 5  # its listener, its loop (three), and one more while the oldest one is closed
WEB_CONNECTIONS_MAX = 32  # of --web; a connection beyond them is closed at once
WEB_FILES = WEB_CONNECTIONS_MAX + 6  # its listener, its loop (three), and some more that are about to be closed
CONNECTIONS_MIN = 16  # a server with fewer connections is useless
DESCRIPTORS_MAX = 2**20  # by default Linux allows no more, and macOS does not allow RLIM_INFINITY
LOG_INTERVAL_MS = 60_000  # many refused connections are one log line a minute

log = logging.getLogger("callboard.runtime")


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard limit. The soft limit is low only because of ``select``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft not in (resource.RLIM_INFINITY, target) and soft < target:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def connections_max(partitions: int, *, has_http: bool = False, has_web: bool = False) -> int:
    """The maximum number of connections for a log of so many partitions. StartError if it is too low to be useful."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    files = 2 * partitions + RESERVE  # each partition's open segment, and its duplicate during a checkpoint
    files += (HTTP_FILES if has_http else 0) + (WEB_FILES if has_web else 0)
    if soft < files + CONNECTIONS_MIN:
        raise StartError(
            f"this process may open {soft} files, expected {files + CONNECTIONS_MIN} or more for"
            f" {format_count(partitions, 'partition')} and {CONNECTIONS_MIN} connections;"
            " raise the limit (ulimit -n, or LimitNOFILE of systemd)"
        )
    return soft - files


class DescriptorLimit:
    """Limits the number of connections. ``monotonic_ms``: the clock for the interval of log lines."""

    def __init__(self, maximum: int, monotonic_ms: Callable[[], int]) -> None:
        self.maximum = maximum
        self._monotonic_ms = monotonic_ms
        self._logged_at_ms: int | None = None

    def is_reached(self, connections: int, peer: str) -> bool:
        """Whether one more connection would be too many. Logs a line now and then, with one of the refused peers."""
        if connections < self.maximum:
            return False
        now_ms = self._monotonic_ms()
        if self._logged_at_ms is None or now_ms - self._logged_at_ms >= LOG_INTERVAL_MS:
            self._logged_at_ms = now_ms
            log.error(
                "%d connections use all file descriptors that are not reserved for the log: the connection of %s is"
                " closed, as are all new ones; raise the limit of open files (ulimit -n), or find the client that"
                " opens so many",
                connections,
                peer,
            )
        return True
