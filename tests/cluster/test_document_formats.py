"""Formats of what is in the store: newer ones are refused, and fields of newer versions are kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.steps import Steps, run_steps
from callboard.runtime.cluster.documents import DocumentDamaged, FormatUnknown
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.keys import REGISTER, TOPICS, manifest_prefix, number_of, version_key
from callboard.runtime.cluster.manifest import Manifest, Segment, Tail, decode_manifest
from callboard.runtime.cluster.register import decode_register, empty_register
from callboard.runtime.cluster.topics_document import TopicsDocument, decode_topics
from callboard.runtime.cluster.version_log import newest_version
from callboard.runtime.cluster.wal import NO_TOKEN, Round, decode_round

from .cluster_server_helpers import cluster_of
from .command_helpers import runner
from .memory_store import Memory, MemoryStore
from .node_thread import COUNTS, node_thread

NEWER = {"format": 2}
ADDED = {"colour": ["of a newer version"]}
REGISTER_DATA = empty_register(COUNTS, "t", "c", 1500).encode()
MANIFEST_DATA = Manifest(3, 0, "t", 1, (Segment("seg/00003/1", 0, 1, 1, 1),), Tail("a-1", 4)).encode()
TOPICS_DATA = run_steps(TopicsDocument(0, "t", {}).encode())
DOCUMENTS_OF_NODES = (REGISTER, manifest_prefix(0))

Decode = Callable[[bytes], Any]

DOCUMENTS: list[Any] = [
    pytest.param(decode_register, REGISTER_DATA, "the register", id="register"),
    pytest.param(lambda data: decode_manifest(3, 0, data), MANIFEST_DATA, "the manifest of partition 3", id="manifest"),
    pytest.param(lambda data: run_steps(decode_topics(data)), TOPICS_DATA, "the document of topics", id="topics"),
]


def with_fields(data: bytes, fields: dict[str, Any]) -> bytes:
    return json.dumps({**json.loads(data), **fields}).encode()


def encoded(document: Any) -> bytes:
    data: bytes | Steps[bytes] = document.encode()
    return data if isinstance(data, bytes) else run_steps(data)


@pytest.mark.parametrize(("decode", "data", "what"), DOCUMENTS)
def test_document_of_a_newer_format_is_refused(decode: Decode, data: bytes, what: str) -> None:
    assert json.loads(data)["format"] == 1
    with pytest.raises(FormatUnknown, match=f"{what} in the store has format 2, .* reads 1: .* install that version"):
        decode(with_fields(data, NEWER))


@pytest.mark.parametrize(("decode", "data", "what"), DOCUMENTS)
def test_fields_of_a_newer_version_are_kept(decode: Decode, data: bytes, what: str) -> None:
    assert encoded(decode(data)) == data
    changed = encoded(decode(with_fields(data, ADDED))._replace(token="other"))
    assert json.loads(changed) == json.loads(with_fields(data, {"token": "other", **ADDED})), what


def test_round_of_a_newer_format_is_refused() -> None:
    """It is neither a round nor a seal for this version, so nothing may follow from it."""
    data = Round(False, b"12345678", NO_TOKEN, b"content").encode()
    assert decode_round(data).content == b"content"
    with pytest.raises(FormatUnknown, match=r"a round in the store has format b'Q', .* reads b'R' and b'S'"):
        decode_round(b"Q" + data[1:])


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"hello", b"\xff\x00"])
@pytest.mark.parametrize("prefix", [REGISTER, TOPICS])
def test_damaged_document_is_named(prefix: str, data: bytes) -> None:
    """Its errors were those of Python, with which commands and nodes ended."""
    decode: Any = decode_register if prefix == REGISTER else decode_topics
    key = version_key(prefix, 4)

    async def read() -> None:
        store = MemoryStore(Memory())
        await store.create(key, data)
        with pytest.raises(DocumentDamaged, match=f"{key} in the store cannot be read .* restore the store from a b"):
            await newest_version(store, prefix, decode)

    asyncio.run(read())


@pytest.mark.parametrize("fields", [{"tail": 3}, {"segments": [[1]]}, {"segments": None}])
def test_damaged_manifest_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(DocumentDamaged, match=r"man/00003/0000000007 in the store cannot be read"):
        decode_manifest(3, 7, with_fields(MANIFEST_DATA, fields))


def newest(url: str, prefix: str) -> tuple[str, bytes]:
    async def read() -> tuple[str, bytes]:
        store = open_store(url, "test")
        key = (await store.list(prefix))[-1]
        [data] = await store.get([key])
        await store.close()
        assert data is not None
        return key, data

    return asyncio.run(read())


def change_newest(url: str, prefix: str, fields: dict[str, Any]) -> None:
    """As a node of a newer version, by the next version of the document."""
    key, data = newest(url, prefix)
    version = number_of(key) + 1
    versions = {"version": version} if "version" in json.loads(data) else {}

    async def write() -> None:
        store = open_store(url, "test")
        created = await store.create(f"{prefix}{version:010d}", with_fields(data, {**fields, **versions}))
        await store.announce_change()
        await store.close()
        assert created

    asyncio.run(write())


def test_node_keeps_fields_of_newer_nodes_in_what_it_writes(tmp_path: Path) -> None:
    """It takes over from the other node, changes the register, and writes checkpoints."""
    url = tmp_path.as_uri().replace("file:", "local:")
    with node_thread(url) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        thread.halt("a")
        change_newest(url, manifest_prefix(0), ADDED)
        change_newest(url, REGISTER, ADDED)
        before = [newest(url, prefix)[0] for prefix in DOCUMENTS_OF_NODES]
        thread.start("b")
        thread.commit(0, b"key", 1)  # the partition was loaded, by a version of the manifest
        after = [newest(url, prefix) for prefix in DOCUMENTS_OF_NODES]
    assert all(key > old for (key, _), old in zip(after, before, strict=True))
    assert all(json.loads(data).items() >= ADDED.items() for _, data in after)


def test_node_stops_when_a_newer_version_has_changed_the_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shared").mkdir()
    url = (tmp_path / "shared").as_uri()
    with cluster_of(1, tmp_path, url) as [server]:
        change_newest(url, REGISTER, NEWER)
        assert server.wait() == 2
        assert "the register in the store has format 2, and this version of Callboard reads 1" in server.log
    status = runner(capsys)("status", "--cluster", url)
    assert (status.code, "has format 2" in status.err) == (1, True)
