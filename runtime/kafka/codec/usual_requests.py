"""Requests that clients repeat byte by byte: the bytes of one that was read before are not decoded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .short_heartbeat import NAME as CONSUMER_HEARTBEAT
from .short_heartbeat import usual_heartbeat_reader

UsualReader = Callable[[bytes], Any]
"""Returns the request in a body, None if it is not the usual one. Raises UnicodeDecodeError."""

USUAL_READERS: Mapping[str, Callable[[int], UsualReader]] = {CONSUMER_HEARTBEAT: usual_heartbeat_reader}
"""By the name of the API: makes the reader of a version."""

USUAL_BYTES_MAX = 400
"""The size of the body of a usual request."""
