"""Error responses can be made for every API version, and have the right content."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import join_values, random_entity, versions
from peers.wire import build, message_type, plain
from request_helpers import encode_body

from callboard.actors.steps import ITEMS_PER_STEP
from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.short_heartbeat import NAME as HEARTBEAT
from callboard.runtime.kafka.codec.short_heartbeat import ShortHeartbeat
from callboard.runtime.kafka.error_response import (
    decode_response,
    encode_error_response,
    error_code_by_name,
    error_names_in,
    error_response_in_steps,
)

KAFKAS: list[tuple[str, int, str, str]] = json.loads(
    lzma.decompress(Path(__file__).with_name("error_responses.json.xz").read_bytes())
)
"""API, version, the body of a random request, and that of Kafka's ``getErrorResponse(0, REBALANCE_IN_PROGRESS)``.

Made by the classes of kafka-clients 4.3.1. Produce is left out, and so are new versions of Fetch and Metadata: their
clients read the error of the whole request, and Kafka leaves out some of the entries or their names.
"""
SEEDS = range(10)
REBALANCE = "REBALANCE_IN_PROGRESS"


def refused(name: str, version: int, **values: Any) -> dict[str, Any]:
    """Return the error response to a request with these values, as plain values."""
    request = build(message_type(name, version, "request"), values)
    body = encode_error_response(schema(name, version), request, error_code_by_name(REBALANCE))
    assert body is not None
    answer: dict[str, Any] = plain(decode_response(schema(name, version), body))
    return answer


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_error_response_to_every_request_version(api: Any) -> None:
    """kio can encode and decode the response, and it has an entry for each of two topics."""
    for version in range(api.min_version, api.max_version + 1):
        errors = set()
        for seed in SEEDS:
            request = random_entity(schema(api.name, version).request_type, Random(seed))
            body = encode_error_response(schema(api.name, version), request, error_code_by_name(REBALANCE))
            assert body is not None
            errors |= {*error_names_in(decode_response(schema(api.name, version), body))}
        assert errors == {REBALANCE}, f"version {version}"


def test_error_responses_equal_kafkas() -> None:
    """Except for the text, which only some responses of Kafka have."""
    differing = []
    for name, version, request_hex, response_hex in KAFKAS:
        api = schema(name, version)
        theirs = plain(decode_response(api, bytes.fromhex(response_hex)))
        request = api.read(bytes.fromhex(request_hex), 0)[0]
        body = encode_error_response(api, request, error_code_by_name(REBALANCE))
        assert body is not None
        if without_texts(plain(decode_response(api, body))) != without_texts(theirs):
            differing.append((name, version))
    assert differing == []
    assert len(KAFKAS) > 150


def without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_texts(item) for name, item in value.items() if name != "error_message"}
    return [without_texts(item) for item in value] if isinstance(value, list) else value


def test_error_response_to_offset_commit_has_error_per_partition() -> None:
    partitions = [{"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in (0, 2)]
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": 1,
        "member_id": "m",
        "group_instance_id": None,
        "topics": [
            {"name": "t", "partitions": [{**partition, "committed_leader_epoch": -1} for partition in partitions]}
        ],
    }
    assert refused("offset_commit", 8, **values)["topics"] == [
        {
            "name": "t",
            "partitions": [
                {"partition_index": 0, "error_code": REBALANCE},
                {"partition_index": 2, "error_code": REBALANCE},
            ],
        }
    ]


def test_error_response_to_join_group_equals_kafka() -> None:
    answer = refused("join_group", 9, **join_values("g", "me"))
    assert (answer["error_code"], answer["generation_id"], answer["member_id"]) == (REBALANCE, -1, "")
    assert answer["members"] == []


def test_error_response_repeats_names_of_plain_list() -> None:
    assert refused("delete_groups", 2, groups_names=["a", "b"])["results"] == [
        {"group_id": "a", "error_code": REBALANCE},
        {"group_id": "b", "error_code": REBALANCE},
    ]
    coordinators = refused("find_coordinator", 4, key_type=0, coordinator_keys=["a"])["coordinators"]
    assert [(coordinator["key"], coordinator["error_code"]) for coordinator in coordinators] == [("a", REBALANCE)]


def test_error_code_by_name_finds_every_kafka_error() -> None:
    assert int(error_code_by_name("GROUP_AUTHORIZATION_FAILED")) == 30
    assert int(error_code_by_name("unknown_server_error")) == -1


def test_error_code_by_name_with_unknown_name_lists_names() -> None:
    with pytest.raises(ValueError, match=r"no error 'NONSENSE': expected one of .*REBALANCE_IN_PROGRESS"):
        error_code_by_name("NONSENSE")


@pytest.mark.parametrize("name", ["REBALANCE_IN_PROGRES", "rebalance_inprogress", "RebalanceInProgress"])
def test_error_code_by_name_with_similar_name_asks_for_the_known_one(name: str) -> None:
    with pytest.raises(ValueError, match=r"did you mean 'REBALANCE_IN_PROGRESS'\?"):
        error_code_by_name(name)


def test_error_response_of_a_large_request_is_made_in_steps() -> None:
    """It has an entry for each partition of the request."""
    partitions = [
        {"partition_index": index, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        for index in range(5000)
    ]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    values = {"group_id": "g", **member, "topics": [{"name": "t", "partitions": partitions}]}
    request = build(message_type("offset_commit", 8, "request"), values)
    steps = error_response_in_steps(schema("offset_commit", 8), request, error_code_by_name(REBALANCE))
    assert steps is not None
    assert sum(1 for _ in steps) > 5000 // ITEMS_PER_STEP // 2


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_error_response_to_a_heartbeat_repeats_no_member(version: int) -> None:
    """As Kafka answers while it is not the coordinator. Also to a short heartbeat, which kio does not read."""
    values = {"group_id": "g", "member_id": "m", "member_epoch": 7, "instance_id": "i", "topic_partitions": None}
    api = schema(HEARTBEAT, version)
    assert api.read_repeated is not None
    short = api.read_repeated(encode_body(message_type(HEARTBEAT, version, "request")(**values)))
    assert isinstance(short, ShortHeartbeat)
    body = encode_error_response(api, short, error_code_by_name("NOT_COORDINATOR"))
    assert body is not None
    assert plain(decode_response(api, body)) == {
        "throttle_time": 0,
        "error_code": "NOT_COORDINATOR",
        "error_message": None,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }
