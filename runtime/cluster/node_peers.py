"""NodePeers: requests to other nodes of the cluster, by Kafka's protocol, for transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple

from ...actors.errors import ErrorCode
from ...actors.records import MarkerRecord
from ...actors.transactions.messages import AddPartitions, VerifyPartitions
from ...actors.transactions.peers import TopicPartition
from ..client.connection import ChannelLost, Connection, LoginRefused, connect_to
from ..client.security import NO_SECURITY, ClientSecurity
from ..common.logs import get_logger
from ..kafka.cluster_view import ClusterView
from ..kafka.peer_gate import Sender
from ..log.partition import TOPIC
from ..log.reading.partition_reader import partition_of
from ..settings.address import Address
from .cluster_node import ClusterNode
from .credentials import client_id
from .register import NodeEntry, Register

UNREACHABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
TIMEOUT_TTLS = 2
"""After so long without an answer the other node is frozen or cut off, and its partitions move."""

log = get_logger("callboard.cluster")


class OpenConnection(NamedTuple):
    """``register_version``: by which the session was chosen."""

    register_version: int
    connection: Connection


class NodePeers:
    """``Peers``. One connection to each session. It is replaced when the register has changed."""

    def __init__(
        self,
        node: ClusterNode,
        view: ClusterView,
        ttl_s: float,
        listener: str,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """``listener``: the name of the one by which nodes connect to each other. ``security``: of that listener."""
        self._security = security
        self._node = node
        self._listener = listener
        self._logged: set[tuple[str, str]] = set()  # sessions, and what fails with them
        self._view = view
        self._timeout_s = TIMEOUT_TTLS * ttl_s
        self._connections: dict[str, OpenConnection] = {}  # by session
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def leads(self, topic: str) -> bool:
        return self._view.leader(topic, 0).node_id == self._view.node_id

    def check(self, request: AddPartitions | VerifyPartitions, done: Callable[[ErrorCode], None]) -> None:
        self._start(self._check(request, done))

    def write_marker(
        self,
        marker: MarkerRecord,
        partitions: Collection[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        self._start(self._write_marker(marker, partitions, done))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for open_connection in self._connections.values():
            open_connection.connection.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, request: AddPartitions | VerifyPartitions, done: Callable[[ErrorCode], None]) -> None:
        error = UNREACHABLE
        try:
            session = self._coordinator(request.transactional_id)
            response = await self._ask(session, "add_partitions_to_txn", check_values(request))
            error = check_error(response)
        except ChannelLost as lost:
            log.debug("a transaction cannot be checked", transactional_id=request.transactional_id, reason=str(lost))
        done(error)

    async def _write_marker(
        self,
        marker: MarkerRecord,
        partitions: Collection[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        by_session: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            by_session.setdefault(self._leader(*partition), []).append(partition)
        results = await asyncio.gather(
            *(self._write_markers_of(session, marker, part) for session, part in by_session.items())
        )
        done({partition: error for result in results for partition, error in result.items()})

    async def _write_markers_of(
        self, session: str, marker: MarkerRecord, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        errors = dict.fromkeys(partitions, UNREACHABLE)
        try:
            response = await self._ask(session, "write_txn_markers", marker_values(marker, partitions))
        except ChannelLost as lost:
            log.debug("markers of a transaction cannot be sent", session=session, reason=str(lost))
        else:
            errors |= marker_errors(response)
        return errors

    # The sessions and their connections ------------------------------------------------------------------------------

    def _coordinator(self, transactional_id: str) -> str:
        register = self._register()
        return register.owners[register.counts.offsets + partition_of(transactional_id, register.counts.transactions)]

    def _leader(self, topic: str, partition: int) -> str:
        register = self._node.register
        if register is None:
            return ""
        if topic == TOPIC:
            return register.owners[partition]
        node_id = self._view.leader(topic, partition).node_id
        return next((session for session, node in register.nodes.items() if node.node_id == node_id), "")

    def _register(self) -> Register:
        register = self._node.register
        if register is None:
            raise ChannelLost("this node has not joined the cluster yet")
        return register

    async def _ask(self, session: str, api: str, values: Mapping[str, Any]) -> Any:
        """Raises ChannelLost."""
        connection = None
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connect(session)
                return await connection.ask(api, values)
        except TimeoutError as error:
            if connection is not None:
                connection.close()
            raise ChannelLost(f"{session} did not answer within {self._timeout_s:g} s") from error

    async def _connect(self, session: str) -> Connection:
        register, own = self._register(), self._node.session
        node = register.nodes.get(session)
        if node is None or own is None:
            raise ChannelLost("the partition has no owner")
        known = self._connections.get(session)
        if known is not None and known.register_version == register.version and not known.connection.is_lost:
            return known.connection
        self._number += 1
        sender = Sender(own.name, self._number, register.version)
        name = client_id(self._node.secret, sender, session)
        connection = await self._open(session, node, name)
        newer = self._connections.get(session)
        if newer is not None and newer is not known and not newer.connection.is_lost:
            connection.close()  # another request has connected meanwhile
            return newer.connection
        self._connections = {name: known for name, known in self._connections.items() if name in register.nodes}
        self._connections[session] = OpenConnection(register.version, connection)
        return connection

    async def _open(self, session: str, node: NodeEntry, name: str) -> Connection:
        """Raises ChannelLost. A login that is refused, or has no token, is logged once for each session."""
        try:
            return await connect_to(self._address(session, node), name, self._security)
        except LoginRefused as refused:
            self._warn_once(session, "login", str(refused))
            raise

    def _address(self, session: str, node: NodeEntry) -> Address:
        """Where the node is reached by other nodes. Raises ChannelLost, and logs it once for each session."""
        endpoint = node.endpoints.get(self._listener)
        if endpoint is not None:
            return Address(*endpoint)
        problem = f"node {node.name} advertises no listener {self._listener}, by which nodes connect to each other"
        self._warn_once(session, "listener", problem)
        raise ChannelLost(problem)

    def _warn_once(self, session: str, subject: str, problem: str) -> None:
        if (session, subject) not in self._logged:
            self._logged.add((session, subject))
            log.warning("transactions with another node fail", reason=problem)


def check_values(request: AddPartitions | VerifyPartitions) -> dict[str, Any]:
    """AddPartitionsToTxn v4 and later."""
    topics: dict[str, list[int]] = {}
    for topic, partition in request.partitions:
        topics.setdefault(topic, []).append(partition)
    transaction = {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "verify_only": isinstance(request, VerifyPartitions),
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    return {"transactions": [transaction]}


def check_error(response: Any) -> ErrorCode:
    """The first error in the response."""
    codes = [
        response.error_code,
        *(
            result.partition_error_code
            for transaction in response.results_by_transaction
            for topic in transaction.topic_results
            for result in topic.results_by_partition
        ),
    ]
    return next((ErrorCode(int(code)) for code in codes if int(code)), ErrorCode.NONE)


def marker_values(marker: MarkerRecord, partitions: Collection[TopicPartition]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    fields = {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.committed,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
        "coordinator_epoch": marker.coordinator_epoch,
    }
    return {"markers": [fields]}


def marker_errors(response: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        (str(topic.name), int(result.partition_index)): ErrorCode(int(result.error_code))
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
