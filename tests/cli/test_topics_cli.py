"""Tests of ``callboard topics`` and ``callboard settings set``: output, changes and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from peers.server import TEST_SETTINGS, ServerProcess

from callboard.runtime.cli import settings, topics
from callboard.runtime.client.cluster import Cluster
from callboard.runtime.client.settings import BROKER
from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.address import Address


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        assert self.code == 0, self.err
        return [line.split() for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("topics"), settings=TEST_SETTINGS) as server:
        yield server


@pytest.fixture
def run(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(main: Any, *arguments: str) -> Result:
        try:
            code = main([*arguments, "--bootstrap-server", server.bootstrap])
        except StartError as error:
            return Result(2, "", str(error))
        except SystemExit as end:
            code = end.code
        return Result(code or 0, *capsys.readouterr())

    return run


def test_topic_is_created_shown_grown_and_deleted(run: Run) -> None:
    assert run(topics.main, "create", "orders", "--partitions", "2").out == "topic 'orders' created with 2 partitions\n"
    assert run(topics.main, "list").lines == [["topic", "partitions"], ["orders", "2"]]
    assert run(topics.main, "grow", "orders", "--partitions", "3").out == "topic 'orders' has 3 partitions\n"
    shown = run(topics.main, "describe", "orders", "--json").json
    assert shown == {
        "topic": "orders",
        "partitions": [{"partition": number, "leader": 1, "first_offset": 0, "end_offset": 0} for number in range(3)],
    }
    assert run(topics.main, "delete", "orders").out == "topic 'orders' deleted\n"
    empty = run(topics.main, "list")
    assert (empty.code, empty.out) == (0, "")
    assert empty.err.startswith("callboard: no topics on ")


def test_internal_topics_are_listed_on_request(run: Run) -> None:
    assert run(topics.main, "list", "--json").json == []
    assert "__consumer_offsets" in {topic["topic"] for topic in run(topics.main, "list", "--internal", "--json").json}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "a b"), "topic 'a b' was not created: "),
        (("grow", "missing", "--partitions", "2"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("describe", "missing"), "topic 'missing': there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)"),
        (("delete", "missing"), "topic 'missing' was not deleted: "),
        (("create", "t", "--config", "retention.mss=1"), "INVALID_CONFIG"),
    ],
)
def test_refused_topic_command_exits_with_1_and_names_the_topic(
    run: Run, arguments: tuple[str, ...], text: str
) -> None:
    refused = run(topics.main, *arguments)
    assert (refused.code, refused.out) == (1, "")
    assert text in refused.err
    assert refused.err.count("\n") == 1


def test_invalid_config_option_is_refused_before_any_request(run: Run) -> None:
    refused = run(topics.main, "create", "t", "--config", "retention.ms")
    assert refused == Result(2, "", "--config 'retention.ms': expected NAME=VALUE")


def value_of(server: ServerProcess, name: str) -> str:
    """The value of a setting, as Kafka's clients see it."""
    with Cluster(Address(server.host, server.port), 10.0) as cluster:
        resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [name]}
        answer = cluster.ask(
            "describe_configs", resources=[resource], include_synonyms=False, include_documentation=False
        )
    value: str = answer.results[0].configs[0].value
    return value


def test_settings_set_changes_and_restores_a_setting(run: Run, server: ServerProcess) -> None:
    before = value_of(server, "group.max.size")
    assert run(settings.main, "set", "group_max_size=7", "offset.metadata.max.bytes=5000").out == (
        "group.max.size is 7\noffset.metadata.max.bytes is 5000\n"
    )
    assert value_of(server, "group.max.size") == "7"
    assert value_of(server, "offset.metadata.max.bytes") == "5000"
    assert run(settings.main, "set", "group.max.size=").out == "group.max.size is the start value again\n"
    assert value_of(server, "group.max.size") == before


def test_settings_set_changes_the_limit_of_a_listener(run: Run, server: ServerProcess) -> None:
    name = "listener.name.plaintext.max.connections"
    assert run(settings.main, "set", "listener_name_plaintext_max_connections=900").out == f"{name} is 900\n"
    assert value_of(server, name) == "900"
    assert run(settings.main, "set", f"{name}=").out == f"{name} is the start value again\n"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ("group.max.size=x", 1, "the settings were not changed: invalid value x for configuration group.max.size"),
        ("group.max.sze=1", 2, "unknown setting 'group_max_sze': did you mean 'group_max_size'?"),
        ("group.max.size", 2, "set 'group.max.size': expected NAME=VALUE"),
        ("socket_request_max_bytes=9", 2, "start it with --set socket_request_max_bytes=VALUE"),
        ("listener_name_plaintext_ssl_client_auth=none", 2, "cannot change while the server runs: start it with --set"),
        ("listener.name.nowhere.max.connections=9", 1, "of a listener that does not exist: expected one of the listen"),
    ],
)
def test_settings_set_refuses(run: Run, change: str, code: int, text: str) -> None:
    refused = run(settings.main, "set", change)
    assert (refused.code, refused.out) == (code, "")
    assert text in refused.err
