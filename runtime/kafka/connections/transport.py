"""The transport of a connection: that of the event loop, or TLS above it."""

from __future__ import annotations

from typing import Any, Protocol


class Transport(Protocol):
    """The methods of ``asyncio.Transport`` that a connection uses."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Close after sending what is written."""

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...
