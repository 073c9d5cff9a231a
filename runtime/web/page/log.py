"""The log of the server, by partition."""

from __future__ import annotations

from starlette.requests import Request

from ..server_reading import log_json
from .actors import refuse_parameters
from .row import Context, Sources


async def show(sources: Sources, request: Request) -> Context:
    refuse_parameters(request)
    figures = await sources.server.reading.read_log()
    compacted = {row.name: row.files.compacted_at_ms for row in figures.partitions if row.files}
    return {"log": log_json(figures), "compacted": compacted, "now_ms": sources.now_ms()}
