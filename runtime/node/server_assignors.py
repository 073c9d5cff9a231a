"""The assignors of a node by name: Kafka's, those of the program, and those of installed packages.

A package offers its assignors in its own metadata, under the name by which members ask for them:

    [project.entry-points."callboard.assignors"]
    by-region = "mypackage.assignors:by_region"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from ...actors.assignors.base import AssignFunction
from ...actors.assignors.server.base import ServerAssignor
from ...actors.assignors.server.table import SERVER_ASSIGNORS
from ..common.errors import StartError
from ..settings.rows import list_items
from .assignor_thread import LargeInBackground, as_server_assignor

ENTRY_POINTS = "callboard.assignors"


def make_server_assignors(
    functions: Mapping[str, AssignFunction], named: str, *, in_background: bool
) -> dict[str, ServerAssignor]:
    """Those that ``named`` lists, and then the other functions. The first is the default.

    ``named``: the setting ``group_consumer_assignors``. ``in_background``: whether functions, and Kafka's
    assignors for large groups, run in threads. Raises StartError for a name that is not known or cannot be used.
    """
    known = dict(SERVER_ASSIGNORS)
    if in_background:
        known.update((name, LargeInBackground(assignor)) for name, assignor in SERVER_ASSIGNORS.items())
    for name, function in functions.items():
        check_assignor(name, function)
        known[name] = as_server_assignor(name, function, in_background=in_background)
    names = list_items(named)
    for name in names:
        if name not in known:
            raise StartError(
                f"bad value {named!r} for setting 'group_consumer_assignors': there is no assignor {name!r}; expected"
                f" names of {', '.join(known)}"
            )
    return {name: known[name] for name in dict.fromkeys((*names, *functions))}


def check_assignor(name: object, function: object) -> None:
    """Raise StartError for a name or a function that cannot be used."""
    if not isinstance(name, str) or name != name.strip() or not name or "," in name or name in SERVER_ASSIGNORS:
        raise StartError(
            f"an assignor cannot have the name {name!r}; expected a text that is not empty, without commas and without"
            f" spaces around it, and not one of Kafka's assignors ({', '.join(SERVER_ASSIGNORS)})"
        )
    if not callable(function):
        raise StartError(f"assignor {name!r}: {function!r} is not callable; expected f(partitions, members)")


def installed_assignors() -> dict[str, AssignFunction]:
    """The functions of the entry points of installed packages. Raises StartError if one cannot be used."""
    return load_entry_points(entry_points(group=ENTRY_POINTS))


def load_entry_points(points: Iterable[EntryPoint]) -> dict[str, AssignFunction]:
    functions: dict[str, AssignFunction] = {}
    for point in points:
        if point.name in functions:
            raise StartError(
                f"two installed packages offer an assignor {point.name!r}; {_described(point)} is the second: uninstall"
                f" one of them"
            )
        functions[point.name] = _load(point)
    return functions


def _load(point: EntryPoint) -> AssignFunction:
    try:
        function: AssignFunction = point.load()
        check_assignor(point.name, function)
    except Exception as error:
        raise StartError(
            f"the assignor of {_described(point)} cannot be used: {type(error).__name__}: {error}; repair or uninstall"
            f" the package"
        ) from error
    return function


def _described(point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist is not None else ""
    return f"the entry point {point.name} = {point.value}{package}"
