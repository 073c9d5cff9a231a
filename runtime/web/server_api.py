"""ServerApi: what the API and the page ask and change about the server itself."""

from __future__ import annotations

from typing import NamedTuple

from .backend import Backend
from .changing import Changing
from .server_reading import ActorsReading, ServerReading
from .server_settings import SettingsApi


class ServerApi(NamedTuple):
    """``reading``: the log and the audit trail."""

    actors: ActorsReading
    reading: ServerReading
    settings: SettingsApi


def make_server_api(backend: Backend, changing: Changing) -> ServerApi:
    return ServerApi(ActorsReading(backend), ServerReading(backend), SettingsApi(backend, changing))
