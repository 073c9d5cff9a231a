"""Requests that clients repeat byte by byte: the bytes of one that was read before are not decoded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .short_heartbeat import NAME as CONSUMER_HEARTBEAT
from .short_heartbeat import short_heartbeat_reader

RepeatedReader = Callable[[bytes], Any]
"""Returns the request in a body; None if the body has another form. Raises UnicodeDecodeError."""

REPEATED_READERS: Mapping[str, Callable[[int], RepeatedReader]] = {CONSUMER_HEARTBEAT: short_heartbeat_reader}
"""By the name of the API: makes the reader of a version."""

REPEATED_BYTES_MAX = 400
"""The largest body of such a request. Longer ones are decoded each time."""
