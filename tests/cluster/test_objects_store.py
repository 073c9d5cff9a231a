"""The store in a bucket: what its answers mean. A scripted server gives them; no real one does it on request."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from callboard.runtime.cluster.engines import engine_of, open_store
from callboard.runtime.cluster.engines.objects import ObjectStore
from callboard.runtime.cluster.session_environment import BEATS_PER_TTL
from callboard.runtime.cluster.store import Store, StoreRefused, StoreUnavailable, settle
from callboard.runtime.common.errors import StartError
from callboard.runtime.embed.cluster_environment import session_environment
from callboard.runtime.settings.table import Settings

from .named_bucket import Bucket
from .object_server import BUCKET, CREDENTIALS
from .postgres_server import HOST

KEY = "wal/a/0000000001"
LIMIT_S = 20.0
Answer = tuple[int, str, bool]
"""Status and code, and whether the request has its effect all the same."""

OPERATIONS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "create": lambda store: store.create(KEY, b"x"),
    "get": lambda store: store.get([KEY]),
    "put": lambda store: store.put(KEY, b"x"),
    "list": lambda store: store.list("wal/"),
    "delete": lambda store: store.delete([KEY]),
}
TEMPORARY: list[Answer] = [
    (500, "InternalError", False),
    (503, "SlowDown", False),
    (503, "ServiceUnavailable", False),
    (429, "TooManyRequests", False),
    (400, "RequestTimeout", False),
]
FINAL: list[Answer] = [
    (403, "AccessDenied", False),
    (403, "InvalidAccessKeyId", False),
    (401, "Unauthorized", False),
    (404, "NoSuchBucket", False),
    (400, "AuthorizationHeaderMalformed", False),
    (301, "PermanentRedirect", False),
]


class ScriptedServer:
    """One object. Each answer of ``script`` is given once; then requests are answered as S3 does."""

    def __init__(self, *script: Answer) -> None:
        self.value: bytes | None = None
        self.requests: list[str] = []
        self._script = list(script)

    def run(self, body: Callable[[Store], Awaitable[None]]) -> None:
        asyncio.run(self._run(body))

    async def _run(self, body: Callable[[Store], Awaitable[None]]) -> None:
        server = await asyncio.start_server(self._serve, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        store = ObjectStore(f"s3://{BUCKET}/x?endpoint=http://{HOST}:{port}", LIMIT_S)
        try:
            await body(store)
        finally:
            await store.close()
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
        status, content = self._answer(head, await reader.readexactly(size))
        phrase = HTTPStatus(status).phrase
        writer.write(f"HTTP/1.1 {status} {phrase}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n".encode())
        writer.write(b'ETag: "1"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n' + content)
        await writer.drain()
        writer.close()

    def _answer(self, head: str, body: bytes) -> tuple[int, bytes]:
        method = head.partition(" ")[0]
        self.requests.append(method)
        status, code, has_effect = self._script.pop(0) if self._script else (0, "", True)
        outcome = self._apply(method, "if-none-match: *" in head, body) if has_effect else (status, b"")
        return (status, f"<Error><Code>{code}</Code></Error>".encode()) if status else outcome

    def _apply(self, method: str, is_conditional: bool, body: bytes) -> tuple[int, bytes]:
        if method == "get":
            return (404, b"<Error><Code>NoSuchKey</Code></Error>") if self.value is None else (200, self.value)
        if is_conditional and self.value is not None:
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
        self.value = body
        return 200, b""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a bucket that somebody named are kept: the servers of these tests look at none."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, os.environ.get(name, value))


@pytest.mark.parametrize(
    "script",
    [
        [(409, "ConditionalRequestConflict", False)],
        [(409, "ConditionalRequestConflict", False)] * 3,
        [(409, "ConditionalRequestConflict", True)],
        [(412, "PreconditionFailed", True)],
        [(500, "InternalError", True)],
        [(500, "InternalError", False)],
        [(503, "SlowDown", True), (500, "InternalError", True)],
    ],
)
def test_whatever_a_create_is_answered_settle_finds_our_value(script: list[Answer]) -> None:
    server = ScriptedServer(*script)

    async def body(store: Store) -> None:
        assert await settle(store, KEY, b"mine") == b"mine"

    server.run(body)
    assert server.value == b"mine"


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "PreconditionFailed"])
def test_settle_finds_the_value_of_another(code: str) -> None:
    server = ScriptedServer((412 if code == "PreconditionFailed" else 409, code, False))
    server.value = b"theirs"

    async def body(store: Store) -> None:
        assert await settle(store, KEY, b"mine") == b"theirs"

    server.run(body)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("answer", TEMPORARY)
def test_temporary_error_is_unavailable_and_no_request_is_repeated(name: str, answer: Answer) -> None:
    server = ScriptedServer(answer)

    async def body(store: Store) -> None:
        with pytest.raises(StoreUnavailable, match=rf"S3 at s3://{BUCKET}/x is not available: .*{answer[1]}"):
            await OPERATIONS[name](store)

    server.run(body)
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("answer", FINAL)
def test_final_error_is_refused_with_what_to_do(name: str, answer: Answer) -> None:
    server = ScriptedServer(answer)
    expected = "there is no bucket callboard; create it" if answer[1] == "NoSuchBucket" else "check the credentials"

    async def body(store: Store) -> None:
        with pytest.raises(StoreRefused, match=expected):
            await OPERATIONS[name](store)

    server.run(body)
    assert len(server.requests) == 1


def test_server_that_is_not_there_is_unavailable() -> None:
    async def body() -> None:
        store = ObjectStore(f"s3://{BUCKET}/x?endpoint=http://{HOST}:1", LIMIT_S)
        for operation in OPERATIONS.values():
            with pytest.raises(StoreUnavailable, match=r"is not available: .*error sending request"):
                await operation(store)
        await store.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("AWS_ENDPOINT_URL_S3", f"s3://{BUCKET}/x"),
        ("AWS_ENDPOINT_URL", f"s3://{BUCKET}/x"),
        ("AWS_ENDPOINT", f"s3://{BUCKET}/x"),
        ("AZURE_STORAGE_ENDPOINT", f"az://{BUCKET}/x?account=mine"),
        ("AZURE_ENDPOINT", f"az://{BUCKET}/x?account=mine"),
    ],
)
def test_endpoint_of_the_environment_may_be_without_tls(
    variable: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise obstore refuses to send a request, with "builder error"."""
    monkeypatch.setenv(variable, f"http://{HOST}:1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")

    async def body() -> None:
        store = ObjectStore(url, LIMIT_S)
        with pytest.raises(StoreUnavailable, match=rf"{HOST}:1/.*error sending request"):
            await store.get([KEY])
        await store.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    "url",
    [
        *("s3://", "s3:///prefix", "s3://bucket/prefix?color=red", "s3://key:secret@bucket/prefix", "s3://bucket/x#y"),
        *("gs://bucket?endpoint=http://x", "az:///prefix"),
    ],
)
def test_url_of_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(StartError, match="expected one like"):
        open_store(url, "n1")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket", "S3 at s3://bucket"),
        ("s3://bucket/a/b?region=eu-central-1", "S3 at s3://bucket/a/b"),
        ("gs://bucket/prefix", "Google Cloud Storage at gs://bucket/prefix"),
        ("az://container/prefix?account=mine", "Azure at az://container/prefix"),
    ],
)
def test_each_service_has_a_scheme(url: str, address: str) -> None:
    store = open_store(url, "n1")
    assert isinstance(store, ObjectStore)
    assert store.address == address


def test_google_refuses_signs_of_life_that_are_less_than_a_second_apart() -> None:
    least_ms = engine_of("gs://bucket").session_timeout_ms_min
    assert least_ms / BEATS_PER_TTL >= 1000
    with pytest.raises(StartError, match=f"expected at least {least_ms}"):
        session_environment(Settings(), engine_of("gs://bucket"))
    environment = session_environment(Settings(cluster_session_timeout_ms=least_ms), engine_of("gs://bucket"))
    assert environment.ttl_ms == least_ms


ENDS_AT_ONCE = """
import asyncio, sys
from callboard.runtime.cluster.engines import open_store

async def main():
    store = open_store(sys.argv[1], "n1")
    await store.put("alive/a", b"1")
    reading = asyncio.create_task(store.get(["alive/a"]))
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(reading, return_exceptions=True)

asyncio.run(main())
"""
ENDS = 8


def test_process_that_ends_after_close_is_not_aborted(objects: Bucket) -> None:
    """A thread of obstore that has to do with Python while it ends would abort it, one time in five."""
    for _ in range(ENDS):
        ended = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE, objects.url()], capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")
