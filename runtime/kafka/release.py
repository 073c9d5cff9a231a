"""Frees the items of a large request, and what was made from them, in steps.

Freeing 50,000 of them at once holds the event loop for milliseconds.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from ...actors.steps import Steps

OBJECTS_PER_STEP = 64
"""They take about 30 us."""

SMALL_ARRAY_ITEMS = 64
"""Arrays of values up to this size are freed at once. Entities may have arrays of their own."""

COLLECTIONS = (tuple, list, dict, set, frozenset)


class ReleaseJob:
    """Frees objects that are not needed any more. Implements ``slices.Job``.

    It changes nothing, so others may keep them.
    """

    __slots__ = ("steps",)

    is_wanted = True

    def __init__(self, *roots: Any) -> None:
        self.steps = release(list(roots))

    def finish(self, result: None) -> None:
        """Nothing waits for it."""

    def fail(self, error: Exception) -> None:
        """The garbage collector, or the end of the generator, frees the rest."""

    def drop(self) -> None:
        """The server stops."""


def release(objects: list[Any]) -> Steps[None]:
    """Drop the references to the items of collections, and of the arrays of entities, one by one. Empties the list."""
    while objects:
        for _ in range(min(len(objects), OBJECTS_PER_STEP)):
            _extend(objects, objects.pop())
        yield


def _extend(objects: list[Any], dropped: Any) -> None:
    """Add what a collection, an entity or a message holds to the objects that are dropped later."""
    if isinstance(dropped, COLLECTIONS):
        objects += dropped
        if isinstance(dropped, dict):
            objects += dropped.values()
        return
    entity_type: Any = type(dropped)
    for name in _field_names(entity_type):
        value = getattr(dropped, name)
        if isinstance(value, tuple) and (len(value) > SMALL_ARRAY_ITEMS or (value and is_dataclass(value[0]))):
            objects.append(value)


@cache
def _field_names(entity_type: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(entity_type)) if is_dataclass(entity_type) else ()
