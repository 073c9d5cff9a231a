"""What a forked child of the program must let go of, so that only the coordinator's own process has it.

``multiprocessing`` forks on Linux (before Python 3.14). A worker made so inherits the listening socket, the connections
and the lock of the data folder. If its parent is then killed, that socket goes on taking connections which nobody
serves, and the next coordinator finds port and folder in use, for as long as such a worker lives.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from ..node.node import Node

_nodes: WeakSet[Node] = WeakSet()


def leave_behind(node: Node) -> None:
    """Children that are forked from now on have nothing of this node."""
    _nodes.add(node)


def _let_go() -> None:
    """In the child. The numbers lead to nothing from now on, but are not free: objects that were copied have them."""
    if not _nodes:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for node in _nodes:
        for fd in node.exclusive_fds():
            os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)
    _nodes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
