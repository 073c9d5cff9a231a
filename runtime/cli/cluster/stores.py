"""Opens the store of a cluster for a command, and the register in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ....actors.callboard_error import CallboardError
from ...cluster.engines import open_store, without_password
from ...cluster.patient_store import PatientStore
from ...cluster.register import Register
from ...cluster.register_log import newest_register
from ...cluster.store import Store, StoreRefused, StoreUnavailable
from ...common.errors import StartError
from .errors import CommandFailed

T = TypeVar("T")


def with_store(url: str, timeout_s: float, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do something on the store at a URL. An operation whose outcome is unknown is repeated until the time is over.

    Raises CommandFailed, and StartError for a bad URL.
    """
    return asyncio.run(_with_store(url, timeout_s, work))


async def _with_store(url: str, timeout_s: float, work: Callable[[Store], Awaitable[T]]) -> T:
    if not url:
        raise StartError("give the store of the cluster: --cluster URL, or the variable CALLBOARD_CLUSTER")
    store = open_store(url, f"command-{os.getpid()}")
    try:
        async with asyncio.timeout(timeout_s):
            return await work(PatientStore(store))
    except TimeoutError:
        reason = await _unavailable_reason(store)
        raise CommandFailed(f"not done in {timeout_s:g} s{reason}; try again, or give a longer --timeout") from None
    except (CommandFailed, StartError):
        raise
    except CallboardError as error:  # the store refuses something, or lacks what it should have
        raise CommandFailed(str(error)) from error
    finally:
        await store.close()


async def _unavailable_reason(store: Store) -> str:
    """What the store answers now, if it is not available."""
    try:
        await store.get(["cluster/0"])
    except (StoreUnavailable, StoreRefused) as error:
        return f": {error}"
    return ""


async def require_register(store: Store, url: str) -> Register:
    """The newest register. Raises CommandFailed if there is no cluster in the store."""
    register = await newest_register(store)
    if register is None:
        raise CommandFailed(
            f"{without_password(url)} has no cluster: no node has started with it yet; check the URL, or start one "
            "with callboard serve --cluster URL"
        )
    return register
