"""Requests of simple consumers and administrators to groups with members: odd values, several groups per request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import steps
from ..random_scripts import Client, Moves
from ..script import Plain, Step
from .steady import Steady

GROUPS = ("$group", "$group", "$group-2", "$group-3")
GROUPS_TO_ASK = (*GROUPS, "$group-absent", "")
TOPIC_IDS = {"t": "$topic t", "u": "$topic u", "never-made": "$uuid 7", "nothing": "$uuid 0", "": "$uuid 8"}
TOPICS = ("t", "t", "t", "u", "never-made", "nothing", "")
METADATA_BYTES_MAX = 4096
HOUR_MS = 3_600_000


class Committers(Steady):
    """The clients of one group; they also commit, fetch and delete offsets of two other groups."""

    ending = (
        steps.describe("Z", "$group", "$group-2", "$group-3"),
        *(steps.fetch("Z", group_id=group) for group in ("$group", "$group-2", "$group-3")),
    )

    # Commits ---------------------------------------------------------------------------------------------------------

    def rich_commit(self, client: Client) -> Step:
        """Commit several topics and partitions, with repeated and unknown ones."""
        version = self._version(10, oldest=2)
        group = self._chance.choice(GROUPS)
        member_id, instance_id, generation = "", None, -1
        if group == "$group" and self._chance.random() < 0.5:
            (member_id, instance_id), generation = (
                self._someone(client),
                self._chance.choice((self._generation(client), -1, -2)),
            )
        topics = [self._topic() for _ in range(self._chance.choice((0, 1, 1, 2, 3)))]
        step = steps.commit(self._line(client), member_id, generation, v=version, group_id=group)
        step[3].update(topics=topics, group_instance_id=instance_id if version >= 7 else None)
        step[3]["retention_time"] = self._chance.choice((-1, -1, HOUR_MS, 10 * HOUR_MS))
        return step

    def _topic(self) -> Plain:
        name = self._chance.choice(TOPICS)
        partitions = [self._part() for _ in range(self._chance.choice((0, 1, 1, 2, 3)))]
        return {"name": name, "topic_id": TOPIC_IDS[name], "partitions": partitions}

    def _part(self) -> Plain:
        random = self._chance
        metadata = random.choice(("", "", None, "note", "x" * METADATA_BYTES_MAX, "é" * (METADATA_BYTES_MAX // 2 + 1)))
        return steps.part(
            random.choice((0, 0, 1, 2, 3, -1)),
            random.choice((0, random.randint(1, 99), 2**63 - 1, -1, -5)),
            metadata,
            random.choice((-1, 0, 5, -2)),
        )

    # Fetches ---------------------------------------------------------------------------------------------------------

    def rich_fetch(self, client: Client) -> Step:
        version = self._version(10, oldest=1)
        values: dict[str, Any] = {"require_stable": self._chance.random() < 0.5}
        if version < 8:
            values.update(self._wanted(client, version))
        else:
            values["groups"] = [self._wanted(client, version) for _ in range(self._chance.choice((0, 1, 2, 3)))]
        return [self._line(client), "offset_fetch", version, values]

    def _wanted(self, client: Client, version: int) -> Any:
        member_id, epoch = self._chance.choice(
            ((None, -1), (None, -1), ("", -1), (client.member_id, client.generation))
        )
        topics: list[Any] | None = [
            {"name": name, "topic_id": TOPIC_IDS[name], "partition_indexes": self._indexes()}
            for name in (self._chance.choice(TOPICS) for _ in range(self._chance.choice((0, 1, 2, 3))))
        ]
        if version >= 2 and self._chance.random() < 0.4:
            topics = None
        return {
            "group_id": self._chance.choice(GROUPS_TO_ASK),
            "topics": topics,
            "member_id": member_id,
            "member_epoch": epoch,
        }

    def _indexes(self) -> list[int]:
        return [self._chance.choice((0, 1, 2, 3, -1)) for _ in range(self._chance.choice((0, 1, 2, 3)))]

    # Deletions and listings ------------------------------------------------------------------------------------------

    def delete_offsets(self, client: Client) -> Step:
        topics = [
            {
                "name": self._chance.choice(TOPICS),
                "partitions": [{"partition_index": index} for index in self._indexes()],
            }
            for _ in range(self._chance.choice((0, 1, 2, 3)))
        ]
        return [self._line(client), "offset_delete", 0, {"group_id": self._group_to_ask(), "topics": topics}]

    def delete_groups(self, client: Client) -> Step:
        return [self._line(client), "delete_groups", self._version(2), {"groups_names": self._some_groups()}]

    def describe(self, client: Client) -> Step:
        values = {"groups": self._some_groups(), "include_authorized_operations": self._chance.random() < 0.3}
        return [self._line(client), "describe_groups", self._version(6), values]

    def list_groups(self, client: Client) -> Step:
        states = (*("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"), "emPTY", "Assigning", "")
        types = ("classic", "consumer", "Classic", "share", "", "unknown")
        values = {"states_filter": self._some(states), "types_filter": self._some(types)}
        return [self._line(client), "list_groups", self._version(5, oldest=3), values]

    def _group_to_ask(self) -> str:
        return self._chance.choice(GROUPS_TO_ASK)

    def _some_groups(self) -> list[str]:
        return [self._group_to_ask() for _ in range(self._chance.choice((0, 1, 1, 2, 3)))]

    def _some(self, values: Sequence[str]) -> list[str]:
        return [self._chance.choice(values) for _ in range(self._chance.choice((0, 0, 1, 2)))]

    odd_moves: Moves = (
        rich_commit,
        rich_commit,
        rich_commit,
        rich_fetch,
        rich_fetch,
        rich_fetch,
        delete_offsets,
        delete_groups,
        describe,
        list_groups,
        Steady.wait,
        Steady.leave,
        Steady.odd_join,
        Steady.odd_commit,
    )
