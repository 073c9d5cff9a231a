"""Public keys and tokens: requests to an identity provider, and files. They block, so they run in a thread."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from ..common.small_files import read_small_file

TIMEOUT_S = 5.0
BYTES_MAX = 1024 * 1024


class WebAnswer(NamedTuple):
    status: int
    data: bytes


def path_of(url: str) -> Path | None:
    """The file that a URL means; None for a URL of a server."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def read_local(path: Path) -> bytes:
    """The content of a file. Raises OSError also for a long one, and for a FIFO and the like."""
    return read_small_file(path, BYTES_MAX).data


def fetch(url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> WebAnswer:
    """One request, which sends a form if there is one. A redirect is not followed, since it could lead anywhere.

    Raises OSError, HTTPException, and ValueError for a long answer.
    """
    parts = urlsplit(url)
    connection = _connection(parts)
    try:
        target = parts.path or "/"
        target = f"{target}?{parts.query}" if parts.query else target
        connection.request("GET" if form is None else "POST", target, form, headers or {})
        response = connection.getresponse()
        data = response.read(BYTES_MAX + 1)
    finally:
        connection.close()
    if len(data) > BYTES_MAX:
        raise ValueError(f"the answer has more than {BYTES_MAX} bytes")
    return WebAnswer(response.status, data)


def _connection(parts: SplitResult) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
    return HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
