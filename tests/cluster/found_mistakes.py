"""Mistakes that were in the code until a long run of the simulation found them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from callboard.runtime.cluster.garbage import GarbageCollector
from callboard.runtime.cluster.register import Register


def collected_by_an_earlier_register(patch: pytest.MonkeyPatch) -> None:
    """Whether a session has ended is decided by a register that was read before its seal. Found by seed 16,396."""
    collect = GarbageCollector._collect_sessions

    async def mistaken(self: GarbageCollector, register: Register) -> None:
        async def read() -> Register:
            return register

        with pytest.MonkeyPatch.context() as reading:
            reading.setattr(self._register, "read", read)
            await collect(self, register)

    patch.setattr(GarbageCollector, "_collect_sessions", mistaken)


FOUND_MISTAKES: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {
    "collected by an earlier register": collected_by_an_earlier_register
}
