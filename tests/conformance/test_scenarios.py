"""Every scenario has the same responses as the recorded ones of a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import async_test

from callboard.runtime.kafka.api import APIS
from callboard.runtime.settings.table import BY_NAME

from .callboard_server import open_server
from .comparing import compare
from .golden import read_chapter
from .scenarios import CHAPTERS, Settings
from .script import DISCONNECT, WAIT, Script

SERVED = {api.name for api in APIS}
GOLDEN = {name: read_chapter(name) for name in CHAPTERS}


def our_settings(settings: Settings) -> dict[str, int | str | bool]:
    """Convert Kafka's settings to Callboard's names."""
    return {name.replace(".", "_"): value for name, value in settings.items()}


def all_scenarios() -> list[tuple[str, str]]:
    return [(name, scenario) for name, chapter in CHAPTERS.items() for scenario in chapter.scenarios]


def not_served(script: Script) -> set[str]:
    return {step[1] for step in script if step[0] not in (WAIT, DISCONNECT)} - SERVED


@pytest.mark.parametrize(("chapter", "scenario"), all_scenarios())
def test_scenario(chapter: str, scenario: str, tmp_path: Path) -> None:
    script = CHAPTERS[chapter].scenarios[scenario]
    settings = our_settings(CHAPTERS[chapter].settings)
    if missing := not_served(script) | (settings.keys() - BY_NAME.keys()):
        pytest.skip(f"this server does not have {sorted(missing)} yet")

    @async_test
    async def play() -> None:
        async with open_server(tmp_path, settings) as server:
            await compare(server, scenario, script, GOLDEN[chapter][scenario])

    play()


def test_golden_files_match_scenarios() -> None:
    """If this fails, the scenarios have changed since ``make golden``."""
    assert {name: golden.keys() for name, golden in GOLDEN.items()} == {
        name: chapter.scenarios.keys() for name, chapter in CHAPTERS.items()
    }
