"""The file descriptors that only the node's own process may have open."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class ExclusiveDescriptors:
    """The listener, the connections and the locks of a node. A process that is forked must close them."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], Iterable[int]]] = []

    def add(self, source: Callable[[], Iterable[int]]) -> None:
        """Add the descriptors that ``source`` returns when it is called; -1 is a closed one."""
        self._sources.append(source)

    def all(self) -> list[int]:
        """The descriptors that are open now."""
        return [fd for source in self._sources for fd in source() if fd >= 0]
