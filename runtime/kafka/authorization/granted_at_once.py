"""Heartbeats that are answered at once on a server with an authorizer, if their client was granted the group before."""

from __future__ import annotations

from typing import Any

from ...security.resources import Operation, ResourceType
from ..call import ResponseChannel
from ..codec.schemas import Schema
from ..lease import AtOnce
from .authorizer import Authorizer


def at_once_if_granted(answer_at_once: AtOnce, authorizer: Authorizer) -> AtOnce:
    """Return a function that answers at once only on a connection that is known to be allowed to read the group.

    It is for APIs that make no other check of the requests that are answered at once.
    """

    def answer(channel: ResponseChannel, schema: Schema, request: Any) -> bytes | None:
        grants = channel.grants
        if (
            grants is None
            or grants.version != authorizer.version
            or (Operation.READ, ResourceType.GROUP, request.group_id) not in grants.allowed
        ):
            return None  # the handler checks it
        return answer_at_once(channel, schema, request)

    return answer
