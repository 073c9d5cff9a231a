"""Where the public keys of signed tokens come from: a file, or a URL. Blocks, so it runs in a thread."""

from __future__ import annotations

import json
from http.client import HTTPException

from .signed_tokens import SigningKey, parse_jwks
from .web import fetch, path_of, read_local


class JwksUnavailable(Exception):
    """The keys cannot be read. The text says why."""


def read_keys(url: str) -> dict[str, SigningKey]:
    """The keys by id. Raises JwksUnavailable."""
    path = path_of(url)
    try:
        data = _fetch(url) if path is None else read_local(path)
        return parse_jwks(json.loads(data))
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise JwksUnavailable(f"{url}: {error}") from error


def _fetch(url: str) -> bytes:
    answer = fetch(url)
    if answer.status != 200:
        raise ValueError(f"the answer has the status {answer.status}: expected 200")
    return answer.data
