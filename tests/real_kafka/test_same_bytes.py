"""Callboard and a real Kafka get the same requests and must send the same responses.

A failure prints both responses side by side. Each test runs in all versions of its request.
"""

from __future__ import annotations

import uuid

import pytest
from peers.waiting import wait_until
from peers.wire import decode

from .paired_requests import (
    NO_ID,
    SUBSCRIPTION,
    Values,
    commit_values,
    create_topic,
    describe,
    fetch_all,
    fetch_values,
    heartbeat,
    heartbeat_values,
    id_of,
    join,
    join_values,
    leave,
    metadata_values,
    only_member,
    request_header,
    same_listing,
    sync_values,
)
from .side_by_side import HANGUP, PairedConnection, PairedValue, SideBySide

# key: (kio's name, lowest version, highest version) of the classic protocol's APIs in Kafka 4.3.
APIS = {
    3: ("metadata", 0, 13),
    8: ("offset_commit", 2, 10),
    9: ("offset_fetch", 1, 10),
    10: ("find_coordinator", 0, 6),
    11: ("join_group", 0, 9),
    12: ("heartbeat", 0, 4),
    13: ("leave_group", 0, 5),
    14: ("sync_group", 0, 5),
    15: ("describe_groups", 0, 6),
    16: ("list_groups", 0, 5),
    18: ("api_versions", 0, 4),
    22: ("init_producer_id", 0, 5),
    24: ("add_partitions_to_txn", 0, 5),
    25: ("add_offsets_to_txn", 0, 4),
    26: ("end_txn", 0, 5),
    28: ("txn_offset_commit", 0, 5),
    42: ("delete_groups", 0, 2),
}
API_VERSIONS = 18
UNKNOWN_VERSION = 99
# offset.metadata.max.bytes
METADATA_BYTES_MAX = 4096


def versions(name: str, lowest: int = 0, highest: int = UNKNOWN_VERSION) -> pytest.MarkDecorator:
    """Run a test in all versions of an API within these bounds."""
    first, last = next((first, last) for api, first, last in APIS.values() if api == name)
    return pytest.mark.parametrize("version", range(max(first, lowest), min(last, highest) + 1))


@pytest.fixture
def connection(side_by_side: SideBySide) -> PairedConnection:
    return side_by_side.connection()


@pytest.fixture
def group() -> str:
    """A new group id."""
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(connection: PairedConnection) -> str:
    """A topic with two partitions on both servers, with leaders."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(connection, name, partitions=2)
    return name


class TestProtocol:
    """Requests without a group: versions, coordinators, metadata, unknown requests."""

    @versions("api_versions")
    def test_api_versions_of_classic_protocol(self, connection: PairedConnection, version: int) -> None:
        """For the classic protocol we serve Kafka's versions. We serve no other version that Kafka does not serve."""
        answer = connection.ask_uncompared(
            "api_versions", version, client_software_name="test", client_software_version="1.0"
        )
        ours, theirs = (
            {api["api_key"]: (api["min_version"], api["max_version"]) for api in side["api_keys"]}
            for side in (answer.ours, answer.theirs)
        )
        assert answer.ours["error_code"] == answer.theirs["error_code"] == "NONE"
        assert {key: ours.get(key) for key in APIS} == {key: theirs[key] for key in APIS}
        assert {key: theirs[key] for key in APIS} == {key: (low, high) for key, (_, low, high) in APIS.items()}
        not_in_kafka = {key: (ours[key], theirs.get(key)) for key in ours if not _within(ours[key], theirs.get(key))}
        assert not_in_kafka == {}, "(ours, Kafka's) by key"
        for features in ("supported_features", "finalized_features"):
            unknown = [each for each in answer.ours.get(features, ()) if each not in answer.theirs[features]]
            assert unknown == []

    def test_api_versions_with_unknown_version(self, connection: PairedConnection) -> None:
        """The response is in version 0 and lists the versions (KIP-511). Other requests close the connection."""
        payload = request_header(API_VERSIONS, UNKNOWN_VERSION) + b"\x00"
        answer = connection.send_raw(payload, "api_versions v99", lambda raw: decode("api_versions", 0, raw))
        assert answer.ours["error_code"] == "UNSUPPORTED_VERSION"

    @pytest.mark.parametrize(
        ("name", "software_version"), [("", "1"), ("-dash", "1"), ("good", ""), ("good", "sp ace")]
    )
    def test_api_versions_with_invalid_software_name(
        self, connection: PairedConnection, name: str, software_version: str
    ) -> None:
        connection.ask("api_versions", 3, client_software_name=name, client_software_version=software_version)

    @pytest.mark.parametrize("key", [*sorted(APIS.keys() - {API_VERSIONS}), 9999])
    def test_unknown_api_or_version_closes_connection(self, connection: PairedConnection, key: int) -> None:
        answer = connection.send_raw(
            request_header(key, UNKNOWN_VERSION) + b"\x00", f"key {key} v99", lambda raw: {"raw": raw}
        )
        assert answer.ours == HANGUP

    @versions("find_coordinator")
    @pytest.mark.parametrize("key_type", [0, 2, 9])
    def test_find_coordinator(self, connection: PairedConnection, version: int, key_type: int) -> None:
        """Every group id has a coordinator, also an unknown or empty one. Key type 2: share groups; 9: unknown."""
        for keys in (["a", "b"], [""]):
            connection.ask("find_coordinator", version, key=keys[0], key_type=key_type, coordinator_keys=keys)

    @versions("metadata")
    def test_metadata_of_unknown_topics(self, connection: PairedConnection, version: int) -> None:
        """Auto-creation is off: an unknown topic and invalid names."""
        topics = [{"name": name, "topic_id": NO_ID} for name in ("never-made", "bad name", "x" * 250)]
        connection.ask("metadata", version, **metadata_values(topics, allow_auto_topic_creation=True))

    @versions("metadata", lowest=12)
    def test_metadata_with_unknown_id(self, connection: PairedConnection, version: int) -> None:
        topics = [{"name": None, "topic_id": uuid.UUID(int=7)}]
        connection.ask("metadata", version, **metadata_values(topics))

    @versions("metadata")
    def test_metadata_of_topic(self, connection: PairedConnection, version: int, topic: str) -> None:
        connection.ask("metadata", version, **metadata_values([{"name": topic, "topic_id": NO_ID}]))


class TestJoining:
    """JoinGroup and SyncGroup."""

    @versions("join_group")
    @pytest.mark.parametrize(
        "changes",
        [
            {"group_id": ""},
            {"session_timeout": 499},
            {"session_timeout": 1_800_001},
            {"member_id": "nobody"},
            {"protocols": []},
            {"protocol_type": ""},
            {"member_id": "nobody", "group_instance_id": "seat"},
        ],
        ids=str,
    )
    def test_invalid_requests(self, connection: PairedConnection, group: str, version: int, changes: Values) -> None:
        """Invalid joins of a new group. (Whether Kafka then has an empty group or none depends on its timing.)"""
        connection.ask("join_group", version, **{**join_values(group), **changes})

    @versions("join_group")
    def test_join_sync_heartbeat_leave_of_one_member(
        self, connection: PairedConnection, group: str, version: int
    ) -> None:
        """Join, sync, heartbeat, rejoin and leave; between these steps the group is described."""
        member = join(connection, group, version)["member_id"]
        describe(connection, group)
        assignments = [{"member_id": member, "assignment": b"everything"}]
        connection.ask("sync_group", min(version, 5), **sync_values(group, member, assignments))
        describe(connection, group)
        heartbeat(connection, group, member)
        again = connection.ask("join_group", version, **join_values(group, member_id=member))
        assert again.ours["generation_id"] == 2
        heartbeat(connection, group, member, generation=2)
        leave(connection, min(version, 5), group, member)
        describe(connection, group)
        join(connection, group, version)

    @versions("join_group")
    def test_second_member_with_inconsistent_protocol(
        self, connection: PairedConnection, side_by_side: SideBySide, group: str, version: int
    ) -> None:
        """Another protocol type, or no protocol in common with the members."""
        only_member(connection, group)
        for changes in ({"protocol_type": "connect"}, {"protocols": [{"name": "alien", "metadata": SUBSCRIPTION}]}):
            side_by_side.connection().ask("join_group", version, **join_values(group, **changes))

    @versions("join_group", lowest=4)
    def test_second_member_and_protocol_vote(
        self, connection: PairedConnection, side_by_side: SideBySide, group: str, version: int
    ) -> None:
        """The first member's heartbeat returns REBALANCE_IN_PROGRESS; the vote selects the common protocol."""
        first = only_member(connection, group)
        other = side_by_side.connection()
        response = other.ask("join_group", version, **join_values(group))
        second = response["member_id"]
        sticky = [{"name": "sticky", "metadata": SUBSCRIPTION}]
        other.send("join_group", version, **join_values(group, member_id=second, protocols=sticky))
        wait_until(
            lambda: connection.ask_uncompared("heartbeat", 4, **heartbeat_values(group, first)),
            _both_rebalance,
            "a rebalance",
        )
        connection.ask("join_group", version, **join_values(group, member_id=first))
        other.receive("join_group", version)
        chosen = {"generation_id": 2, "protocol_name": "sticky"}
        other.send("sync_group", 5, **sync_values(group, second, [], **chosen))
        assignments = [{"member_id": member, "assignment": b"half"} for member in (first, second)]
        connection.ask("sync_group", 5, **sync_values(group, first, assignments, **chosen))
        other.receive("sync_group", 5)
        describe(connection, group)

    @versions("sync_group")
    def test_invalid_sync_group(self, connection: PairedConnection, group: str, version: int) -> None:
        """SyncGroup with an invalid group, member, generation or protocol."""
        connection.ask("sync_group", version, **sync_values(group, "nobody", []))
        connection.ask("sync_group", version, **sync_values("", "nobody", []))
        member = only_member(connection, group)
        connection.ask("sync_group", version, **sync_values(group, "nobody", []))
        connection.ask("sync_group", version, **sync_values(group, member, [], generation_id=9))
        connection.ask("sync_group", version, **sync_values(group, member, [], generation_id=9, protocol_name="x"))
        connection.ask("sync_group", version, **sync_values(group, member, [], protocol_name="sticky"))
        connection.ask("sync_group", version, **sync_values(group, member, [], protocol_type="connect"))
        connection.ask("sync_group", version, **sync_values(group, member, [], group_instance_id="seat"))
        connection.ask("sync_group", version, **sync_values(group, member, []))

    @versions("join_group", lowest=5)
    def test_static_member_is_replaced(
        self, connection: PairedConnection, side_by_side: SideBySide, group: str, version: int
    ) -> None:
        """A restarted member replaces the old one without a rebalance; the old one is fenced."""
        instance_id = {"group_instance_id": "seat"}
        old = only_member(connection, group, "seat")
        new = side_by_side.connection()
        answer = new.ask("join_group", version, **join_values(group, **instance_id))
        assert answer.ours["generation_id"] == 1
        heartbeat(connection, group, old, instance_id="seat")
        heartbeat(new, group, answer["member_id"], instance_id="seat")
        new.ask("sync_group", 5, **sync_values(group, answer["member_id"], [], **instance_id))
        describe(connection, group)
        connection.ask("join_group", version, **join_values(group, member_id=old, **instance_id))
        leave(connection, 5, group, old, "seat")
        leave(connection, 5, group, "", "seat")
        describe(connection, group)


class TestLeaving:
    """Heartbeat and LeaveGroup."""

    @versions("heartbeat")
    def test_invalid_heartbeat(self, connection: PairedConnection, group: str, version: int) -> None:
        connection.ask("heartbeat", version, **heartbeat_values(group, "nobody"))
        connection.ask("heartbeat", version, **heartbeat_values("", "nobody"))
        member = only_member(connection, group)
        connection.ask("heartbeat", version, **heartbeat_values(group, "nobody"))
        connection.ask("heartbeat", version, **heartbeat_values(group, member, generation=9))
        connection.ask("heartbeat", version, **heartbeat_values(group, member, instance_id="seat"))
        connection.ask("heartbeat", version, **heartbeat_values(group, member))

    @versions("leave_group")
    def test_leave_group(self, connection: PairedConnection, group: str, version: int) -> None:
        """With an unknown group, member or instance id, and at the end with the member's id."""
        leave(connection, version, group, "nobody")
        leave(connection, version, "", "nobody")
        member = only_member(connection, group)
        leave(connection, version, group, "nobody")
        leave(connection, version, group, "")
        if version >= 3:
            leave(connection, version, group, "", "seat")
        leave(connection, version, group, member)
        leave(connection, version, group, member)
        describe(connection, group)


class TestOffsets:
    """OffsetCommit and OffsetFetch."""

    @versions("offset_commit")
    def test_offset_commit_without_group(
        self, connection: PairedConnection, group: str, topic: str, version: int
    ) -> None:
        """A simple consumer, without member id and generation. Partition 9 and the second topic do not exist."""
        values = commit_values(group, topic, id_of(connection, topic))
        unknown = {**values["topics"][0], "name": "never-made", "topic_id": uuid.UUID(int=7)}
        connection.ask("offset_commit", version, **{**values, "topics": [*values["topics"], unknown]})
        fetch_all(connection, group)
        describe(connection, group)
        same_listing(connection, 5, group, states_filter=["Empty"], types_filter=[])

    @versions("offset_commit")
    @pytest.mark.parametrize(
        "changes",
        [
            {"group_id": ""},
            {"generation_id_or_member_epoch": 5},
            {"member_id": "nobody"},
            {"generation_id_or_member_epoch": 5, "member_id": "nobody"},
            {"group_instance_id": "seat"},
        ],
        ids=str,
    )
    def test_invalid_offset_commit(
        self, connection: PairedConnection, group: str, topic: str, version: int, changes: Values
    ) -> None:
        """To an unknown group, and to a group with a member."""
        topic_id = id_of(connection, topic)
        values = {**commit_values(group, topic, topic_id), **changes}
        connection.ask("offset_commit", version, **values)
        only_member(connection, group)
        connection.ask("offset_commit", version, **values)
        connection.ask("offset_commit", version, **commit_values(group, topic, topic_id))
        fetch_all(connection, group)

    @versions("offset_commit")
    def test_offset_commit_of_member(self, connection: PairedConnection, group: str, topic: str, version: int) -> None:
        topic_id = id_of(connection, topic)
        member = only_member(connection, group)
        valid = {"member_id": member, "generation_id_or_member_epoch": 1}
        connection.ask("offset_commit", version, **commit_values(group, topic, topic_id, **valid))
        stale = {**valid, "generation_id_or_member_epoch": 9}
        connection.ask("offset_commit", version, **commit_values(group, topic, topic_id, **stale))
        fetch_all(connection, group)

    @versions("offset_commit")
    def test_offset_commit_with_too_large_metadata(
        self, connection: PairedConnection, group: str, topic: str, version: int
    ) -> None:
        """Metadata that is one byte too long is refused for its partition only."""
        values = commit_values(group, topic, id_of(connection, topic))
        partitions = values["topics"][0]["partitions"]
        partitions[0]["committed_metadata"] = "x" * (METADATA_BYTES_MAX + 1)
        partitions[1]["committed_metadata"] = "x" * METADATA_BYTES_MAX
        connection.ask("offset_commit", version, **values)
        fetch_all(connection, group)

    @versions("offset_fetch")
    def test_offset_fetch(self, connection: PairedConnection, group: str, topic: str, version: int) -> None:
        """Of an unknown and a known group: some partitions, all partitions, and an unknown topic."""
        known = [{"name": topic, "topic_id": id_of(connection, topic), "partition_indexes": [0, 1, 9]}]
        unknown = [{"name": "never-made", "topic_id": uuid.UUID(int=7), "partition_indexes": [0]}]
        topic_lists = [known, unknown, []] + ([None] if version >= 2 else [])
        for group_id in ("", group):
            for topics in topic_lists:
                connection.ask("offset_fetch", version, **fetch_values(version, group_id, topics))
        connection.ask("offset_commit", 9, **commit_values(group, topic))
        for topics in topic_lists:
            connection.ask("offset_fetch", version, **fetch_values(version, group, topics))

    @versions("offset_fetch", lowest=8)
    def test_offset_fetch_of_several_groups(
        self, connection: PairedConnection, group: str, topic: str, version: int
    ) -> None:
        connection.ask("offset_commit", 9, **commit_values(group, topic))
        groups = [
            {"group_id": group_id, "topics": None, "member_id": None, "member_epoch": -1}
            for group_id in (group, "x", "")
        ]
        connection.ask("offset_fetch", version, groups=groups, require_stable=True)

    @versions("offset_fetch", lowest=9)
    def test_offset_fetch_with_member_of_consumer_protocol(
        self, connection: PairedConnection, group: str, version: int
    ) -> None:
        """Member id and epoch are fields of KIP-848; classic groups ignore them."""
        only_member(connection, group)
        connection.ask("offset_fetch", version, **fetch_values(version, group, [], member_id="nobody", member_epoch=3))


class TestGroups:
    """DescribeGroups, ListGroups and DeleteGroups."""

    @versions("describe_groups")
    def test_describe_groups(self, connection: PairedConnection, group: str, version: int) -> None:
        """Unknown groups, an empty group id, a stable group with a static member, an empty group."""
        request = {"groups": [group, "", "never-made"], "include_authorized_operations": False}
        connection.ask("describe_groups", version, **request)
        member = only_member(connection, group, "seat")
        connection.ask("describe_groups", version, **request)
        leave(connection, 5, group, member)
        connection.ask("describe_groups", version, **request)

    @versions("describe_groups", lowest=3)
    def test_describe_groups_with_authorized_operations(
        self, connection: PairedConnection, group: str, version: int
    ) -> None:
        only_member(connection, group)
        connection.ask("describe_groups", version, groups=[group, "never-made"], include_authorized_operations=True)

    @versions("list_groups")
    def test_list_groups(self, connection: PairedConnection, group: str, topic: str, version: int) -> None:
        """A group with a member and one with offsets only. The filters are case-insensitive."""
        only_member(connection, group)
        connection.ask("offset_commit", 9, **commit_values(f"{group}-simple", topic))
        for states in ([], ["Stable"], ["stable", "EMPTY"], [" Stable "], ["nonsense"], ["PreparingRebalance", "Dead"]):
            for types in ([], ["classic"], ["Consumer", "CLASSIC"], [" classic"], ["no"]) if version >= 5 else ([],):
                same_listing(connection, version, group, states_filter=states, types_filter=types)

    @versions("delete_groups")
    def test_delete_groups(self, connection: PairedConnection, group: str, topic: str, version: int) -> None:
        """Unknown groups, an empty group id, a group with a member, an empty group with offsets, deleted groups."""
        request = {"groups_names": [group, "", "never-made", f"{group}-simple"]}
        connection.ask("delete_groups", version, **request)
        member = only_member(connection, group)
        connection.ask("offset_commit", 9, **commit_values(f"{group}-simple", topic))
        connection.ask("delete_groups", version, **request)
        leave(connection, 5, group, member)
        connection.ask("delete_groups", version, **request)
        for group_id in (group, f"{group}-simple"):
            describe(connection, group_id)
            fetch_all(connection, group_id)


def _both_rebalance(answer: PairedValue) -> bool:
    return {answer.ours["error_code"], answer.theirs["error_code"]} == {"REBALANCE_IN_PROGRESS"}


def _within(ours: tuple[int, int], theirs: tuple[int, int] | None) -> bool:
    return theirs is not None and theirs[0] <= ours[0] <= ours[1] <= theirs[1]
