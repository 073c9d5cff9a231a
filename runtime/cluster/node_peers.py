"""NodePeers: requests to other nodes of the cluster, by Kafka's protocol, for transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from ...actors.errors import ErrorCode
from ...actors.records import MarkerRecord
from ...actors.transactions.messages import AddPartitions, VerifyPartitions
from ...actors.transactions.peers import TopicPartition
from ..client.connection import ChannelLost
from ..client.security import NO_SECURITY, ClientSecurity
from ..common.logs import get_logger
from ..kafka.cluster_view import ClusterView
from ..log.partition import TOPIC
from ..log.reading.partition_reader import partition_of
from .cluster_node import ClusterNode
from .node_connections import NodeConnections

UNREACHABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
TIMEOUT_TTLS = 2
"""After so long without an answer the other node is frozen or cut off, and its partitions move."""

log = get_logger("callboard.cluster")


class NodePeers:
    """``Peers``."""

    def __init__(
        self,
        node: ClusterNode,
        view: ClusterView,
        ttl_s: float,
        listener: str,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """``listener`` and ``security``: see ``NodeConnections``."""
        self._node = node
        self._view = view
        self._connections = NodeConnections(node, TIMEOUT_TTLS * ttl_s, listener, security)
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
        self._connections.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, request: AddPartitions | VerifyPartitions, done: Callable[[ErrorCode], None]) -> None:
        error = UNREACHABLE
        try:
            session = self._coordinator(request.transactional_id)
            response = await self._connections.ask(session, "add_partitions_to_txn", check_values(request))
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
            response = await self._connections.ask(session, "write_txn_markers", marker_values(marker, partitions))
        except ChannelLost as lost:
            log.debug("markers of a transaction cannot be sent", session=session, reason=str(lost))
        else:
            errors |= marker_errors(response)
        return errors

    # The sessions ----------------------------------------------------------------------------------------------------

    def _coordinator(self, transactional_id: str) -> str:
        register = self._connections.register()
        return register.owners[register.counts.offsets + partition_of(transactional_id, register.counts.transactions)]

    def _leader(self, topic: str, partition: int) -> str:
        register = self._node.register
        if register is None:
            return ""
        if topic == TOPIC:
            return register.owners[partition]
        node_id = self._view.leader(topic, partition).node_id
        return next((session for session, node in register.nodes.items() if node.node_id == node_id), "")


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
