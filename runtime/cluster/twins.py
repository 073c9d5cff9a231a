"""Nodes that have this node's name or address by mistake: clients would be sent to either of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping

from ..common.logs import get_logger
from .cluster_node import ClusterNode
from .register import NodeEntry, Register

WAIT_TTLS = 3
"""An earlier session of a node that was restarted is declared dead before."""

log = get_logger("callboard.cluster")


class TwinWatch:
    """``OwnershipListener``. Some time after each change of ownership it looks for twins, and logs each once."""

    def __init__(self, node: ClusterNode, ttl_s: float) -> None:
        self._node = node
        self._wait_s = WAIT_TTLS * ttl_s
        self._timer: asyncio.TimerHandle | None = None
        self._logged: set[str] = set()

    def gained(self, epochs: Mapping[int, int]) -> None:
        self._schedule()

    def lost(self, partitions: Collection[int]) -> None:
        self._schedule()

    def fenced(self) -> None:
        """The next session will gain partitions."""

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._look)

    def _look(self) -> None:
        register, session = self._node.register, self._node.session
        if register is None or session is None:
            return
        for problem in twins(register, session.name):
            if problem not in self._logged:
                self._logged.add(problem)
                log.warning("clients cannot tell two nodes apart", reason=problem)


def twins(register: Register, own_session: str) -> Iterator[str]:
    """What is wrong with each other session, and what to do."""
    own = register.nodes.get(own_session)
    if own is None:
        return
    for session, other in register.nodes.items():
        if session != own_session:
            yield from filter(None, [_problem(own, other)])


def _problem(own: NodeEntry, other: NodeEntry) -> str:
    if own.name == other.name:
        addresses = ", ".join(f"{host}:{port}" for host, port in sorted(set(other.endpoints.values())))
        return (
            f"another node has the name {own.name}, too, at {addresses}: start one of them with another --node-name, "
            "or stop it"
        )
    shared = [listener for listener, endpoint in own.endpoints.items() if other.endpoints.get(listener) == endpoint]
    if not shared:
        return ""
    host, port = own.endpoints[shared[0]]
    return (
        f"node {other.name} advertises {host}:{port} of the listener {shared[0]}, too: give each node an --advertised "
        "address of its own"
    )
