"""SharedBytes: bytes in several parts that are shared with their owner, and copied only when they are sent."""

from __future__ import annotations

from collections.abc import Iterable


class SharedBytes:
    """Immutable bytes in parts. Used like ``bytes`` where only the length and the parts matter."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Iterable[bytes]) -> None:
        self.parts = tuple(parts)
        self._size = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def __radd__(self, head: bytes) -> SharedBytes:
        return SharedBytes((head, *self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes | SharedBytes) and bytes(self) == bytes(other)

    __hash__ = None  # type: ignore[assignment]
