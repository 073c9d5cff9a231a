"""Network namespaces: each server has one of its own, with a link to the store and a link to clients, which can be cut.

``ip`` makes them, and needs root. A link that is down loses all packets, and no connection is closed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

STORE, CLIENTS = "s", "c"
LINKS = (STORE, CLIENTS)


def missing_namespaces() -> str | None:
    """Why servers cannot have network namespaces here; None if they can."""
    if shutil.which("ip") is None:
        return "the program ip is not installed: apt-get install iproute2"
    name = f"callboard-{os.getpid()}"
    added = _ip("netns", "add", name)
    if added.returncode:
        return f"network namespaces are not permitted: {added.stderr.strip()}"
    _ip("netns", "del", name)
    return None


class CutNetwork:
    """Namespaces with the numbers 0, 1, ... and their links to this one."""

    def __init__(self) -> None:
        self._tag = f"cb{random.randrange(16**4):04x}"
        self._network = random.randrange(64, 250)

    @property
    def addresses(self) -> str:
        """All of them, as PostgreSQL writes a network."""
        return f"10.{self._network}.0.0/16"

    def here(self, number: int, link: str) -> str:
        """The address of this end of a link."""
        return f"10.{self._network}.{2 * number + LINKS.index(link)}.1"

    def there(self, number: int, link: str) -> str:
        """The address of the end in a namespace."""
        return self.here(number, link)[:-1] + "2"

    def command(self, number: int) -> Sequence[str]:
        """Runs a program in a namespace."""
        return ("ip", "netns", "exec", self._namespace(number))

    def cut(self, number: int, links: Sequence[str]) -> None:
        for link in links:
            _run("link", "set", self._link(number, link), "down")

    def mend(self, number: int) -> None:
        for link in LINKS:
            _run("link", "set", self._link(number, link), "up")

    @contextmanager
    def running(self, count: int) -> Iterator[CutNetwork]:
        try:
            for number in range(count):
                self._make(number)
            yield self
        finally:
            for number in range(count):
                _ip("netns", "del", self._namespace(number))  # with its links

    def _make(self, number: int) -> None:
        namespace = self._namespace(number)
        _run("netns", "add", namespace)
        _run("-n", namespace, "link", "set", "lo", "up")
        for link in LINKS:
            name, peer = self._link(number, link), f"{link}0"
            _run("link", "add", name, "type", "veth", "peer", "name", peer, "netns", namespace)
            _run("address", "add", f"{self.here(number, link)}/24", "dev", name)
            _run("-n", namespace, "address", "add", f"{self.there(number, link)}/24", "dev", peer)
            _run("-n", namespace, "link", "set", peer, "up")
            _run("link", "set", name, "up")

    def _namespace(self, number: int) -> str:
        return f"{self._tag}n{number}"

    def _link(self, number: int, link: str) -> str:
        return f"{self._tag}{link}{number}"


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False)


def _run(*arguments: str) -> None:
    completed = _ip(*arguments)
    assert completed.returncode == 0, f"ip {' '.join(arguments)}: {completed.stderr}"
