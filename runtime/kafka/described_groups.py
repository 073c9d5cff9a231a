"""Requests that describe several groups: which of them are asked, and the order of their entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...actors.errors import ErrorCode
from ...actors.messages import GroupRequest
from ...actors.steps import Steps, pieces
from .authorization.authorize import authorize_in_steps
from .authorization.checks import DESCRIBE_GROUP
from .call import Body, Call
from .scatter_gather import ScatterGather

Encode = Callable[[ErrorCode, dict[str, int], list[bytes]], Body]
"""Encodes the response from the error of denied groups, the number of each other group, and the entries by number."""


def describe_groups(
    call: Call,
    group_ids: Sequence[str],
    message: Callable[[str], GroupRequest],
    encode: Encode,
    encode_group: Callable[[Call, Any], Steps[bytes]],
) -> Steps[None]:
    """Ask the groups that the client may describe, each once."""
    verdicts = yield from authorize_in_steps(call, DESCRIBE_GROUP, group_ids)
    numbers: dict[str, int] = {}
    for piece in pieces(group_ids):
        for group_id in piece:
            if verdicts.allows(group_id):
                numbers.setdefault(group_id, len(numbers))
        yield
    ScatterGather(
        call,
        map(message, numbers),
        lambda entries: encode(verdicts.code, numbers, entries),
        convert=lambda _number, reply: encode_group(call, reply),
    ).send_next_batch()
