"""``callboard serve --workers``: processes share the partitions behind one address; each may end at any time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from callboard.runtime.client.cluster import Cluster
from callboard.runtime.settings.address import Address

from .probe import TOPIC, ProbeClient

DEADLINE_S = 180.0
GROUPS = 12


class WorkersServer:
    """``callboard serve --workers``, in the data folder ``folder / "data"``."""

    def __init__(self, folder: Path, workers: int, *arguments: str) -> None:
        command = [sys.executable, "-m", "callboard", "serve", "--workers", str(workers), "--listen", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--topic", f"{TOPIC}:1", "--log-format", "json"]
        command += ["--set", "group_initial_rebalance_delay_ms=0", *arguments]
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "ready on 127.0.0.1:" in line, self.log
        self.address = "127.0.0.1", int(line.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def events(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def worker_pid(self, port: int) -> int:
        """The process of the worker whose own port this is: they were bound in the order of the workers."""
        pids = {started["number"]: started["pid"] for started in self.events("a worker process started")}
        pid = pids[self.worker_ports().index(port)]
        assert isinstance(pid, int)
        return pid

    def worker_ports(self) -> list[int]:
        """By node id, the order in which the workers have joined, then by name."""
        joined = [str(event["session"]).rpartition("-")[0] for event in self.events("joined the cluster")]
        names = set(joined)
        brokers: list[Any] = []

        def has_all() -> bool:  # a worker that has just joined is not in the answers of the others yet
            brokers[:] = self.brokers()
            return len(brokers) == len(names)

        wait_until(has_all)
        by_name = dict(zip(dict.fromkeys(joined), sorted(brokers, key=lambda broker: broker.node_id), strict=True))
        return [by_name[name].port for name in sorted(names)]

    def brokers(self, port: int | None = None) -> Sequence[Any]:
        """By the worker with this port, by default any worker."""
        host, shared_port = self.address
        with Cluster(Address(host, port or shared_port), DEADLINE_S) as cluster:
            return tuple(cluster.metadata([]).brokers)

    def wait_until_joined(self, times: int) -> None:
        """All workers together, also those that were restarted."""
        wait_until(lambda: len(self.events("joined the cluster")) >= times)

    def wait_until_all_know_all(self) -> None:
        """While one worker lists another and the next does not, librdkafka may lose requests and wait for minutes."""
        ports = set(self.worker_ports())
        wait_until(lambda: all({broker.port for broker in self.brokers(port)} == ports for port in ports))

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def workers(folder: Path, count: int, *arguments: str) -> Iterator[WorkersServer]:
    server = WorkersServer(folder, count, *arguments)
    try:
        server.wait_until_joined(count)
        yield server
    finally:
        server.kill()


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


async def commit_while(server: WorkersServer, fault: Callable[[int], None] | None, ports: int) -> list[ProbeClient]:
    """Commit to all groups until ``ports`` workers own some, then through a fault of the first group's owner."""
    until = asyncio.Event()
    clients = [ProbeClient(f"group-{number}", [server.address]) for number in range(GROUPS)]
    tasks = [asyncio.create_task(client.run(until)) for client in clients]
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len({client.coordinator for client in clients if client.acknowledged_count}) < ports:
                await asyncio.sleep(0.02)
            await wait_for_commits(clients)
            if fault is not None:
                assert clients[0].coordinator is not None
                await asyncio.to_thread(fault, clients[0].coordinator[1])
                await wait_for_commits(clients)
    finally:
        until.set()
        await asyncio.gather(*tasks)
    return clients


async def wait_for_commits(clients: list[ProbeClient]) -> None:
    goals = [client.acknowledged_count + 2 for client in clients]
    while any(client.acknowledged_count < goal for client, goal in zip(clients, goals, strict=True)):
        await asyncio.sleep(0.02)


async def failures(clients: list[ProbeClient], server: WorkersServer) -> list[str]:
    for client in clients:
        client.use([server.address])
    return [failure for failure in await asyncio.gather(*(client.check() for client in clients)) if failure]


def test_worker_that_is_killed_is_restarted_with_its_port_and_everything_that_was_acknowledged(tmp_path: Path) -> None:
    async def run(server: WorkersServer) -> None:
        def kill(port: int) -> None:
            pid = server.worker_pid(port)
            os.kill(pid, signal.SIGKILL)
            server.wait_until_joined(3)

        before = await asyncio.to_thread(server.worker_ports)
        clients = await commit_while(server, kill, 2)
        assert await failures(clients, server) == []
        assert await asyncio.to_thread(server.worker_ports) == before
        assert {client.coordinator[1] for client in clients if client.coordinator} <= set(before)

    with workers(tmp_path, 2) as server:
        asyncio.run(run(server))
        assert server.stop() == 0


def test_other_number_of_workers_starts_with_everything(tmp_path: Path) -> None:
    with workers(tmp_path, 2) as server:
        clients = asyncio.run(commit_while(server, None, 2))
        assert server.stop() == 0
    for count in (3, 1):
        with workers(tmp_path, count) as server:
            assert asyncio.run(failures(clients, server)) == []
            assert len(server.worker_ports()) == count
            assert server.stop() == 0


def test_workers_end_with_their_parent_and_nothing_is_lost(tmp_path: Path) -> None:
    with workers(tmp_path, 2) as server:
        clients = asyncio.run(commit_while(server, None, 2))
        ports = server.worker_ports()
    wait_until(lambda: all(is_free(port) for port in ports))
    with workers(tmp_path, 2) as server:
        assert asyncio.run(failures(clients, server)) == []


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_kafka_client_finds_its_worker_and_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    with workers(tmp_path, 2) as server:
        server.wait_until_all_know_all()
        consumer = Consumer(
            {"bootstrap.servers": "{}:{}".format(*server.address), "group.id": "g", "enable.auto.commit": False}
        )
        consumer.subscribe([TOPIC])
        wait_until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
        commit(consumer, 5)
        with Cluster(Address(*server.address), DEADLINE_S) as cluster:
            owner = cluster.describe("g").coordinator
        os.kill(server.worker_pid(owner.port), signal.SIGKILL)
        server.wait_until_joined(3)
        commit(consumer, 6)
        [committed] = consumer.committed([TopicPartition(TOPIC, 0)], DEADLINE_S)
        assert committed.offset == 6
        consumer.close()
        assert server.stop() == 0


def commit(consumer: Consumer, offset: int) -> None:
    def try_to_commit() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except Exception:
            consumer.poll(0.05)
            return False
        return True

    wait_until(try_to_commit)


def refusal(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "callboard", "serve", "--workers", "2", "--listen", "127.0.0.1:0"]
    command += ["--data", str(folder), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--worker-ports", "9101"), "expected FIRST-LAST"),
        (("--worker-ports", "9101-9101"), "expected a port for each of 2 workers, as in 9101-9102"),
        (("--metrics", "127.0.0.1:0"), "expected a port, because the workers have this one and those that follow it"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path / "data", *arguments)


def test_worker_port_that_is_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = refusal(tmp_path, "--worker-ports", f"{port}-{port + 1}")
    assert f"port {port} of 127.0.0.1 is in use" in message
    assert "choose another port with --worker-ports (leave it out for free ones)" in message


def test_folder_of_a_single_server_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "callboard.json").write_text("{}")
    assert "start it without --workers, or export it" in refusal(tmp_path)
    assert not (tmp_path / "cluster").exists()


def test_second_server_on_the_same_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with workers(tmp_path, 2) as server:
        assert "expected no other process; stop that one" in refusal(tmp_path / "data")
        assert asyncio.run(failures(asyncio.run(commit_while(server, None, 2)), server)) == []
        assert server.stop() == 0
