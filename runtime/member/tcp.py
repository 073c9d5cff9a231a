"""TcpConnector: members reach their coordinator by Kafka's protocol over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import GroupRequest
from ..client.connection import TIMEOUT_S, Connection
from ..client.reaching import ask_metadata, broker_addresses, connect_to_any, connect_to_coordinator
from ..client.security import Security, load_security
from ..common.errors import StartError
from ..settings.address import Address, parse_addresses
from .group_channel import GroupChannel
from .messages import TRANSLATIONS, error_of

SERVER_DEFAULT = -1  # replication factor
BROKER_RESOURCE, GROUP_RESOURCE = 4, 32
SESSION_TIMEOUT_SETTINGS = {
    BROKER_RESOURCE: "group.consumer.session.timeout.ms",
    GROUP_RESOURCE: "consumer.session.timeout.ms",
}
LEARNED_AGAIN_S = 30.0
"""How old the list of the cluster's servers may be when another connection is opened."""


class TcpConnector:
    """``bootstrap``: "host:port", or several with commas between, of which any may answer. Raises StartError.

    The other servers of the cluster are learned from the first one that answers, and used when it does not any more.
    ``security``: a file of the client's settings, or values; None for environment variables only.
    """

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        if not isinstance(bootstrap, str):
            raise StartError(f"bad bootstrap {bootstrap!r}: expected text, as in '127.0.0.1:9092'")
        self.given = parse_addresses("bootstrap", bootstrap)
        self._security = load_security(security)
        self._learned: Sequence[Address] = ()
        self._learned_s = float("-inf")
        self._last: Address | None = None  # the one that has answered last

    async def open(self, client_id: str) -> GroupChannel:
        return GroupChannel(partial(self._open_to_coordinator, client_id))

    async def _open_to_coordinator(self, client_id: str, group_id: str) -> TcpChannel:
        known = await self.connect_to_any(client_id)
        try:
            connection = await connect_to_coordinator(known, group_id, client_id)
        except BaseException:
            known.close()
            raise
        if connection is not known:
            known.close()
        return TcpChannel(connection)

    async def connect_to_any(self, client_id: str) -> Connection:
        """Raises ChannelLost with the error of the last server."""
        addresses = dict.fromkeys([*filter(None, [self._last]), *self.given, *self._learned])
        connection = await connect_to_any(addresses, client_id, self._security)
        try:
            await self._learn(connection)
        except BaseException:
            connection.close()
            raise
        self._last = connection.address
        return connection

    async def _learn(self, connection: Connection) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._learned_s > LEARNED_AGAIN_S:
            self._learned = await broker_addresses(connection)
            self._learned_s = now_s

    async def check_reachable(self) -> None:
        """Raises ChannelLost if no server can be reached."""
        (await self.connect_to_any("callboard")).close()

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        connection = await self.connect_to_any("callboard-topics")
        try:
            await ensure_topics(connection, partitions)
        finally:
            connection.close()

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        connection = await self.connect_to_any("callboard-topics")
        try:
            return await find_partitions(connection, topics)
        finally:
            connection.close()

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        connection = await self.connect_to_any("callboard-topics")
        try:
            return await find_topic_ids(connection, topics)
        finally:
            connection.close()

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        connection = await self.connect_to_any("callboard-topics")
        try:
            return await find_session_timeout_ms(connection, group_id)
        finally:
            connection.close()


class TcpChannel:
    """``Channel``: a connection to the coordinator."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.close = connection.close

    async def ask(self, message: GroupRequest) -> Any:
        translation = TRANSLATIONS[type(message)]
        response = await self._connection.ask(translation.api, translation.values(message))
        return translation.reply(message, response)


async def ensure_topics(connection: Connection, partitions: Mapping[str, int]) -> None:
    """See ``Connector.ensure_topics``."""
    existing = await find_partitions(connection, partitions)
    missing = {name: count for name, count in partitions.items() if name not in existing}
    smaller = {name: count for name, count in partitions.items() if existing.get(name, count) < count}
    await create_topics(connection, missing, harmless=ErrorCode.TOPIC_ALREADY_EXISTS)
    await grow_topics(connection, smaller, harmless=ErrorCode.INVALID_PARTITIONS)  # others have added them meanwhile


async def find_partitions(connection: Connection, topics: Iterable[str]) -> dict[str, int]:
    """See ``Connector.partitions``."""
    names = list(topics)
    if not names:
        return {}
    response = await ask_metadata(connection, names)
    return {topic.name: len(topic.partitions) for topic in response.topics if topic.error_code == ErrorCode.NONE}


async def find_topic_ids(connection: Connection, topics: Iterable[str]) -> dict[str, bytes]:
    """See ``Connector.topic_ids``."""
    response = await ask_metadata(connection, list(topics))
    return {topic.name: topic.topic_id.bytes for topic in response.topics if topic.error_code == ErrorCode.NONE}


async def find_session_timeout_ms(connection: Connection, group_id: str) -> int:
    """See ``Connector.consumer_session_timeout_ms``. Kafka has it as a setting of the group, else of the broker.

    A broker describes itself only, and its address need not tell which one it is.
    """
    brokers = (await ask_metadata(connection, [])).brokers
    resources = [_timeout_setting(GROUP_RESOURCE, group_id)]
    resources += [_timeout_setting(BROKER_RESOURCE, str(broker.node_id)) for broker in brokers]
    values = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    response = await connection.ask_in_time("describe_configs", values)
    found = {
        result.resource_type: int(config.value)
        for result in response.results
        for config in result.configs
        if config.value and config.name == SESSION_TIMEOUT_SETTINGS[result.resource_type]
    }
    if not found:
        errors = [result.error_code for result in response.results if result.error_code]
        error = error_of(next(iter(errors), ErrorCode.UNSUPPORTED_VERSION))
        raise CoordinatorError(error, f"DescribeConfigs is answered {error.name}")
    return found.get(GROUP_RESOURCE) or found[BROKER_RESOURCE]


def _timeout_setting(resource_type: int, name: str) -> dict[str, Any]:
    keys = [SESSION_TIMEOUT_SETTINGS[resource_type]]
    return {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}


async def create_topics(
    connection: Connection, missing: Mapping[str, int], harmless: ErrorCode = ErrorCode.NONE
) -> None:
    """``harmless``: an error that is not raised. Raises ChannelLost and CoordinatorError, as all functions here."""
    if not missing:
        return
    topics = [
        {
            "name": name,
            "num_partitions": count,
            "replication_factor": SERVER_DEFAULT if connection.exchange.versions.get("create_topics", 0) >= 4 else 1,
            "assignments": [],
            "configs": [],
        }
        for name, count in missing.items()
    ]
    values = {"topics": topics, "timeout": timedelta(seconds=TIMEOUT_S), "validate_only": False}
    response = await connection.ask_in_time("create_topics", values)
    check_topics(response.topics, harmless)


async def grow_topics(connection: Connection, smaller: Mapping[str, int], harmless: ErrorCode = ErrorCode.NONE) -> None:
    if not smaller:
        return
    topics = [{"name": name, "count": count, "assignments": None} for name, count in smaller.items()]
    values = {"topics": topics, "timeout": timedelta(seconds=TIMEOUT_S), "validate_only": False}
    response = await connection.ask_in_time("create_partitions", values)
    check_topics(response.results, harmless)


async def delete_topic(connection: Connection, name: str) -> None:
    values = {"topic_names": [name], "timeout": timedelta(seconds=TIMEOUT_S)}
    response = await connection.ask_in_time("delete_topics", values)
    check_topics(response.responses)


def check_topics(results: Iterable[Any], harmless: ErrorCode = ErrorCode.NONE) -> None:
    for result in results:
        error = error_of(result.error_code)
        if error not in (ErrorCode.NONE, harmless):
            message = getattr(result, "error_message", None)
            raise CoordinatorError(error, f"topic {result.name!r}: {message or error.name}")
