"""AsyncForm and BlockingForm: the wrong one of ``with`` and ``async with`` is refused with what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING


class AsyncForm:
    """For ``async with`` only."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse `with` by themselves

        def __enter__(self):
            raise TypeError(
                f"a {type(self).__name__} needs 'async with'; where no event loop runs, use 'with' and "
                "callboard.Coordinator.in_thread() or callboard.connect_in_thread()"
            )

        def __exit__(self, *_):
            """Python looks for it before it calls ``__enter__``."""


class BlockingForm:
    """For ``with`` only."""

    __slots__ = ()

    if not TYPE_CHECKING:

        async def __aenter__(self):
            raise TypeError(
                f"a {type(self).__name__} needs 'with', and blocks its thread; on an event loop, use 'async with' and "
                "callboard.Coordinator() or callboard.connect()"
            )

        async def __aexit__(self, *_):
            """Python looks for it before it calls ``__aenter__``."""
