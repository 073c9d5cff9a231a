"""AskNode: what Callboard's own clients may ask with it, and what nobody may who only says that it is a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from authorizers import DenyingAuthorizer, Rule
from harness import NodeHarness, async_test, commit_values, join_and_sync, offsets, running_node

from callboard.actors.consumer_group.messages import DescribeConsumerGroup
from callboard.actors.errors import ErrorCode
from callboard.actors.group.reset_messages import DescribeReset, OffsetsReset, ResetOffset, ResetOffsets
from callboard.actors.messages import (
    Commit,
    DeleteGroup,
    DescribeCommits,
    DescribeGroup,
    ExplainGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from callboard.actors.recorder.recorded import GroupRecorded
from callboard.actors.steps import ITEMS_PER_STEP, run_steps
from callboard.runtime.client.connection import Connection, connect_to
from callboard.runtime.kafka.api import ask_node
from callboard.runtime.kafka.authentication.principal import USER, Principal
from callboard.runtime.kafka.codec.message_json import BadMessage, read_in_steps, read_message, write_message
from callboard.runtime.kafka.node_subjects import (
    SUBJECTS,
    FindOffsets,
    ReadGroups,
    ReadRebalances,
    ReadResets,
    ReadTopics,
)
from callboard.runtime.kafka.peer_gate import Purpose, Sender
from callboard.runtime.security.resources import Operation, ResourceType
from callboard.runtime.settings.address import Address

FORGED = f"{Purpose.QUESTIONS}/a-1/1/1/{'0' * 64}"
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
RESET = ResetOffsets("g", (ResetOffset("t", 0, 7),), "done again")


@asynccontextmanager
async def asking(
    harness: NodeHarness, client_id: str = "callboard-test", principal: Principal | None = None
) -> AsyncIterator[Connection]:
    connection = await connect_to(Address("127.0.0.1", harness.port), client_id)
    if principal is not None:
        for served in harness.node.connections:
            served.principal = principal
    try:
        yield connection
    finally:
        connection.close()


async def ask(connection: Connection, message: Any, **values: Any) -> Any:
    subject, group = type(message).__name__, message.group_id
    given = {"subject": subject, "group_id": group, "content": write_message(message), "asked_by": b""}
    return await connection.ask("ask_node", given | values)


async def code_of(connection: Connection, message: Any, **values: Any) -> ErrorCode:
    response = await ask(connection, message, **values)
    assert (response.content == b"") is bool(response.error_code)
    return ErrorCode(int(response.error_code))


@async_test
async def test_client_asks_for_an_explanation_and_resets_a_group(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, asking(harness) as connection:
        await join_and_sync(await harness.connect(), "g")
        explained = read_message(GroupRecorded, (await ask(connection, ExplainGroup("g"))).content)
        assert explained.now.state == "Stable"
        assert [record.why.cause for record in explained.records] == ["new_member"]
        reset = read_message(OffsetsReset, (await ask(connection, RESET)).content)
        assert (len(reset.removed), reset.before) == (1, (ResetOffset("t", 0, None),))


@async_test
async def test_only_own_clients_are_told_of_the_api(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path) as harness,
        asking(harness, "callboard-admin") as own,
        asking(harness, "another") as other,
    ):
        assert "ask_node" in own.exchange.versions
        assert "ask_node" not in other.exchange.versions


@async_test
async def test_clients_may_not_ask_what_a_request_of_kafka_does(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness, asking(harness) as connection:
        client = await harness.connect()
        await client.ask("offset_commit", 8, **commit_values("g"))
        for message in (DescribeGroup("g"), DeleteGroup("g")):
            assert await code_of(connection, message) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for subject in ("ReadGroups", "ReadTopics"):
            code = await code_of(connection, ExplainGroup("g"), subject=subject)
            assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("client_id", [FORGED, FORGED.replace("-asks", ""), f"{Purpose.QUESTIONS}/"])
@async_test
async def test_client_id_of_a_node_without_its_proof_gives_no_right(tmp_path: Path, client_id: str) -> None:
    async with running_node(tmp_path) as harness, asking(harness, client_id) as connection:
        harness.node.services.routes.peer_gate = ClosedGate()
        assert await code_of(connection, DeleteGroup("g")) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class ClosedGate:
    """Admits nobody."""

    def admit(self, *_arguments: object) -> Sender | None:
        return None

    def accepts(self, *_arguments: object) -> bool:
        return False


@pytest.mark.parametrize(
    ("message", "rule", "expected"),
    [
        (ExplainGroup("g"), Rule(Operation.DESCRIBE, GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (RESET, Rule(Operation.READ, GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (RESET, Rule(Operation.DELETE, GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (RESET, Rule(Operation.READ, TOPIC, "t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (RESET, Rule(Operation.ALTER, TOPIC, "t"), ErrorCode.NONE),
    ],
)
@async_test
async def test_client_needs_the_rights_on_the_group(
    tmp_path: Path, message: Any, rule: Rule, expected: ErrorCode
) -> None:
    async with running_node(tmp_path, authorizer=DenyingAuthorizer(rule)) as harness:
        await (await harness.connect()).ask("offset_commit", 8, **commit_values("g"))
        async with asking(harness, principal=Principal(USER, "anna")) as connection:
            assert await code_of(connection, message) is expected


@async_test
async def test_client_has_to_be_authenticated_if_there_are_acls(tmp_path: Path) -> None:
    async with running_node(tmp_path, authorizer=DenyingAuthorizer()) as harness, asking(harness) as connection:
        response = await ask(connection, ExplainGroup("g"))
        assert int(response.error_code) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert response.error_message == "The client has to be authenticated, since there are ACLs."


@pytest.mark.parametrize(
    ("values", "code", "text"),
    [
        ({"subject": "Sing"}, ErrorCode.UNSUPPORTED_VERSION, "subject 'Sing': expected one of DescribeGroup, "),
        ({"content": b"{"}, ErrorCode.INVALID_REQUEST, "expected ExplainGroup as JSON, not b'{'"),
        ({"content": b"[[]]"}, ErrorCode.INVALID_REQUEST, "expected str, not []"),
        ({"content": b"[" * 9999}, ErrorCode.INVALID_REQUEST, "expected ExplainGroup as JSON"),
        ({"group_id": "other"}, ErrorCode.INVALID_REQUEST, "a message to the group 'g': expected one to 'other'"),
        ({"content": b" " * (ask_node.CLIENT_CONTENT_BYTES_MAX + 1)}, ErrorCode.INVALID_REQUEST, "at most 100000, so"),
    ],
)
@async_test
async def test_invalid_request_is_refused(tmp_path: Path, values: dict[str, Any], code: ErrorCode, text: str) -> None:
    async with running_node(tmp_path) as harness, asking(harness) as connection:
        response = await ask(connection, ExplainGroup("g"), **values)
        assert int(response.error_code) == code
        assert text in response.error_message
        assert await code_of(connection, ExplainGroup("g")) is ErrorCode.NONE


def row(topic: str = "t", partition: int = 0, offset: int | None = 7) -> ResetOffset:
    return ResetOffset(topic, partition, offset)


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        ((row(partition=3),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition 3 of topic 't'"),
        ((row(partition=-1),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition -1 of topic 't'"),
        ((row(partition=2**40),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition 1099511627776"),
        ((row("nowhere"),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition 0 of topic 'nowhere'"),
        ((row("\ud800"),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, r"there is no partition 0 of topic '\ud800'"),
        ((row(offset=-7),), ErrorCode.INVALID_REQUEST, "offset -7 of partition 0 of topic 't': expected 0 to"),
        ((row(offset=2**63),), ErrorCode.INVALID_REQUEST, "offset 9223372036854775808 of partition 0"),
        ((row(), row(offset=8)), ErrorCode.INVALID_REQUEST, "partition 0 of topic 't' is there twice"),
        (RESET._replace(reason="x" * 1001), ErrorCode.INVALID_REQUEST, "a reason of 1001 characters: expected at most"),
        (RESET._replace(change_id="x" * 37), ErrorCode.INVALID_REQUEST, "a change id of 37 characters: expected at"),
        ((row(offset=2**63 - 1),), ErrorCode.NONE, ""),
        ((row(offset=None),), ErrorCode.NONE, ""),
    ],
)
@async_test
async def test_invalid_reset_of_a_client_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, message: Any, code: ErrorCode, text: str
) -> None:
    reset = message if isinstance(message, ResetOffsets) else ResetOffsets("g", message)
    async with running_node(tmp_path) as harness, asking(harness) as connection:
        client = await harness.connect()
        await client.ask("offset_commit", 8, **commit_values("g"))
        response = await ask(connection, reset)
        assert (int(response.error_code), text in (response.error_message or "")) == (code, True)
        assert (await offsets(client, "g") == {("t", 0): 42}) is bool(code)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@async_test
async def test_name_of_a_topic_that_is_no_text_is_denied(tmp_path: Path) -> None:
    rule = Rule(Operation.READ, TOPIC, "\ud800")
    async with running_node(tmp_path, authorizer=DenyingAuthorizer(rule)) as harness:
        await (await harness.connect()).ask("offset_commit", 8, **commit_values("g"))
        async with asking(harness, principal=Principal(USER, "anna")) as connection:
            response = await ask(connection, ResetOffsets("g", (row("\ud800"),)))
            assert int(response.error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert response.error_message is not None
            assert response.error_message.endswith(r" \ud800")


@pytest.mark.parametrize(("denied", "lag"), [("t", None), ("other", 0)])
@async_test
async def test_lag_is_told_of_topics_that_the_client_may_describe(tmp_path: Path, denied: str, lag: int | None) -> None:
    rule = Rule(Operation.DESCRIBE, TOPIC, denied)
    async with running_node(tmp_path, authorizer=DenyingAuthorizer(rule)) as harness:
        await (await harness.connect()).ask("offset_commit", 8, **commit_values("g"))
        async with asking(harness, principal=Principal(USER, "anna")) as connection:
            response = await ask(connection, ExplainGroup("g"))
            now = read_message(GroupRecorded, response.content).now
            assert (now.offsets.offset_count, now.offsets.lag) == (1, lag)


def test_long_message_is_read_in_steps() -> None:
    message = ResetOffsets("g", tuple(row(partition=number) for number in range(10 * ITEMS_PER_STEP)))
    steps = read_in_steps(ResetOffsets, write_message(message))
    for _ in range(10):
        next(steps)
    assert run_steps(steps) == message


SAMPLES: tuple[Any, ...] = (
    DescribeGroup("g"),
    DescribeConsumerGroup("g"),
    OffsetFetch("g", (("t", (0, 1)),)),
    OffsetCommit("g", "", None, -1, (Commit("t", 0, 7, -1, "x"),)),
    OffsetDelete("g", (("t", (0,)),)),
    LeaveGroup("g", (LeavingMember("m", None, "why"),)),
    DeleteGroup("g"),
    ExplainGroup("g"),
    DescribeCommits("g"),
    DescribeReset("g"),
    RESET,
    ReadTopics(("t",)),
    FindOffsets("t", 7),
    ReadGroups(3, -7),
    ReadResets("g", "change"),
    ReadRebalances(("g",)),
)


def test_messages_are_read_as_they_were_written() -> None:
    assert [type(message).__name__ for message in SAMPLES] == list(SUBJECTS)
    for message in SAMPLES:
        subject = SUBJECTS[type(message).__name__]
        assert read_message(subject.message, write_message(message)) == message
        with pytest.raises(BadMessage):
            read_message(subject.reply, b'{"a": 1}')


def test_field_of_a_newer_version_is_ignored_and_a_missing_one_has_its_default() -> None:
    assert read_message(ResetOffsets, write_message((*RESET, "newer"))) == RESET
    assert read_message(ResetOffsets, b'["g", []]') == ResetOffsets("g", ())
    with pytest.raises(BadMessage, match="missing 1 required"):
        read_message(ResetOffsets, b'["g"]')
