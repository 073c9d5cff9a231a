"""Questions about a group to a Callboard server, by the request that Kafka does not have."""

from __future__ import annotations

from typing import Any

from ...actors.messages import GroupRequest
from ..kafka.codec.message_json import BadMessage, read_message, write_message
from ..kafka.codec.own_api import ASK_NODE
from .blocking import BlockingConnection
from .cluster import Cluster
from .errors import ClientError, raise_if_error


class NotAnswered(ClientError):
    """The coordinator of the group, ``server``, is Kafka, or an older Callboard."""

    def __init__(self, server: str, text: str) -> None:
        super().__init__(text)
        self.server = server


def ask_about_group(cluster: Cluster, message: GroupRequest, reply: Any) -> Any:
    """Ask the coordinator of a group. ``reply``: the class of the answer. Raises ClientError, and NotAnswered."""
    subject, group = type(message).__name__, message.group_id

    def ask(connection: BlockingConnection) -> Any:
        server = str(connection.address)
        try:
            connection.version_of(ASK_NODE)
        except ClientError as error:
            raise NotAnswered(server, str(error)) from None
        content = write_message(message)
        response = connection.ask(ASK_NODE, subject=subject, group_id=group, content=content, asked_by=b"")
        raise_if_error(f"group '{group}'", response.error_code, response.error_message)
        try:
            answer = read_message(reply, response.content)
        except BadMessage as error:
            raise ClientError(f"{server}: an answer that cannot be read: {error}") from error
        raise_if_error(f"group '{group}'", answer.error)
        return answer

    return cluster.ask_coordinator(group, ask)
