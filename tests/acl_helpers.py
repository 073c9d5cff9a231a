"""Changes of stored ACLs, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from callboard.runtime.security.acl_store import ChangeDone
from callboard.runtime.security.acls import Acl


async def change_acls(change: Callable[[Sequence[Acl], ChangeDone], None], acls: Sequence[Acl]) -> None:
    """Wait until ACLs are created or deleted. ``change``: ``create`` or ``delete`` of an ``AclStore``."""
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    change(acls, lambda failure, _changed: done.set_result(failure))
    assert await done is None
