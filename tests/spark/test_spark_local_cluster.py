"""A Spark cluster with two executors of their own: they read and compact a log in a bucket, and share no files."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from cluster.engine_cases import skip_or_fail
from cluster.object_server import CREDENTIALS, ObjectServer, missing_object_server
from cluster_log_helpers import COUNTS, copy_to_store, write_log

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.manifest import newest_manifest
from callboard.runtime.cluster.patient_store import PatientStore

PROGRAM = Path(__file__).with_name("local_cluster_program.py")
MASTER = "local-cluster[2,1,1024]"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if (reason := missing_object_server()) is not None:
        skip_or_fail(reason)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    write_log(tmp_path / "data")
    with ObjectServer() as server:
        asyncio.run(copy_to_store(tmp_path / "data", server.url()))
        yield server.url()


def link_spark(folder: Path) -> Path:
    """A Spark home whose executors work in this folder instead of the installed package."""
    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (folder / path.name).symlink_to(path)
    return folder


def compacted_segments(url: str, partition: int) -> list[bool]:
    async def read() -> list[bool]:
        store = open_store(url, "test")
        manifest = await newest_manifest(PatientStore(store), partition)
        await store.close()
        return [segment.is_compacted for segment in manifest.segments]

    return asyncio.run(read())


def test_executors_read_and_compact_the_log_in_a_bucket(url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_HOME": str(link_spark(tmp_path / "spark")), "SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run(
        [sys.executable, str(PROGRAM), url, MASTER], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    reports = {each["partition"]: each["status"] for each in json.loads(result["report"])["partitions"]}
    assert reports["__consumer_offsets-1"] == "compacted"
    assert any(compacted_segments(url, 1))
    assert 5 * COUNTS.offsets == result["live"] < result["after"] < result["before"]
    assert len(result["folders"]) > 1, "one executor ran all tasks"
    assert all(Path(folder).is_relative_to(tmp_path) for folder in result["folders"])
