"""The durable state of a queue: the sum of its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .records import QueueMember


class QueueValue(NamedTuple):
    """``epoch`` -1: there is no record of it."""

    epoch: int = -1
    members: Mapping[str, QueueMember] = {}
