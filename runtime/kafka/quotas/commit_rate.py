"""Throttles the clients of groups that commit more often than ``offset_commit_rate_per_group`` allows."""

from __future__ import annotations

import struct

from ....actors.steps import Steps
from ...common.shared_bytes import SharedBytes
from ..call import Body, Call, convert_answer, message_of
from ..lease import Handler
from .client_quotas import ClientQuotas

_INT = struct.Struct(">i")

THROTTLE_TIME_FROM = 3
"""The first version of OffsetCommit whose response has a throttle time. It is the first field."""


def limited_commits(handle: Handler, quotas: ClientQuotas) -> Handler:
    """Return the handler of OffsetCommit that throttles."""

    def handle_limited(call: Call) -> Steps[None] | None:
        group_id, steps = call.request.group_id, handle(call)
        if steps is not None:
            return _run_and_count(steps, call, group_id, quotas)
        _count(call, group_id, quotas)
        return None

    return handle_limited


def _run_and_count(steps: Steps[None], call: Call, group_id: str, quotas: ClientQuotas) -> Steps[None]:
    yield from steps
    _count(call, group_id, quotas)


def _count(call: Call, group_id: str, quotas: ClientQuotas) -> None:
    """Count a commit that was sent to its group. One that is denied says nothing about the group."""
    throttle_ms = 0 if message_of(call) is None else quotas.commit_throttle_ms(group_id)
    if not throttle_ms:
        return
    call.connection.mute(throttle_ms)
    if call.version >= THROTTLE_TIME_FROM:
        convert_answer(call, lambda body: _with_throttle_time(body, throttle_ms))


def _with_throttle_time(body: Body, throttle_ms: int) -> Body:
    return _patched(body, throttle_ms) if isinstance(body, bytes) else _patched_in_steps(body, throttle_ms)


def _patched_in_steps(steps: Steps[bytes | SharedBytes], throttle_ms: int) -> Steps[bytes | SharedBytes]:
    return _patched(bytes((yield from steps)), throttle_ms)


def _patched(body: bytes, throttle_ms: int) -> bytes:
    return _INT.pack(throttle_ms) + body[_INT.size :]
