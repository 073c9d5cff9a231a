"""docs/security.md, "What clients and commands need": each command works with these rights, and needs each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from acl_helpers import change_acls

from callboard import Coordinator, CoordinatorError
from callboard.runtime.cli import acls, settings, topics, users
from callboard.runtime.cli.groups import commands as groups
from callboard.runtime.embed.thread import ThreadCoordinator
from callboard.runtime.security.acls import Acl, PatternType, Permission
from callboard.runtime.security.resources import CLUSTER_NAME, Operation, ResourceType
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

ANYBODY = "User:ANONYMOUS"
Main = Callable[[Sequence[str]], int]


class Right(NamedTuple):
    operation: Operation
    resource_type: ResourceType
    name: str

    @property
    def acl(self) -> Acl:
        return Acl(self.resource_type, self.name, PatternType.LITERAL, ANYBODY, "*", self.operation, Permission.ALLOW)


def on_group(operation: Operation) -> Right:
    return Right(operation, ResourceType.GROUP, "bills")


def on_topic(operation: Operation, name: str = "orders") -> Right:
    return Right(operation, ResourceType.TOPIC, name)


def on_cluster(operation: Operation) -> Right:
    return Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)


READ, DELETE, ALTER, DESCRIBE = Operation.READ, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE
RESET = ("reset", "bills", "--topic", "orders:0", "--to-offset", "0", "--execute")
ADD = ("add", "User:ann", "read", "--topic", "orders")

ROWS: list[tuple[Main, tuple[str, ...], tuple[Right, ...]]] = [
    (groups.main, ("describe", "bills"), (on_group(DESCRIBE), on_topic(DESCRIBE))),
    (groups.main, ("offsets", "bills"), (on_group(DESCRIBE), on_topic(DESCRIBE))),
    (groups.main, RESET, (on_group(READ), on_topic(READ))),
    (groups.main, ("evict", "bills", "--all"), (on_group(READ),)),
    (groups.main, ("delete", "bills"), (on_group(DELETE),)),
    (groups.main, ("delete", "bills", "--offsets", "orders:0"), (on_group(DELETE), on_topic(READ))),
    (topics.main, ("describe", "orders"), (on_topic(DESCRIBE),)),
    (topics.main, ("create", "new"), (on_topic(Operation.CREATE, "new"),)),
    (topics.main, ("grow", "orders", "--partitions", "9"), (on_topic(ALTER),)),
    (topics.main, ("delete", "orders"), (on_topic(DELETE),)),
    (acls.main, ("list",), (on_cluster(DESCRIBE),)),
    (acls.main, ADD, (on_cluster(ALTER),)),
    (users.main, ("list",), (on_cluster(DESCRIBE),)),
    (settings.main, ("set", "group_max_size=9"), (on_cluster(Operation.ALTER_CONFIGS),)),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadCoordinator]:
    options: Any = {"authorizer_class_name": STANDARD_AUTHORIZER}
    with Coordinator.in_thread(tmp_path_factory.mktemp("rights"), "127.0.0.1:0", **options) as coordinator:
        yield coordinator


@pytest.fixture
def coordinator(running: ThreadCoordinator) -> ThreadCoordinator:
    """With a topic, and a group that has a committed offset."""
    with suppress(CoordinatorError):  # the topic is there
        running.create_topic("orders", 1)
    running.reset("bills", {("orders", 0): 0})
    return running


def give(coordinator: ThreadCoordinator, wanted: Sequence[Acl]) -> None:
    """Replace all ACLs."""

    async def replace() -> None:
        inner: Any = coordinator.asynchronous
        store = inner.node.services.acls
        assert store is not None
        await change_acls(store.delete, list(store.table.acls))
        await change_acls(store.create, wanted)

    coordinator.run(replace())


def exit_code(main: Main, arguments: Sequence[str]) -> int:
    try:
        return main(arguments) or 0
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("main", "arguments", "rights"),
    ROWS,
    ids=[f"{main.__module__.split('.')[3]} {words[0]}" for main, words, _ in ROWS],
)
def test_command_works_with_its_rights_and_needs_each(
    coordinator: ThreadCoordinator,
    capsys: pytest.CaptureFixture[str],
    main: Main,
    arguments: tuple[str, ...],
    rights: tuple[Right, ...],
) -> None:
    command = (*arguments, "--bootstrap-server", coordinator.bootstrap)
    for left_out in rights:
        given = [right.acl for right in rights if right != left_out]
        give(coordinator, given)
        assert exit_code(main, command) != 0 or left_out_only_hides(left_out, capsys), left_out
    give(coordinator, [right.acl for right in rights])
    assert exit_code(main, command) == 0, capsys.readouterr()


def left_out_only_hides(right: Right, capsys: pytest.CaptureFixture[str]) -> bool:
    """Topics that may not be described are left out of a list."""
    return right == on_topic(DESCRIBE) and "orders" not in capsys.readouterr().out
