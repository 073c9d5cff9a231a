"""Port: what another part of the process, such as the HTTP API, uses of a coordinator that it does not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .admin import Admin
from .any_group import requests_of
from .coordinator import Coordinator
from .explaining import Explaining
from .thread import ThreadCoordinator

if TYPE_CHECKING:
    import asyncio

    from ..node.node import Node
    from .admin_requests import AdminRequests


class PortAdmin(Admin, Explaining):
    """The methods about groups, in a cluster about those of all nodes.

    ``requests``: raises RuntimeError if there is no running node.
    """

    def __init__(self, requests: Callable[[], AdminRequests]) -> None:
        self._ask = requests

    def _requests(self) -> AdminRequests:
        return self._ask()


class Port(NamedTuple):
    """``loop``: the event loop of the node; all else is to be called there. Raises RuntimeError before the start.

    ``node``: the running node. Raises RuntimeError if there is none.
    """

    admin: PortAdmin
    node: Callable[[], Node]
    loop: Callable[[], asyncio.AbstractEventLoop]


def port_of(coordinator: Coordinator | ThreadCoordinator) -> Port:
    """Of a coordinator that may not have started yet."""
    asynchronous = coordinator.asynchronous if isinstance(coordinator, ThreadCoordinator) else coordinator
    node = asynchronous._running_node
    return Port(PortAdmin(lambda: requests_of(node())), node, asynchronous._own_loop)


def port_of_node(node: Callable[[], Node | None], loop: asyncio.AbstractEventLoop) -> Port:
    """Of a node that no ``Coordinator`` runs. It is None while it is being opened."""

    def opened() -> Node:
        found = node()
        if found is None:
            raise RuntimeError("the server is being started")
        return found

    return Port(PortAdmin(lambda: requests_of(opened())), opened, lambda: loop)
