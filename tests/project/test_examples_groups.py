"""The examples of groups: programs that share work, a service, and tests that use the pytest plugin.

Each example runs as a user would run it. Its output shows that all work is done, that no work is done by two workers at
once, and that dead and frozen workers are detected.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import httpx
import links
import pytest
from PIL import Image
from project_paths import EXAMPLES

DEADLINE_S = 600.0  # for a process that hangs
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "callboard.runtime.testing.plugin.plugin")


def environment() -> dict[str, str]:
    """The environment without variables that change pytest's options or split a printed line into two writes.

    Plugins are not loaded automatically; callboard's is loaded by its name, so it need not be installed.
    """
    variables = {
        name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "PYTHONUNBUFFERED")
    }
    return variables | {"PYTHONPATH": links.python_path(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(*command: str | Path, cwd: Path) -> list[str]:
    """Run a program, which must succeed, and return the lines that it prints. Its workers end with it."""
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=DEADLINE_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, printed + errors
    return printed.splitlines()


# Programs ------------------------------------------------------------------------------------------------------------


def test_resize_images_finishes_after_a_worker_is_killed(tmp_path: Path) -> None:
    lines = run(EXAMPLES / "resize_images.py", cwd=tmp_path)
    assert lines[-1] == "48 of 48 images, 48 thumbnails"
    ends = Counter(line.split(maxsplit=1)[1] for line in lines if re.fullmatch(r"worker-\d (was killed|left)", line))
    assert ends == {"was killed": 1, "left": 2}
    [killed] = [line.split()[0] for line in lines if line.endswith("was killed")]
    resized = {match[2]: match[1] for line in lines if (match := re.fullmatch(r"(worker-\d) resized (\S+)", line))}
    assert len(resized) == 48
    rest = [f"photo-{number}.jpg" for number in (18, 24, 30, 36, 42)]  # the rest of the shard in which it was killed
    assert killed not in {resized[name] for name in rest}, "other workers continued its shard"


def test_resize_images_resizes_images_of_a_given_folder(tmp_path: Path) -> None:
    """With fewer images than shards some workers have none. The originals are not changed."""
    photos, thumbnails = tmp_path / "photos", tmp_path / "thumbnails"
    photos.mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (1000, 500)).save(photos / f"{name}.jpg")
    lines = run(EXAMPLES / "resize_images.py", photos, thumbnails, cwd=tmp_path)
    assert lines[-1] == "2 of 2 images, 2 thumbnails"
    assert sorted(path.name for path in thumbnails.iterdir()) == ["a.jpg", "b.jpg"], "no temporary file is left"
    with Image.open(thumbnails / "a.jpg") as small, Image.open(photos / "a.jpg") as large:
        assert (small.size, large.size) == ((320, 160), (1000, 500))


def test_write_of_a_frozen_scheduler_is_refused(tmp_path: Path) -> None:
    lines = run(EXAMPLES / "sharded_scheduler.py", cwd=tmp_path)
    assert lines[-1] == "each job ran once per tick: True"
    assert {"north left", "south left"} < set(lines)
    tokens: dict[str, list[int]] = {}
    for line in lines:
        if match := re.fullmatch(r"(north|south) runs (emea|apac|americas), token (\d+)", line):
            tokens.setdefault(match[2], []).append(int(match[3]))
    assert sorted(tokens) == ["americas", "apac", "emea"]
    assert all(sorted(set(shard_tokens)) == shard_tokens for shard_tokens in tokens.values()), (
        "tokens grow with each change of owner"
    )
    [refused] = [line for line in lines if line.startswith("south cannot write: ")]
    match = re.fullmatch(r"south cannot write: shard (\w+): token (\d+) is older than (\d+)", refused)
    assert match
    assert int(match[2]) in tokens[match[1]]
    assert int(match[3]) in tokens[match[1]]


def test_shard_queue_quarantines_a_task_that_kills_its_worker(tmp_path: Path) -> None:
    lines = run(EXAMPLES / "shard_queue.py", cwd=tmp_path)
    assert lines[-2:] == ["42 tasks are done; quarantined: ['crash']", "workers were started 4 times"]
    [retried] = lines[:-2]
    assert retried.endswith(": flaky of customer-0, attempt 1: the server is busy")


# Tests ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("test_aiokafka_service.py", 2), ("test_confluent_rebalance.py", 4)])
def test_example_tests_pass(name: str, number: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text(
        (EXAMPLES / name).read_text()
    )  # outside of this repository's settings, as a user would
    *_, last = run(*PYTEST, "-W", "error", "--strict-markers", name, cwd=tmp_path)
    assert last.startswith(f"{number} passed")


@pytest.mark.parametrize(
    ("name", "line", "replacement", "failing_test"),
    [
        (
            "test_aiokafka_service.py",
            "if offset >= self.next_offsets[partition]:",
            "if True:",
            "test_disconnected_instance_counts_no_order_twice",
        ),
        (
            "test_confluent_rebalance.py",
            "            del self.collected[partition.partition]  # its new",
            "            self.written += self.collected.pop(partition.partition)  # its new",
            "test_lost_partition_is_neither_written_nor_committed",
        ),
    ],
)
def test_example_tests_fail_if_the_bug_is_planted(
    name: str, line: str, replacement: str, failing_test: str, tmp_path: Path
) -> None:
    source = (EXAMPLES / name).read_text()
    assert source.count(line) == 1
    (tmp_path / name).write_text(source.replace(line, replacement))
    command = (sys.executable, *PYTEST, "-k", failing_test, name)
    result = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 failed" in result.stdout
    assert "Callboard timeline" in result.stdout, "with the timeline of events"


# The service ---------------------------------------------------------------------------------------------------------


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(name.removesuffix(".py"), EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def served(service: ModuleType) -> AsyncIterator[httpx.AsyncClient]:
    """Run the application and yield a client, without a socket between them."""
    app: Any = service.app
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client,
    ):
        yield client


async def wait_until(poll: Callable[[], Awaitable[Any]], accept: Callable[[Any], object]) -> Any:
    value = None
    try:
        async with asyncio.timeout(30):
            while not accept(value := await poll()):
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"timeout after 30 s; last value: {value!r}") from None
    return value


def test_fastapi_service_shows_owners_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_DATA", str(tmp_path / "state"))
    service = load("fastapi_service.py")

    async def scenario() -> None:
        async with served(service) as client:

            async def get(path: str) -> Any:
                return (await client.get(path)).raise_for_status().json()

            async def owners() -> dict[str, str]:
                return {name: owner["member"] for name, owner in (await get("/owners")).items()}

            first = await wait_until(
                owners, lambda owner_by_name: len(owner_by_name) == 3 and len(set(owner_by_name.values())) == 2
            )
            assert sorted(first) == ["acme", "initech", "zenith"]
            assert await get("/members") == {"Stable": ["worker-0", "worker-1"]}
            await wait_until(lambda: get("/progress"), lambda notes: len(notes) == 3)

            assert (await client.put("/tenants/globex")).json()[-1] == "globex"
            second = await wait_until(owners, lambda owner_by_name: "globex" in owner_by_name)
            assert second.items() > first.items(), "the other tenants keep their owners"

            assert (await client.delete("/tenants/acme")).status_code == 200
            await wait_until(owners, lambda owner_by_name: "acme" not in owner_by_name)
            assert (await client.delete("/tenants/acme")).status_code == 404
            assert (await client.put("/tenants/a.b")).status_code == 422

    asyncio.run(scenario())


def test_fastapi_service_continues_at_the_committed_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the service, for all tenants."""
    monkeypatch.setenv("CALLBOARD_DATA", str(tmp_path / "state"))
    service = load("fastapi_service.py")

    async def pages() -> dict[str, int]:
        async with served(service) as client:

            async def progress() -> dict[str, int]:
                notes = (await client.get("/progress")).json()
                return {name: int(text.removeprefix("page ")) for name, text in notes.items()}

            counts: dict[str, int] = await wait_until(
                progress, lambda counts: len(counts) == 3 and min(counts.values()) >= 2
            )
            return counts

    async def scenario() -> None:
        before = await pages()
        after = await pages()
        assert all(after[name] >= before[name] for name in before)

    asyncio.run(scenario())


def test_rebalance_picture_shows_one_owner_of_each_shard_at_a_time(tmp_path: Path) -> None:
    picture = tmp_path / "rebalance.svg"
    run(EXAMPLES / "rebalance_picture.py", picture, cwd=tmp_path)
    bars = [bar for bar in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}rect") if len(bar)]
    assert {bar[0].text.split(",")[0] for bar in bars if bar[0].text} == {"worker 1", "worker 2", "worker 3"}
    by_shard: dict[str, list[tuple[float, float]]] = {}
    for bar in bars:
        begin = float(bar.attrib["x"])
        by_shard.setdefault(bar.attrib["y"], []).append((begin, begin + float(bar.attrib["width"])))
    assert len(by_shard) == 6
    for periods in by_shard.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(periods)))
