"""The log of the server, by partition."""

from __future__ import annotations

from starlette.requests import Request

from ..backend import Backend
from ..server_reading import log_json
from .actors import refuse_parameters
from .row import Context, Sources


async def show(sources: Sources, request: Request) -> Context:
    refuse_parameters(request)
    figures = await sources.server.reading.read_log()
    compacted = {row.name: row.files.compacted_at_ms for row in figures.partitions if row.files}
    is_in_store = await sources.backend.ask(lambda: _is_in_store(sources.backend))
    return {"log": log_json(figures), "compacted": compacted, "is_in_store": is_in_store, "now_ms": sources.now_ms()}


async def _is_in_store(backend: Backend) -> bool:
    """Whether the log is that of a cluster."""
    return backend.node().environment.cluster is not None
