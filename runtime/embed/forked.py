"""Closes the coordinator's files in forked child processes, so that only the coordinator's own process has them open.

``multiprocessing`` forks on Linux (before Python 3.14). Such a worker inherits the listening socket, the connections
and the lock of the data folder. If its parent were killed, the socket would still accept connections without serving
them, and while the worker runs the next coordinator could neither bind the port nor lock the folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from ..node.descriptors import ExclusiveDescriptors

_of_nodes: WeakSet[ExclusiveDescriptors] = WeakSet()


def close_in_forked_children(descriptors: ExclusiveDescriptors) -> None:
    """Children that are forked from now on do not keep these files of a node open."""
    _of_nodes.add(descriptors)


def _close_inherited_files() -> None:
    """Runs in the child. Replaces the files by /dev/null: copied objects still use the descriptor numbers."""
    if not _of_nodes:
        return
    null_fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptors in _of_nodes:
        for fd in descriptors.all():
            os.dup2(null_fd, fd, inheritable=False)
    os.close(null_fd)
    _of_nodes.clear()


os.register_at_fork(after_in_child=_close_inherited_files)
