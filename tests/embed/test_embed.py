"""A coordinator embedded in a program: start, stop, restart, global state, and errors."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import uvloop
from confluent_kafka.admin import AdminClient

import callboard
from callboard import Coordinator, StartError
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.embed.reset_undo import UnknownChange
from callboard.runtime.node.environment import in_memory
from callboard.runtime.settings.load import load
from callboard.runtime.testing.disk.faulty import FaultyDisk

DEADLINE_S = 120.0

Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a coroutine on a loop of either kind."""

    def run(coro: Coroutine[Any, Any, None]) -> None:
        async def run_with_timeout() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await coro

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(run_with_timeout())

    return run


Run = Callable[[Coroutine[Any, Any, None]], None]


def topics_seen_by_client(bootstrap: str) -> set[str]:
    """The topics that a Kafka client sees. Blocks."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


# Start and stop -------------------------------------------------------------------------------------------------------


def test_kafka_client_sees_topics_that_the_program_created(on_loop: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path / "data", "127.0.0.1:0", topics={"jobs": 3}) as coordinator:
            await coordinator.create_topic("more")
            assert {"jobs", "more"} <= await asyncio.to_thread(topics_seen_by_client, coordinator.bootstrap)

    on_loop(scenario())


def test_offsets_and_topics_outlive_a_coordinator_on_the_same_folder(on_loop: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path, topics={"jobs": 2}) as coordinator:
            await coordinator.reset("g", {("jobs", 1): 7})
            before = await coordinator.topics()
        async with Coordinator(tmp_path) as coordinator:
            offsets = await coordinator.offsets("g")
            assert {partition: committed.offset for partition, committed in offsets.items()} == {("jobs", 1): 7}
            [topic] = await coordinator.topics()
            assert (topic.name, topic.topic_id) == (before[0].name, before[0].topic_id)

    on_loop(scenario())


def test_coordinator_without_folder_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario() -> None:
        for _ in range(2):
            async with Coordinator(topics={"jobs": 1}) as coordinator:
                assert await coordinator.offsets("g") == {}
                await coordinator.reset("g", {"jobs": 7})
                assert (await coordinator.offsets("g"))["jobs", 0].offset == 7

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


def test_relative_folder_is_kept_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a program that becomes a daemon does."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    async def scenario() -> None:
        coordinator = Coordinator("state", topics={"jobs": 1})
        monkeypatch.chdir(tmp_path / "elsewhere")
        async with coordinator:
            await coordinator.reset("g", {"jobs": 5})
            await coordinator.restart()
            assert (await coordinator.offsets("g"))["jobs", 0].offset == 5
        assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "state"}

    asyncio.run(scenario())


@pytest.mark.parametrize("disk", [MemoryDisk, FaultyDisk])
@pytest.mark.parametrize("end", ["stopped", "killed", "power lost"])
def test_restart_in_memory_keeps_address_and_acknowledged_offsets(end: Any, disk: type[MemoryDisk]) -> None:
    """Connected clients connect again. A disk that does not simulate a power loss refuses it, and goes on."""

    async def scenario() -> None:
        is_refused = end == "power lost" and disk is MemoryDisk
        refusal = pytest.raises(ValueError, match=r"expected a Coordinator of callboard\.testing")
        environment, topics = in_memory(disk()), {"jobs": 1}
        async with Coordinator(listen="127.0.0.1:0", topics=topics, environment=environment) as coordinator:
            bootstrap = coordinator.bootstrap
            await coordinator.reset("g", {"jobs": 7})
            assert "jobs" in await asyncio.to_thread(topics_seen_by_client, bootstrap)
            with refusal if is_refused else nullcontext():
                await coordinator.restart(end)
            assert coordinator.bootstrap == bootstrap
            assert (await coordinator.offsets("g"))["jobs", 0].offset == 7
            assert "jobs" in await asyncio.to_thread(topics_seen_by_client, bootstrap)

    asyncio.run(scenario())


def test_restart_after_kill_on_a_real_folder_keeps_acknowledged_offsets(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path, topics={"jobs": 1}) as coordinator:
            await coordinator.reset("g", {"jobs": 7})
            await coordinator.restart("killed")
            assert (await coordinator.offsets("g"))["jobs", 0].offset == 7
            with pytest.raises(ValueError, match=r"expected a Coordinator of callboard\.testing in memory"):
                await coordinator.restart("power lost")

    asyncio.run(scenario())


def test_ten_coordinators_in_one_process_are_independent() -> None:
    """Each has its own groups and stops separately."""

    async def scenario() -> None:
        coordinators = [Coordinator(listen="127.0.0.1:0", topics={"jobs": 1}) for _ in range(10)]
        for number, coordinator in enumerate(coordinators):
            await coordinator.start()
            await coordinator.reset("g", {"jobs": number})
        assert len({coordinator.bootstrap for coordinator in coordinators}) == 10
        for number, coordinator in enumerate(coordinators):
            assert (await coordinator.offsets("g"))["jobs", 0].offset == number
            await coordinator.stop()

    asyncio.run(scenario())


def test_error_in_the_body_stops_the_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Coordinator(tmp_path):
                raise ZeroDivisionError
        async with Coordinator(tmp_path):
            pass

    asyncio.run(scenario())


def test_cancelled_stop_continues_to_its_end(tmp_path: Path) -> None:
    """Otherwise the folder would stay locked and the log's thread would keep running."""

    async def scenario() -> None:
        coordinator = Coordinator(tmp_path)
        await coordinator.start()
        stopping = asyncio.create_task(coordinator.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert (tmp_path / ".clean_shutdown").exists()
        async with Coordinator(tmp_path):
            pass

    asyncio.run(scenario())


def test_cancelled_start_releases_the_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        for steps in range(4):
            starting = asyncio.create_task(Coordinator(tmp_path, "127.0.0.1:0").start())
            for _ in range(steps):
                await asyncio.sleep(0)
            if starting.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await starting
            else:
                break
        assert steps > 1
        async with Coordinator(tmp_path, "127.0.0.1:0"):
            pass

    asyncio.run(scenario())


# Global state ---------------------------------------------------------------------------------------------------------


def test_coordinator_changes_no_global_state_of_the_process(tmp_path: Path) -> None:
    """Interpreter settings, signals, logging, the working folder; and no thread is left."""

    gc.unfreeze()  # objects of the tests are freed meanwhile

    def global_state() -> list[Any]:
        root = logging.getLogger()
        signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
        counts = gc.get_threshold(), gc.get_freeze_count(), sys.getswitchinterval()
        return [*counts, signals, root.level, list(root.handlers), logging.lastResort, Path.cwd(), sys.excepthook]

    async def scenario() -> None:
        before = global_state()  # includes the changes by asyncio.run
        async with Coordinator(tmp_path, "127.0.0.1:0", topics={"jobs": 1}) as coordinator:
            await coordinator.reset("g", {"jobs": 7})
            assert global_state() == before
        assert global_state() == before

    before, threads = global_state(), set(threading.enumerate())
    asyncio.run(scenario())
    with Coordinator.in_thread(tmp_path):
        assert global_state() == before
    assert global_state() == before
    assert set(threading.enumerate()) <= threads


PROGRAM = """
import asyncio, sys
from callboard import Coordinator

async def main():
    async with Coordinator(sys.argv[1], "127.0.0.1:0", topics={"jobs": 1}) as coordinator:
        await coordinator.reset("g", {"jobs": 7})
        await coordinator.restart("killed")

asyncio.run(main())
assert "structlog" not in sys.modules
print("done")
"""


def test_program_without_logging_configuration_prints_nothing(tmp_path: Path) -> None:
    """Nothing on standard output and error, and structlog is not imported."""
    process = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "done\n", "")


def test_events_are_logged_by_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "callboard")

    async def scenario() -> None:
        async with Coordinator(tmp_path, topics={"jobs": 1}) as coordinator:
            await coordinator.reset("g", {"jobs": 7})
            await coordinator.restart("killed")

    asyncio.run(scenario())
    assert any("everything is loaded records=1" in line for line in caplog.messages)


def test_import_callboard_imports_no_submodule() -> None:
    program = "import sys, callboard; print(sorted(name for name in sys.modules if name.startswith('callboard')))"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "['callboard']\n"


def test_public_names_can_be_imported() -> None:
    """The names for type checkers and the names at run time are the same."""
    declared = re.findall(r"import (\w+) as \1$", Path(callboard.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert {"Coordinator", "ErrorCode", "Member", "connect"} <= set(declared) <= set(dir(callboard))
    for name in declared:
        assert getattr(callboard, name).__name__ == name
    assert {name for name in dir(callboard) if not name.startswith("_")} == set(declared)
    with pytest.raises(AttributeError, match="has no attribute 'Coordinater'"):
        callboard.Coordinater  # type: ignore[attr-defined]  # noqa: B018


# Errors ---------------------------------------------------------------------------------------------------------------

INVALID_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"group_max_sizes": 3}, "unknown setting 'group_max_sizes': did you mean 'group_max_size'?"),
    ({"group_max_size": 0}, "bad value 0 for setting 'group_max_size': expected a whole number from 1"),
    ({"group_max_size": "3"}, "bad value '3' for setting 'group_max_size'"),
    ({"listen": "nowhere"}, "bad listen 'nowhere': expected HOST:PORT"),
    ({"listen": "127.0.0.1:70000"}, "expected a port from 0 to 65535, not 70000"),
    ({"advertised": ":9092"}, "bad advertised ':9092': expected a host"),
    ({"sync": "often"}, "bad sync 'often': expected one of always, interval, none"),
    ({"topics": {"a b": 1}}, "bad topic name 'a b'"),
    ({"topics": {"a": 0}}, "bad topic 'a': expected 1 to"),
    ({"data": ""}, "bad data '': expected the path of a folder"),
    ({"data": "a\0b"}, r"bad data 'a\x00b': found a NUL character, expected a path"),
    ({"data": "a\ud800b"}, r"bad data 'a\ud800b': found half a character, expected a path"),
]


@pytest.mark.parametrize(
    "error",
    [
        callboard.CoordinatorError(callboard.ErrorCode.NON_EMPTY_GROUP, "group 'g': it has members", "a_limit"),
        callboard.CommitRefused("the note is too long", callboard.ErrorCode.OFFSET_METADATA_TOO_LARGE),
        callboard.StartError("bad data 5"),
        UnknownChange("a1"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_is_the_same_after_pickle(error: callboard.CallboardError) -> None:
    """A process pool sends the error of its worker in this way. One that cannot be read ends the pool."""
    restored = pickle.loads(pickle.dumps(error))
    assert (type(restored), str(restored), vars(restored)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(("options", "message"), INVALID_OPTIONS, ids=lambda value: str(value)[:30])
def test_invalid_coordinator_argument_raises_start_error(options: dict[str, Any], message: str) -> None:
    for create in (Coordinator, Coordinator.in_thread):
        with pytest.raises(StartError) as caught:
            create(**options)
        assert message in str(caught.value)


def test_coordinator_raises_the_error_text_of_serve() -> None:
    for name, value in (("group_max_size", 0), ("group_maxsize", 1)):
        settings: dict[str, Any] = {name: value}
        with pytest.raises(StartError) as embedded_error:
            Coordinator(**settings)
        with pytest.raises(StartError) as serve_error:
            load(overrides=[f"{name}={value}"])
        assert str(embedded_error.value) == str(serve_error.value)


def test_start_on_a_folder_in_use_raises_error_with_the_process_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(tmp_path) as first:
            with pytest.raises(StartError, match=f"in use by process {os.getpid()}, this one; stop the other"):
                await Coordinator(tmp_path).start()
            assert await first.offsets("g") == {}

    asyncio.run(scenario())


def test_start_on_a_port_in_use_leaves_the_folder_untouched(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Coordinator(listen="127.0.0.1:0") as first:
            with pytest.raises(StartError, match=r"in use by another program.*choose another port with listen "):
                await Coordinator(tmp_path / "data", first.bootstrap).start()

    asyncio.run(scenario())
    assert not (tmp_path / "data").exists()


def test_listen_on_all_addresses_without_advertised_raises_start_error() -> None:
    async def scenario() -> None:
        with pytest.raises(StartError, match="give it with advertised HOST:PORT"):
            await Coordinator(listen="0.0.0.0:0").start()
        async with Coordinator(listen="0.0.0.0:0", advertised="stage.example:9") as coordinator:
            assert coordinator.bootstrap == "stage.example:9"

    asyncio.run(scenario())


def test_use_before_start_or_after_stop_raises_runtime_error() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        with pytest.raises(RuntimeError, match="is not running yet"):
            await coordinator.offsets("g")
        with pytest.raises(RuntimeError, match="does not listen"):
            _ = coordinator.bootstrap
        await coordinator.stop()  # nothing to stop is no error
        async with coordinator:
            with pytest.raises(RuntimeError, match="started before: make another one"):
                await coordinator.start()
        await coordinator.stop()
        with pytest.raises(RuntimeError, match="has stopped: make another one"):
            await coordinator.offsets("g")
        with pytest.raises(RuntimeError, match="started before"):
            await coordinator.start()

    asyncio.run(scenario())


def test_use_from_another_loop_raises_runtime_error() -> None:
    async def scenario() -> None:
        async with Coordinator() as coordinator:

            def run_on_another_loop() -> None:
                with pytest.raises(RuntimeError, match=r"runs on another event loop.*in_thread"):
                    asyncio.run(coordinator.offsets("g"))

            await asyncio.to_thread(run_on_another_loop)

    asyncio.run(scenario())
