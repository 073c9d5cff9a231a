"""An unknown name in a call or an option is answered with the known name that is most similar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import callboard
from callboard.actors.assignors.table import find_assignor
from callboard.actors.text import did_you_mean
from callboard.runtime.cli.log.actions import choose_partitions
from callboard.runtime.settings.table import parse_sync
from callboard.runtime.testing.plugin.faults import known_api
from callboard.testing import Coordinator


@pytest.mark.parametrize(
    ("name", "expected"),
    [("stabel", " did you mean 'Stable'?"), ("STABLE ", " did you mean 'Stable'?"), ("xyz", ""), (7, "")],
)
def test_similar_name_is_found_in_any_case(name: object, expected: str) -> None:
    assert did_you_mean(name, ["Empty", "Stable"]) == expected


def list_groups(state: str) -> None:
    async def run() -> None:
        async with callboard.Coordinator() as coordinator:
            await coordinator.groups(states=[state])

    asyncio.run(run())


def advance_silently(name: str) -> None:
    with (
        Coordinator.in_thread() as coordinator,
        coordinator.member("g", resources={"jobs": 1}, client_id="ann") as member,
    ):
        next(iter(member.assignments()))
        coordinator.clock.advance(1, silent=[name])


@pytest.mark.parametrize(
    ("call", "name", "known"),
    [
        (find_assignor, "stiky", "sticky"),
        (parse_sync, "alway", "always"),
        (lambda name: choose_partitions(Path(), name, None), "offset", "offsets"),
        (known_api, "SyncGrup", "SyncGroup"),
        (list_groups, "stabel", "Stable"),
        (advance_silently, "anna", "ann"),
    ],
    ids=["assignor", "choice of an option", "log", "API", "state of groups", "silent member"],
)
def test_unknown_name_is_refused_with_the_similar_one(call: Callable[[str], object], name: str, known: str) -> None:
    with pytest.raises((ValueError, callboard.StartError), match=rf"did you mean '{known}'\?"):
        call(name)
