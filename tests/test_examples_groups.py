"""The examples of groups: programs that share out work, a service, and tests that use our fixtures.

Each is run as its reader would. What it prints, or answers, is held to what it promises: nothing is left out, nothing
is done by two, and whoever has died or frozen is found out.
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
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import links
import pytest
from PIL import Image

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DEADLINE_S = 600.0  # for a process that hangs
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "callboard.runtime.testing.plugin.plugin")


def environment() -> dict[str, str]:
    """Ours, but for what changes how pytest runs, and for what makes two writes of a printed line.

    Of pytest's plugins only ours: it is there by its name, whether or not this tree is installed.
    """
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "PYTHONUNBUFFERED")}
    return ours | {"PYTHONPATH": links.python_path(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(*command: str | Path, cwd: Path) -> list[str]:
    """The lines that a program prints; it must end well. Its workers end with it, whatever becomes of it."""
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
    resized = {found[2]: found[1] for line in lines if (found := re.fullmatch(r"(worker-\d) resized (\S+)", line))}
    assert len(resized) == 48
    left = [f"photo-{number}.jpg" for number in (18, 24, 30, 36, 42)]  # of the share at which it was killed
    assert killed not in {resized[name] for name in left}, "others have gone on where it was"


def test_resize_images_resizes_images_of_a_given_folder(tmp_path: Path) -> None:
    """Fewer than shares: some have nothing to do. What was there is not touched."""
    photos, thumbnails = tmp_path / "photos", tmp_path / "thumbnails"
    photos.mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (1000, 500)).save(photos / f"{name}.jpg")
    lines = run(EXAMPLES / "resize_images.py", photos, thumbnails, cwd=tmp_path)
    assert lines[-1] == "2 of 2 images, 2 thumbnails"
    assert sorted(path.name for path in thumbnails.iterdir()) == ["a.jpg", "b.jpg"], "nothing unfinished is left"
    with Image.open(thumbnails / "a.jpg") as small, Image.open(photos / "a.jpg") as large:
        assert (small.size, large.size) == ((320, 160), (1000, 500))


def test_write_of_a_frozen_scheduler_is_refused(tmp_path: Path) -> None:
    lines = run(EXAMPLES / "sharded_scheduler.py", cwd=tmp_path)
    assert lines[-1] == "each job ran once a tick: True"
    assert {"north left", "south left"} < set(lines)
    tokens: dict[str, list[int]] = {}
    for line in lines:
        if found := re.fullmatch(r"(north|south) runs (emea|apac|americas), token (\d+)", line):
            tokens.setdefault(found[2], []).append(int(found[3]))
    assert sorted(tokens) == ["americas", "apac", "emea"]
    assert all(sorted(set(grown)) == grown for grown in tokens.values()), "tokens grow with each change of owner"
    [refused] = [line for line in lines if line.startswith("south may not write: ")]
    found = re.fullmatch(r"south may not write: shard (\w+): token (\d+) is older than (\d+)", refused)
    assert found
    assert int(found[2]) in tokens[found[1]]
    assert int(found[3]) in tokens[found[1]]


def test_shard_queue_quarantines_a_task_that_kills_its_worker(tmp_path: Path) -> None:
    lines = run(EXAMPLES / "shard_queue.py", cwd=tmp_path)
    assert lines[-2:] == ["42 tasks are done; put aside: ['crash']", "workers were started 4 times"]
    [retried] = lines[:-2]
    assert retried.endswith(": flaky of customer-0, attempt 1: the other side is busy")


# Tests ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("test_aiokafka_service.py", 2), ("test_confluent_rebalance.py", 4)])
def test_example_tests_pass(name: str, number: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text((EXAMPLES / name).read_text())  # away from our settings, as its reader would
    *_, last = run(*PYTEST, "-W", "error", "--strict-markers", name, cwd=tmp_path)
    assert last.startswith(f"{number} passed")


@pytest.mark.parametrize(
    ("name", "line", "instead", "fails"),
    [
        (
            "test_aiokafka_service.py",
            "if offset >= self.next_offsets[partition]:",
            "if True:",
            "test_an_instance_that_was_cut_off_counts_nothing_twice",
        ),
        (
            "test_confluent_rebalance.py",
            "            del self.collected[place.partition]  # whoever",
            "            self.written += self.collected.pop(place.partition)  # whoever",
            "test_what_is_lost_is_neither_written_nor_committed",
        ),
    ],
)
def test_example_tests_fail_if_the_bug_is_planted(
    name: str, line: str, instead: str, fails: str, tmp_path: Path
) -> None:
    source = (EXAMPLES / name).read_text()
    assert source.count(line) == 1
    (tmp_path / name).write_text(source.replace(line, instead))
    command = (sys.executable, *PYTEST, "-k", fails, name)
    found = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert "1 failed" in found.stdout
    assert "Callboard timeline" in found.stdout, "and says what has happened"


# The service ---------------------------------------------------------------------------------------------------------


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(name.removesuffix(".py"), EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def served(service: ModuleType) -> AsyncIterator[httpx.AsyncClient]:
    """The application from its start to its end, and somebody who asks it, without a socket between them."""
    app: Any = service.app
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client,
    ):
        yield client


async def wait_until(look: Callable[[], Awaitable[Any]], accept: Callable[[Any], object]) -> Any:
    seen = None
    try:
        async with asyncio.timeout(30):
            while not accept(seen := await look()):
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not so within 30 s; seen last: {seen!r}") from None
    return seen


def test_fastapi_service_shows_owners_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_DATA", str(tmp_path / "state"))
    service = load("fastapi_service.py")

    async def story() -> None:
        async with served(service) as client:

            async def get(path: str) -> Any:
                return (await client.get(path)).raise_for_status().json()

            async def owners() -> dict[str, str]:
                return {name: owner["member"] for name, owner in (await get("/owners")).items()}

            first = await wait_until(owners, lambda seen: len(seen) == 3 and len(set(seen.values())) == 2)
            assert sorted(first) == ["acme", "initech", "zenith"]
            assert await get("/members") == {"Stable": ["worker-0", "worker-1"]}
            await wait_until(lambda: get("/progress"), lambda seen: len(seen) == 3)

            assert (await client.put("/tenants/globex")).json()[-1] == "globex"
            second = await wait_until(owners, lambda seen: "globex" in seen)
            assert second.items() > first.items(), "those that were there have stayed where they were"

            assert (await client.delete("/tenants/acme")).status_code == 200
            await wait_until(owners, lambda seen: "acme" not in seen)
            assert (await client.delete("/tenants/acme")).status_code == 404
            assert (await client.put("/tenants/a.b")).status_code == 422

    asyncio.run(story())


def test_fastapi_service_continues_at_the_committed_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a tenant who was away for a while."""
    monkeypatch.setenv("CALLBOARD_DATA", str(tmp_path / "state"))
    service = load("fastapi_service.py")

    async def pages() -> dict[str, int]:
        async with served(service) as client:

            async def progress() -> dict[str, int]:
                told = (await client.get("/progress")).json()
                return {name: int(text.removeprefix("page ")) for name, text in told.items()}

            seen: dict[str, int] = await wait_until(progress, lambda seen: len(seen) == 3 and min(seen.values()) >= 2)
            return seen

    async def story() -> None:
        before = await pages()
        after = await pages()
        assert all(after[name] >= before[name] for name in before)

    asyncio.run(story())
