"""A FastAPI service whose instances share background work and show its owners and progress over HTTP. No broker.

    pip install callboard fastapi uvicorn
    uvicorn --app-dir examples fastapi_service:app    # then GET /owners and /progress, PUT /tenants/acme

Without a coordinator, the background work of a web service would run in each of its instances. This instance runs the
coordinator while the application runs, with the committed offsets in a folder. It also runs two workers. More workers,
in other processes or on other machines, join by its address: ``callboard.connect(address).member("importers",
resources=...)``, with the same list of tenants.

Tenants can be added and removed at any time. A new one is assigned within a second, without a pause of the others.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Request

import callboard

log = logging.getLogger(__name__)

GROUP = "importers"
WORKERS = 2
STEP_S = 0.05


class Service:
    """The state of the application."""

    def __init__(self, coordinator: callboard.Coordinator, tenants: list[str]) -> None:
        self.coordinator = coordinator
        self.tenants = tenants
        self.members: list[callboard.Member] = []

    async def run_worker(self) -> None:
        """Run one worker. It only counts pages; a real one would import the tenant's data."""
        async with self.coordinator.member(
            GROUP, resources={"tenants": lambda: self.tenants}, client_id=f"worker-{len(self.members)}"
        ) as member:
            self.members.append(member)
            await member.run(self.do_imports)

    async def do_imports(self, shard: callboard.Shard) -> None:
        """Import one tenant's pages. Cancelled when the shard is revoked or lost."""
        page = shard.next_offset or 0
        while True:
            await asyncio.sleep(STEP_S)
            page += 1
            await shard.commit(page, note=f"page {page}")


def log_failure(worker: asyncio.Task[None]) -> None:
    """Log the error of a worker at once. The other workers continue and get its shards."""
    if not worker.cancelled() and (error := worker.exception()) is not None:
        log.error("a worker failed", exc_info=error)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with callboard.Coordinator(
        data=os.environ.get("CALLBOARD_DATA", "state"),
        listen=os.environ.get("CALLBOARD_LISTEN", "127.0.0.1:0"),
        group_initial_rebalance_delay_ms=0,  # the first member gets all shards at once; later members cause a rebalance
    ) as coordinator:
        service = app.state.service = Service(coordinator, ["acme", "zenith", "initech"])
        workers = [asyncio.create_task(service.run_worker()) for _ in range(WORKERS)]
        for worker in workers:
            worker.add_done_callback(log_failure)
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()  # it releases its shards and leaves the group
            await asyncio.gather(*workers, return_exceptions=True)


app = FastAPI(lifespan=lifespan)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


# A shard's name becomes part of a topic's name, which has a maximum length.
Name = Annotated[str, Path(pattern="^[A-Za-z0-9-]+$", max_length=100)]
Running = Annotated[Service, Depends(service_of)]


@app.get("/owners")
async def owners(service: Running) -> dict[str, dict[str, Any]]:
    """The shards of the workers in this process."""
    return {
        str(shard.name): {"member": member.member_id, "token": shard.token}
        for member in service.members
        for shard in member.shards
    }


@app.get("/members")
async def members(service: Running) -> dict[str, list[str]]:
    """All members of the group, in any process."""
    try:
        group = await service.coordinator.describe(GROUP)
    except callboard.CoordinatorError as error:
        raise HTTPException(404, str(error)) from error
    return {group.state: sorted(member.client_id for member in group.members)}


@app.get("/progress")
async def progress(service: Running) -> dict[str, str]:
    """The last committed note of each tenant, by any worker."""
    committed = await service.coordinator.progress(GROUP, "tenants")
    return {str(name): offset.metadata for name, offset in committed.items()}


@app.put("/tenants/{name}")
async def add_tenant(name: Name, service: Running) -> list[str]:
    if name not in service.tenants:
        service.tenants.append(name)
    return service.tenants


@app.delete("/tenants/{name}")
async def remove_tenant(name: Name, service: Running) -> list[str]:
    if name not in service.tenants:
        raise HTTPException(404, f"there is no tenant {name!r}")
    service.tenants.remove(name)
    return service.tenants
