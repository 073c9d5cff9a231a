"""A bucket that somebody names: tests use a folder of it, and leave nothing there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from callboard.runtime.cluster.engines import open_store

from .named_bucket import EXAMPLE, VARIABLE, Bucket, NamedBucket, missing_named_bucket, named_bucket
from .postgres_server import HOST

AWS = "s3://bucket/prefix?region=eu-central-1"


class Answering(BaseHTTPRequestHandler):
    server_version, sys_version = "Storage/4.2", ""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer((HOST, 0), Answering) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_variable_names_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert named_bucket() is None
    assert missing_named_bucket() == f"{VARIABLE} names no bucket; expected a URL like {EXAMPLE}"
    monkeypatch.setenv(VARIABLE, AWS)
    assert missing_named_bucket() is None
    assert named_bucket() is not None


def test_each_has_a_folder_of_its_own() -> None:
    one, other = NamedBucket(AWS), NamedBucket(AWS)
    assert one.url("a").startswith("s3://bucket/prefix/callboard-")
    assert one.url("a").endswith("/a?region=eu-central-1")
    assert one.url("a").partition("/a?")[0] == one.url("b").partition("/b?")[0]
    assert one.url("a") != other.url("a")


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://127.0.0.1:9000", 9000),
        ("http://localhost", 80),
        ("https://127.0.0.1:9000", 0),
        ("http://storage.example:9000", 0),
    ],
)
def test_proxy_stands_only_before_a_server_of_this_machine_without_tls(endpoint: str, port: int) -> None:
    assert NamedBucket(f"s3://bucket?endpoint={endpoint}").port == port
    assert NamedBucket(AWS).port == 0


def test_url_through_a_proxy_changes_only_the_endpoint() -> None:
    bucket = NamedBucket("s3://bucket/x?endpoint=http://127.0.0.1:9000&region=here")
    assert bucket.url("a", 9001) == bucket.url("a").replace(":9000", ":9001")
    assert open_store(bucket.url("a", 9001), "n1")


def test_software_is_what_the_server_says_or_the_service(port: int) -> None:
    assert NamedBucket(f"s3://bucket?endpoint=http://{HOST}:{port}").software() == "Storage/4.2"
    assert NamedBucket(AWS).software() == "S3"
    assert NamedBucket("gs://bucket").software() == "Google Cloud Storage"


def test_clear_deletes_all_stores_of_its_folder_and_no_others(objects: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.named_bucket.DELETED_AT_ONCE", 3)
    url = objects.url("named")
    one, other = NamedBucket(url), NamedBucket(url)

    async def body() -> None:
        stores = [open_store(one.url("a"), "n1"), open_store(one.url("b"), "n1"), open_store(other.url("a"), "n1")]
        for store in stores:
            await store.put("alive/a", b"1")
        for number in range(7):
            await stores[0].put(f"wal/a/{number}", b"1")
        await one.clear()
        assert [await store.list("") for store in stores] == [[], [], ["alive/a"]]
        await other.clear()
        assert await stores[2].list("") == []
        for store in stores:
            await store.close()

    asyncio.run(body())
