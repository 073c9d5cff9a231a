"""ServerApi: what the API and the page ask and change about the server itself."""

from __future__ import annotations

from typing import NamedTuple

from .backend import Backend
from .changing import Changing
from .compacting import Compacting
from .server_reading import ActorsReading, ServerReading
from .server_settings import SettingsApi


class ServerApi(NamedTuple):
    """``reading``: the log and the audit trail. ``compacting``: compaction of the log on demand."""

    actors: ActorsReading
    reading: ServerReading
    settings: SettingsApi
    compacting: Compacting


def make_server_api(backend: Backend, changing: Changing) -> ServerApi:
    settings, compacting = SettingsApi(backend, changing), Compacting(backend, changing)
    return ServerApi(ActorsReading(backend), ServerReading(backend), settings, compacting)
