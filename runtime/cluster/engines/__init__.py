"""The engines of a cluster's store, by the scheme of their URL. An engine is imported when a store of it is opened."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from ...common.errors import StartError
from ..store import Store


class Engine(NamedTuple):
    """``module``: has ``open_store(url, client)``. ``library``: what it imports, which ``extra`` installs."""

    module: str
    example: str
    library: str = ""
    extra: str = ""


POSTGRES = Engine("postgres", "postgresql://user@host/database", "asyncpg", "postgres")
ENGINES = {"file": Engine("folder", "file:///shared/callboard"), "postgresql": POSTGRES, "postgres": POSTGRES}


def open_store(url: str, client: str) -> Store:
    """The store at a URL. Connects when the first operation needs it, so it works before the engine has started.

    ``client`` is a name by which the engine's operators recognize this process. Raises StartError for a URL that is
    not valid, and for an engine whose library is not installed.
    """
    engine = ENGINES.get(url.partition("://")[0])
    if engine is None:
        examples = ", ".join(sorted({engine.example for engine in ENGINES.values()}))
        raise StartError(f"no store has a URL like {without_password(url)!r}; expected one like {examples}")
    try:
        module = import_module(f".{engine.module}", __name__)
    except ModuleNotFoundError as error:
        if not engine.library or (error.name or "").partition(".")[0] != engine.library:
            raise
        raise StartError(
            f"a store at {without_password(url)} needs the package {engine.library}, which is not installed: "
            f"pip install 'callboard[{engine.extra}]'"
        ) from None
    store: Store = module.open_store(url, client)
    return store


def without_password(url: str) -> str:
    """The URL as errors and log lines show it."""
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{separator}{name}{colon and ':***'}{at}{host}"
