"""What a Callboard server knows about the last reset of a group."""

from __future__ import annotations

from typing import Final

from ...actors.errors import ErrorCode
from ...actors.group.reset_messages import DescribeReset, ResetDescribed
from .cluster import Cluster
from .errors import RefusedError
from .own_questions import NotAnswered, ask_about_group

UNTOLD: Final = frozenset((ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_AUTHORIZATION_FAILED))
"""Errors of servers that have an older version, or do not tell this client about resets."""


def read_guarded_until(cluster: Cluster, group: str) -> int | None:
    """Until when the last reset of a group is guarded, in milliseconds since 1970; None: it is not, or not known.

    Raises ClientError.
    """
    try:
        reset: ResetDescribed = ask_about_group(cluster, DescribeReset(group), ResetDescribed)
    except NotAnswered:
        return None
    except RefusedError as error:
        if error.code in UNTOLD:
            return None
        raise
    return None if reset.guarded_until_ms < 0 else reset.guarded_until_ms
