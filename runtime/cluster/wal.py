"""The WAL of a session: numbered rounds, and the seal that ends it.

Only the session creates rounds, one after the other: round n is sent when round n - 1 is stored. Anybody may create the
seal. A round and a seal of the same number exclude each other, because a key is created only once. So nothing from the
seal on is ever acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from struct import Struct
from typing import NamedTuple

from ...actors.callboard_error import CallboardError
from .documents import FormatUnknown
from .keys import floor_prefix, number_of, round_key, tombstone_key, wal_prefix
from .packs import PackWriter
from .read_ahead import ReadAhead
from .store import Store, settle

_HEAD = Struct(">c8s8s")
ROUND, SEAL = b"R", b"S"
NO_TOKEN = bytes(8)


class Fenced(Exception):
    """This session may not write any more: it was declared dead, or its WAL is sealed."""


class WalDamaged(CallboardError):
    """A round that has to exist does not, or is not the one that was written."""


class Round(NamedTuple):
    """``token`` is random. ``previous`` is the token of the round before: a store that forgot a round is noticed."""

    is_seal: bool
    token: bytes
    previous: bytes
    content: bytes

    def encode(self) -> bytes:
        return _HEAD.pack(SEAL if self.is_seal else ROUND, self.token, self.previous) + self.content


def decode_round(data: bytes) -> Round:
    """Raises FormatUnknown: the first byte is the kind of the round and its format."""
    kind, token, previous = _HEAD.unpack_from(data)
    if kind not in (ROUND, SEAL):
        raise FormatUnknown("a round", repr(kind), f"{ROUND!r} and {SEAL!r}")
    return Round(kind == SEAL, token, previous, data[_HEAD.size :])


class WalWriter:
    """Appends the rounds of one session. ``next_number``: all rounds below are stored, the last with ``last_token``.

    ``packs``: copies of them. ``pack_rounds``: as many are in one; 0: there are none.
    """

    def __init__(self, store: Store, session: str, pack_rounds: int = 0) -> None:
        self.packs = PackWriter(store, session, pack_rounds)
        self._store = store
        self._session = session
        self.last_token = NO_TOKEN
        self.next_number = 0

    async def append(self, content: bytes, token: bytes) -> None:
        """Returns when the round is stored. Called again only after that. Raises Fenced."""
        data = Round(False, token, self.last_token, content).encode()
        if await settle(self._store, round_key(self._session, self.next_number), data) != data:
            raise Fenced(f"the WAL of {self._session} is sealed")
        self.packs.add(self.next_number, data)
        self.last_token = token
        self.next_number += 1


async def read_floor(store: Store, session: str) -> int:
    """Rounds below it may be deleted, and are not needed by anybody."""
    return max(map(number_of, await store.list(floor_prefix(session))), default=0)


async def seal(store: Store, session: str, token: bytes, start: int = 0) -> int:
    """End the WAL of a session; returns the number of its seal. Any number of nodes may do this at once.

    Others seal it after they have created its tombstone. The session looks at the tombstone after it has written a
    floor and before it deletes rounds, so no round from the floor on that is read here was or will be deleted. The
    session itself seals it at ``start``, the number of its next round: it may be deleting any round below.
    """
    floor = await read_floor(store, session)
    stored = await store.list(wal_prefix(session))
    number = max([start, floor, *map(number_of, stored)])
    if stored and number == number_of(stored[-1]):
        [last] = await store.get(stored[-1:])
        if last is not None and decode_round(last).is_seal:
            await store.sync()  # it may be visible here before it is durable
            return number
        number += last is not None
    data = Round(True, token, NO_TOKEN, b"").encode()
    while True:
        winner = await settle(store, round_key(session, number), data)
        if winner == data or decode_round(winner).is_seal:
            return number
        number += 1


async def read_tail(
    store: Store, session: str, start: int, stop: int | None = None, packs: Sequence[str] = ()
) -> AsyncIterator[bytes]:
    """The contents of the rounds from ``start`` up to the seal, or to ``stop``, which is the number after the last one.

    ``packs``: the keys of the session's packs, if they were listed. Raises WalDamaged if a round is missing.
    """
    ahead = ReadAhead(store, session, stop)
    if packs:
        await ahead.read_packs(start, packs)
    number, previous = start, None
    while stop is None or number < stop:
        data = await ahead.get(number)
        if data is None:
            raise WalDamaged(f"round {number} of session {session} is missing, and no seal is before it")
        stored = decode_round(data)
        if stored.is_seal:
            return
        if previous is not None and stored.previous != previous:
            raise WalDamaged(f"round {number} of session {session} does not follow round {number - 1}")
        previous, number = stored.token, number + 1
        yield stored.content


async def confirm_alive(store: Store, session: str) -> None:
    """Raises Fenced if the session has been declared dead."""
    if (await store.get([tombstone_key(session)]))[0] is not None:
        raise Fenced(f"session {session} was declared dead")
