"""A server starts on partition folders that were copied or imported from Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

from command_helpers import Command, run_import
from kafka_folder_helpers import copied, data, full, kafka

from callboard import Coordinator

DEADLINE_S = 120.0

fixtures = copied, data, full, kafka, run_import


def groups_served(folder: Path) -> set[str]:
    async def serve() -> set[str]:
        async with Coordinator(folder) as coordinator:
            await coordinator.loaded()
            return {group.group_id for group in (await coordinator.groups()).groups}

    return asyncio.run(asyncio.wait_for(serve(), DEADLINE_S))


def test_server_starts_twice_on_copied_partitions(copied: Path) -> None:
    """A copy has no topics.json, which would be a loss in a folder that was served."""
    groups = groups_served(copied)
    assert groups and groups_served(copied) == groups


def test_server_starts_twice_on_imported_folder(full: Path, run_import: Command, tmp_path: Path) -> None:
    assert run_import("--kafka-dir", full, "--data", tmp_path / "made").code == 0
    groups = groups_served(tmp_path / "made")
    assert groups and groups_served(tmp_path / "made") == groups
