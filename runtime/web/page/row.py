"""Page: a row of the table of pages, and what its function asks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request

from ..backend import Backend
from ..changing import Changing
from ..server_api import ServerApi
from ..snapshots import Snapshots
from .changes import Changes
from .trends import Trends

Context = Mapping[str, Any]
"""What a template shows, by name."""


class Sources(NamedTuple):
    """``backend`` answers about one group and about the server, ``snapshots`` about all groups.

    ``changing`` makes changes, and ``changes`` has those that were made by forms. ``lag_trends``: how fast
    lags change, and ``commit_trends``: the numbers of commits.
    ``server``: about the server itself. ``now_ms``: the time in milliseconds since 1970.
    """

    backend: Backend
    snapshots: Snapshots
    changing: Changing
    changes: Changes
    lag_trends: Trends
    commit_trends: Trends
    server: ServerApi
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000


class Page(NamedTuple):
    """A page that is read.

    ``path``: as in "/groups/{group}". ``show``: reads what ``template`` shows; it raises what the handlers of the API
    raise. ``nav``: the text of its link in the navigation; None: it has none. ``is_live``: whether a browser that shows
    the page gets it again whenever it has changed.
    """

    path: str
    template: str
    show: Callable[[Sources, Request], Awaitable[Context]]
    nav: str | None = None
    is_live: bool = True
