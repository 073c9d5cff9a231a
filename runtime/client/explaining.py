"""What a Callboard server knows for the explanation of a group, by the request that Kafka does not have."""

from __future__ import annotations

from ...actors.messages import ExplainGroup
from ...actors.recorder.recorded import GroupRecorded
from ..kafka.codec.message_json import BadMessage, read_message, write_message
from ..kafka.codec.own_api import ASK_NODE
from .blocking import BlockingConnection
from .cluster import Cluster
from .errors import ClientError, raise_if_error


def read_recorded(cluster: Cluster, group: str) -> GroupRecorded:
    """Ask the coordinator of a group. Raises ClientError, also if that is Kafka or an older Callboard."""

    def ask(connection: BlockingConnection) -> GroupRecorded:
        try:
            connection.version_of(ASK_NODE)
        except ClientError:
            text = f"{connection.address} is not a Callboard server of this version: it does not say why a group"
            raise ClientError(f"{text} rebalanced; --data reads the folder of a server") from None
        content = write_message(ExplainGroup(group))
        response = connection.ask(ASK_NODE, subject="ExplainGroup", group_id=group, content=content, asked_by=b"")
        raise_if_error(f"group '{group}'", response.error_code, response.error_message)
        try:
            recorded: GroupRecorded = read_message(GroupRecorded, response.content)
        except BadMessage as error:
            raise ClientError(f"{connection.address}: an answer that cannot be read: {error}") from error
        raise_if_error(f"group '{group}'", recorded.error)
        return recorded

    return cluster.ask_coordinator(group, ask)
