"""Where the public keys of signed tokens come from: a file, or a URL. Blocks, so it runs in a thread."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from .signed_tokens import SigningKey, parse_jwks

TIMEOUT_S = 5.0
BYTES_MAX = 1024 * 1024
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class JwksUnavailable(Exception):
    """The keys cannot be read. The text says why."""


def check_url(url: str) -> None:
    """Raise ValueError for a URL that keys are not read from."""
    parts = urlsplit(url)
    is_safe = parts.scheme in ("file", "https") or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not is_safe:
        raise ValueError("expected file:///PATH or https://HOST/PATH (http only for this machine)")


def read_keys(url: str) -> dict[str, SigningKey]:
    """The keys by id. Raises JwksUnavailable."""
    parts = urlsplit(url)
    try:
        data = Path(parts.path).read_bytes() if parts.scheme == "file" else _fetch(parts)
        return parse_jwks(json.loads(data))
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise JwksUnavailable(f"{url}: {error}") from error


def _fetch(parts: SplitResult) -> bytes:
    """One request. A redirect is an error, since it could lead anywhere."""
    connection = (
        HTTPSConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
        if parts.scheme == "https"
        else HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    )
    try:
        target = parts.path or "/"
        connection.request("GET", f"{target}?{parts.query}" if parts.query else target)
        response = connection.getresponse()
        data = response.read(BYTES_MAX + 1)
    finally:
        connection.close()
    if response.status != 200:
        raise ValueError(f"the answer has the status {response.status}: expected 200")
    if len(data) > BYTES_MAX:
        raise ValueError(f"the answer has more than {BYTES_MAX} bytes")
    return data
