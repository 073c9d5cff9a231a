"""A node that joins opens the routes of its clients' requests: else the first of them would wait for imports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.runtime.kafka.api import VERSIONS_AHEAD, Routes, find_row
from callboard.runtime.kafka.authorization.authorizer import AllowAll

from .loading_node import DEADLINE_S, loading_node, until

LAST = "sync_group"


def keys_of(name: str, versions: int) -> set[int]:
    """Of the newest versions of an API, in ``Routes.loaded``."""
    api = find_row(name)
    return {api.key << 16 | version for version in range(api.max_version - versions + 1, api.max_version + 1)}


def test_routes_of_members_are_opened_one_after_the_other() -> None:
    routes = Routes(AllowAll())
    opening = routes.open_ahead()
    next(opening)
    assert len(routes.loaded) == 1
    for _ in opening:
        assert len(routes.loaded) < 50
    for name in ("find_coordinator", "offset_commit", LAST):
        assert keys_of(name, VERSIONS_AHEAD) <= routes.loaded.keys()
    assert not keys_of("create_topics", 1) & routes.loaded.keys()


def test_node_opens_routes_when_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Routes] = []
    open_ahead = Routes.open_ahead

    def noting(routes: Routes) -> Iterator[None]:
        opened.append(routes)
        return open_ahead(routes)

    async def has_opened() -> bool:
        return bool(opened) and keys_of(LAST, 1) <= opened[0].loaded.keys()

    async def run() -> None:
        async with loading_node(tmp_path), asyncio.timeout(DEADLINE_S):
            await until(has_opened)

    monkeypatch.setattr(Routes, "open_ahead", noting)
    asyncio.run(run())
