"""ReadAhead: reads the rounds of a WAL with few operations, also where each value is a request of its own."""

from __future__ import annotations

from collections.abc import Sequence

from .keys import number_of, pack_end, round_key
from .packs import decode_pack
from .store import Store

READ_AHEAD = 64
"""Rounds that are asked for at once."""
AFTER_PACKS = 32
"""Rounds that are asked for with the packs. Behind the last pack there are seldom more."""


class ReadAhead:
    """``stop``: no round from it on is asked for."""

    def __init__(self, store: Store, session: str, stop: int | None) -> None:
        self._store = store
        self._session = session
        self._stop = stop
        self._rounds: dict[int, bytes | None] = {}

    async def read_packs(self, start: int, packs: Sequence[str]) -> None:
        """Read those with rounds from ``start`` on, and some rounds that are in none. ``packs``: keys."""
        packs = [key for key in packs if pack_end(key) > start]
        packed = {number for key in packs for number in range(number_of(key), pack_end(key))}
        end = max(packed, default=start - 1) + 1 + AFTER_PACKS
        rounds = [number for number in range(start, end) if number not in packed][:READ_AHEAD]
        values = await self._store.get([*packs, *(round_key(self._session, number) for number in rounds)])
        for key, data in zip(packs, values, strict=False):
            self._rounds.update(enumerate(decode_pack(data or b""), number_of(key)))
        self._rounds.update(zip(rounds, values[len(packs) :], strict=True))

    async def get(self, number: int) -> bytes | None:
        """Called for each number, in their order. None: the round is not there."""
        if number not in self._rounds:
            end = number + READ_AHEAD if self._stop is None else min(number + READ_AHEAD, self._stop)
            wanted = [other for other in range(number, end) if other not in self._rounds]
            values = await self._store.get([round_key(self._session, other) for other in wanted])
            self._rounds.update(zip(wanted, values, strict=True))
        return self._rounds.pop(number)
