"""Whether the store still has what this node knows to be in it.

A store that was replaced by an older copy of itself looks like one in which nothing has happened yet: a standby that
was promoted without the newest commits, a restored backup or snapshot. Seals and versions of the register are missing
too, so two nodes could own a partition. Whoever notices it stops, and says so in the register, so that all others stop.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from .keys import floor_prefix, number_of, round_key, wal_prefix
from .store import StoreRefused
from .wal import decode_round

ADVICE = (
    "it is an older copy, for example a standby that lacked the newest commits, or a restored backup; bring back the "
    "newest copy, or accept the loss with callboard cluster accept-loss, then start the nodes"
)


class StoreOlder(StoreRefused):
    """The store lacks what it has acknowledged."""

    exit_code = 3  # as after a failure of the log: an operator must look before it starts again


class Reader(Protocol):
    """A store, or what one of its connections shows of it."""

    async def get(self, keys: Sequence[str]) -> list[bytes | None]: ...

    async def list(self, prefix: str, after: str = "") -> list[str]: ...


Check = Callable[[Reader], Awaitable[None]]


@runtime_checkable
class Reconnecting(Protocol):
    """A store whose connections may lead to another copy than before.

    ``on_connected`` is awaited with each new connection, before it is used. What it raises is raised by the operation.
    """

    on_connected: Check | None

    def connect_ahead(self) -> None:
        """Open all connections in the background: what waits for one later may be a partition that nobody serves."""


class Known(NamedTuple):
    """What was acknowledged: so many rounds of a session, the last one with ``token``.

    ``versions``: the tokens of versions of the register and of manifests, by key. There may be newer versions.
    ``epochs``: those of the manifests, by key.
    """

    session: str
    rounds: int
    token: bytes
    versions: Mapping[str, str]
    epochs: Mapping[str, int]


async def check_known(known: Callable[[], Known], reader: Reader) -> None:
    """Raises StoreOlder. What the session deletes or replaces meanwhile is not missed."""
    while True:
        expected = known()
        missing = await _missing(expected, reader)
        if not missing:
            return
        if expected == known():
            raise StoreOlder(f"the store lacks {missing}, which it had acknowledged: {ADVICE}")


async def _missing(known: Known, reader: Reader) -> str:
    """A key, "" if nothing is missing."""
    last_key = round_key(known.session, max(known.rounds - 1, 0))
    last, *versions = await reader.get([last_key, *known.versions])
    for (key, token), data in zip(known.versions.items(), versions, strict=True):
        if data is None:
            is_there = await _has_newer(key, reader)
        else:
            is_there = json.loads(data)["token"] == token or await _is_taken(key, known, reader)
        if not is_there:
            return key
    if known.rounds == 0 or (last is not None and decode_round(last).token == known.token):
        return ""
    return last_key if last is not None or not await _is_behind(known, reader) else ""


async def _has_newer(key: str, reader: Reader) -> bool:
    return bool(await reader.list(key[: key.rindex("/") + 1], key))


async def _is_taken(key: str, known: Known, reader: Reader) -> bool:
    """Another session owns the partition of a manifest by now.

    It deletes old manifests. Then a late create may land on the name of one: that of somebody who was slower.
    """
    epoch = known.epochs.get(key)
    if epoch is None:  # a version of the register
        return False
    while keys := await reader.list(key[: key.rindex("/") + 1]):
        [data] = await reader.get(keys[-1:])
        if data is not None:  # else it was deleted meanwhile, because there are newer ones
            return bool(json.loads(data)["epoch"] > epoch)
    return False


async def _is_behind(known: Known, reader: Reader) -> bool:
    """The last round was deleted: by the session, below its floor, or by others, who have left the seal behind it."""
    stored = [*await reader.list(floor_prefix(known.session)), *await reader.list(wal_prefix(known.session))]
    return max(map(number_of, stored), default=0) >= known.rounds
