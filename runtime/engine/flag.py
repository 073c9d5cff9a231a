"""Flag: the part of ``threading.Event`` that pykka uses, in 48 bytes instead of 1 kB."""

from __future__ import annotations

import threading

_creation_lock = threading.Lock()


class Flag:
    """A flag that is set once. The first ``wait`` creates the event to wait on."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Like ``threading.Event.wait``: blocks the thread, so it must not be called on a thread that runs actors."""
        with _creation_lock:  # concurrent waits must share one event
            event = self._event = self._event or threading.Event()
        if self._is_set:  # checked after the event is stored; ``set`` accesses them in the opposite order
            event.set()
        return event.wait(timeout)
