"""The engines of a cluster's store, by the scheme of their URL. An engine is imported when a store of it is opened."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from ...common.errors import StartError
from ..store import Store
from .finding import Check, Finding, Level


class StoreEngine(NamedTuple):
    """``module``: has ``open_store(url, client)``. ``library``: what it imports, which ``extra`` installs.

    ``check``: a module that looks at the engine's settings. ``unseen``: what no program can see from outside.
    ``checkpoint_interval_s``: how often a node brings its rounds to segments. ``pack_rounds``: see ``packs``.
    """

    module: str
    example: str
    library: str = ""
    extra: str = ""
    check: str = ""
    unseen: tuple[str, ...] = ()
    checkpoint_interval_s: float = 10.0
    checkpoint_rounds: int = 256
    pack_rounds: int = 0
    session_timeout_ms_min: int = 0


OBJECTS_CHECKPOINT_S = 60.0
"""A checkpoint is some requests for each partition, and each request costs money."""
OBJECTS_PACK_ROUNDS = 32
"""Each value that is read is a request."""
LOCAL_CHECKPOINT_ROUNDS = 50_000
"""A checkpoint is some files for each partition, and many rounds of one file are read in no time."""
GOOGLE_SESSION_TIMEOUT_MS_MIN = 4000
"""Google Cloud Storage takes one write of an object in a second. A session writes four signs of life in this time."""
UNSEEN_RULES = (
    "whether the bucket has rules that delete or move objects, or is a replica: both must not be, because a seal that "
    "disappears lets a node that was declared dead write again"
)

POSTGRES = StoreEngine("postgres", "postgresql://user@host/database", "asyncpg", "postgres", check="postgres_check")
OBJECTS = StoreEngine(
    "objects",
    "s3://bucket/prefix",
    "obstore",
    "objects",
    unseen=(UNSEEN_RULES,),
    checkpoint_interval_s=OBJECTS_CHECKPOINT_S,
    pack_rounds=OBJECTS_PACK_ROUNDS,
)
ENGINES = {
    "file": StoreEngine("folder", "file:///shared/callboard", check="folder_check"),
    "local": StoreEngine("local", "local:///var/lib/callboard/cluster", checkpoint_rounds=LOCAL_CHECKPOINT_ROUNDS),
    "postgresql": POSTGRES,
    "postgres": POSTGRES,
    "s3": OBJECTS,
    "gs": OBJECTS._replace(example="gs://bucket/prefix", session_timeout_ms_min=GOOGLE_SESSION_TIMEOUT_MS_MIN),
    "az": OBJECTS._replace(example="az://container/prefix"),
}


def open_store(url: str, client: str) -> Store:
    """The store at a URL. Connects when the first operation needs it, so it works before the engine has started.

    ``client`` is a name by which the engine's operators recognize this process. Raises StartError for a URL that is
    not valid, and for an engine whose library is not installed.
    """
    engine = engine_of(url)
    store: Store = _imported(engine, engine.module, url).open_store(url, client)
    return store


def checks_of(url: str) -> Check:
    """What looks at the settings of a URL's engine. Raises StartError as ``open_store`` does."""
    engine = engine_of(url)

    async def check(url: str, is_single: bool) -> list[Finding]:
        seen = await _imported(engine, engine.check, url).check(url, is_single) if engine.check else []
        return [*seen, *(Finding(Level.UNKNOWN, text) for text in engine.unseen)]

    return check


def engine_of(url: str) -> StoreEngine:
    """Raises StartError for a URL of no engine."""
    engine = ENGINES.get(url.partition("://")[0])
    if engine is None:
        examples = ", ".join(sorted({engine.example for engine in ENGINES.values()}))
        hint = f"; a folder is file://{url}" if url.startswith("/") else ""
        raise StartError(f"no store has a URL like {without_password(url)!r}{hint}; expected one like {examples}")
    return engine


def _imported(engine: StoreEngine, module: str, url: str) -> Any:
    try:
        return import_module(f".{module}", __name__)
    except ModuleNotFoundError as error:
        if not engine.library or (error.name or "").partition(".")[0] != engine.library:
            raise
        raise StartError(
            f"a store at {without_password(url)} needs the package {engine.library}, which is not installed: "
            f"pip install 'callboard[{engine.extra}]'"
        ) from None


def without_password(url: str) -> str:
    """The URL as errors and log lines show it."""
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{separator}{name}{colon and ':***'}{at}{host}"
