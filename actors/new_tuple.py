"""Makes the named tuples of a commit: each commit makes ten, which were a seventh of its time on the event loop."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


class NewTuple(Protocol):
    def __call__(self, tuple_class: type[T], fields: tuple[Any, ...], /) -> T: ...


new_tuple: NewTuple = tuple.__new__
"""``new_tuple(Commit, (topic, partition, ...))`` is ``Commit(topic, partition, ...)`` in half the time.

The constructor of a named tuple is a Python function. Here nothing fills in defaults or counts the fields, so all of
them must be given: ``tests/project/test_new_tuple.py`` counts them.
"""
