"""Real servers of one cluster, each in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from peers.wire import Wire

from .probe import TOPIC, Address

START_S = 60.0
LISTENER = re.compile(r"(\w+)://127.0.0.1:(\d+)")


class ClusterServer:
    """``callboard serve --cluster``, or a single node without a URL.

    ``address``: where it listens; it keeps its port when it starts again. ``ports``: those of all listeners, if it has
    several. ``prefix``: a command that runs the server, for a network namespace or an environment of its own.
    """

    def __init__(self, folder: Path, url: str, name: str, host: str = "127.0.0.1", prefix: Sequence[str] = ()) -> None:
        self.name = name
        self.address: Address = (host, 0)
        self.ports: dict[str, int] = {}
        self.prefix = prefix
        self._folder = folder
        self._url = url
        self._process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        """Return when it is ready."""
        process = self.launch(*options)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready on" in line, self.log
        self.ports = {name: int(port) for name, port in LISTENER.findall(line)}
        port = next(iter(self.ports.values()), 0) or int(line.rpartition(":")[2])
        self.address = (self.address[0], port)

    def launch(self, *options: str) -> subprocess.Popen[str]:
        self.end()
        cluster = ["--cluster", self._url, "--node-name", self.name] if self._url else []
        arguments = ["serve", *cluster, "--topic", f"{TOPIC}:1"]
        arguments += ["--listen", "{}:{}".format(*self.address), "--data", str(self._folder / self.name)]
        arguments += [] if self.address[0] == "127.0.0.1" else ["--insecure"]
        arguments += ["--set", "group_initial_rebalance_delay_ms=0", *options]
        command = [*self.prefix, sys.executable, "-m", "callboard", *arguments]
        with (self._folder / f"{self.name}.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        return self._process

    @property
    def log(self) -> str:
        return (self._folder / f"{self.name}.log").read_text()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(START_S)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def wait_for_log(self, text: str, count: int = 1) -> None:
        deadline_s = time.monotonic() + START_S
        while self.log.count(text) < count:
            assert time.monotonic() < deadline_s, f"{text!r} is not in the log of {self.name}:\n{self.log}"
            time.sleep(0.02)


@contextmanager
def cluster_of(count: int, folder: Path, url: str, *options: str) -> Iterator[list[ClusterServer]]:
    """Servers that have all joined. ``options``: of all of them."""
    with running([ClusterServer(folder, url, f"n{number}") for number in range(1, count + 1)], *options) as servers:
        yield servers


def wait_until_balanced(servers: Sequence[ClusterServer]) -> None:
    """Until no more partitions move: all servers know the same leaders, and each leads its part."""
    deadline_s = time.monotonic() + START_S
    while not is_balanced([offsets_leaders(server) for server in servers]):
        assert time.monotonic() < deadline_s, servers[0].log
        time.sleep(0.05)


def is_balanced(leaders: Sequence[Sequence[int]]) -> bool:
    counts = Counter(leaders[0])
    is_known = -1 not in counts and all(known == leaders[0] for known in leaders)
    return is_known and len(counts) >= len(leaders) and max(counts.values()) - min(counts.values()) <= 1


def offsets_leaders(server: ClusterServer) -> list[int]:
    """The leader of each partition of ``__consumer_offsets``, as this server says; -1 for none."""
    flags = ("allow_auto_topic_creation", "include_topic_authorized_operations")
    topics = [{"name": "__consumer_offsets", "topic_id": UUID(int=0)}]
    with Wire(*server.address) as wire:
        answer = wire.ask("metadata", 12, topics=topics, **dict.fromkeys(flags, False))
    partitions = sorted(answer["topics"][0]["partitions"], key=lambda partition: int(partition["partition_index"]))
    return [int(partition["leader_id"]) for partition in partitions]


@contextmanager
def running(servers: list[ClusterServer], *options: str) -> Iterator[list[ClusterServer]]:
    """Start servers of one cluster, until all have joined; end them at the end."""
    try:
        for server in servers:
            server.start(*options)
        for server in servers:
            server.wait_for_log("partition taken over")
        wait_until_balanced(servers)
        yield servers
    finally:
        for server in servers:
            server.end()
