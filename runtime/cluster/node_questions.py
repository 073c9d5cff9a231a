"""NodeQuestions: what this node asks the others about their groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ...actors.errors import CoordinatorError, ErrorCode
from ..client.connection import ChannelLost
from ..client.security import NO_SECURITY, ClientSecurity
from ..kafka.codec.own_api import ASK_NODE
from ..kafka.peer_gate import Purpose
from ..kafka.questions import NotReached, OtherNode
from ..log.reading.partition_reader import partition_of
from .cluster_node import ClusterNode
from .node_connections import NodeConnections
from .register import Register
from .topic_leadership import led_with

ANSWER_S = 1.5
"""How long another node is waited for. Who asks over HTTP gets an answer within two seconds."""


class NodeQuestions:
    """``node.cluster.Questions``. ``listener`` and ``security``: see ``NodeConnections``.

    It has connections of its own, since the answers of a connection come in the order of its requests: transactions do
    not wait for long answers about groups.
    """

    def __init__(self, node: ClusterNode, listener: str, security: ClientSecurity = NO_SECURITY) -> None:
        self._node = node
        self._connections = NodeConnections(node, ANSWER_S, listener, security, Purpose.QUESTIONS)
        self.has_lease = node.has_lease

    def close(self) -> None:
        self._connections.close()

    def owner(self, group_id: str) -> OtherNode | None:
        """See ``Questions``, also for the next methods."""
        register = self._node.register
        return None if register is None else self._owner(register, partition_of(group_id, register.counts.offsets))

    def leader(self, topic: str) -> OtherNode | None:
        register = self._node.register
        return None if register is None else self._owner(register, led_with(topic, register.counts.offsets))

    def partitions(self) -> Mapping[OtherNode, Sequence[int]]:
        register = self._node.register
        found: dict[OtherNode, list[int]] = {}
        for partition in range(0 if register is None else register.counts.offsets):
            assert register is not None
            owner = self._owner(register, partition)
            if owner is not None:
                found.setdefault(owner, []).append(partition)
        return found

    def _owner(self, register: Register, partition: int) -> OtherNode | None:
        session = register.owners[partition]
        node = register.nodes.get(session)
        return None if node is None else OtherNode(session, node.node_id, session == self._node.own_session)

    async def ask(self, node: OtherNode, subject: str, group_id: str, content: bytes, asked_by: bytes) -> bytes:
        was_sent = False
        try:
            async with asyncio.timeout(ANSWER_S):
                connection = await self._connections.connect(node.session)
            if ASK_NODE not in connection.exchange.versions:
                text = f"node {node.node_id} has an older version of Callboard, which does not answer other nodes"
                raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, f"{text}: ask it, or upgrade it")
            values = {"subject": subject, "group_id": group_id, "content": content, "asked_by": asked_by}
            was_sent = True
            answer = await self._connections.ask(node.session, ASK_NODE, values)
        except ChannelLost as lost:
            raise NotReached(f"node {node.node_id} cannot be reached: {lost}", was_sent=was_sent) from lost
        except TimeoutError as error:
            raise NotReached(f"node {node.node_id} cannot be reached within {ANSWER_S} s", was_sent=False) from error
        if answer.error_code:
            code = ErrorCode(int(answer.error_code))
            raise CoordinatorError(code, f"node {node.node_id}: {answer.error_message or code.name}")
        return bytes(answer.content)
