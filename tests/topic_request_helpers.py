"""Requests about topics, for a ``harness.Client``. They return error codes."""

from __future__ import annotations

from typing import Any

from harness import Client


def new_topic(name: str, partitions: int = 1) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}


async def create(client: Client, *names: str, version: int = 6) -> list[str]:
    topics = [new_topic(name) for name in names]
    answer = await client.ask("create_topics", version, topics=topics, timeout=1000, validate_only=False)
    return [topic["error_code"] for topic in answer["topics"]]


async def metadata(client: Client, name: str, *, creates: bool) -> str:
    request = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": creates}
    answer = await client.ask("metadata", 12, include_topic_authorized_operations=False, **request)
    return str(answer["topics"][0]["error_code"])


async def grow(client: Client, name: str, count: int) -> str:
    topic = {"name": name, "count": count, "assignments": None}
    answer = await client.ask("create_partitions", 3, topics=[topic], timeout=1000, validate_only=False)
    return str(answer["results"][0]["error_code"])
