"""Reaching a cluster: the first of several servers that answers, and the coordinator of a group.

A server that is frozen or cut off accepts a connection and answers nothing, so none is waited for alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ..settings.address import Address
from .connection import ChannelLost, Connection, connect_to
from .errors import error_name
from .security import NO_SECURITY, ClientSecurity

HEAD_START_S = 0.5
"""How long a server is waited for before the next one is tried, too."""

FIND_AGAIN_S = 1.0
"""How long a coordinator is waited for before it is looked up again: the group may have moved meanwhile."""

Connecting = asyncio.Task[Connection]


async def connect_to_any(
    addresses: Iterable[Address], client_id: str, security: ClientSecurity = NO_SECURITY
) -> Connection:
    """Connect to the first server that answers. Raises ChannelLost with the error of the last one."""
    attempts: set[Connecting] = set()
    failure = ChannelLost("no server is given")
    remaining = list(addresses)
    try:
        while remaining or attempts:
            if remaining:
                attempts.add(_start_connecting(remaining.pop(0), client_id, security))
            timeout_s = HEAD_START_S if remaining else None
            done, attempts = await asyncio.wait(attempts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                try:
                    connection = attempt.result()
                except ChannelLost as error:
                    failure = error
                else:
                    _give_up(done - {attempt})
                    return connection
    finally:
        _give_up(attempts)
    raise failure


async def connect_to_coordinator(known: Connection, group_id: str, client_id: str) -> Connection:
    """Connect to the coordinator of a group, which ``known`` is asked for; return ``known`` if it is that.

    Raises ChannelLost.
    """
    while (address := await find_coordinator(known, group_id)) != known.address:
        connection = await _connect_unless_moved(known, group_id, address, client_id)
        if connection is not None:
            return connection
    return known


async def _connect_unless_moved(
    known: Connection, group_id: str, address: Address, client_id: str
) -> Connection | None:
    """None if the group has another coordinator before this one has answered."""
    connecting = _start_connecting(address, client_id, known.security)
    try:
        while not (await asyncio.wait({connecting}, timeout=FIND_AGAIN_S))[0]:
            if await find_coordinator(known, group_id) != address:
                _give_up({connecting})
                return None
        return connecting.result()
    except BaseException:
        _give_up({connecting})
        raise


async def find_coordinator(connection: Connection, group_id: str) -> Address:
    """The address of a group's coordinator. Raises ChannelLost if there is none now."""
    response = await connection.ask_in_time("find_coordinator", {"key": group_id, "key_type": 0})
    if response.error_code:
        raise ChannelLost(f"the coordinator of {group_id!r} cannot be found: {error_name(response.error_code)}")
    return Address(response.host, response.port)


async def broker_addresses(connection: Connection) -> list[Address]:
    """The addresses of all brokers that a server knows. Raises ChannelLost."""
    response = await ask_metadata(connection, [])
    return [Address(broker.host, broker.port) for broker in response.brokers]


async def ask_metadata(connection: Connection, topics: Iterable[str] | None) -> Any:
    """The response of Metadata about these topics, all if None; none is created. Raises ChannelLost."""
    flags = dict.fromkeys(
        ("include_cluster_authorized_operations", "include_topic_authorized_operations", "allow_auto_topic_creation"),
        False,
    )
    named = None if topics is None else [{"name": topic, "topic_id": None} for topic in topics]
    return await connection.ask_in_time("metadata", {"topics": named, **flags})


def _start_connecting(address: Address, client_id: str, security: ClientSecurity) -> Connecting:
    return asyncio.get_running_loop().create_task(connect_to(address, client_id, security))


def _give_up(attempts: Iterable[Connecting]) -> None:
    """Close connections that are not needed, also those that are only being opened."""
    for attempt in attempts:
        attempt.cancel()
        attempt.add_done_callback(_close_connection)


def _close_connection(attempt: Connecting) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
