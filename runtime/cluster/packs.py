"""Packs: copies of rounds of a WAL, many in one value, so that who takes over a partition reads few values.

A session writes a pack after all of its rounds are stored. So a pack is never wrong, and may be missing: then the
rounds themselves are read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct

from .keys import pack_end, pack_key, pack_prefix
from .store import Store

FORMAT = b"P"
"""The first byte of a pack. One with another byte is not used."""
LARGE_BYTES = 256 * 1024
"""A round above this size is in no pack, and a pack that has reached it gets no more rounds."""
WAITING_MAX = 4
"""Packs that wait for the store. If it is slow, the oldest ones are not written."""
_SIZE = Struct(">I")


def encode_pack(rounds: Sequence[bytes]) -> bytes:
    return FORMAT + b"".join(_SIZE.pack(len(data)) + data for data in rounds)


def decode_pack(data: bytes) -> Iterator[bytes]:
    """Its rounds; none if its format is not known."""
    place = len(FORMAT) if data.startswith(FORMAT) else len(data)
    while place < len(data):
        (size,) = _SIZE.unpack_from(data, place)
        place += _SIZE.size + size
        yield data[place - size : place]


async def list_packs(store: Store, session: str) -> list[str]:
    return await store.list(pack_prefix(session))


class PackWriter:
    """Writes the packs of one session. ``rounds``: as many are in one pack; 0: there are no packs."""

    def __init__(self, store: Store, session: str, rounds: int) -> None:
        self._store = store
        self._session = session
        self._rounds = rounds
        self._collected: list[bytes] = []
        self._first = 0
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=WAITING_MAX)
        self._is_waiting = asyncio.Event()
        self._stored: list[str] = []

    def add(self, number: int, data: bytes) -> None:
        """A round is stored. Called for each of them, in their order."""
        if self._rounds == 0 or len(data) > LARGE_BYTES:
            self._collected.clear()
            return
        if not self._collected:
            self._first = number
        self._collected.append(data)
        if len(self._collected) == self._rounds or sum(map(len, self._collected)) > LARGE_BYTES:
            key = pack_key(self._session, self._first, number + 1)
            self._waiting.append((key, encode_pack(self._collected)))
            self._collected.clear()
            self._is_waiting.set()

    async def keep_packed(self) -> None:
        """Write packs, for ever. ``store`` is patient."""
        while True:
            await self._is_waiting.wait()
            self._is_waiting.clear()
            while self._waiting:
                key, data = self._waiting.popleft()
                await self._store.put(key, data)
                self._stored.append(key)

    def forget_below(self, floor: int) -> Sequence[str]:
        """The keys of the stored packs whose rounds are all below ``floor``. They are returned once."""
        old = [key for key in self._stored if pack_end(key) <= floor]
        self._stored = [key for key in self._stored if pack_end(key) > floor]
        return old
