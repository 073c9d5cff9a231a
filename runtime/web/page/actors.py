"""The actors of the server, by class."""

from __future__ import annotations

from starlette.requests import Request

from ..group_list import BadParameter
from ..server_reading import actors_json
from .row import Context, Sources


async def show(sources: Sources, request: Request) -> Context:
    refuse_parameters(request)
    return {"actors": actors_json(*await sources.server.actors.read())}


def refuse_parameters(request: Request) -> None:
    """Raises BadParameter."""
    for name in request.query_params:
        raise BadParameter(f"unknown parameter {name[:100]!r}: expected none")
