"""``callboard cluster check``: stores that keep their word, stores that do not, and their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from callboard.runtime.cli.cluster.check import Latency, check_store, judge_speed
from callboard.runtime.cluster.engines.finding import Level
from callboard.runtime.cluster.engines.folder_check import mount_findings
from callboard.runtime.cluster.engines.postgres_check import findings
from callboard.runtime.cluster.store import Store

from .command_helpers import Run, runner
from .memory_store import Memory, MemoryStore
from .postgres_server import HOST, PostgresServer

GOOD_ROW = {
    "pid": 1,
    "is_standby": False,
    "version": "17.1",
    "synchronous_standby_names": "b",
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


class OverwritingStore(MemoryStore):
    """Its create overwrites what another client has just created."""

    async def create(self, key: str, value: bytes) -> bool:
        await self.put(key, value)
        return True


class ForgetfulStore(MemoryStore):
    """Its lists lack the newest key."""

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return (await super().list(prefix, after))[:-1]


def levels(*stores: Store) -> list[Level]:
    report = asyncio.run(check_store(stores))
    assert not report.is_usable or all(finding.level == Level.OK for finding in report.findings)
    return [finding.level for finding in report.findings]


def test_store_that_does_what_it_must_passes_and_is_empty_afterwards() -> None:
    memory = Memory()
    report = asyncio.run(check_store([MemoryStore(memory), MemoryStore(memory)]))
    assert [finding.level for finding in report.findings] == [Level.OK, Level.OK]
    assert [(latency.operation, latency.calls) for latency in report.latencies] == [
        ("create", 100),
        ("get", 100),
        ("list", 100),
    ]
    assert all(0 < latency.p50_ms <= latency.p99_ms for latency in report.latencies)
    assert memory.values == {}


def test_slow_store_is_checked_with_fewer_calls() -> None:
    """It ended after its time limit, with no result."""
    memory = Memory()
    report = asyncio.run(check_store([MemoryStore(memory), MemoryStore(memory)], limit_s=0))
    assert [finding.text for finding in report.findings] == [
        "1 race of 2 clients had one winner each",
        "a list has all 2 keys, for each client",
    ]
    assert [latency.calls for latency in report.latencies] == [1, 1, 1]
    assert memory.values == {}


def test_store_that_is_too_slow_for_the_default_session_timeout_is_a_warning() -> None:
    assert judge_speed([Latency("create", 100, 180, 900), Latency("get", 100, 20, 900)]) == []
    [warning] = judge_speed([Latency("create", 100, 20, 900), Latency("get", 100, 301, 900)])
    assert warning.level == Level.WARNING
    assert "an operation takes 301 ms" in warning.text
    assert "--set cluster_session_timeout_ms=3000" in warning.text


def test_store_whose_create_overwrites_is_refused() -> None:
    memory = Memory()
    assert levels(OverwritingStore(memory), OverwritingStore(memory))[0] == Level.ERROR


def test_store_whose_list_is_incomplete_is_refused() -> None:
    assert levels(ForgetfulStore(Memory()))[1] == Level.ERROR


def test_folder_is_checked_and_what_cannot_be_seen_is_said(tmp_path: Path, run: Run) -> None:
    shown = run("check", "--cluster", tmp_path.as_uri())
    assert shown.code == 0
    words = [line.split()[0] for line in shown.out.splitlines() if line]
    assert words[:4] == ["ok", "unknown", "ok", "ok"]
    assert words[4:] == ["operation", "create", "get", "list"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "its keys are deleted"
    report = run("check", "--cluster", tmp_path.as_uri(), "--json").json
    assert report["usable"]
    assert [latency["operation"] for latency in report["latencies"]] == ["create", "get", "list"]


@pytest.mark.parametrize(
    ("options", "level"),
    [("rw,noac,lookupcache=none", Level.OK), ("rw,lookupcache=none", Level.ERROR), ("rw", Level.ERROR)],
)
def test_options_of_an_nfs_mount(options: str, level: Level) -> None:
    lines = ["/dev/sda1 / ext4 rw 0 0", f"server:/x /shared nfs4 {options} 0 0"]
    [finding] = mount_findings(Path("/shared/callboard"), lines)
    assert finding.level == level
    [other] = mount_findings(Path("/var"), lines)
    assert "ext4" in other.text


def test_folder_without_a_known_mount_is_unknown() -> None:
    assert [finding.level for finding in mount_findings(Path("/shared"), [])] == [Level.UNKNOWN]


# PostgreSQL ----------------------------------------------------------------------------------------------------------


def judged(changes: dict[str, object], *, is_pooled: bool = False, is_single: bool = False) -> Sequence[Level]:
    return [finding.level for finding in findings({**GOOD_ROW, **changes}, is_pooled=is_pooled, is_single=is_single)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [Level.OK, Level.OK]),
        ({"synchronous_commit": "remote_apply"}, [Level.OK, Level.OK]),
        ({"synchronous_commit": "local"}, [Level.OK, Level.WARNING]),
        ({"synchronous_commit": "off"}, [Level.OK, Level.ERROR]),
        ({"synchronous_standby_names": ""}, [Level.OK, Level.WARNING]),
        ({"fsync": "off"}, [Level.OK, Level.OK, Level.ERROR]),
        ({"full_page_writes": "off"}, [Level.OK, Level.OK, Level.ERROR]),
        ({"autovacuum": "off"}, [Level.OK, Level.OK, Level.WARNING]),
        ({"is_standby": True}, [Level.ERROR]),
    ],
)
def test_settings_of_postgresql_are_judged(changes: dict[str, object], expected: Sequence[Level]) -> None:
    assert judged(changes) == expected


def test_single_accepts_a_postgresql_without_standby_but_no_other_fault() -> None:
    assert judged({"synchronous_standby_names": ""}, is_single=True) == [Level.OK, Level.OK]
    assert judged({"synchronous_commit": "off"}, is_single=True) == [Level.OK, Level.ERROR]


def test_pooler_is_named() -> None:
    [*_, last] = findings(GOOD_ROW, is_pooled=True, is_single=False)
    assert "pooler" in last.text


def test_real_postgresql_without_standby_is_usable_with_a_warning(run: Run) -> None:
    with PostgresServer() as server:
        shown = run("check", "--cluster", server.url())
        assert shown.code == 0, shown
        assert "warning  synchronous_standby_names is empty" in shown.out
        assert "100 races of 8 clients had one winner each" in shown.out
        assert "warning" not in run("check", "--cluster", server.url(), "--single").out


def test_real_postgresql_that_loses_commits_is_refused_before_anything_is_written(
    postgres: PostgresServer, run: Run
) -> None:
    postgres.sql("create role careless login; alter role careless set synchronous_commit = off")
    shown = run("check", "--cluster", postgres.url(user="careless"))
    assert shown.code == 1
    assert "error    synchronous_commit = off" in shown.out
    assert "error    fsync = off" in shown.out
    assert "races" not in shown.out


def test_read_replica_is_refused_unless_the_url_has_its_primary_too(run: Run) -> None:
    with PostgresServer() as server:
        standby = server.standby("b")
        both = f"postgresql://postgres@{HOST}:{standby.port},{HOST}:{server.port},{HOST}:1/postgres"
        try:
            standby.start()
            shown = run("check", "--cluster", standby.url())
            of_both = run("check", "--cluster", both, "--single")
        finally:
            standby.remove()
    assert shown.code == 1
    assert "this is a read replica" in shown.out
    assert of_both.code == 0, of_both.out
    assert f"warning  cannot connect to {HOST}:1/postgres: " in of_both.out
