"""A bucket that exists already: ``CALLBOARD_TEST_BUCKET`` has its URL, as ``callboard serve --cluster`` takes it.

The tests of a store use it instead of a simulator, and campaigns measure with it. Credentials come from the
environment, as for a node.
"""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPSConnection
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.engines.objects import SERVICES

from .postgres_server import HOST

VARIABLE = "CALLBOARD_TEST_BUCKET"
EXAMPLE = "s3://bucket/prefix?endpoint=http://127.0.0.1:9000"
LOCAL_HOSTS = (HOST, "localhost")
TIMEOUT_S = 60.0
DELETED_AT_ONCE = 50


class Bucket(Protocol):
    """``port``: of its server, if that is on this machine and speaks HTTP without TLS; otherwise 0."""

    port: int

    def url(self, prefix: str = "test", port: int | None = None) -> str:
        """Of a store in it. ``port``: of a proxy in front of its server."""
        ...


class NamedBucket:
    """A ``Bucket``. All its stores are in a new folder, which ``clear`` deletes."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._query = dict(parse_qsl(self._parts.query))
        self._endpoint = urlsplit(self._query.get("endpoint", ""))
        self._folder = f"{self._parts.path.rstrip('/')}/callboard-{uuid4().hex}"
        is_near = self._endpoint.scheme == "http" and self._endpoint.hostname in LOCAL_HOSTS
        self.port = self._endpoint.port or 80 if is_near else 0

    def url(self, prefix: str = "test", port: int | None = None) -> str:
        near = {"endpoint": f"http://{HOST}:{port}{self._endpoint.path}"} if port else {}
        path, query = f"{self._folder}/{prefix}", self._query | near
        return urlunsplit(self._parts._replace(path=path, query=urlencode(query, safe=":/")))

    def software(self) -> str:
        """What serves it: as the server at the endpoint says, or the name of the service."""
        if not self._endpoint.hostname:
            return SERVICES[self._parts.scheme].name
        kind = HTTPSConnection if self._endpoint.scheme == "https" else HTTPConnection
        connection = kind(self._endpoint.hostname, self._endpoint.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/")
            return connection.getresponse().headers.get("Server", "unknown").strip()
        finally:
            connection.close()

    async def clear(self) -> None:
        store = open_store(self.url(""), "tests")
        keys = await store.list("")
        for start in range(0, len(keys), DELETED_AT_ONCE):
            await store.delete(keys[start : start + DELETED_AT_ONCE])
        await store.close()


def missing_named_bucket() -> str | None:
    """Why there is none, and how to name one; None if there is one."""
    return None if os.environ.get(VARIABLE) else f"{VARIABLE} names no bucket; expected a URL like {EXAMPLE}"


def named_bucket() -> NamedBucket | None:
    url = os.environ.get(VARIABLE)
    return NamedBucket(url) if url else None
