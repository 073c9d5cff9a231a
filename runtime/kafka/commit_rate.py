"""Throttles the clients of groups that commit more often than ``offset_commit_rate_per_group`` allows."""

from __future__ import annotations

import struct

from ...actors.steps import Steps
from ..common.shared_bytes import SharedBytes
from .call import Body, Call, Converter, convert_answer
from .client_quotas import ClientQuotas
from .lease import Handler

_INT = struct.Struct(">i")

THROTTLE_TIME_FROM = 3
"""The first version of OffsetCommit whose response has a throttle time. It is the first field."""


def limited_commits(handle: Handler, quotas: ClientQuotas) -> Handler:
    """Return the handler of OffsetCommit that throttles."""

    def handle_limited(call: Call) -> Steps[None] | None:
        throttle_ms = quotas.commit_throttle_ms(call.request.group_id)
        if not throttle_ms:
            return handle(call)
        call.connection.mute(throttle_ms)
        return _with_throttle_time(handle(call), call, throttle_ms)

    return handle_limited


def _with_throttle_time(steps: Steps[None] | None, call: Call, throttle_ms: int) -> Steps[None] | None:
    def add(body: Body) -> Body:
        return _patched(body, throttle_ms) if isinstance(body, bytes) else _patched_in_steps(body, throttle_ms)

    if call.version < THROTTLE_TIME_FROM:
        return steps
    if steps is None:
        convert_answer(call, add)
        return None
    return _run_and_convert(steps, call, add)


def _run_and_convert(steps: Steps[None], call: Call, add: Converter) -> Steps[None]:
    yield from steps
    convert_answer(call, add)


def _patched_in_steps(steps: Steps[bytes | SharedBytes], throttle_ms: int) -> Steps[bytes | SharedBytes]:
    return _patched(bytes((yield from steps)), throttle_ms)


def _patched(body: bytes, throttle_ms: int) -> bytes:
    return _INT.pack(throttle_ms) + body[_INT.size :]
