"""One request may name half a million groups: its work is cut into slices, and everybody else is served in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from door import CardboardClient, Door, beating, enrol, frame, on_a_loop, open_door, versions
from peers.wire import decode

from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.scatter_gather import MESSAGES_PER_BATCH

NAMES = 30 * MESSAGES_PER_BATCH
LONG = (0, 6)  # versions in which the array's count has three bytes or more
SLICE_MAX = 3 * MESSAGES_PER_BATCH  # between a heartbeat and its answer: that takes up to three turns of the loop


class Counted:
    """What is posted to groups, counted between two looks."""

    def __init__(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        self.posted = 0
        self._post = door.node.groups.post
        monkeypatch.setattr(door.node.groups, "post", self._count)

    def _count(self, request: Any, reply: Any) -> None:
        self.posted += 1
        self._post(request, reply)

    def take(self) -> int:
        posted, self.posted = self.posted, 0
        return posted


@on_a_loop
async def test_others_are_served_between_the_slices(tmp_path: Path) -> None:
    """By number of turns, not by the clock: a member beats in each turn of the loop and is answered in the next few."""
    async with open_door(tmp_path) as door:
        member = await enrol(await door.connect(), "g")
        with pytest.MonkeyPatch.context() as monkeypatch:
            counted, asker, other = Counted(door, monkeypatch), CardboardClient(door.node), CardboardClient(door.node)
            names = [f"nobody-{number}" for number in range(NAMES)]
            names[NAMES // 2] = "g"
            asker.feed(frame("describe_groups", 5, groups=names, include_authorized_operations=False))
            beats, most = 0, counted.take()
            while not asker.answers():
                other.feed(frame("heartbeat", 4, **beating("g", member)))
                beats += 1
                await other.answered(beats)
                most = max(most, counted.take() - 1)
        assert beats >= NAMES // SLICE_MAX
        assert most <= SLICE_MAX
        described = decode("describe_groups", 5, asker.answers()[0])["groups"]
        assert [one["group_id"] for one in described] == names
        assert [one["group_state"] for one in described if one["group_id"] == "g"] == ["Stable"]


@on_a_loop
async def test_answers_in_slices_are_whole_in_every_version(tmp_path: Path) -> None:
    """Array counts of one, two and three bytes; with what kio itself would write."""
    async with open_door(tmp_path) as door:
        client = await door.connect()
        await enrol(client, "g")
        for version in versions("describe_groups"):
            for count in (
                0,
                1,
                126,
                127,
                128,
                MESSAGES_PER_BATCH + 1,
                16_400 if version in LONG else MESSAGES_PER_BATCH,
            ):
                names = (["g", "nobody"] * count)[:count]
                client.write(frame("describe_groups", version, groups=names, include_authorized_operations=True))
                answer = await client.receive_frame()
                groups = decode("describe_groups", version, answer)["groups"]
                assert [one["group_id"] for one in groups] == names
                assert {len(one["members"]) for one in groups if one["group_id"] == "g"} <= {1}
            kafka = schema("describe_groups", version)
            body = answer[5:] if kafka.flexible_header else answer[4:]
            assert kafka.write(kafka_answer(version, body)) == body


def kafka_answer(version: int, body: bytes) -> Any:
    """The answer as kio's entity."""
    from kio.serial import entity_reader

    entity, size = entity_reader(schema("describe_groups", version).response_type)(body, 0)
    assert size == len(body)
    return entity


@on_a_loop
async def test_deletions_of_many_groups_come_in_slices_too(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        client = await door.connect()
        names = [f"nobody-{number}" for number in range(3 * MESSAGES_PER_BATCH + 1)]
        answer = await client.ask("delete_groups", groups_names=names)
        assert [one["group_id"] for one in answer["results"]] == names
        assert {one["error_code"] for one in answer["results"]} == {"GROUP_ID_NOT_FOUND"}


@on_a_loop
async def test_a_client_that_goes_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        client = CardboardClient(door.node)
        names = [f"nobody-{number}" for number in range(NAMES)]
        client.feed(frame("describe_groups", 5, groups=names, include_authorized_operations=False))
        client.close()
        while client.connection in door.node.connections:
            await asyncio.sleep(0)
