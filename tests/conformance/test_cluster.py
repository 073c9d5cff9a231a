"""Three nodes of a cluster respond as a real Kafka: all scenarios, and a part of the random scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import async_test

from .cluster_server import open_cluster
from .comparing import compare
from .kinds import KINDS
from .scenarios import CHAPTERS
from .test_scenarios import GOLDEN, our_settings
from .test_seeds import PLAYED

STRIDE = 5  # every fifth random script
SCRIPTS_MAX = 12  # of one kind


ONE_NODE = {
    *("migration-delayed", "migration-disabled", "migration-upgrade", "migration-downgrade"),
    *("acls", "acls-cluster"),
}
"""Chapters with settings of their own, about rules that see nothing of a cluster.

The other nodes see changed ACLs within a second, so not after the time of a script: see ``test_shared_acls``.
"""


def chapters_with_same_settings() -> list[list[str]]:
    """A cluster takes longer to start than a chapter to play."""
    chapters: dict[str, list[str]] = {}
    for name, chapter in CHAPTERS.items():
        if name not in ONE_NODE:
            chapters.setdefault(str(sorted(chapter.settings.items())), []).append(name)
    return list(chapters.values())


@pytest.mark.parametrize("chapters", chapters_with_same_settings(), ids=" ".join)
def test_scenarios(chapters: list[str], tmp_path: Path) -> None:
    @async_test
    async def play() -> None:
        async with open_cluster(tmp_path, our_settings(CHAPTERS[chapters[0]].settings)) as server:
            for chapter in chapters:
                for scenario, script in CHAPTERS[chapter].scenarios.items():
                    name = f"{chapter}/{scenario}"
                    await compare(server, name, script, GOLDEN[chapter][scenario], server.choose_group(script))

    play()


@pytest.mark.parametrize("kind", KINDS)
def test_random_scripts(kind: str, tmp_path: Path) -> None:
    @async_test
    async def play() -> None:
        async with open_cluster(tmp_path, our_settings(KINDS[kind].settings)) as server:
            for played in PLAYED[kind][::STRIDE][:SCRIPTS_MAX]:
                name = f"{kind}, seed {played['seed']}"
                await compare(server, name, played.steps, played.responses, server.choose_group(played.steps))

    play()
