"""Frees the items of a large request, and what was made from them, in steps.

Freeing 50,000 of them at once holds the event loop for milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import FrameType, GeneratorType
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
    is_answer = False

    def __init__(self, steps: Steps[None]) -> None:
        """``steps``: of ``release_request``, ``release_collections`` or ``release_frames``."""
        self.steps = steps

    def finish(self, result: None) -> None:
        """Nothing waits for it."""

    def fail(self, error: Exception) -> None:
        """The garbage collector, or the end of the generator, frees the rest."""

    def drop(self) -> None:
        """The server stops."""


def release_request(*roots: Any) -> Steps[None]:
    """Drop the references to the items of all arrays of a request, and of a message that was made from it."""
    return _release(list(roots), _items_of_request)


def release_collections(*collections: Any) -> Steps[None]:
    """Drop the references to the items of collections, and of collections in them.

    Entities of the request are not followed: many items may refer to the same one.
    """
    return _release(list(collections), _items_of_collection)


def release_frames(frames: Iterator[FrameType]) -> Steps[None]:
    """Drop the references to the items of collections that work which has ended early has held, and nobody else holds.

    Call it while the frames still exist.
    """
    values = [value for frame in frames for value in frame.f_locals.values()]
    return _release_owned({id(value): value for value in values if isinstance(value, COLLECTIONS)})


def frames_of_steps(steps: Steps[Any]) -> Iterator[FrameType]:
    """The frames of a generator, and of the generators that it waits for."""
    inner: Any = steps
    while isinstance(inner, GeneratorType) and inner.gi_frame is not None:
        yield inner.gi_frame
        inner = inner.gi_yieldfrom


def frames_of_error(error: Exception) -> Iterator[FrameType]:
    """The frames that an exception, and those that have caused it, have passed through.

    Without that of the caller, which handles it: reading its locals would keep the exception in it.
    """
    cause: BaseException | None = error
    while cause is not None:
        entry = cause.__traceback__
        if cause is error and entry is not None:
            entry = entry.tb_next
        while entry is not None:
            yield entry.tb_frame
            entry = entry.tb_next
        cause = cause.__cause__


def _release_owned(values: dict[int, Any]) -> Steps[None]:
    """Leave out what others hold: it is not freed, and may be as large as all groups of the server."""
    here = 3  # ``values``, ``value`` and the argument
    owned = [value for value in values.values() if sys.getrefcount(value) <= here]
    values.clear()
    yield from _release(owned, _items_of_collection)


def _release(objects: list[Any], items: Callable[[Any], Iterable[Any]]) -> Steps[None]:
    while objects:
        for _ in range(min(len(objects), OBJECTS_PER_STEP)):
            objects += items(objects.pop())
        yield


def _items_of_collection(dropped: Any) -> Iterable[Any]:
    if isinstance(dropped, dict):
        return (*dropped, *dropped.values())
    return dropped if isinstance(dropped, COLLECTIONS) else ()


def _items_of_request(dropped: Any) -> Iterable[Any]:
    """What an array, an entity or a message holds and is dropped later."""
    if isinstance(dropped, tuple):
        return dropped
    entity_type: Any = type(dropped)
    values = (getattr(dropped, name) for name in _field_names(entity_type))
    return [value for value in values if isinstance(value, tuple) and _is_worth_following(value)]


def _is_worth_following(array: tuple[Any, ...]) -> bool:
    return len(array) > SMALL_ARRAY_ITEMS or (len(array) > 0 and is_dataclass(array[0]))


@cache
def _field_names(entity_type: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(entity_type)) if is_dataclass(entity_type) else ()
