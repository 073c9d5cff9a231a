"""Limits of the connections that are served, and of those that begin in a second: further ones wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import Client, async_test, frame, running_node
from sasl_helpers import log_in, plain_frame, running_sasl_node
from tls_helpers import TlsFolder

from callboard.runtime.common.errors import StartError
from callboard.runtime.kafka.connections import connection_places
from callboard.runtime.kafka.connections.connection_phase import Phase
from callboard.runtime.kafka.connections.connection_places import CLOSED_AT_ONCE_MAX, TURN_MS_MAX, ConnectionPlaces
from callboard.runtime.kafka.connections.holds import Hold
from callboard.runtime.node.services import NodeServices
from callboard.runtime.settings.dynamic import LiveSettings
from callboard.runtime.settings.listener_limits import ListenerLimits
from callboard.runtime.settings.listeners import Listener, parse_listeners, with_settings
from callboard.runtime.settings.table import Settings

BROKER, SET = 4, 0
BURST_S = 11
WAIT_S = 0.3
LIMIT = "max_connections"
RATE = "max_connection_creation_rate"
TIMEOUT = "authentication_timeout_ms"
LIMIT_MS = 54_321


class Connection:
    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.is_waiting = False
        self.muted_ms = 0
        self.idle_checks = 0
        self.is_open = True

    def hold(self, _hold: Hold, *, is_held: bool) -> None:
        self.is_waiting = is_held

    def mute(self, delay_ms: int) -> None:
        self.muted_ms = delay_ms

    def close_idle(self) -> None:
        self.is_open = False


class Changeable:
    """Places whose settings change. ``steps``: what is to be done in later steps of the event loop."""

    def __init__(self, listeners: Mapping[str, Mapping[str, str]], inter_broker: str = "A", **settings: Any) -> None:
        """``listeners``: their own settings, by name."""
        own = [Listener(name, settings=values) for name, values in listeners.items()]
        self.steps: list[Any] = []
        self._settings = LiveSettings(**settings)
        self._limits = ListenerLimits(own)
        self.places = ConnectionPlaces(self._settings, self._limits, inter_broker, lambda: 0, self._later)

    def _later(self, _delay_ms: int, step: Any) -> Any:
        self.steps.append(step)

    def change(self, **settings: Any) -> None:
        self._settings.update_from(Settings(**settings))
        self.places.settings_changed()
        self.run_step()

    def change_limits(self, **values: int) -> None:
        """``values``: of single listeners, by name."""
        self._limits.change(values)
        self.places.settings_changed()
        self.run_step()

    def run_step(self) -> None:
        self.steps.pop()()


def made(listeners: Mapping[str, Mapping[str, str]], inter_broker: str = "A", **settings: Any) -> ConnectionPlaces:
    return Changeable(listeners, inter_broker, **settings).places


def added(places: ConnectionPlaces, listener: str = "A") -> Connection | None:
    connection = Connection(listener)
    return connection if places.add(connection) else None


def waiting(*connections: Connection | None) -> list[bool]:
    return [connection is not None and connection.is_waiting for connection in connections]


def test_connection_that_has_waited_longest_gets_the_place_of_one_that_ends() -> None:
    places = made({"A": {}}, max_connections=1)
    first, second, third, fourth = (added(places) for _ in range(4))
    assert waiting(first, second, third, fourth) == [False, True, True, True]
    assert first is not None and second is not None
    places.remove(second)
    places.remove(first)
    assert waiting(third, fourth) == [False, True]


def test_listener_has_places_of_its_own() -> None:
    places = made({"A": {LIMIT: "1"}, "B": {}}, max_connections=3)
    connections = [added(places, name) for name in "AABBB"]
    assert waiting(*connections) == [False, True, False, False, True]


def test_limits_of_all_listeners_do_not_hold_for_that_of_nodes() -> None:
    places = made({"A": {}, "B": {}}, inter_broker="B", max_connections=1, max_connection_creation_rate=1)
    connections = [added(places, name) for name in "AABB"]
    assert waiting(*connections) == [False, True, False, False]
    assert are_open(*connections) == [False, True, True, True], "for a node, one of a client is closed"
    for _ in range(2 * BURST_S):
        assert (connection := added(places, "B")) is not None and not connection.muted_ms


@pytest.mark.parametrize("is_own", [False, True])
def test_connections_that_begin_too_fast_wait_for_their_turns(is_own: bool) -> None:
    places = made({"A": {RATE: "2"}}) if is_own else made({"A": {}}, max_connection_creation_rate=2)
    connections = [added(places) for _ in range(2 * BURST_S)]
    assert {connection and connection.muted_ms for connection in connections} == {0}
    turns_ms = range(500, TURN_MS_MAX + 1, 500)
    late = [added(places) for _ in turns_ms]
    assert [connection and connection.muted_ms for connection in late] == list(turns_ms)
    assert [added(places), added(places)] == [None, None]


def are_open(*connections: Connection | None) -> list[bool]:
    return [connection is not None and connection.is_open for connection in connections]


def test_raised_limit_serves_those_that_wait() -> None:
    changeable = Changeable({"A": {}, "B": {LIMIT: "1"}}, max_connections=1)
    connections = [added(changeable.places, name) for name in "BBBAA"]
    assert waiting(*connections) == [False, True, True, False, False]
    assert waiting(*(added(changeable.places, "B") for _ in range(2))) == [True, True]
    changeable.change(max_connections=9)
    assert waiting(*connections) == [False, True, True, False, False], "the limit of their own listener"
    lone = Changeable({"A": {}}, max_connections=1)
    connections = [added(lone.places) for _ in range(4)]
    lone.change(max_connections=3)
    assert waiting(*connections) == [False, False, False, True]


def test_lowered_limit_closes_those_that_are_idle_for_longest() -> None:
    changeable = Changeable({"A": {}, "B": {}}, inter_broker="B")
    connections = [added(changeable.places, name) for name in "AAAAB"]
    for connection, idle_checks in zip(connections, (1, 2, 0, 1, 5), strict=True):
        assert connection is not None
        connection.idle_checks = idle_checks
    changeable.change(max_connections=3)
    assert are_open(*connections) == [False, False, True, True, True]
    changeable.change(max_connections=3)
    assert are_open(*connections) == [False, False, True, True, True], "those that close are not counted"
    assert not changeable.steps
    changeable.change(max_connections=0)
    assert are_open(*connections) == [False, False, False, False, True], "those of nodes stay"


def test_raised_limit_of_a_listener_serves_those_that_wait_for_its_places() -> None:
    changeable = Changeable({"A": {LIMIT: "1"}, "B": {LIMIT: "1"}}, max_connections=4)
    connections = [added(changeable.places, name) for name in "AAAABB"]
    assert waiting(*connections) == [False, True, True, True, False, True]
    changeable.change_limits(listener_name_a_max_connections=3)
    assert waiting(*connections) == [False, False, False, True, False, True]
    changeable.change_limits()
    assert waiting(added(changeable.places)) == [True], "the limit of the start again"


def test_lowered_limit_of_a_listener_closes_nobody() -> None:
    """As in Kafka: it holds for new connections."""
    changeable = Changeable({"A": {}})
    first, second, third = (added(changeable.places) for _ in range(3))
    changeable.change_limits(listener_name_a_max_connections=1)
    assert are_open(first, second, third) == [True, True, True]
    fourth = added(changeable.places)
    for connection in (first, second):
        assert connection is not None
        changeable.places.remove(connection)
    assert waiting(third, fourth) == [False, True]
    assert third is not None
    changeable.places.remove(third)
    assert waiting(fourth) == [False]


def test_many_connections_above_a_lowered_limit_are_closed_in_steps() -> None:
    changeable = Changeable({"A": {}})
    count = 2 * CLOSED_AT_ONCE_MAX + 5
    connections = [added(changeable.places) for _ in range(count)]
    changeable.change(max_connections=2)
    assert sum(are_open(*connections)) == count - CLOSED_AT_ONCE_MAX
    changeable.run_step()
    changeable.run_step()
    assert sum(are_open(*connections)) == 2
    assert not changeable.steps


def test_changed_rate_holds_for_the_next_connections() -> None:
    changeable = Changeable({"A": {}})
    assert {connection and connection.muted_ms for connection in (added(changeable.places) for _ in range(99))} == {0}
    changeable.change(max_connection_creation_rate=1)
    connections = [added(changeable.places) for _ in range(BURST_S + 1)]
    assert [connection and connection.muted_ms for connection in connections] == [0] * BURST_S + [1000]


def test_changed_rate_of_a_listener_holds_for_its_next_connections() -> None:
    changeable = Changeable({"A": {RATE: "5"}, "B": {}})
    changeable.change_limits(listener_name_a_max_connection_creation_rate=1)
    connections = [added(changeable.places) for _ in range(BURST_S + 1)]
    assert [connection and connection.muted_ms for connection in connections] == [0] * BURST_S + [1000]
    others = [added(changeable.places, "B") for _ in range(99)]
    assert {connection and connection.muted_ms for connection in others} == {0}


@pytest.mark.parametrize(("name", "value"), [(LIMIT, "few"), (RATE, "0")])
def test_bad_limit_of_a_listener_is_refused(name: str, value: str) -> None:
    with pytest.raises(StartError, match=f"bad value '{value}' for setting '{name}'"):
        with_settings(parse_listeners(["127.0.0.1:0"]), {f"listener_name_plaintext_{name}": value}, {})


@pytest.mark.parametrize("is_own", [False, True])
@async_test
async def test_client_without_a_place_is_served_when_another_one_has_left(is_own: bool, tmp_path: Path) -> None:
    options: Any = {"listeners": (Listener(settings={LIMIT: "1"} if is_own else {}),)}
    settings = {} if is_own else {LIMIT: 1}
    async with running_node(tmp_path, options, **settings) as harness:
        first, second = await harness.connect(), await harness.connect()
        await first.ask("api_versions", 0)
        await until_waiting(harness.node, 1)
        assert await is_answered(first)  # some turns of the loop later
        second.write(frame("api_versions", 0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second.receive_frame(), WAIT_S)
        assert await is_answered(first)
        await first.close()
        assert (await second.receive("api_versions", 0))["error_code"] == "NONE"


@async_test
async def test_connection_is_closed_if_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_places, "WAITING_CONNECTIONS_MAX", 1)
    async with running_node(tmp_path, max_connections=1, max_connections_per_ip=3) as harness:
        first = await harness.connect()
        await first.ask("api_versions", 0)
        second: Client = await harness.connect()
        await until_waiting(harness.node, 1)
        for _ in range(3):  # it does not count for its address
            assert await (await harness.connect()).responses_until_disconnect() == []
        await first.close()
        assert (await second.ask("api_versions", 0))["error_code"] == "NONE"


@async_test
async def test_client_without_a_place_authenticates_when_it_gets_one(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, max_connections=1) as harness:
        first, second = await harness.connect(), await harness.connect()
        await log_in(first)
        second.write(plain_frame())
        await until_waiting(harness.node, 1)
        assert await is_answered(first)
        await first.close()
        for api, version in (("sasl_handshake", 1), ("sasl_authenticate", 2)):
            assert (await second.receive(api, version))["error_code"] == "NONE"


@async_test
async def test_time_to_authenticate_begins_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays_ms = recorded_delays(monkeypatch)
    async with running_sasl_node(tmp_path, {TIMEOUT: str(LIMIT_MS)}, max_connections=1) as harness:
        first, second = await harness.connect(), await harness.connect()
        await log_in(first)
        await until_waiting(harness.node, 1)
        assert delays_ms.count(LIMIT_MS) == 1
        await first.close()
        await log_in(second)
        assert delays_ms.count(LIMIT_MS) == 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@async_test
async def test_client_authenticates_again_while_others_wait_for_places(mechanism: str, tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, {"connections_max_reauth_ms": "3600000"}, max_connections=1) as harness:
        first, second = await harness.connect(), await harness.connect()
        await log_in(first, mechanism=mechanism)
        second.write(plain_frame())
        await until_waiting(harness.node, 1)
        assert (await log_in(first, mechanism=mechanism))["error_code"] == "NONE"
        assert await is_answered(first)
        await until_waiting(harness.node, 1)


@pytest.fixture
def files(tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path)


def full_tls_node(files: TlsFolder, **settings: int) -> Any:
    """A node with TLS and one place."""
    return running_node(files.folder / "data", {"listeners": (files.listener(),)}, max_connections=1, **settings)


@async_test
async def test_tls_handshake_and_its_time_begin_with_the_place(
    files: TlsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, delays_ms = files.client_context(), recorded_delays(monkeypatch)
    async with full_tls_node(files, handshake_timeout_ms=LIMIT_MS) as harness:
        first = await harness.connect(context)
        connecting = asyncio.create_task(harness.connect(context))
        await until_waiting(harness.node, 1)
        for _ in range(20):  # a handshake needs fewer turns of the loop
            assert await is_answered(first)
        assert {connection.phase for connection in harness.node.connections} == {Phase.HANDSHAKE, Phase.SERVING}
        assert not connecting.done()
        assert delays_ms.count(LIMIT_MS) == 1
        await first.close()
        assert await is_answered(await connecting)
        assert delays_ms.count(LIMIT_MS) == 2


@async_test
async def test_client_with_tls_may_not_wait_for_longer_than_an_idle_one(files: TlsFolder) -> None:
    async with full_tls_node(files) as harness:
        first, second = await harness.connect(files.client_context()), await harness.connect()
        await until_waiting(harness.node, 1)
        assert await is_answered(first)
        [waiting] = [each for each in harness.node.connections if each.phase is Phase.HANDSHAKE]
        assert [waiting.count_idle_checks() for _ in range(4)] == [0, 1, 2, 3], "nothing else counts as activity"
        waiting.close_idle()
        assert await second.read_to_end() == b""


def test_time_of_an_idle_connection_begins_with_its_place() -> None:
    places = made({"A": {}}, max_connections=1)
    first, second = added(places), added(places)
    assert first is not None and second is not None
    first.idle_checks = second.idle_checks = 3
    places.remove(first)
    assert second.idle_checks == 0


def recorded_delays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The milliseconds after which a node wants to be called back, from now on."""
    later, delays_ms = NodeServices.later, list[int]()

    def record(services: NodeServices, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        delays_ms.append(delay_ms)
        return later(services, delay_ms, callback)

    monkeypatch.setattr(NodeServices, "later", record)
    return delays_ms


async def is_answered(client: Client) -> bool:
    return bool((await client.ask("api_versions", 0))["error_code"] == "NONE")


@async_test
async def test_changed_limit_serves_and_closes_connections_of_a_running_server(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_connections=2) as harness:
        first, admin, third = [await harness.connect() for _ in range(3)]
        for client in (first, admin):
            await client.ask("api_versions", 0)
        third.write(frame("api_versions", 0))
        await until_waiting(harness.node, 1)
        await set_limit(admin, 3)
        assert (await third.receive("api_versions", 0))["error_code"] == "NONE"
        await set_limit(admin, 2)  # the change is answered, though it closes connections
        assert await first.responses_until_disconnect() == [], "the oldest of those that are equally idle"
        for client in (admin, third):
            assert (await client.ask("api_versions", 0))["error_code"] == "NONE"


async def set_limit(client: Client, limit: int, name: str = "max.connections") -> None:
    config = {"name": name, "config_operation": SET, "value": str(limit)}
    resource = {"resource_type": BROKER, "resource_name": "1", "configs": [config]}
    answer: Any = await client.ask("incremental_alter_configs", resources=[resource], validate_only=False)
    assert answer["responses"][0]["error_code"] == "NONE"


@async_test
async def test_changed_limit_of_a_listener_serves_and_holds_back_clients_of_a_running_server(tmp_path: Path) -> None:
    name = "listener.name.plaintext.max.connections"
    async with running_node(tmp_path, {"listeners": (Listener(settings={LIMIT: "2"}),)}) as harness:
        first, admin, third = [await harness.connect() for _ in range(3)]
        for client in (first, admin):
            assert await is_answered(client)
        third.write(frame("api_versions", 0))
        await until_waiting(harness.node, 1)
        await set_limit(admin, 3, name)
        assert (await third.receive("api_versions", 0))["error_code"] == "NONE"
        await set_limit(admin, 1, name)
        for client in (first, admin, third):
            assert await is_answered(client), "nobody is disconnected"
        fourth = await harness.connect()
        fourth.write(frame("api_versions", 0))
        await until_waiting(harness.node, 1)
        for client in (first, third):
            await client.close()
        assert await is_answered(admin)
        await until_waiting(harness.node, 1)
        await admin.close()
        assert (await fourth.receive("api_versions", 0))["error_code"] == "NONE"


@async_test
async def test_changed_rate_of_a_listener_holds_for_the_next_clients_of_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays_ms = recorded_delays(monkeypatch)
    async with running_node(tmp_path) as harness:
        admin = await harness.connect()
        await set_limit(admin, 1, "listener.name.plaintext.max.connection.creation.rate")
        clients = [await harness.connect() for _ in range(BURST_S + 1)]
        for client in clients[:BURST_S]:
            assert await is_answered(client)
        while not [each for each in delays_ms if 0 < each <= 1000]:
            await asyncio.sleep(0)
        assert await is_answered(clients[-1]), "when it is its turn"


async def until_waiting(node: Any, count: int) -> None:
    while sum(Hold.WITHOUT_PLACE in connection.holds.reasons for connection in node.connections) != count:
        await asyncio.sleep(0)
